// SPDX-License-Identifier: Apache-2.0
#include "planner/view/text_devices.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "planner/build/communicator_memory.h"
#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/stage_text.h"

namespace cleave::planner {
namespace {

// A device, as the table has it.
struct DeviceRow {
    DeviceId device;
    std::vector<int64_t> stages;
    std::string layers;              // of all its stages
    int64_t num_layers = 0;          // whole ones
    Range layer_range{0, 0};         // of those, where they follow each other
    Range heads{0, 0};               // query heads of its attention
    std::array<int64_t, 7> bytes{};  // weights, KV, working, library, reserved, free, capacity
    int64_t busy_ns = 0;
    bool has_half = false;
};

constexpr size_t kCapacity = 6;  // in DeviceRow::bytes

DeviceRow row_of_device(const Plan& plan, const DeviceMemory& m) {
    DeviceRow row;
    row.device = m.device;
    bool follow = true;
    for (size_t i = 0; i < plan.stages.size(); ++i) {
        const std::vector<DeviceId>& devices = plan.stages[i].devices;
        if (std::find(devices.begin(), devices.end(), m.device) == devices.end()) continue;
        const StageLayers layers = layers_of(plan, i);
        row.stages.push_back(static_cast<int64_t>(i));
        row.layers += (row.layers.empty() ? "" : ", ") + layers.text();
        row.has_half = row.has_half || layers.has_halves();
        if (layers.whole() <= 0) continue;
        follow = follow && row.num_layers == 0;
        row.num_layers += layers.whole();
        row.layer_range = {layers.first, layers.last + 1};
    }
    if (!follow) row.layer_range = {0, 0};
    row.bytes = {m.weights,     m.kv,       m.activations + m.staging + m.scratch,
                 m.collectives, m.reserved, m.free(),
                 m.capacity};
    const auto& busy = plan.prediction.decode_busy_ns;
    if (m.device.index() < busy.size()) row.busy_ns = busy[m.device.index()];
    return row;
}

// Rows whose key is the same, in the order of their first ones.
template <class Key>
std::vector<std::vector<size_t>> groups_by(const std::vector<DeviceRow>& rows, Key key) {
    std::map<decltype(key(rows[0])), size_t> at;
    std::vector<std::vector<size_t>> groups;
    for (size_t i = 0; i < rows.size(); ++i) {
        const auto [found, fresh] = at.try_emplace(key(rows[i]), groups.size());
        if (fresh) groups.emplace_back();
        groups[found->second].push_back(i);
    }
    return groups;
}

// Alike: what is shown of them differs in names, layers, heads and little of their times. Of very
// many kinds, those with as many layers, then those with as much memory, are one row with ranges.
std::vector<std::vector<size_t>> alike(const Plan& plan, const std::vector<DeviceRow>& rows,
                                       size_t most) {
    const auto model = [&](const DeviceRow& r) { return plan.machine.device(r.device).model; };
    auto groups = groups_by(rows, [&](const DeviceRow& r) {
        std::vector<std::string> shown;
        for (int64_t bytes : r.bytes) shown.push_back(bytes_text(bytes));
        return std::tuple(shown, r.stages.size(), r.num_layers, r.heads.size(),
                          r.has_half ? r.layers : "");
    });
    if (groups.size() > most)
        groups = groups_by(rows, [&](const DeviceRow& r) {
            return std::tuple(model(r), r.bytes[kCapacity], r.stages.size(), r.num_layers,
                              r.heads.size());
        });
    if (groups.size() > most)
        groups = groups_by(rows, [&](const DeviceRow& r) {
            return std::tuple(model(r), r.bytes[kCapacity], r.stages.empty());
        });
    return groups;
}

template <class Show>
std::string spanned(const std::vector<int64_t>& values, Show show) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return span_text(show(*least), show(*most));
}

class AlikeDevices {
public:
    AlikeDevices(const Plan& plan, const std::vector<DeviceRow>& rows,
                 const std::vector<size_t>& members)
        : plan_(plan) {
        for (const size_t i : members) members_.push_back(&rows[i]);
    }

    std::vector<std::string> cells() const {
        std::vector<DeviceId> devices;
        for (const DeviceRow* r : members_) devices.push_back(r->device);
        std::vector<std::string> cells{folded_names(plan_.machine, devices), stages(), layers(),
                                       heads()};
        for (size_t b = 0; b < first().bytes.size(); ++b)
            cells.push_back(spanned(values([b](const DeviceRow& r) { return r.bytes[b]; }),
                                    [](int64_t bytes) { return bytes_text(bytes); }));
        const std::vector<int64_t> busy = values([](const DeviceRow& r) { return r.busy_ns; });
        const int64_t pass = plan_.prediction.decode_ns_per_token;
        cells.push_back(pass > 0 ? spanned(busy, [](int64_t ns) { return time_text(ns); }) : "");
        cells.push_back(pass > 0 ? spanned(busy,
                                           [&](int64_t ns) {
                                               return fmt::format("{:.0f} %",
                                                                  100 * static_cast<double>(ns) /
                                                                      static_cast<double>(pass));
                                           })
                                 : "");
        return cells;
    }

private:
    const DeviceRow& first() const { return *members_.front(); }
    template <class Of>
    std::vector<int64_t> values(Of of) const {
        std::vector<int64_t> all;
        for (const DeviceRow* r : members_) all.push_back(of(*r));
        return all;
    }

    std::string stages() const {
        std::set<int64_t> all;
        for (const DeviceRow* r : members_) all.insert(r->stages.begin(), r->stages.end());
        return all.empty() ? "-" : folded_numbers({all.begin(), all.end()});
    }

    std::string layers() const {
        bool same = true, follow = true;
        int64_t begin = INT64_MAX, end = 0;
        for (const DeviceRow* r : members_) {
            same = same && r->layers == first().layers;
            follow = follow && !r->has_half && !r->layer_range.empty();
            begin = std::min(begin, r->layer_range.begin);
            end = std::max(end, r->layer_range.end);
        }
        if (same) return first().layers.empty() ? "-" : first().layers;
        const std::string each = spanned(values([](const DeviceRow& r) { return r.num_layers; }),
                                         [](int64_t n) { return std::to_string(n); }) +
                                 " each";
        return follow ? fmt::format("{}, {}", first_to_last(begin, end - 1), each) : each;
    }

    std::string heads() const {
        int64_t begin = INT64_MAX, end = 0;
        bool same = true;
        for (const DeviceRow* r : members_) {
            same =
                same && r->heads.begin == first().heads.begin && r->heads.end == first().heads.end;
            if (r->heads.empty()) continue;
            begin = std::min(begin, r->heads.begin);
            end = std::max(end, r->heads.end);
        }
        if (end == 0) return "-";
        const std::string range = first_to_last(begin, end - 1);
        return same ? range
                    : fmt::format("{}, {} each", range,
                                  spanned(values([](const DeviceRow& r) { return r.heads.size(); }),
                                          [](int64_t n) { return std::to_string(n); }));
    }

    const Plan& plan_;
    std::vector<const DeviceRow*> members_;
};

}  // namespace

std::string devices_text(const Plan& plan, int width, size_t most) {
    // The query heads whose attention is there, of the first layer that has it.
    std::map<DeviceId, Range> heads;
    for (const Step& s : plan.decode.steps)
        if (const Compute* c = s.compute(); c && c->kernel == KernelKind::kAttention)
            heads.try_emplace(c->device, c->heads);
    std::vector<DeviceRow> rows;
    std::set<std::string> libraries;
    for (const DeviceMemory& m : plan.memory) {
        rows.push_back(row_of_device(plan, m));
        if (const auto found = heads.find(m.device); found != heads.end())
            rows.back().heads = found->second;
        if (m.collectives > 0) libraries.insert(library_name(plan.machine.device(m.device)));
    }
    TextTable table("<><<>>>>>>>>>", "  ");
    // A column of the library's buffers, where there are any, has its name.
    std::string library;
    for (const std::string& name : libraries) library += (library.empty() ? "" : ", ") + name;
    table.row({"", "stage", "layers", "heads", "weights", "KV", "working", library, "reserved",
               "free", "capacity", "a pass", "busy"});
    table.may_drop({3, 12, 8, 11, 6, 1, 2});
    for (const std::vector<size_t>& members : alike(plan, rows, most)) {
        std::vector<std::string> cells = AlikeDevices(plan, rows, members).cells();
        if (library.empty()) cells[7].clear();
        table.row(std::move(cells));
    }
    return table.text(width);
}

std::string links_text(const Plan& plan, int width, size_t most) {
    // Links that carry as much and are as fast are one row.
    struct Alike {
        std::set<DeviceId> from, to;
        size_t count = 0;
    };
    std::map<std::tuple<int64_t, int64_t, int64_t, int>, Alike> groups;  // busiest first
    for (const auto& [pair, bytes] : link_traffic(plan, false)) {
        const Link* link = plan.machine.link(pair.first, pair.second);
        Alike& group = groups[{-bytes, link ? -link->bandwidth : 0, link ? link->latency_ns : 0,
                               link ? static_cast<int>(link->kind) : -1}];
        ++group.count;
        group.from.insert(pair.first);
        group.to.insert(pair.second);
    }
    const auto names = [&](const std::set<DeviceId>& devices) {
        return folded_names(plan.machine, {devices.begin(), devices.end()});
    };
    // The part of a pass that a link's bytes take at its rate.
    const auto busy = [&](int64_t bytes, int64_t rate) -> std::string {
        const auto pass = static_cast<double>(plan.prediction.decode_ns_per_token);
        if (pass <= 0 || rate <= 0) return "";
        const double share = static_cast<double>(bytes) / static_cast<double>(rate) * 1e9 / pass;
        return fmt::format("{:.2g} %", 100 * share);
    };
    TextTable table("<>>>>><", "  ");
    table.row({"", "links", "a pass, each", "rate", "busy", "latency", "kind"});
    size_t shown = 0, rest = 0;
    for (const auto& [key, group] : groups) {
        if (shown++ >= most) {
            rest += group.count;
            continue;
        }
        const auto [bytes, bandwidth, latency, kind] = key;
        table.row({group.from == group.to
                       ? "among " + names(group.from)
                       : fmt::format("{} -> {}", names(group.from), names(group.to)),
                   std::to_string(group.count), bytes_text(-bytes),
                   kind >= 0 ? bytes_text(-bandwidth) + "/s" : "", busy(-bytes, -bandwidth),
                   kind >= 0 ? time_text(latency) : "",
                   kind >= 0 ? std::string(link_kind_name(static_cast<LinkKind>(kind)))
                             : "staged by the hosts"});
    }
    if (rest > 0) table.line(fmt::format("and {} more, none busier", rest));
    return table.text(width);
}

Fullest fullest(const Plan& plan) {
    Fullest most;
    std::vector<DeviceId> devices;
    double share = -1;
    for (const DeviceMemory& m : plan.memory) {
        const double used =
            m.capacity > 0 ? static_cast<double>(m.needed()) / static_cast<double>(m.capacity) : 0;
        // Those that round alike are as full.
        const bool as_full = !devices.empty() &&
                             bytes_text(m.needed()) == bytes_text(most.needed) &&
                             bytes_text(m.capacity) == bytes_text(most.capacity);
        if (as_full) {
            devices.push_back(m.device);
            most.needed = std::max(most.needed, m.needed());
        } else if (used > share) {
            devices = {m.device};
            most.needed = m.needed();
            most.capacity = m.capacity;
        }
        share = std::max(share, used);
    }
    most.devices = folded_names(plan.machine, devices);
    most.count = devices.size();
    return most;
}

}  // namespace cleave::planner
