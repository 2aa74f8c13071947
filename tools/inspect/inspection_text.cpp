// SPDX-License-Identifier: Apache-2.0

#include <map>

#include <fmt/format.h>

#include "planner/build/communicator_memory.h"
#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/plan_text.h"
#include "planner/view/text_steps.h"
#include "tools/cli/spelling.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/inspection_tables.h"

namespace cleave::tools {

using namespace planner;

namespace {

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

    // Devices with the same value of `of` are shown as one entry: `show` gets their names and that
    // value, in the order of the first ones.
    template <class Of, class Show>
    void each_alike(Of of, Show show) const {
        using Value = decltype(of(size_t{}));
        std::map<Value, size_t> at;
        std::vector<std::pair<std::vector<DeviceId>, Value>> groups;
        for (size_t d = 0; d < plan_.machine.devices.size(); ++d) {
            Value value = of(d);
            const auto [found, fresh] = at.try_emplace(value, groups.size());
            if (fresh) groups.push_back({{}, std::move(value)});
            groups[found->second].first.push_back(DeviceId(d));
        }
        for (auto& [devices, value] : groups)
            show(folded_names(plan_.machine, devices), std::move(value));
    }

    void layers() {
        section("Layers: what of each is where; times of one layer in a decode pass");
        out_ += layers_text(i_, width_);
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
        constexpr size_t kMost = 3;
        section("Memory");
        TextTable table("<><", "  ");
        size_t shown = 0;
        std::vector<std::string> rest;
        each_alike([&](size_t d) { return memory_rows(d); },
                   [&](const std::string& names, const Rows& rows) {
                       if (shown++ >= kMost) return rest.push_back(names);
                       table.line("- " + names +
                                  (names.find_first_of("-,") == names.npos ? "" : ", each"));
                       add_indented(table, rows);
                   });
        if (!rest.empty())
            table.line(fmt::format("- {} of other amounts: --json and --html have them",
                                   count_text(static_cast<int64_t>(rest.size()), "more kind")));
        out_ += table.text(width_);
    }

    void time() {
        section(fmt::format("Time of a pass: decode {}, prefill of {} tokens {}",
                            time_text(i_.pass_ns[0]), pass_point(plan_, true).num_tokens,
                            time_text(i_.pass_ns[1])));
        out_ += times_text(i_, width_);
    }

    void kernels() {
        section("Kernels: launches of one pass on each device, and the predicted time of all");
        for (const std::string& why : i_.no_kernels)
            out_ += "  none for " + wrapped(why, 4, width_) + "\n";
        if (i_.kernels.empty()) return;
        out_ += kernels_text(i_, width_);
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
