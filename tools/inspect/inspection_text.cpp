// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include "planner/build/communicator_memory.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/plan_text.h"
#include "planner/view/text_steps.h"
#include "tools/cli/spelling.h"
#include "tools/inspect/inspection.h"

namespace cleave::tools {

using namespace planner;

namespace {

std::string range_text(const Range& range) {
    if (range.empty()) return "-";
    return range.size() == 1 ? std::to_string(range.begin)
                             : fmt::format("{}-{}", range.begin, range.end - 1);
}

class Text {
public:
    Text(const Inspection& inspection, int width, bool color)
        : i_(inspection), plan_(*inspection.plan), width_(width), color_(color) {}

    std::string run() {
        TextOptions options;
        options.color = color_;
        options.width = width_;
        options.spell = spell_for_command_line;
        out_ = plan_to_text(plan_, options);
        section(fmt::format("Prefill: {} tokens in one pass", pass_point(plan_, true).num_tokens));
        out_ += steps_text(plan_, true, false, width_);
        layers();
        memory();
        time();
        kernels();
        if (i_.measured) out_ += measured_text(plan_, *i_.measured, width_, color_);
        return out_;
    }

private:
    void section(const std::string& name) {
        out_ += "\n" + (color_ ? "\x1b[1m" + name + "\x1b[0m" : name) + "\n";
    }
    const std::string& name(DeviceId id) const { return plan_.machine.device(id).name; }

    // Consecutive devices with the same value of `of` are shown as one entry: `show` gets the first
    // one's name, the last one's, how many they are, and that value.
    template <class Of, class Show>
    void each_alike(Of of, Show show) const {
        const std::vector<DeviceInfo>& devices = plan_.machine.devices;
        for (size_t first = 0; first < devices.size();) {
            const auto common = of(first);
            size_t end = first + 1;
            while (end < devices.size() && of(end) == common) ++end;
            const std::string& name = devices[first].name;
            show(end - first == 1
                     ? name
                     : fmt::format("{} .. {} ({})", name, devices[end - 1].name, end - first),
                 common);
            first = end;
        }
    }

    void layers() {
        const int64_t count = plan_.graph.config.num_layers;
        section("Layers: what of each lies where; times of one layer in a decode pass");
        TextTable table("<<>>>>>", "  ");
        table.row({"", "", "query heads", "KV heads", "MLP features", "weights", "KV"});
        for (const LayerRun& run : i_.layers) {
            std::string which = count == 0           ? "all operators"
                                : run.first < 0      ? "before the layers"
                                : run.first >= count ? "after the layers"
                                : run.first == run.last
                                    ? fmt::format("layer {}", run.first)
                                    : fmt::format("layers {}-{}", run.first, run.last);
            table.line(fmt::format(
                "- {}, stage {}: compute {}{}", which, run.stage, time_text(run.compute_ns),
                run.exchange_ns > 0 ? ", exchange " + time_text(run.exchange_ns) : ""));
            for (const LayerShare& s : run.shares)
                table.row({"", name(s.device), range_text(s.query_heads), range_text(s.kv_heads),
                           range_text(s.mlp), bytes_text(s.weight_bytes), bytes_text(s.kv_bytes)});
        }
        out_ += table.text(width_);
    }

    using Rows = std::vector<std::vector<std::string>>;
    static void add_indented(TextTable& table, const Rows& rows) {
        for (std::vector<std::string> row : rows) {
            row[0] = "  " + row[0];
            table.row(std::move(row));
        }
    }

    Rows memory_rows(size_t device) const {
        Rows rows;
        const DeviceMemory& m = plan_.memory[device];
        const DeviceMap& map = i_.memory[device];
        constexpr size_t kShown = 8;  // of an arena; the page and the JSON have all
        const std::pair<Arena, int64_t> arenas[] = {{Arena::kWeights, m.weights},
                                                    {Arena::kKv, m.kv},
                                                    {Arena::kActivations, m.activations},
                                                    {Arena::kStaging, m.staging},
                                                    {Arena::kScratch, m.scratch}};
        for (const auto& [arena, bytes] : arenas) {
            if (bytes == 0) continue;
            const bool fullest = arena == Arena::kActivations && !map.fullest.empty();
            rows.push_back({std::string(arena_name(arena)), bytes_text(bytes),
                            fullest ? "fullest in " + map.fullest + ", with" : ""});
            size_t shown = 0;
            int64_t rest = 0, others = 0;
            for (const MemoryItem& item : map.items) {
                if (item.arena != arena || arena == Arena::kScratch) continue;
                if (shown++ < kShown) {
                    rows.push_back(
                        {"", bytes_text(item.bytes),
                         item.what + (item.buffers > 1 ? fmt::format(" x {}", item.buffers) : "")});
                } else {
                    rest += item.bytes;
                    ++others;
                }
            }
            if (others > 0) rows.push_back({"", bytes_text(rest), fmt::format("{} more", others)});
        }
        rows.push_back({"reserved", bytes_text(m.reserved), "for the driver"});
        if (m.collectives > 0)
            rows.push_back({"collectives", bytes_text(m.collectives),
                            "for " + library_name(plan_.machine.devices[device])});
        rows.push_back({"free", bytes_text(m.free()), "of " + bytes_text(m.capacity)});
        return rows;
    }

    void memory() {
        section("Memory");
        TextTable table("<><", "  ");
        each_alike([&](size_t d) { return memory_rows(d); },
                   [&](const std::string& names, const Rows& rows) {
                       table.line("- " + names);
                       add_indented(table, rows);
                   });
        out_ += table.text(width_);
    }

    void time() {
        section(fmt::format("Time of a pass: decode {}, prefill of {} tokens {}",
                            time_text(i_.pass_ns[0]), pass_point(plan_, true).num_tokens,
                            time_text(i_.pass_ns[1])));
        TextTable table("<>>>>>>", "  ");
        table.row({"", "decode computes", "exchanges", "waits", "prefill computes", "exchanges",
                   "waits"});
        const auto times = [&](size_t d) {
            std::vector<std::string> cells;
            for (bool is_prefill : {false, true}) {
                const DeviceTime& t = i_.time[is_prefill][d];
                for (int64_t ns : {t.compute_ns, t.exchange_ns, t.waiting_ns})
                    cells.push_back(time_text(ns));
            }
            return cells;
        };
        each_alike(times, [&](const std::string& names, std::vector<std::string> cells) {
            cells.insert(cells.begin(), names);
            table.row(std::move(cells));
        });
        out_ += table.text(width_);
    }

    Rows kernel_rows(size_t device, bool is_prefill) const {
        Rows rows;
        for (const KernelUse& k : i_.kernels) {
            if (k.device.index() != device || k.is_prefill != is_prefill) continue;
            // Bytes by nanoseconds are gigabytes by seconds.
            const double rate = k.predicted_ns > 0 ? static_cast<double>(k.bytes) /
                                                         static_cast<double>(k.predicted_ns)
                                                   : 0.0;
            rows.push_back(
                {k.name, std::to_string(k.launches),
                 k.predicted_ns > 0 ? time_text(k.predicted_ns) : "-",
                 k.predicted_ns > 0 ? fmt::format("{:.0f} GB/s", rate) : "",
                 k.is_gpu
                     ? fmt::format("{}x{}x{} of {}", k.grid[0], k.grid[1], k.grid[2], k.threads)
                     : fmt::format("{} items", k.grid[0]),
                 bytes_text(k.shared_bytes),
                 k.is_gpu ? fmt::format("{}/{}", k.occupancy.warps, k.occupancy.most_warps) : "-"});
        }
        return rows;
    }

    void kernels() {
        section("Kernels: launches of one pass and the predicted time of all");
        for (const std::string& why : i_.no_kernels)
            out_ += "  none for " + wrapped(why, 4, width_) + "\n";
        if (i_.kernels.empty()) return;
        TextTable table("<>>>>>>", "  ");
        table.row({"", "launches", "time", "rate", "grid", "shared", "warps"});
        each_alike([&](size_t d) { return std::pair(kernel_rows(d, false), kernel_rows(d, true)); },
                   [&](const std::string& names, const std::pair<Rows, Rows>& rows) {
                       for (const auto& [phase, of_phase] : {std::pair("decode", &rows.first),
                                                             std::pair("prefill", &rows.second)}) {
                           if (of_phase->empty()) continue;
                           table.line(fmt::format("- {}, {}", names, phase));
                           add_indented(table, *of_phase);
                       }
                   });
        out_ += table.text(width_);
        out_ += "  " +
                wrapped(
                    "Rate: bytes read and written by that time; a step of several launches counts "
                    "for its first. Grid: blocks of so many threads. Warps: of a compute unit, "
                    "without knowledge of registers.",
                    2, width_) +
                "\n";
    }

    const Inspection& i_;
    const Plan& plan_;
    int width_;
    bool color_;
    std::string out_;
};

}  // namespace

std::string inspection_text(const Inspection& inspection, int width, bool color) {
    return Text(inspection, width, color).run();
}

}  // namespace cleave::tools
