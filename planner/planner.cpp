// SPDX-License-Identifier: Apache-2.0
#include "planner/planner.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "importer/weights/quantize.h"
#include "planner/build/fill_kv_pool.h"
#include "planner/cost/pcie_range.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/search/best_users.h"
#include "planner/search/candidates.h"
#include "planner/search/exhaustive.h"
#include "planner/search/explain.h"
#include "planner/search/fleet.h"
#include "planner/search/lower_bound.h"
#include "planner/search/makes.h"
#include "planner/search/nearest.h"
#include "planner/search/refine.h"
#include "planner/search/replicas.h"
#include "planner/search/shapes_beside.h"
#include "planner/search/simplicity.h"
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

    // InternalError unless `plan` is sound after `pass`.
    static void prove(std::string_view pass, const Plan& plan) {
        const std::vector<Violation> found = find_violations(plan);
        CLEAVE_CHECK(found.empty())
            << pass << " left a plan that is not sound: " << found.front().rule << ": "
            << found.front().message;
    }

private:
    static int64_t now_ns() {
        return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
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
    std::optional<ComputeMode> requested;
};

// The search's passes, of which each has proposals and the candidates that refer to them.
struct Searched {
    std::vector<std::pair<Proposals, Candidates>> passes;
    size_t best = 0;   // of them
    size_t steps = 0;  // built by all

    const Candidates& candidates() const { return passes[best].second; }
    // All that was scored, best first.
    std::vector<Scored> scored() const {
        std::vector<Scored> all;
        for (const auto& [proposals, candidates] : passes)
            for (const auto* some : {&candidates.built, &candidates.estimated})
                all.insert(all.end(), some->begin(), some->end());
        std::ranges::stable_sort(all, {}, &Scored::objective_ns);
        return all;
    }
};

// Proposals by estimates of memory that leave more and more room, while one that does not fit
// promises more than the best that does; then those that such estimates took for impossible.
Searched search(const Analysis& analysis, const Shape& shape, const Limits& limits,
                PlanBuilder& builder, const Passes& pass) {
    const PlanRequest& request = builder.request();
    const Objective objective = request.options.objective;
    Searched searched;
    const auto consider = [&](Proposals proposals) {
        if (proposals.metis_ns > 0) pass.note({"propose: METIS", proposals.metis_ns});
        Candidates built = pass("build_candidates", [&] {
            const size_t left = kHopeless - std::min(kHopeless, searched.steps);
            return build_candidates(proposals, limits, left, builder);
        });
        searched.steps += built.steps;
        const bool may_lack = may_lack_memory_alone(built, objective);
        searched.passes.emplace_back(std::move(proposals), std::move(built));
        if (is_better(searched.passes.back().second, searched.candidates(), objective))
            searched.best = searched.passes.size() - 1;
        return may_lack;
    };
    const auto within = [&](int64_t slack) {
        return propose(analysis, request.machine, request.workload, request.options, shape, slack);
    };
    bool some_impossible = false;
    for (int64_t slack : kSlacks) {
        Proposals proposals = pass("propose", [&] { return within(slack); });
        some_impossible = some_impossible || !proposals.impossible.empty();
        if (!consider(std::move(proposals)) && searched.candidates().any_fits) break;
    }
    if (some_impossible && row_of(objective).serves) {
        Proposals grids = pass("propose", [&] {
            return propose_grids(analysis, request.machine, request.workload, request.options,
                                 shape);
        });
        drop_worse(searched.candidates(), objective, grids);
        consider(std::move(grids));
    }
    if (!searched.candidates().any_fits &&
        pass("may_fit", [&] { return !within(kShardsAlone).found.empty(); }))
        consider(pass("propose", [&] { return within(kTwiceTheMemory); }));
    return searched;
}

// The best plan of one replica; its workload is what the machine is to hold. One that keeps the
// limits comes before others; the plan's options have none. Nothing where none fits, or, where it
// `must_fit`, DoesNotFit.
std::optional<Found> plan_replica(const Model& model, const Machine& machine, Workload workload,
                                  PlanOptions options, bool must_fit, const Passes& pass,
                                  bool enumerate) {
    const Limits limits = limits_of(options);
    options.max_ttft_ns = options.max_tpot_ns = 0;  // kept where they can be
    const Analysis& analysis = model.analysis;
    const Shape shape =
        pass("check_options", [&] { return check_options(analysis, machine, workload, options); });
    PlanBuilder builder(analysis, request_of(analysis.graph, machine, workload, options));

    Searched searched = search(analysis, shape, limits, builder, pass);
    Candidates& candidates = searched.passes[searched.best].second;
    if (!candidates.any_fits && !must_fit) return std::nullopt;
    if (!candidates.any_fits)
        refuse({builder.request(), nearest_plan(analysis, shape, builder)},
               fits_of(model.given, analysis, workload, model.requested));

    Proposal chosen;
    Plan plan;
    pass("choose", plan, [&] {
        const size_t best = best_candidate(candidates, options.objective);
        chosen = *candidates.built[best].proposal;
        plan = {builder.request(), std::move(candidates.best)};
    });

    bool gained = false;
    if (may_improve(options) && candidates.steps_since < kStepBudget)
        pass("refine", plan, [&] {
            gained = refine(analysis, shape, limits, kStepBudget - candidates.steps_since, builder,
                            chosen.placement, plan);
        });
    if (may_improve(options) && enumerate)
        pass("enumerate", plan, [&] {
            gained = exhaust(analysis, shape, limits, builder, chosen.placement, plan) || gained;
        });
    if (gained) {
        chosen.shape = shape_name(chosen.placement);
        const size_t used = used_devices(plan).size();
        chosen.devices_used = static_cast<int>(used);
        chosen.hardship = hardship(plan.stages) * cost_of_devices(used, options.objective);
    }
    pass("explain", plan, [&] {
        const Scored now{&chosen, plan.prediction.objective_ns, true, ""};
        std::vector<const Proposals*> proposals;
        for (const auto& one : searched.passes) proposals.push_back(&one.first);
        explain(analysis, proposals, searched.scored(), now, plan);
        compare_heads(builder, chosen.placement, plan);
    });
    return Found{std::move(plan), std::move(chosen.shape)};
}

[[noreturn]] void refuse_limits(const PlanOptions& o, const Serving& s) {
    const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
    const bool first = o.max_ttft_ns > 0 && s.ttft_ns > o.max_ttft_ns;
    throw UserError(
        "no plan keeps {} {:.3g} for {}: the best has {:.1f} ms to the first token and {:.1f} ms "
        "for each further one; give more devices, fewer users or looser limits",
        first ? "$max_ttft" : "$max_tpot", ms(first ? o.max_ttft_ns : o.max_tpot_ns),
        s.users == 1 ? "one user" : fmt::format("{} users", s.users), ms(s.ttft_ns), ms(s.tpot_ns));
}

constexpr size_t kLargestPart = 64;  // devices; larger ones only where none of these is enough
// Devices of several kinds; more of them only where no kind serves alone.
constexpr size_t kLargestMixed = 128;

// The best plan of many users: over each division of the machine into alike parts of `most_devices`
// at most, the users of a part in a plan of the first one. Nothing where none fits and keeps the
// limits, or, where it `must`, the UserError that says so.
std::optional<Plan> plan_alike(const Model& model, const Machine& machine, const Workload& workload,
                               const PlanOptions& options, size_t most_devices, bool must,
                               const Passes& pass, bool enumerate) {
    const Limits limits = limits_of(options);
    const int64_t most = options.most_users ? INT64_MAX : workload.batch;
    const std::vector<Division> all =
        pass("divide", [&] { return divisions(machine, options, most); });
    std::optional<Found> best, outside;  // that keep the limits; that come nearest
    const std::vector<std::string>* spare = nullptr;
    std::vector<ScoredReplicas> others;  // and the best
    size_t chosen = 0;
    double most_worth = 0;
    const auto plan_on = [&](const Machine& part, int64_t users, bool must_fit) {
        Workload share = workload;
        share.batch = users;
        return plan_replica(model, part, share, options, must_fit, pass, enumerate);
    };
    for (const Division& division : all) {
        const size_t devices = division.parts.front().devices.size();
        if (devices > most_devices || (best && devices > kLargestPart)) break;
        const auto replicas = static_cast<int64_t>(division.parts.size());
        const auto plan_for = [&](int64_t users) {
            return plan_on(division.parts.front(), users, false);
        };
        const double least = kFar * most_worth / static_cast<double>(division.parts.size());
        const auto best_number = [&] {
            const int64_t bound =
                users_bound(model.analysis, division.parts.front(), workload, options);
            return plan_for_most(options, bound, least, plan_for);
        };
        std::optional<Found> found =
            options.most_users ? best_number() : plan_for(ceil_div(workload.batch, replicas));
        if (!found) continue;
        Plan& plan = found->plan;
        Serving& serving = plan.prediction.serving;
        serving.users = options.most_users ? replicas * plan.workload.batch : workload.batch;
        plan.copies.assign(division.parts.begin() + 1, division.parts.end());
        if (excess(limits, serving) > 0) {
            if (!outside ||
                excess(limits, serving) < excess(limits, outside->plan.prediction.serving))
                outside = std::move(found);
            continue;
        }
        if (replicas > 1) found->shape += fmt::format(" in {} replicas", replicas);
        const double worth = tokens_per_second(plan) / hardship(plan.stages);
        others.push_back(
            {found->shape, plan.prediction.objective_ns, tokens_per_second(plan), serving.ttft_ns});
        if (best && most_worth >= worth) continue;
        most_worth = worth;
        chosen = others.size() - 1;
        best = std::move(found);
        spare = &division.spare;
    }
    if (!best && !must) return std::nullopt;
    if (!best && !outside)  // the whole machine's refusal, or that of the parts asked for
        plan_on(all.back().parts.front(),
                options.most_users ? 1 : ceil_div(workload.batch, std::ssize(all.back().parts)),
                true);
    if (!best) refuse_limits(options, outside->plan.prediction.serving);
    explain_replicas(others, chosen, *spare, best->plan);
    best->plan.options = options;
    return std::move(best->plan);
}

// As plan_alike, and replicas of several makes where those are clearly faster, or serve alone.
std::optional<Plan> plan_replicas(const Model& model, const Machine& machine,
                                  const Workload& workload, const PlanOptions& options, bool must,
                                  const Passes& pass, bool enumerate) {
    const auto plan_on = [&](bool needed, size_t most_devices) {
        return plan_alike(model, machine, workload, options, most_devices, needed, pass, enumerate);
    };
    const bool may_makes = may_have_makes(machine, options);
    // Each kind by itself may serve what all together do not.
    const bool kinds = may_makes && kinds_of(machine).size() > 1;
    std::optional<Plan> best = plan_on(must && !may_makes, kinds ? kLargestMixed : SIZE_MAX);
    if (!may_makes) return best;
    const auto plan_outside = [&]() -> std::optional<Plan> {
        if (options.max_ttft_ns == 0 && options.max_tpot_ns == 0) return std::nullopt;
        PlanOptions unlimited = options;
        unlimited.max_ttft_ns = unlimited.max_tpot_ns = 0;
        return plan_alike(model, machine, workload, unlimited, kLargestMixed, false, pass,
                          enumerate);
    };
    // All replicas hold keys and values of one type.
    Workload share = workload;
    share.kv_dtype = settled_kv_dtype(model.analysis.graph, machine, workload);
    std::optional<Plan> makes = pass("makes", [&] {
        return plan_makes(
            machine, best ? &*best : nullptr,
            options.most_users ? std::nullopt : std::optional(workload.batch),
            [&](const Machine& part, std::optional<int64_t> users) {
                PlanOptions own = options;
                own.most_users = !users;
                share.batch = users.value_or(workload.batch);
                return plan_alike(model, part, share, own, SIZE_MAX, false, pass, enumerate);
            },
            plan_outside);
    });
    if (makes) return makes;
    if (best || (!must && machine.devices.size() <= kLargestMixed)) return best;
    return plan_on(must, SIZE_MAX);
}

}  // namespace

Plan make_plan(const Graph& given_graph, const Machine& machine, const Workload& requested,
               const PlanOptions& options, const PassControl& control) {
    const Passes pass(control);
    std::optional<Graph> quantized;
    if (const std::string types = importer::types_to_requantize(given_graph);
        !types.empty() && !requested.dtype)
        throw UserError(
            "{} has weights of GGUF's types {}, which no kernel computes with as they are: say "
            "what they become ($dtype int8 is nearest, int4 smallest; bf16 expands them)",
            given_graph.name, types);
    if (quantizes(requested))
        quantized = pass("quantize_weights",
                         [&] { return importer::quantize_weights(given_graph, *requested.dtype); });
    const Graph& graph = quantized ? *quantized : given_graph;
    const Workload workload = settled_compute(graph, machine, requested);
    const Analysis analysis = pass("analyse", [&] { return analyse(graph, workload); });
    const Model model{given_graph, analysis, requested.compute};
    check_replicas(machine, workload, options);
    const bool many = options.replicas != 1 || options.most_users || options.max_ttft_ns > 0 ||
                      options.max_tpot_ns > 0 || row_of(options.objective).fewest_for_load;
    const bool fills = workload.kv_tokens == Workload::kAllThatIsLeft;
    const bool serves = row_of(options.objective).serves;
    if (serves && workload.kv_tokens > 0)
        throw UserError(
            "$kv_tokens {}: a plan for many users has keys and values for a whole context of each; "
            "leave it out, or give $kv_tokens auto for all that is left",
            workload.kv_tokens);
    Workload asked = workload;
    if (serves) asked.kv_tokens = 0;
    const auto plan_many = [&](const Machine& on, bool must) {
        return plan_replicas(model, on, asked, options, must, pass, control.enumerate);
    };
    std::optional<Fleet> fleet;
    if (row_of(options.objective).fewest_for_load)
        fleet = fewest_devices(machine, options,
                               [&](const Machine& part) { return plan_many(part, false); });
    Plan plan =
        fleet ? std::move(fleet->plan)
        : row_of(options.objective).fewest_for_load
            ? *plan_many(largest_fleet(machine, options), true)
        : many ? *plan_many(machine, true)
               : plan_replica(model, machine, asked, options, true, pass, control.enumerate)->plan;
    if (control.shapes_beside && (options.tensor_parallel > 0 || options.pipeline_stages > 0))
        pass("shapes_beside", plan, [&] { shapes_beside(analysis, plan); });
    if (fills)
        pass("fill_kv_pool", plan, [&] {
            const auto fill = [&](Plan& one) {
                one.workload.kv_tokens = workload.kv_tokens;
                fill_kv_pool(one);
            };
            fill(plan);
            for (Plan& other : plan.others) fill(other);
        });
    pass("lower_bound", plan, [&] {
        Workload all = plan.workload;
        all.batch = std::max(workload.batch, served_users(plan));
        plan.prediction.lower_bound_ns =
            lower_bound_ns(analysis, fleet ? fleet->machine : machine, all, options.objective);
    });
    pass("pcie_range", plan, [&] { predict_one_pcie_link(analysis, plan); });
    pass("verify", [&] { Passes::prove("planning", plan); });
    return plan;
}

}  // namespace cleave::planner
