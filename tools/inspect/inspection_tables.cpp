// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/inspection_tables.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/build/communicator_memory.h"
#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"

namespace cleave::tools {

using namespace planner;

namespace {

// Numbers of alike rows, shown as one or from the least to the most.
class Span {
public:
    void add(int64_t value) {
        least_ = std::min(least_, value);
        most_ = std::max(most_, value);
    }
    int64_t least() const { return least_; }
    int64_t most() const { return most_; }
    template <class Show>
    std::string text(Show show) const {
        return span_text(show(least_), show(most_));
    }

private:
    int64_t least_ = INT64_MAX, most_ = INT64_MIN;
};

std::string range_text(int64_t begin, int64_t end) {
    return end - begin == 1 ? std::to_string(begin) : fmt::format("{}-{}", begin, end - 1);
}

// Heads or features of alike devices: all of them together, and those of each.
class Parts {
public:
    void add(const Range& range) {
        each_.add(range.empty() ? 0 : range.size());
        if (range.empty()) return;
        begin_ = std::min(begin_, range.begin);
        end_ = std::max(end_, range.end);
    }
    std::string text() const {
        if (end_ == 0) return "-";
        const std::string each = each_.text([](int64_t n) { return std::to_string(n); });
        const std::string all = range_text(begin_, end_);
        return each_.least() == end_ - begin_ ? all : fmt::format("{}, {} each", all, each);
    }

private:
    Span each_;
    int64_t begin_ = INT64_MAX, end_ = 0;
};

// Shares of layers that are as large: one row.
struct ShareRow {
    std::set<DeviceId> devices;
    Parts query_heads, kv_heads, mlp;
    std::string weights, kv;
};

// Layers whose shares are as large.
struct LayerRows {
    std::vector<int64_t> layers, stages;
    std::string place;  // before or behind the layers
    Span compute, exchange;
    std::vector<ShareRow> rows;
};

using ShareKey = std::tuple<int64_t, int64_t, int64_t, std::string, std::string>;
ShareKey key_of(const LayerShare& s) {
    return {s.query_heads.size(), s.kv_heads.size(), s.mlp.size(), bytes_text(s.weight_bytes),
            bytes_text(s.kv_bytes)};
}

class LayersTable {
public:
    explicit LayersTable(const Inspection& inspection) : plan_(*inspection.plan) {
        for (const LayerRun& run : inspection.layers) add(run);
    }

    std::string text(int width) const {
        TextTable table("<<<<>>", "  ");
        table.row({"", "query heads", "KV heads", "MLP features", "weights", "KV"});
        for (const LayerRows& rows : rows_) {
            table.line(head(rows));
            for (const ShareRow& row : rows.rows)
                table.row(
                    {"  " + folded_names(plan_.machine, {row.devices.begin(), row.devices.end()}),
                     row.query_heads.text(), row.kv_heads.text(), row.mlp.text(), row.weights,
                     row.kv});
        }
        table.may_drop({2});
        return table.text(width);
    }

private:
    void add(const LayerRun& run) {
        const int64_t count = plan_.graph.config.num_layers;
        const std::string place = count == 0           ? "all operators"
                                  : run.first < 0      ? "before the layers"
                                  : run.first >= count ? "behind the layers"
                                                       : "";
        std::map<ShareKey, int64_t> sizes;
        for (const LayerShare& s : run.shares) ++sizes[key_of(s)];
        const auto key = std::tuple(place, sizes);
        const auto [found, fresh] = at_.try_emplace(key, rows_.size());
        if (fresh) rows_.push_back({{}, {}, place, {}, {}, {}});
        LayerRows& rows = rows_[found->second];
        for (int64_t layer = run.first; layer <= run.last; ++layer) rows.layers.push_back(layer);
        if (rows.stages.empty() || rows.stages.back() != run.stage)
            rows.stages.push_back(run.stage);
        rows.compute.add(run.compute_ns);
        rows.exchange.add(run.exchange_ns);
        rows.rows.resize(sizes.size());
        for (const LayerShare& s : run.shares) {
            ShareRow& row =
                rows.rows[static_cast<size_t>(std::distance(sizes.begin(), sizes.find(key_of(s))))];
            row.devices.insert(s.device);
            row.query_heads.add(s.query_heads);
            row.kv_heads.add(s.kv_heads);
            row.mlp.add(s.mlp);
            row.weights = bytes_text(s.weight_bytes);
            row.kv = bytes_text(s.kv_bytes);
        }
    }

    static std::string head(const LayerRows& rows) {
        std::string text = "- ";
        text += !rows.place.empty() ? rows.place
                                    : fmt::format("layer{} {}", rows.layers.size() == 1 ? "" : "s",
                                                  folded_numbers(rows.layers));
        text += fmt::format(", stage{} {}: compute {}", rows.stages.size() == 1 ? "" : "s",
                            folded_numbers(rows.stages), rows.compute.text(time_text));
        if (rows.exchange.most() > 0) text += ", exchange " + rows.exchange.text(time_text);
        return text;
    }

    const Plan& plan_;
    std::map<std::tuple<std::string, std::map<ShareKey, int64_t>>, size_t> at_;
    std::vector<LayerRows> rows_;
};

// Of a device's memory: what is less is not listed, and makes no group of its own.
bool counts(int64_t bytes, const DeviceMemory& memory) { return bytes * 100 >= memory.needed(); }

// What the memory of devices holds that hold the same things.
class HeldMemory {
public:
    HeldMemory(const Inspection& inspection, const std::vector<DeviceId>& devices)
        : inspection_(inspection), plan_(*inspection.plan), devices_(devices) {}

    void add_to(TextTable& table) const {
        table.line(fmt::format("- {}{}", folded_names(plan_.machine, devices_),
                               devices_.size() > 1 ? ", each" : ""));
        add_arena(table, Arena::kWeights, &DeviceMemory::weights);
        add_arena(table, Arena::kKv, &DeviceMemory::kv);
        add_arena(table, Arena::kActivations, &DeviceMemory::activations);
        add_arena(table, Arena::kStaging, &DeviceMemory::staging);
        add_arena(table, Arena::kScratch, &DeviceMemory::scratch);
        table.row({"  reserved", span(&DeviceMemory::reserved), "for the driver"});
        if (first().collectives > 0)
            table.row({"  collectives", span(&DeviceMemory::collectives),
                       "for " + library_name(plan_.machine.device(devices_[0]))});
        table.row({"  free", free(), "of " + span(&DeviceMemory::capacity)});
    }

private:
    const DeviceMemory& of(DeviceId device) const { return plan_.memory[device.index()]; }
    const DeviceMemory& first() const { return of(devices_[0]); }
    const DeviceMap& map(DeviceId device) const { return inspection_.memory[device.index()]; }

    std::string span(int64_t DeviceMemory::* bytes) const {
        Span all;
        for (const DeviceId device : devices_) all.add(of(device).*bytes);
        return all.text(bytes_text);
    }
    std::string free() const {
        Span all;
        for (const DeviceId device : devices_) all.add(of(device).free());
        return all.text(bytes_text);
    }

    // The largest items of an arena; the page and the JSON have all.
    void add_arena(TextTable& table, Arena arena, int64_t DeviceMemory::* bytes) const {
        constexpr size_t kShown = 5;
        if (first().*bytes == 0) return;
        const bool lives = arena == Arena::kActivations && !map(devices_[0]).fullest.empty();
        table.row({"  " + std::string(arena_name(arena)), span(bytes),
                   lives ? "fullest in " + map(devices_[0]).fullest + ", with" : ""});
        if (arena == Arena::kScratch || !counts(first().*bytes, first())) return;
        size_t shown = 0;
        int64_t rest = 0, others = 0;
        const std::vector<MemoryItem>& items = map(devices_[0]).items;
        for (const MemoryItem& item : items) {
            if (item.arena != arena) continue;
            if (shown++ < kShown) {
                table.row({"", item_span(item), item_text(item)});
            } else {
                rest += item.bytes;
                ++others;
            }
        }
        if (others > 0) table.row({"", bytes_text(rest), fmt::format("{} more", others)});
    }

    // The same thing on the other devices; activations are those of the first.
    const MemoryItem* same(DeviceId device, const MemoryItem& item) const {
        if (item.arena == Arena::kActivations) return nullptr;
        const std::vector<MemoryItem>& items = map(device).items;
        const auto found = std::find_if(items.begin(), items.end(), [&](const MemoryItem& other) {
            return other.arena == item.arena && other.what == item.what;
        });
        return found == items.end() ? nullptr : &*found;
    }
    std::string item_span(const MemoryItem& item) const {
        Span bytes;
        bytes.add(item.bytes);
        for (const DeviceId device : devices_)
            if (const MemoryItem* other = same(device, item)) bytes.add(other->bytes);
        return bytes.text(bytes_text);
    }
    std::string item_text(const MemoryItem& item) const {
        Span buffers;
        buffers.add(item.buffers);
        for (const DeviceId device : devices_)
            if (const MemoryItem* other = same(device, item)) buffers.add(other->buffers);
        return buffers.most() > 1
                   ? fmt::format("{} x {}", item.what,
                                 buffers.text([](int64_t n) { return std::to_string(n); }))
                   : item.what;
    }

    const Inspection& inspection_;
    const Plan& plan_;
    const std::vector<DeviceId>& devices_;
};

// A kernel of one phase on all the devices that launch it.
struct KernelRow {
    const KernelUse* first = nullptr;
    std::vector<DeviceId> devices;
    std::vector<std::string> operators;
    Span launches, time, rate, grid;
};

// "{q,k,v}_proj", as a shell writes it.
std::string braced(const std::vector<std::string>& names) {
    const std::string suffix = names[0].substr(std::min(names[0].rfind('_'), names[0].size()));
    if (names.size() == 1 || suffix.empty() ||
        !std::ranges::all_of(names, [&](const auto& name) { return name.ends_with(suffix); }))
        return fmt::format("{}", fmt::join(names, " "));
    std::vector<std::string> heads;
    for (const std::string& name : names)
        heads.push_back(name.substr(0, name.size() - suffix.size()));
    return fmt::format("{{{}}}{}", fmt::join(heads, ","), suffix);
}

// "512 of 128", "48x2 of 512".
std::string grid_text(const std::string& first, const KernelUse& k) {
    std::string grid = first;
    if (k.grid[1] > 1 || k.grid[2] > 1) grid += fmt::format("x{}", k.grid[1]);
    if (k.grid[2] > 1) grid += fmt::format("x{}", k.grid[2]);
    return fmt::format("{} of {}", grid, k.threads);
}

std::string of_what(const KernelRow& row) {
    if (!row.operators.empty()) return braced(row.operators);
    // The kernel's name has the others.
    return row.first->fused.empty() ? row.first->name : row.first->fused.front();
}

std::vector<KernelRow> kernel_rows(const Inspection& inspection, bool is_prefill) {
    std::map<std::pair<std::string, std::string>, size_t> at;  // arch, kernel
    std::vector<KernelRow> rows;
    for (const KernelUse& k : inspection.kernels) {
        if (k.is_prefill != is_prefill) continue;
        const auto [found, fresh] = at.try_emplace({k.arch, k.name}, rows.size());
        if (fresh) rows.push_back({&k, {}, {}, {}, {}, {}, {}});
        KernelRow& row = rows[found->second];
        row.devices.push_back(k.device);
        for (const std::string& name : k.operators)
            if (std::find(row.operators.begin(), row.operators.end(), name) == row.operators.end())
                row.operators.push_back(name);
        row.launches.add(k.launches);
        row.time.add(k.predicted_ns);
        row.grid.add(k.grid[0]);
        // Bytes by nanoseconds are gigabytes by seconds.
        row.rate.add(k.predicted_ns > 0 ? k.bytes / k.predicted_ns : 0);
    }
    return rows;
}

// Reads that the memory could not give: those of keys and values, which each query counts.
bool is_faster_than_memory(const Machine& machine, const KernelRow& row) {
    return std::ranges::any_of(row.devices, [&](DeviceId d) {
        const double most = static_cast<double>(machine.device(d).memory_bandwidth);
        return most > 0 && 1e9 * static_cast<double>(row.rate.most()) > 1.05 * most;
    });
}

}  // namespace

std::string layers_text(const Inspection& inspection, int width) {
    return LayersTable(inspection).text(width);
}

std::string memory_text(const Inspection& inspection, int width) {
    constexpr size_t kMost = 3;
    const Plan& plan = *inspection.plan;
    // Devices whose memory holds the same things, whatever their sizes.
    std::map<std::string, size_t> at;
    std::vector<std::vector<DeviceId>> groups;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        std::string key = plan.machine.devices[d].model;
        for (const MemoryItem& item : inspection.memory[d].items)
            if (item.arena != Arena::kActivations && counts(item.bytes, plan.memory[d]))
                key += "\n" + item.what;
        const auto [found, fresh] = at.try_emplace(key, groups.size());
        if (fresh) groups.emplace_back();
        groups[found->second].emplace_back(d);
    }
    TextTable table("<><", "  ");
    for (size_t g = 0; g < std::min(kMost, groups.size()); ++g)
        HeldMemory(inspection, groups[g]).add_to(table);
    if (groups.size() > kMost)
        table.line(
            fmt::format("- {} that hold other things: --json and --html have them",
                        count_text(static_cast<int64_t>(groups.size() - kMost), "more kind")));
    return table.text(width);
}

std::string times_text(const Inspection& inspection, int width) {
    constexpr size_t kMost = 16;
    const std::vector<DeviceInfo>& devices = inspection.plan->machine.devices;
    using Cells = std::vector<std::string>;
    std::map<Cells, size_t> at;
    struct Row {
        std::vector<DeviceId> devices;
        std::array<Span, 6> spans;
    };
    std::vector<Row> rows;
    const auto times = [&](size_t d) {
        std::array<int64_t, 6> all{};
        for (const bool is_prefill : {false, true}) {
            const DeviceTime& t = inspection.time[is_prefill][d];
            const std::array of{t.compute_ns, t.exchange_ns, t.waiting_ns};
            std::copy(of.begin(), of.end(), all.begin() + (is_prefill ? 3 : 0));
        }
        return all;
    };
    // By what is shown of them; where that is too much, all of a stage's size together.
    for (const bool exact : {true, false}) {
        at.clear();
        rows.clear();
        for (size_t d = 0; d < devices.size(); ++d) {
            Cells key{devices[d].model};
            for (const int64_t ns : times(d)) key.push_back(exact ? time_text(ns) : "");
            const auto [found, fresh] = at.try_emplace(key, rows.size());
            if (fresh) rows.emplace_back();
            Row& row = rows[found->second];
            row.devices.emplace_back(d);
            for (size_t i = 0; i < row.spans.size(); ++i) row.spans[i].add(times(d)[i]);
        }
        if (rows.size() <= kMost) break;
    }
    TextTable table("<>>>>>>", "  ");
    table.row(
        {"", "decode computes", "exchanges", "waits", "prefill computes", "exchanges", "waits"});
    table.may_drop({6, 3});
    for (const Row& row : rows) {
        Cells cells{folded_names(inspection.plan->machine, row.devices)};
        for (const Span& span : row.spans) cells.push_back(span.text(time_text));
        table.row(std::move(cells));
    }
    return table.text(width);
}

std::string kernels_text(const Inspection& inspection, int width) {
    const Machine& machine = inspection.plan->machine;
    const auto number = [](int64_t n) { return std::to_string(n); };
    std::string text;
    for (const bool is_prefill : {false, true}) {
        TextTable table("<<<>>>>>>", "  ");
        table.row({is_prefill ? "prefill" : "decode", "kernel", "on", "launches", "time", "rate",
                   "grid", "shared", "warps"});
        for (const KernelRow& row : kernel_rows(inspection, is_prefill)) {
            const KernelUse& k = *row.first;
            const bool timed = row.time.most() > 0;
            table.row(
                {of_what(row), k.name,
                 row.devices.size() == machine.devices.size()
                     ? (machine.devices.size() == 1 ? "" : "all")
                     : folded_names(machine, row.devices),
                 row.launches.text(number), timed ? row.time.text(time_text) : "-",
                 !timed                                ? ""
                 : is_faster_than_memory(machine, row) ? "cached"
                                                       : row.rate.text(number) + " GB/s",
                 k.is_gpu ? grid_text(row.grid.text(number), k) : row.grid.text(number) + " items",
                 bytes_text(k.shared_bytes),
                 k.is_gpu ? fmt::format("{}/{}", k.occupancy.warps, k.occupancy.most_warps) : "-"});
        }
        table.may_drop({8, 7, 6, 5});
        text += (text.empty() ? "" : "\n") + table.text(width);
    }
    return text;
}

}  // namespace cleave::tools
