// SPDX-License-Identifier: Apache-2.0
#include "planner/search/stage_search.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace cleave::planner {
namespace {

constexpr int64_t kImpossible = INT64_MAX / 4;
constexpr int kAnywhere = 8;

// State: `stages` stages done (when their number is forced; 0 otherwise), `device` devices passed,
// `unit` units placed.
struct Cell {
    int64_t cost = kImpossible;
    int from_device = -1, from_unit = -1;  // -1: a skipped device came last
    ShareMode mode = ShareMode::kBySpeed;
};

class Programme {
public:
    Programme(CostTables& tables, const std::vector<Unit>& units, const StageQuery& query)
        : tables_(tables),
          query_(query),
          devices_(tables.num_devices()),
          units_(tables.num_units()),
          layers_(query.pipeline_stages > 0 ? query.pipeline_stages : 0),
          may_cut_(units_ + 1, 1) {
        find_pins();
        if (!query.whole_layers) return;
        for (int u = 1; u < units_; ++u)
            may_cut_[u] =
                units[u].first_layer < 0 || units[u].first_layer != units[u - 1].last_layer;
    }

    std::optional<StageSolution> run(const std::vector<int>& degrees) {
        cells_.assign(static_cast<size_t>(layers_ + 1) * (devices_ + 1) * (units_ + 1), {});
        cell(0, 0, 0).cost = 0;
        for (int d = 1; d <= devices_; ++d)
            for (int s = 0; s <= layers_; ++s) {
                if (query_.may_skip)
                    for (int u = 0; u <= units_; ++u)
                        if (cell(s, d - 1, u).cost < cell(s, d, u).cost)
                            cell(s, d, u) = {cell(s, d - 1, u).cost, -1, -1};
                if (layers_ > 0 && s == 0) continue;
                for (int t : degrees)
                    if (t <= d && may_begin(d - t, t)) close_stages(s, d, t);
            }
        return trace();
    }

private:
    Cell& cell(int stages, int device, int unit) {
        return cells_[(static_cast<size_t>(stages) * (devices_ + 1) + device) * (units_ + 1) +
                      unit];
    }

    // Of very many devices wide stages begin where a host does, or behind others as wide.
    bool may_begin(int first, int count) const {
        return devices_ <= kManyDevices || count <= kAnywhere || tables_.begins_host(first) ||
               first % count == 0;
    }

    // All stages on devices [d - t, d): for each end, the best beginning in the window that fits.
    void close_stages(int s, int d, int t) {
        if (tables_.repeats(d - t, t)) return;  // a device returns, but not within a stage
        close_stages(s, d, t, ShareMode::kBySpeed);
        if (t > 1 && tables_.unequal(d - t, t)) close_stages(s, d, t, ShareMode::kByMemory);
    }

    void close_stages(int s, int d, int t, ShareMode mode) {
        const RangeTable& range = tables_.range(d - t, t, mode);
        int before = layers_ > 0 ? s - 1 : 0;
        int64_t fan = query_.fan_out ? t : 1;
        const std::vector<int64_t>& entries = tables_.entry_costs(d - t, t);
        // Sending on what crosses keeps the last device busy too; the next range is not known yet,
        // its link nearly is.
        const std::vector<int64_t>* exits = d < devices_ ? &tables_.entry_costs(d, 1) : nullptr;
        const int64_t* costs = range.cost.data();
        const Cell* from = &cell(before, d - t, 0);
        Cell* to = &cell(s, d, 0);
        window_.clear();
        size_t first = 0;  // of the window
        int low = 0;
        for (int end = 1; end <= units_; ++end) {
            int begin = end - 1;
            low = std::max(low, earliest(end, d - t, d));
            if (may_cut_[begin] || begin == 0) {
                int64_t base = from[begin].cost;
                if (base < kImpossible) {
                    int64_t value = base - costs[begin] + entries[begin] * fan;
                    while (window_.size() > first && window_.back().first > value)
                        window_.pop_back();
                    window_.emplace_back(value, begin);
                }
            }
            if (!query_.ignore_memory) low = std::max(low, range.first_fit[end]);
            if (query_.cap != INT64_MAX) {
                int64_t exit = exits && end < units_ ? (*exits)[end] : 0;
                while (low < end &&
                       costs[end] - costs[low] + entries[low] * fan + exit > query_.cap)
                    ++low;
            }
            while (first < window_.size() && window_[first].second < low) ++first;
            if (first == window_.size() || (!may_cut_[end] && end != units_)) continue;
            int64_t cost = window_[first].first + costs[end] + query_.device_cost * t;
            if (cost < to[end].cost) to[end] = {cost, d - t, window_[first].second, mode};
        }
    }

    // The place of each unit's pinned device in the order, and where the pins of two devices must
    // be parted.
    void find_pins() {
        if (!query_.pins || query_.pins->empty()) return;
        place_.assign(units_, -1);
        part_.assign(units_ + 1, 0);
        int last = -1;  // unit with a pin
        for (int u = 0; u < units_; ++u) {
            part_[u + 1] = part_[u];
            DeviceId pin = (*query_.pins)[u];
            if (!pin.valid()) continue;
            // A device to which the pins return is in the order again, behind those between.
            auto from = tables_.order().begin() + (last >= 0 ? place_[last] : 0);
            auto at = std::find(from, tables_.order().end(), pin);
            if (at == tables_.order().end())
                at = std::find(tables_.order().begin(), tables_.order().end(), pin);
            place_[u] = static_cast<int>(at - tables_.order().begin());
            if (last >= 0 && place_[last] != place_[u]) part_[u + 1] = last + 1;
            last = u;
        }
    }

    // The first unit with which a stage on devices [from, to) may begin to end before `end`, as far
    // as pins go; `end` where its last unit belongs elsewhere. Never falls as `end` grows, if
    // earlier answers are kept.
    int earliest(int end, int from, int to) const {
        if (place_.empty()) return 0;
        int place = place_[end - 1];
        return place >= 0 && (place < from || place >= to) ? end : part_[end];
    }

    std::optional<StageSolution> trace() {
        if (cell(layers_, devices_, units_).cost >= kImpossible) return std::nullopt;
        StageSolution solution;
        solution.sum = cell(layers_, devices_, units_).cost;
        int s = layers_, d = devices_, u = units_;
        while (u > 0) {
            Cell at = cell(s, d, u);
            if (at.from_device < 0) {
                --d;
                continue;
            }
            solution.stages.push_back(
                {at.from_device, d - at.from_device, at.from_unit, u, at.mode});
            const RangeTable& range = tables_.range(at.from_device, d - at.from_device, at.mode);
            int64_t entry = tables_.entry_costs(at.from_device, d - at.from_device)[at.from_unit];
            int64_t exit = u < units_ && d < devices_ ? tables_.entry_costs(d, 1)[u] : 0;
            solution.largest =
                std::max(solution.largest, range.cost[u] - range.cost[at.from_unit] + entry + exit);
            d = at.from_device;
            u = at.from_unit;
            if (layers_ > 0) --s;
        }
        std::reverse(solution.stages.begin(), solution.stages.end());
        return solution;
    }

    CostTables& tables_;
    const StageQuery& query_;
    int devices_, units_, layers_;
    std::vector<char> may_cut_;
    std::vector<int> place_, part_;  // by unit; by end of a stage
    std::vector<Cell> cells_;
    // Of the stages being closed: (cost up to the beginning, beginning), costs increasing.
    std::vector<std::pair<int64_t, int>> window_;
};

}  // namespace

std::vector<int> tensor_parallel_degrees(int devices, bool allowed) {
    std::vector<int> degrees;
    const auto few = [](int t) {  // of the many: 96, 128, 192, 256, ...
        const auto number = static_cast<unsigned>(t);
        return std::has_single_bit(number) || (t % 3 == 0 && std::has_single_bit(number / 3));
    };
    for (int t = 1; t <= devices; ++t)
        if (t == 1 ||
            (allowed && (t <= 16 || (t % 8 == 0 && (t <= kManyDevices || few(t))) || t == devices)))
            degrees.push_back(t);
    return degrees;
}

std::optional<StageSolution> best_stages(CostTables& tables, const std::vector<Unit>& units,
                                         const StageQuery& query) {
    std::vector<int> degrees{query.tensor_parallel};
    if (query.tensor_parallel == 0)
        degrees = tensor_parallel_degrees(tables.num_devices(), query.may_split);
    return Programme(tables, units, query).run(degrees);
}

}  // namespace cleave::planner
