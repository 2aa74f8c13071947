// SPDX-License-Identifier: Apache-2.0
#include "planner/search/propose.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "planner/cost/link_times.h"
#include "planner/cost/simulate.h"
#include "planner/machine/device_names.h"
#include "planner/metis/metis.h"
#include "planner/plan/foreign_op.h"
#include "planner/search/device_order.h"
#include "planner/search/simplicity.h"
#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {
namespace {

constexpr int64_t kDeviceCost = int64_t{1} << 52;  // more than any time: fewest devices first
// Of an open shape on few devices, the most stages that are asked for by their number.
constexpr int kMostStages = 6;

class Proposer {
public:
    Proposer(const Analysis& a, const Machine& machine, const Workload& workload,
             const PlanOptions& options, const Shape& shape, int64_t slack)
        : a_(a),
          machine_(machine),
          workload_(workload),
          options_(options),
          shape_(shape),
          slack_(slack) {
        for (const importer::Op& op : a.graph.ops)
            may_split_ = may_split_ && !stays_on_one_device(op);
    }

    Proposals grids() {
        grids_alone_ = true;
        over_orders(user_order(machine_), false);
        sort_proposals();
        return std::move(result_);
    }

    Proposals run() {
        std::vector<DeviceId> user = user_order(machine_);
        over_orders(user, false);
        if (options_.use_metis && !(std::ssize(user) > kManyDevices && is_grouped(user))) {
            std::vector<DeviceId> grouped = user;
            with_metis([&] {
                if (int groups = natural_group_count(machine_); groups > 1)
                    grouped = flatten(group_devices(machine_, groups, options_.seed));
            });
            if (grouped != user) over_orders(grouped, true);
        }
        sort_proposals();
        return std::move(result_);
    }

private:
    const ObjectiveRow& objective() const { return row_of(options_.objective); }

    // Whether the order has host after host, and links are alike within and between these: METIS
    // would find the hosts, which takes it seconds.
    bool is_grouped(const std::vector<DeviceId>& order) const {
        std::set<std::string_view> hosts;
        for (size_t d = 0; d < order.size(); ++d) {
            const std::string& host = machine_.device(order[d]).host;
            const bool begins = d == 0 || host != machine_.device(order[d - 1]).host;
            if (begins && !hosts.insert(host).second) return false;
        }
        return LinkTable(machine_).uniform() != nullptr;
    }

    // Runs what asks METIS: its time is taken, and once METIS has given up it is left out.
    template <class Ask>
    bool with_metis(Ask&& ask) {
        if (!result_.metis_failure.empty()) return false;
        auto start = std::chrono::steady_clock::now();
        try {
            ask();
        } catch (const MetisError& error) {
            result_.metis_failure = error.what();
        }
        result_.metis_ns +=
            (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
        return result_.metis_failure.empty();
    }

    // By estimate; among (nearly) equal ones the balanced one first, which leaves most memory and
    // throughput.
    void sort_proposals() {
        const auto estimate = [](const Proposal& p) {
            return weighed_ns(p.estimate_ns, p.hardship);
        };
        int64_t best = INT64_MAX;
        for (const Proposal& p : result_.found) best = std::min(best, estimate(p));
        auto step = std::max<int64_t>(1, best / 400);
        auto key = [&](const Proposal& p) {
            int devices = objective().fewest_devices ? p.devices_used : 0;
            return std::tuple(devices, estimate(p) / step, balance_of(p), estimate(p));
        };
        std::stable_sort(result_.found.begin(), result_.found.end(),
                         [&](const Proposal& a, const Proposal& b) { return key(a) < key(b); });
    }

    void over_orders(const std::vector<DeviceId>& base, bool metis_order) {
        for (std::vector<DeviceId>& order : orders_for(shape_.pins, base, shape_.tensor_parallel))
            over_order(std::move(order), metis_order);
    }

    void over_order(std::vector<DeviceId> order, bool metis_order) {
        metis_order_ = metis_order;
        CostTables tables(a_, machine_, workload_, order, slack_);
        single_.reset();
        if (objective().serves && workload_.batch > 1) {
            Workload one = workload_;
            one.batch = 1;
            single_ = std::make_unique<CostTables>(a_, machine_, one, std::move(order), slack_);
        }
        int devices = tables.num_devices();
        if (tables.repeats(0, devices)) {
            if (!grids_alone_) over_returning_order(tables);
            return;
        }
        if (!grids_alone_) over_open_shapes(tables);
        for (int tp = 1; tp <= (may_split_ ? devices : 1); ++tp) {
            if (devices % tp != 0) continue;
            int pp = devices / tp;
            if (shape_.tensor_parallel > 0 && shape_.tensor_parallel != tp) continue;
            if (shape_.pipeline_stages > 0 && shape_.pipeline_stages != pp) continue;
            if (pp > tables.num_units()) continue;
            uniform(tables, tp, pp);
        }
    }

    // What the given shape leaves open, but for grids.
    void over_open_shapes(CostTables& tables) {
        const int devices = tables.num_devices();
        bool forced = shape_.tensor_parallel > 0 || shape_.pipeline_stages > 0;
        if (!forced) {
            StageQuery any;
            any.device_cost = objective().fewest_devices ? kDeviceCost : 0;
            ask(tables, any, "any shape");
            any.fan_out = true;
            ask(tables, any, "any shape");
            // Stages of one width on as many devices as are worth it.
            for (int tp = 1; tp <= (may_split_ ? devices / 2 : 1); tp *= 2) {
                StageQuery even = any;
                even.tensor_parallel = tp;
                even.fan_out = false;
                ask(tables, even, fmt::format("tp {}", tp));
            }
            if (!objective().fewest_devices) {
                any.may_skip = any.fan_out = false;
                ask(tables, any, "every device");
            }
            // Else a grid over all devices is there for each doubling of the width.
            const bool is_power_of_two =
                std::has_single_bit(static_cast<unsigned>(devices)) && !tables.unequal(0, devices);
            if (objective().serves && devices <= kFewDevices && !is_power_of_two)
                for (int pp = 2; pp <= std::min(kMostStages, devices - 1); ++pp)
                    over_stages(tables, pp);
        } else if (shape_.tensor_parallel == 0) {
            over_stages(tables, shape_.pipeline_stages);
        }
    }

    // So many stages over every device, of any widths.
    void over_stages(CostTables& tables, int pp) {
        StageQuery staged;
        staged.pipeline_stages = pp;
        staged.may_skip = false;
        ask(tables, staged, fmt::format("pp {}", pp));
    }

    // Pins return to a device: it is in the order once for each run of its units.
    void over_returning_order(CostTables& tables) {
        StageQuery query;
        query.tensor_parallel = shape_.tensor_parallel;
        query.pipeline_stages = shape_.pipeline_stages;
        ask(tables, query, "the pins' order");
        query.may_skip = false;
        ask(tables, query, "the pins' order over every device");
        for (int tp = 1; tp <= 2 && shape_.tensor_parallel == 0; ++tp) {
            query.tensor_parallel = tp;
            query.may_skip = true;
            ask(tables, query, fmt::format("the pins' order, tp {}", tp));
        }
    }

    // A grid of equal stages: the programme's cuts, equal units, and METIS's cut.
    void uniform(CostTables& tables, int tp, int pp) {
        StageQuery query;
        query.tensor_parallel = tp;  // every device used, tp each: pp stages
        query.may_skip = false;
        ask(tables, query, fmt::format("tp {} x pp {}", tp, pp));
        add(tables, equal_stages(tables, tp, pp), Source::kEqualUnits);
        if (options_.use_metis && pp > 1) {
            StageSolution cut;
            if (with_metis([&] { cut = metis_stages(tables, tp, pp); }))
                add(tables, cut, Source::kMetisCut);
        }
    }

    void ask(CostTables& tables, StageQuery query, const std::string& name) {
        query.may_split = may_split_;
        query.pins = &shape_.pins;
        bool some = false;
        for (bool whole_layers : {true, false}) {
            if (options_.whole_layers && !whole_layers) continue;
            query.whole_layers = whole_layers;
            std::optional<StageSolution> best = best_stages(tables, a_.units, query);
            if (!best) continue;
            some = true;
            add(tables, *best, Source::kProgramme);
            // The uniform grid covers the balanced variants of open shapes, unless balance is
            // what is asked for.
            bool open = query.tensor_parallel == 0 && query.pipeline_stages == 0;
            if (query.device_cost == 0 &&
                (objective().wants_balance || (!open && best->stages.size() > 1)))
                balance(tables, query, *best);
        }
        auto& known = result_.impossible;
        if (!some && std::find(known.begin(), known.end(), name) == known.end())
            known.push_back(name);
    }

    // Lower caps on the largest stage, by bisection: the frontier between latency and throughput.
    void balance(CostTables& tables, StageQuery query, const StageSolution& fastest) {
        int64_t total = fastest.sum, high = fastest.largest;
        int64_t low = total / (2 * static_cast<int64_t>(tables.num_devices()));
        int steps = objective().wants_balance ? 12 : 8;
        for (int i = 0; i < steps && low + high / 512 < high; ++i) {
            query.cap = low + (high - low) / 2;
            std::optional<StageSolution> better = best_stages(tables, a_.units, query);
            if (!better) {
                low = query.cap;
                continue;
            }
            high = std::min(query.cap, better->largest);
            add(tables, *better, Source::kProgramme);
        }
    }

    StageSolution equal_stages(CostTables& tables, int tp, int pp) {
        StageSolution s;
        int units = tables.num_units();
        for (int i = 0; i < pp; ++i)
            s.stages.push_back({i * tp, tp, static_cast<int>(int64_t{i} * units / pp),
                                static_cast<int>(int64_t{i + 1} * units / pp),
                                ShareMode::kBySpeed});
        return s;
    }

    // METIS on the chain (or web) of units: weights are costs, edges what crosses. Parts follow
    // their mean position; where METIS interleaves them, their sizes alone give the cuts.
    StageSolution metis_stages(CostTables& tables, int tp, int pp) {
        int units = tables.num_units();
        const RangeTable& range = tables.range(0, tp, ShareMode::kBySpeed);
        std::vector<PartitionEdge> edges;
        for (size_t v = 0; v < a_.graph.values.size(); ++v) {
            if (a_.made_by[v] < 0 || a_.last_group[v] < 0) continue;
            int from = unit_of(a_.made_by[v]), to = unit_of(a_.last_group[v]);
            if (from != to)
                edges.push_back(
                    {from, to, std::max<int64_t>(1, last_dimension(a_.graph.values[v]))});
        }
        std::vector<int64_t> weights;
        for (int u = 0; u < units; ++u) weights.push_back(range.cost[u + 1] - range.cost[u]);
        std::vector<int> parts =
            partition_graph(units, edges, weights, std::vector<double>(pp, 1.0), options_.seed);
        std::vector<double> position(pp, 0.0);
        std::vector<int> size(pp, 0), order(pp);
        for (int u = 0; u < units; ++u) {
            position[parts[u]] += u;
            ++size[parts[u]];
        }
        for (int p = 0; p < pp; ++p) {
            order[p] = p;
            position[p] /= std::max(1, size[p]);
        }
        std::stable_sort(order.begin(), order.end(),
                         [&](int x, int y) { return position[x] < position[y]; });
        StageSolution s;
        int begin = 0;
        for (int i = 0; i < pp; ++i) {
            s.stages.push_back({i * tp, tp, begin, begin + size[order[i]], ShareMode::kBySpeed});
            begin += size[order[i]];
        }
        return s;
    }

    int unit_of(int group) const {
        auto at = std::upper_bound(a_.units.begin(), a_.units.end(), group,
                                   [](int g, const Unit& u) { return g < u.begin; });
        return static_cast<int>(at - a_.units.begin()) - 1;
    }

    void add(CostTables& tables, const StageSolution& solution, Source source) {
        Proposal p;
        p.source = source;
        p.metis_order = metis_order_;
        int64_t decode = 0, prefill = 0, largest_prefill = 0;
        std::map<std::vector<DeviceId>, int64_t> busy;  // of each group of devices
        std::set<DeviceId> used;
        for (size_t i = 0; i < solution.stages.size(); ++i) {
            const StageSolution::Stage& s = solution.stages[i];
            const RangeTable& range = tables.range(s.first_device, s.count, s.mode);
            if (s.first_unit >= s.last_unit || !range.fits(s.first_unit, s.last_unit)) return;
            int64_t stage_prefill = range.prefill[s.last_unit] - range.prefill[s.first_unit];
            // A device of the narrower side sends to one of the wider after the other.
            auto fan = [](int from, int to) { return (to + from - 1) / from; };
            int64_t entry = 0, exit = 0, heard = 0;
            if (i > 0) {
                const StageSolution::Stage& from = solution.stages[i - 1];
                heard = tables.crossing_costs(from.first_device + from.count - 1, s.first_device,
                                              s.count)[s.first_unit];
                entry = heard * fan(from.count, s.count);
            }
            if (i + 1 < solution.stages.size()) {
                const StageSolution::Stage& next = solution.stages[i + 1];
                exit = tables.crossing_costs(s.first_device + s.count - 1, next.first_device,
                                             1)[s.last_unit] *
                       fan(s.count, next.count);
            }
            decode +=
                (range.decode[s.last_unit] - range.decode[s.first_unit]) * tables.generated() +
                entry;
            prefill += stage_prefill;
            largest_prefill = std::max(largest_prefill, stage_prefill);
            // Of a wide stage each device hears once, from any sender.
            StageChoice choice;
            choice.devices = tables.devices_of(s.first_device, s.count);
            used.insert(choice.devices.begin(), choice.devices.end());
            busy[choice.devices] +=
                range.cost[s.last_unit] - range.cost[s.first_unit] + heard + exit;
            if (!meets_pins(shape_.pins, choice.devices, s.first_unit, s.last_unit)) return;
            choice.begin = a_.units[s.first_unit].begin;
            choice.end = a_.units[s.last_unit - 1].end;
            choice.shares = range.shares;
            p.placement.stages.push_back(std::move(choice));
        }
        if (options_.whole_layers && cuts_a_layer(a_, p.placement)) return;
        p.hardship = hardship(a_, p.placement) * cost_of_devices(used.size(), options_.objective);
        int64_t largest = 0;
        p.devices_used = static_cast<int>(used.size());
        for (const auto& [group, time] : busy) largest = std::max(largest, time);
        int64_t latency = decode + prefill + (tables.passes() - 1) * largest_prefill;
        p.largest_ns = largest / tables.generated();
        p.estimate_ns = objective().serves
                            ? round_estimate(tables, solution)
                            : objective().score({latency / tables.generated(), p.largest_ns});
        p.shape = shape_name(p.placement);
        for (const Proposal& other : result_.found)
            if (other.shape == p.shape && other.estimate_ns == p.estimate_ns &&
                same(other.placement, p.placement))
                return;
        result_.found.push_back(std::move(p));
    }

    // A round as planner/cost/serving.h defines it. A pass of fewer sequences lies between those of
    // one and of all. Devices that return let no pass overtake another.
    int64_t round_estimate(CostTables& tables, const StageSolution& solution) {
        struct Pass {
            int64_t whole = 0, busiest = 0;
        };
        int64_t prompts = 0;  // of the busiest stage, in one pass
        const auto pass_of = [&](CostTables& of) {
            Pass pass;
            for (size_t i = 0; i < solution.stages.size(); ++i) {
                const StageSolution::Stage& s = solution.stages[i];
                const RangeTable& range = of.range(s.first_device, s.count, s.mode);
                const auto entry =
                    i == 0 ? 0 : of.entry_costs(s.first_device, s.count)[s.first_unit];
                const int64_t ns = range.decode[s.last_unit] - range.decode[s.first_unit] +
                                   entry / std::max<int64_t>(1, of.generated());
                pass.whole += ns;
                pass.busiest = std::max(pass.busiest, ns);
                prompts =
                    std::max(prompts, range.prefill[s.last_unit] - range.prefill[s.first_unit]);
            }
            return pass;
        };
        const Pass single = single_ ? pass_of(*single_) : pass_of(tables);
        prompts = 0;
        const Pass all = pass_of(tables);
        const int64_t batch = workload_.batch;
        const int64_t most =
            tables.repeats(0, tables.num_devices())
                ? 1
                : std::min<int64_t>(batch, static_cast<int64_t>(solution.stages.size()));
        int64_t round = INT64_MAX;
        for (int64_t groups = 1; groups <= most; ++groups) {
            const int64_t more = ceil_div(batch, groups) - 1;
            const auto between = [&](int64_t one, int64_t of_all) {
                return one + (of_all - one) * more / std::max<int64_t>(1, batch - 1);
            };
            round = std::min(round, std::max(between(single.whole, all.whole),
                                             groups * between(single.busiest, all.busiest)));
        }
        return round + prompts * tables.passes() / tables.generated();
    }

    static bool same(const Placement& a, const Placement& b) {
        if (a.stages.size() != b.stages.size()) return false;
        for (size_t i = 0; i < a.stages.size(); ++i)
            if (a.stages[i].devices != b.stages[i].devices ||
                a.stages[i].begin != b.stages[i].begin ||
                a.stages[i].shares.weights != b.stages[i].shares.weights)
                return false;
        return true;
    }

    const Analysis& a_;
    const Machine& machine_;
    const Workload& workload_;
    const PlanOptions& options_;
    Shape shape_;
    int64_t slack_;
    bool may_split_ = true, metis_order_ = false, grids_alone_ = false;
    std::unique_ptr<CostTables> single_;  // of one sequence, where the objective serves many
    Proposals result_;
};

}  // namespace

int64_t balance_of(const Proposal& p) { return weighed_ns(p.largest_ns, p.hardship); }

std::string shape_name(std::span<const Stage> stages) {
    Placement placement;
    for (const Stage& stage : stages)
        placement.stages.push_back({.devices = stage.devices, .shares = {}});
    return shape_name(placement);
}

std::string shape_name(const Placement& placement) {
    Placement groups;  // each device counts where it first comes
    std::set<DeviceId> seen;
    for (const StageChoice& s : placement.stages)
        if (std::none_of(s.devices.begin(), s.devices.end(),
                         [&](DeviceId d) { return seen.count(d) > 0; })) {
            seen.insert(s.devices.begin(), s.devices.end());
            groups.stages.push_back(s);
        }
    if (groups.stages.size() < placement.stages.size())
        return fmt::format("{} in {} virtual stages", shape_name(groups), placement.stages.size());
    bool uniform = true;
    for (const StageChoice& s : placement.stages)
        uniform = uniform && s.devices.size() == placement.stages[0].devices.size();
    if (uniform)
        return fmt::format("tp {} x pp {}", placement.stages[0].devices.size(),
                           placement.stages.size());
    std::vector<size_t> widths;
    for (const StageChoice& s : placement.stages) widths.push_back(s.devices.size());
    return fmt::format("pp {} of tp {}", widths.size(), folded_counts(widths, ", "));
}

Proposals propose(const Analysis& analysis, const Machine& machine, const Workload& workload,
                  const PlanOptions& options, const Shape& shape, int64_t slack) {
    return Proposer(analysis, machine, workload, options, shape, slack).run();
}

Proposals propose_grids(const Analysis& analysis, const Machine& machine, const Workload& workload,
                        const PlanOptions& options, const Shape& shape) {
    return Proposer(analysis, machine, workload, options, shape, kShardsAlone).grids();
}

}  // namespace cleave::planner
