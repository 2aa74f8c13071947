// SPDX-License-Identifier: Apache-2.0
// The passes, in order, and the choice between the placements that the search proposes: each is
// built in full and scored by the event simulation, so that what is chosen is what runs.
#include "planner/planner.h"

#include <algorithm>
#include <optional>

#include "importer/weights/quantize.h"
#include "planner/build/build_plan.h"
#include "planner/build/choose_tiles.h"
#include "planner/plan/foreign_op.h"
#include "planner/search/check_options.h"
#include "planner/search/check_sizes.h"
#include "planner/search/cost_tables.h"
#include "planner/search/device_order.h"
#include "planner/search/exhaustive.h"
#include "planner/search/explain.h"
#include "planner/search/lower_bound.h"
#include "planner/search/propose.h"
#include "planner/search/refine.h"
#include "planner/search/refuse.h"
#include "planner/verify/verify.h"

namespace cleave::planner {
namespace {

// What building candidates may cost: steps built in all, but for the first few; small plans afford
// many candidates.
constexpr size_t kStepBudget = 16'000;
constexpr double kExhaustiveSteps = 40'000;  // built in all where every placement is
constexpr size_t kFewCandidates = 3, kManyCandidates = 64;
constexpr int64_t kSlacks[] = {
    0, 10, 50};  // parts per thousand of memory kept free, when the estimate was too low

constexpr int64_t kMostRoom = 4 * kMostBytes;  // of a device, when looking for what a model lacks

// What every candidate shares; the graph is copied into the plan that is returned, once.
struct Request {
    const Analysis& analysis;
    const Machine& machine;
    const Workload& workload;
    const PlanOptions& options;
    Shape shape;
};

Plan empty_plan(const Request& r, Graph graph) {
    Plan plan;
    plan.graph = std::move(graph);
    plan.machine = r.machine;
    plan.workload = r.workload;
    plan.options = r.options;
    plan.options.pins = canonical_pins(r.machine, r.options.pins);
    return plan;
}

// The candidate to take: the best score; of equal ones the most balanced, which leaves most memory
// and throughput. Memory: fewest devices first.
size_t take(const PlanOptions& options, const std::vector<Scored>& built) {
    auto devices = [&](const Scored& s) {
        return options.objective == Objective::kMemory ? s.proposal->devices_used : 0;
    };
    int64_t best = INT64_MAX;
    int fewest = INT32_MAX;
    for (const Scored& s : built)
        if (s.refused.empty()) fewest = std::min(fewest, devices(s));
    auto eligible = [&](const Scored& s) { return s.refused.empty() && devices(s) == fewest; };
    for (const Scored& s : built)
        if (eligible(s)) best = std::min(best, s.objective_ns);
    size_t taken = built.size();
    for (size_t i = 0; i < built.size(); ++i)
        if (eligible(built[i]) && built[i].objective_ns == best)
            if (taken == built.size() ||
                balance_of(*built[i].proposal) < balance_of(*built[taken].proposal))
                taken = i;
    return taken;
}

// On small requests every placement is built (planner/search/exhaustive.h); true when one beats
// `plan`, which it then is.
bool exhaust(const Request& r, Placement& placement, Plan& plan) {
    if (r.shape.tensor_parallel > 0 || r.shape.pipeline_stages > 0 || pins_return(r.shape.pins))
        return false;
    bool may_split =
        std::none_of(r.analysis.graph.ops.begin(), r.analysis.graph.ops.end(), stays_on_one_device);
    bool gained = false;
    auto steps = static_cast<double>(plan.prefill.steps.size() + plan.decode.steps.size());
    CostTables tables(r.analysis, r.machine, r.workload, user_order(r.machine), 0);
    each_placement(r.analysis, tables, r.options.objective, may_split, kExhaustiveSteps / steps,
                   [&](const Placement& p) {
                       if (!meets_pins(r.analysis, r.shape.pins, p)) return;
                       Plan candidate = empty_plan(r, std::move(plan.graph));
                       build_placement(r.analysis, p, candidate);
                       if (fits_memory(candidate) &&
                           candidate.prediction.objective_ns < plan.prediction.objective_ns) {
                           plan = std::move(candidate);
                           placement = p;
                           gained = true;
                       } else {
                           plan.graph = std::move(candidate.graph);
                       }
                   });
    return gained;
}

// What the other way to cut heads would cost, where there is one: whole KV groups or between query
// heads.
void compare_heads(const Request& r, Placement placement, Plan& plan) {
    const auto& config = r.analysis.graph.config;
    if (config.num_kv_heads == 0 || config.num_heads % config.num_kv_heads != 0) return;
    Split heads{Axis::kQueryHeads, config.num_heads, 1, config.num_heads / config.num_kv_heads};
    bool differs = false, whole = true;
    for (StageChoice& s : placement.stages) {
        std::vector<Range> now = ranges_of(s.shares, heads);
        s.shares.whole_groups = !s.shares.whole_groups;
        differs = differs || (s.devices.size() > 1 && ranges_of(s.shares, heads) != now);
        if (s.devices.size() > 1) whole = s.shares.whole_groups;
    }
    if (!differs) return;
    Plan other = empty_plan(r, std::move(plan.graph));
    build_placement(r.analysis, placement, other);
    plan.graph = std::move(other.graph);
    double ratio = static_cast<double>(other.prediction.objective_ns) /
                   static_cast<double>(std::max<int64_t>(1, plan.prediction.objective_ns));
    plan.why.runners_up.push_back({whole ? "the same with whole KV groups on each device"
                                         : "the same with heads cut inside KV groups",
                                   other.prediction.objective_ns,
                                   fits_memory(other)
                                       ? fmt::format("{:.2f} % slower", 100 * (ratio - 1))
                                       : "does not fit in memory"});
}

// Builds and simulates the most promising proposals and takes one that fits; all scores go into the
// explanation.
std::optional<Plan> choose(const Request& r, const Proposals& proposals, Graph& graph) {
    std::vector<Scored> built, estimated;
    std::vector<Plan> plans;
    bool any_fits = false;
    size_t steps = 0;
    for (const Proposal& p : proposals.found) {
        Scored s{&p, p.estimate_ns, false, ""};
        bool small = steps < kStepBudget / 2;
        bool close = p.estimate_ns <= proposals.found[0].estimate_ns +
                                          proposals.found[0].estimate_ns / (small ? 1 : 8);
        if (r.options.objective == Objective::kMemory)
            close = p.devices_used <= proposals.found[0].devices_used;
        bool affordable = built.size() < kFewCandidates ||
                          (steps < kStepBudget && built.size() < kManyCandidates);
        if (any_fits && (!close || !affordable)) {
            estimated.push_back(s);
            continue;
        }
        Plan plan = empty_plan(r, std::move(graph));
        build_placement(r.analysis, p.placement, plan);
        graph = std::move(plan.graph);
        steps += plan.prefill.steps.size() + plan.decode.steps.size();
        s.objective_ns = plan.prediction.objective_ns;
        s.simulated = true;
        if (!fits_memory(plan)) s.refused = "does not fit in memory";
        any_fits = any_fits || s.refused.empty();
        built.push_back(s);
        plans.push_back(std::move(plan));
    }
    if (!any_fits) return std::nullopt;
    size_t taken = take(r.options, built);
    Plan plan = std::move(plans[taken]);
    plan.graph = std::move(graph);
    Proposal refined = *built[taken].proposal;
    Scored chosen = built[taken];
    bool gained = false;
    if (r.options.objective != Objective::kMemory && steps < kStepBudget)
        gained = refine(r.analysis, r.shape, kStepBudget - steps, refined.placement, plan);
    if (r.options.objective != Objective::kMemory)
        gained = exhaust(r, refined.placement, plan) || gained;
    if (gained) {
        refined.shape = shape_name(refined.placement);
        chosen = {&refined, plan.prediction.objective_ns, true, ""};
    }
    built.insert(built.end(), estimated.begin(), estimated.end());
    std::stable_sort(built.begin(), built.end(), [](const Scored& a, const Scored& b) {
        return a.objective_ns < b.objective_ns;
    });
    explain(r.analysis, proposals, built, chosen, plan);
    compare_heads(r, refined.placement, plan);
    return plan;
}

// Whether any plan fits; builds only until one does.
bool any_plan_fits(const Analysis& analysis, const Machine& machine, Workload workload,
                   const PlanOptions& options) {
    Shape shape = check_options(analysis, machine, workload, options);
    for (int64_t slack : kSlacks) {
        Proposals proposals = propose(analysis, machine, workload, options, shape, slack);
        size_t tried = 0;
        for (const Proposal& p : proposals.found) {
            if (++tried > 3) break;
            Plan plan = empty_plan({analysis, machine, workload, options, shape}, analysis.graph);
            build_memory(analysis, p.placement, plan);
            if (fits_memory(plan) && fits_limits(plan)) return true;
        }
        if (proposals.found.empty()) return false;
    }
    return false;
}

bool quantizes(const Workload& workload) {
    return workload.dtype && importer::is_quantizing(*workload.dtype);
}

// The graph as such a `--dtype` makes it; nothing where its weights cannot be of that type.
std::optional<Graph> quantized_to(const Graph& graph, DType dtype) {
    try {
        return importer::quantize_weights(graph, dtype);
    } catch (const UserError&) {
        return std::nullopt;
    }
}

// The placement whose worst device lacks least, over all devices.
Plan nearest_plan(const Request& r, const Graph& graph) {
    // In proportion, so that shares by memory stay the same; as far as the largest model needs.
    Proposals proposals;
    for (int64_t factor = 64; proposals.found.empty() && factor <= int64_t{1} << 42; factor *= 64) {
        Machine roomy = r.machine;
        for (DeviceInfo& d : roomy.devices)
            d.memory_bytes =
                d.memory_bytes > kMostRoom / factor ? kMostRoom : d.memory_bytes * factor;
        proposals = propose(r.analysis, roomy, r.workload, r.options, r.shape, 0);
    }
    if (proposals.found.empty() && !r.options.pins.empty())
        throw UserError(
            "no pipeline of this shape on these devices was found that meets the pins; leave the "
            "shape to the planner (no $tensor_parallel, no $pipeline_stages), or leave out pins");
    CHECK(!proposals.found.empty()) << "no shape at all";
    std::optional<Plan> nearest;
    int64_t least = INT64_MAX;
    size_t tried = 0;
    for (const Proposal& p : proposals.found) {
        bool spread = p.devices_used == static_cast<int>(r.machine.devices.size());
        if (!spread || tried++ >= 12) continue;
        Plan plan = empty_plan(r, graph);
        build_placement(r.analysis, p.placement, plan);
        int64_t lacking = 0;
        for (const DeviceMemory& m : plan.memory)
            lacking = std::max(lacking, m.needed() - m.capacity);
        if (lacking < least) {
            least = lacking;
            nearest = std::move(plan);
        }
    }
    if (!nearest) {
        nearest = empty_plan(r, graph);
        build_placement(r.analysis, proposals.found[0].placement, *nearest);
    }
    return std::move(*nearest);
}

}  // namespace

Plan make_plan(const Graph& given_graph, const Machine& machine, const Workload& given,
               const PlanOptions& options) {
    Workload workload = given;
    std::optional<Graph> quantized;
    if (quantizes(given)) quantized = importer::quantize_weights(given_graph, *given.dtype);
    const Graph& graph = quantized ? *quantized : given_graph;
    Analysis analysis = analyse(graph);
    Request request{analysis, machine, workload, options,
                    check_options(analysis, machine, workload, options)};
    Graph copy = graph;
    std::optional<Plan> plan;
    for (int64_t slack : kSlacks) {
        plan = choose(request, propose(analysis, machine, workload, options, request.shape, slack),
                      copy);
        if (plan) break;
    }
    if (!plan)
        refuse(nearest_plan(request, graph),
               [&](const Machine& m, const Workload& w, const PlanOptions& o) {
                   if (w.dtype == workload.dtype || (!quantizes(w) && !quantized))
                       return any_plan_fits(analysis, m, w, o);
                   if (!quantizes(w)) return any_plan_fits(analyse(given_graph), m, w, o);
                   const std::optional<Graph> other = quantized_to(given_graph, *w.dtype);
                   return other && any_plan_fits(analyse(*other), m, w, o);
               });
    plan->graph_digest = importer::graph_digest(graph);
    plan->prediction.lower_bound_ns =
        lower_bound_ns(analysis, machine, workload, options.objective);
    verify_plan(*plan);
    return std::move(*plan);
}

}  // namespace cleave::planner
