// SPDX-License-Identifier: Apache-2.0
#include "planner/search/virtual_stages.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/split_mix.h"

namespace cleave::planner {
namespace {

constexpr double kStagePrice =
    2e-4;                      // a further stage must gain that part of the busiest group's time
constexpr int kMoves = 6'000;  // of one annealing; a unit or a run of them changes its group

struct Group {
    int first, count;
    ShareMode mode;
    const RangeTable* range;
};

// Which group has each unit, and what that makes of the groups' time and memory.
class Assignment {
public:
    Assignment(CostTables& tables, const StageSolution& start, const PinnedUnits& pins)
        : tables_(tables), pins_(pins), group_(tables.num_units()) {
        for (const StageSolution::Stage& s : start.stages) {
            auto known = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
                return g.first == s.first_device && g.count == s.count && g.mode == s.mode;
            });
            if (known == groups_.end()) {
                groups_.push_back({s.first_device, s.count, s.mode,
                                   &tables.range(s.first_device, s.count, s.mode)});
                known = groups_.end() - 1;
            }
            std::fill(group_.begin() + s.first_unit, group_.begin() + s.last_unit,
                      static_cast<int>(known - groups_.begin()));
        }
        fill_exchange();
    }

    int num_groups() const { return static_cast<int>(groups_.size()); }
    int num_units() const { return static_cast<int>(group_.size()); }
    int group(int unit) const { return group_[unit]; }
    void set(int unit, int group) { group_[unit] = group; }
    const std::vector<int>& groups() const { return group_; }
    void restore(const std::vector<int>& groups) { group_ = groups; }

    // Of every group. A device of the narrower side sends to several of the wider, one after the
    // other.
    void loads(std::vector<double>& load) const {
        load.assign(groups_.size(), 0);
        for (int u = 0; u < num_units(); ++u) {
            const Group& g = groups_[group_[u]];
            load[group_[u]] += static_cast<double>(g.range->cost[u + 1] - g.range->cost[u]);
            if (u == 0 || group_[u - 1] == group_[u]) continue;
            const Group& from = groups_[group_[u - 1]];
            double one = exchange(group_[u - 1], group_[u], u);
            load[group_[u]] += one;
            const auto rounds = (g.count + from.count - 1) / from.count;
            load[group_[u - 1]] += one * static_cast<double>(rounds);
        }
    }

    int num_stages() const {
        int stages = 1;
        for (int u = 1; u < num_units(); ++u) stages += group_[u] != group_[u - 1];
        return stages;
    }

    bool fits() const {
        for (size_t k = 0; k < groups_.size(); ++k) {
            const RangeTable& range = *groups_[k].range;
            for (size_t m = 0; m < range.room.size(); ++m) {
                int64_t held = 0;
                for (int u = 0; u < num_units(); ++u)
                    if (group_[u] == static_cast<int>(k)) held += range.memory_of(m, u, u + 1);
                if (held > range.room[m]) return false;
            }
        }
        return true;
    }

    // Whether the unit's pinned device is in the group.
    bool may(int unit, int group) const {
        if (pins_.empty() || !pins_[unit].valid()) return true;
        std::vector<DeviceId> devices =
            tables_.devices_of(groups_[group].first, groups_[group].count);
        return std::find(devices.begin(), devices.end(), pins_[unit]) != devices.end();
    }

    StageSolution solution() const {
        StageSolution s;
        for (int u = 0; u < num_units(); ++u) {
            const Group& g = groups_[group_[u]];
            if (u > 0 && group_[u] == group_[u - 1])
                s.stages.back().last_unit = u + 1;
            else
                s.stages.push_back({g.first, g.count, u, u + 1, g.mode});
        }
        return s;
    }

private:
    void fill_exchange() {
        exchange_.resize(groups_.size() * groups_.size());
        for (size_t a = 0; a < groups_.size(); ++a)
            for (size_t b = 0; b < groups_.size(); ++b)
                if (a != b)
                    exchange_[a * groups_.size() + b] = &tables_.crossing_costs(
                        groups_[a].first, groups_[b].first, groups_[b].count);
    }
    double exchange(int from, int to, int unit) const {
        return static_cast<double>((*exchange_[from * groups_.size() + to])[unit]);
    }

    CostTables& tables_;
    const PinnedUnits& pins_;
    std::vector<Group> groups_;
    std::vector<int> group_;  // by unit
    std::vector<const std::vector<int64_t>*> exchange_;
};

double largest(const std::vector<double>& load) {
    return *std::max_element(load.begin(), load.end());
}

double price(const Assignment& a, double scale) { return kStagePrice * scale * a.num_stages(); }

// What annealing walks on: a high norm, so that relieving any busy group counts.
double energy(const std::vector<double>& load, double scale) {
    double sum = 0;
    for (double l : load) {
        double x = l / scale, x2 = x * x, x4 = x2 * x2, x8 = x4 * x4;
        sum += x8 * x8;
    }
    return std::pow(sum, 1.0 / 16);
}

// A run of units of one group, of up to four, from `unit` on.
int run_end(const Assignment& a, int unit, int length) {
    int end = unit + 1;
    while (end < a.num_units() && end - unit < length && a.group(end) == a.group(unit)) ++end;
    return end;
}

}  // namespace

std::optional<StageSolution> interleave(CostTables& tables, const StageSolution& start,
                                        const PinnedUnits& pins, int64_t seed) {
    Assignment now(tables, start, pins);
    if (now.num_groups() < 2) return std::nullopt;
    std::vector<double> load;
    now.loads(load);
    double scale = largest(load), start_cost = scale + price(now, scale), best = start_cost;
    std::vector<int> best_groups = now.groups(), before;
    SplitMix64 random(static_cast<uint64_t>(seed) + 1);
    for (int round = 0; round < 3; ++round) {
        now.restore(best_groups);
        now.loads(load);
        double at = energy(load, scale) + price(now, scale) / scale,
               hot = round == 1 ? 0.02 : 0.004;
        for (int i = 0; i < kMoves; ++i) {
            double temperature = hot * std::pow(1e-3, static_cast<double>(i) / kMoves);
            int unit = random.below(now.num_units()), to = random.below(now.num_groups());
            int end = run_end(now, unit, 1 + random.below(4));
            // Half of the time the run goes to a neighbour's group, which costs no new transfer.
            if (int side = random.below(4); side < 2) {
                int next_to = side == 0 ? unit - 1 : end;
                if (next_to >= 0 && next_to < now.num_units()) to = now.group(next_to);
            }
            if (to == now.group(unit)) continue;
            bool allowed = true;
            for (int u = unit; u < end; ++u) allowed = allowed && now.may(u, to);
            if (!allowed) continue;
            int from = now.group(unit);
            for (int u = unit; u < end; ++u) now.set(u, to);
            now.loads(load);
            double next = energy(load, scale) + price(now, scale) / scale;
            bool taken =
                (next <= at || random.unit() < std::exp((at - next) / temperature)) && now.fits();
            if (!taken) {
                for (int u = unit; u < end; ++u) now.set(u, from);
                continue;
            }
            at = next;
            if (double cost = largest(load) + price(now, scale); cost < best * (1 - 1e-9)) {
                best = cost;
                best_groups = now.groups();
            }
        }
    }
    if (best >= start_cost * (1 - 1e-9)) return std::nullopt;
    now.restore(best_groups);
    return now.solution();
}

}  // namespace cleave::planner
