// SPDX-License-Identifier: Apache-2.0
#include "planner/planner.h"

#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>

#include "importer/weights/quantize.h"
#include "planner/build/fill_kv_pool.h"
#include "planner/search/candidates.h"
#include "planner/search/exhaustive.h"
#include "planner/search/explain.h"
#include "planner/search/lower_bound.h"
#include "planner/search/nearest.h"
#include "planner/search/refine.h"
#include "planner/search/replicas.h"
#include "planner/verify/verify.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {
namespace {

// Runs passes and takes their times.
class Passes {
public:
    explicit Passes(const PassControl& control) : control_(control) {}

    template <class Run>
    auto operator()(std::string_view name, Run&& run) const {
        const int64_t start = now_ns();
        if constexpr (std::is_void_v<decltype(run())>) {
            run();
            note({name, now_ns() - start});
        } else {
            auto result = run();
            note({name, now_ns() - start});
            return result;
        }
    }

    // A pass that leaves `plan` whole.
    template <class Run>
    void operator()(std::string_view name, const Plan& plan, Run&& run) const {
        const int64_t start = now_ns();
        run();
        const int64_t ns = now_ns() - start;
        if (control_.prove_each) prove(name, plan);
        note({name, ns, control_.prove_each});
    }

    void note(const PassNote& note) const {
        if (control_.note) control_.note(note);
    }

private:
    static int64_t now_ns() {
        return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    }

    static void prove(std::string_view pass, const Plan& plan) {
        const std::vector<Violation> found = find_violations(plan);
        CLEAVE_CHECK(found.empty())
            << pass << " left a plan that is not sound: " << found.front().rule << ": "
            << found.front().message;
    }

    const PassControl& control_;
};

PlanRequest request_of(const Graph& graph, const Machine& machine, const Workload& workload,
                       const PlanOptions& options) {
    PlanRequest request{importer::graph_digest(graph), graph, machine, workload, options};
    request.options.pins = canonical_pins(machine, options.pins);
    return request;
}

// Single moves, and every placement where these are few, do not look at the number of devices.
bool may_improve(const PlanOptions& options) { return !row_of(options.objective).fewest_devices; }

// A model to plan, on any machine.
struct Model {
    const Graph& given;        // before its weights were quantised
    const Analysis& analysis;  // of the graph after it
};

// A plan and its shape in words.
struct Found {
    Plan plan;
    std::string shape;
};

// The best plan of one replica; its workload is what the machine is to hold. Nothing where none
// fits, or, where it `must_fit`, DoesNotFit.
std::optional<Found> plan_replica(const Model& model, const Machine& machine, Workload workload,
                                  const PlanOptions& options, bool must_fit, const Passes& pass,
                                  bool enumerate) {
    const Analysis& analysis = model.analysis;
    const Shape shape =
        pass("check_options", [&] { return check_options(analysis, machine, workload, options); });
    PlanBuilder builder(analysis, request_of(analysis.graph, machine, workload, options));

    Proposals proposals;
    Candidates candidates;
    for (int64_t slack : kAllSlacks) {
        proposals = pass(
            "propose", [&] { return propose(analysis, machine, workload, options, shape, slack); });
        if (proposals.metis_ns > 0) pass.note({"propose: METIS", proposals.metis_ns});
        candidates = pass("build_candidates", [&] { return build_candidates(proposals, builder); });
        if (candidates.any_fits) break;
    }
    if (!candidates.any_fits && !must_fit) return std::nullopt;
    if (!candidates.any_fits)
        refuse({builder.request(), nearest_plan(analysis, shape, builder)},
               fits_of(model.given, analysis, workload));

    Proposal chosen;
    Plan plan;
    pass("choose", plan, [&] {
        const size_t best = best_candidate(candidates, options.objective);
        chosen = *candidates.built[best].proposal;
        plan = {builder.request(), std::move(candidates.plans[best])};
    });

    bool gained = false;
    if (may_improve(options) && candidates.steps < kStepBudget)
        pass("refine", plan, [&] {
            gained = refine(analysis, shape, kStepBudget - candidates.steps, builder,
                            chosen.placement, plan);
        });
    if (may_improve(options) && enumerate)
        pass("enumerate", plan,
             [&] { gained = exhaust(analysis, shape, builder, chosen.placement, plan) || gained; });
    if (gained) chosen.shape = shape_name(chosen.placement);
    pass("explain", plan, [&] {
        const Scored now{&chosen, plan.prediction.objective_ns, true, ""};
        explain(analysis, proposals, ranking(candidates), now, plan);
        compare_heads(builder, chosen.placement, plan);
    });
    return Found{std::move(plan), std::move(chosen.shape)};
}

// The best plan of many users: over each division of the machine into alike parts, the users of a
// part in a plan of the first one.
Plan plan_replicas(const Model& model, const Machine& machine, const Workload& workload,
                   const PlanOptions& options, const Passes& pass, bool enumerate) {
    const std::vector<Division> all =
        pass("divide", [&] { return divisions(machine, options, workload.batch); });
    std::optional<Found> best;
    const std::vector<std::string>* spare = nullptr;
    std::vector<RunnerUp> others;  // and the best
    for (const Division& division : all) {
        const auto replicas = static_cast<int64_t>(division.parts.size());
        Workload share = workload;
        share.batch = ceil_div(workload.batch, replicas);
        std::optional<Found> found =
            plan_replica(model, division.parts.front(), share, options,
                         !best && &division == &all.back(), pass, enumerate);
        if (!found) continue;
        found->plan.prediction.serving.users = workload.batch;
        found->plan.copies.assign(division.parts.begin() + 1, division.parts.end());
        if (replicas > 1) found->shape += fmt::format(" in {} replicas", replicas);
        others.push_back({found->shape, found->plan.prediction.objective_ns, ""});
        if (best && best->plan.prediction.objective_ns <= found->plan.prediction.objective_ns)
            continue;
        best = std::move(found);
        spare = &division.spare;
    }
    explain_replicas(others, *spare, best->plan);
    return std::move(best->plan);
}

}  // namespace

Plan make_plan(const Graph& given_graph, const Machine& machine, const Workload& given,
               const PlanOptions& options, const PassControl& control) {
    const Passes pass(control);
    std::optional<Graph> quantized;
    if (quantizes(given))
        quantized = pass("quantize_weights",
                         [&] { return importer::quantize_weights(given_graph, *given.dtype); });
    const Graph& graph = quantized ? *quantized : given_graph;
    const Analysis analysis = pass("analyse", [&] { return analyse(graph); });
    const Model model{given_graph, analysis};
    check_replicas(machine, given, options);
    Plan plan =
        options.replicas == 1
            ? plan_replica(model, machine, given, options, true, pass, control.enumerate)->plan
            : plan_replicas(model, machine, given, options, pass, control.enumerate);
    if (given.kv_tokens == Workload::kAllThatIsLeft)
        pass("fill_kv_pool", plan, [&] { fill_kv_pool(plan); });
    pass("lower_bound", plan, [&] {
        Workload workload = plan.workload;
        workload.batch = given.batch;
        plan.prediction.lower_bound_ns =
            lower_bound_ns(analysis, machine, workload, options.objective);
    });
    pass("verify", [&] { verify_plan(plan); });
    return plan;
}

}  // namespace cleave::planner
