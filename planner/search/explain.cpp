// SPDX-License-Identifier: Apache-2.0
#include "planner/search/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include <fmt/ranges.h>

#include "planner/analysis/work.h"
#include "planner/machine/device_names.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "planner/search/shapes_beside.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {
namespace {

using importer::Op;
using importer::OpKind;

constexpr std::string_view kHarder =
    "with stages of unequal width, a layer cut in two, or more stages";

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// What a token's time on the busiest device is spent on.
std::string binding_constraint(const Plan& plan) {
    for (const DeviceMemory& m : plan.memory)
        if (m.capacity > 0 && m.needed() > m.capacity / 100 * 95)
            return fmt::format(
                "memory of {}: {:.1f} of {:.1f} GB", plan.machine.device(m.device).name,
                static_cast<double>(m.needed()) / 1e9, static_cast<double>(m.capacity) / 1e9);
    const auto& busy = plan.prediction.decode_busy_ns;
    DeviceId busiest(std::max_element(busy.begin(), busy.end()) - busy.begin());
    PassPoint point = decode_point(plan.workload);
    std::array<double, 5> parts{};  // weights, KV and activations, arithmetic, launches, exchange
    const DeviceInfo& device = plan.machine.device(busiest);
    for (const Step& step : plan.decode.steps) {
        auto ns = static_cast<double>(step.predicted_ns);
        if (const Compute* c = step.compute()) {
            if (c->device != busiest) continue;
            auto overhead = static_cast<double>(device.launch_overhead_ns);
            parts[3] += overhead;
            auto weights = static_cast<double>(c->weight_bytes.at(point)),
                 moved = static_cast<double>(c->activation_bytes.at(point));
            auto flops = static_cast<double>(c->flops.at(point));
            bool arithmetic = flops / static_cast<double>(std::max<int64_t>(1, device.flops_f16)) >
                              (weights + moved) / static_cast<double>(std::max<int64_t>(
                                                      1, device.memory_bandwidth));
            if (arithmetic)
                parts[2] += ns - overhead;
            else if (weights + moved > 0) {
                parts[0] += (ns - overhead) * weights / (weights + moved);
                parts[1] += (ns - overhead) * moved / (weights + moved);
            }
        } else if (const Collective* exchange = step.collective()) {
            const auto& group = exchange->group;
            if (std::find(group.begin(), group.end(), busiest) != group.end()) parts[4] += ns;
        } else if (const Transfer* t = step.transfer()) {
            const auto& values = plan.decode.values;
            if (values[t->source.index()].device == busiest ||
                values[t->destination.index()].device == busiest)
                parts[4] += ns;
        }
    }
    static constexpr std::array<const char*, 5> kNames{"reading weights",
                                                       "reading KV and activations", "arithmetic",
                                                       "launches", "exchange between devices"};
    double total = 0;
    for (double p : parts) total += p;
    auto most = static_cast<size_t>(std::max_element(parts.begin(), parts.end()) - parts.begin());
    return fmt::format("{} on {}: {:.0f} % of its time in a decode pass", kNames[most], device.name,
                       total > 0 ? 100 * parts[most] / total : 0.0);
}

// "layers 0-10, 11-21"; a layer that stages share is "part of 11" in each.
std::string layers_of(const Analysis& a, const Placement& placement) {
    std::string text;
    for (const StageChoice& stage : placement.stages) {
        int first = -1, last = -1;
        auto shared = [&](int layer) {
            return std::any_of(a.units.begin(), a.units.end(), [&](const Unit& u) {
                return u.first_layer >= 0 && u.first_layer <= layer && layer <= u.last_layer &&
                       (u.begin < stage.begin || u.end > stage.end);
            });
        };
        for (const Unit& u : a.units) {
            if (u.begin < stage.begin || u.end > stage.end || u.first_layer < 0) continue;
            if (first < 0) first = u.first_layer;
            last = u.last_layer;
        }
        if (!text.empty()) text += ", ";
        if (first < 0) {
            text += stage.begin == 0 ? "what is before them" : "what is after them";
            continue;
        }
        std::vector<std::string> parts;
        bool head = shared(first), tail = last > first && shared(last);
        int from = first + head, to = last - tail;
        if (head) parts.push_back(fmt::format("part of {}", first));
        if (from <= to)
            parts.push_back(from == to ? std::to_string(from) : fmt::format("{}-{}", from, to));
        if (tail) parts.push_back(fmt::format("part of {}", last));
        text += fmt::format("{}", fmt::join(parts, " and "));
    }
    return "layers " + text;
}

std::string why_not_taken(const Scored& s, const Scored& chosen, const Plan& plan) {
    if (!s.refused.empty()) return s.refused;
    const double ratio = static_cast<double>(s.objective_ns) /
                         static_cast<double>(std::max<int64_t>(1, chosen.objective_ns));
    const double gain = 100 * (1 - ratio);
    if (row_of(plan.options.objective).fewest_devices &&
        s.proposal->devices_used > chosen.proposal->devices_used)
        return fmt::format("uses {} devices instead of {}", s.proposal->devices_used,
                           chosen.proposal->devices_used);
    const auto used = [](const Scored& one) {
        return static_cast<size_t>(one.proposal->devices_used);
    };
    if (loses_by_devices(s.objective_ns, used(s), chosen.objective_ns, used(chosen),
                         plan.options.objective))
        return fmt::format("{:.2f} % faster, but {}", gain,
                           row_of(plan.options.objective).leaves_out);
    if (ratio < 1 && s.proposal->hardship > chosen.proposal->hardship)
        return fmt::format("{:.2f} % faster, {}", gain, kHarder);
    if (ratio < 1)
        return fmt::format(
            "{:.2f} % faster, but its busiest stage takes {:.0f} % longer", gain,
            100.0 * static_cast<double>(s.proposal->largest_ns - chosen.proposal->largest_ns) /
                static_cast<double>(std::max<int64_t>(1, chosen.proposal->largest_ns)));
    return fmt::format("{:.1f} % slower{}", -gain, s.simulated ? "" : " by the estimate");
}

std::string first_token(int64_t ttft_ns) {
    return ttft_ns > 0 ? fmt::format("; first token after {}", time_text(ttft_ns)) : "";
}

// The shapes that people ask about first: each grid over all devices, by its best candidate. Then
// a few others, but no second cut of a shape that is there.
void runners_up(const Analysis& a, const Proposals& proposals, const std::vector<Scored>& scored,
                const Scored& chosen, Plan& plan) {
    constexpr size_t kMost = 8, kOthers = 2;
    std::vector<RunnerUp>& found = plan.why.runners_up;
    std::set<std::string> seen{chosen.proposal->shape};
    const auto add = [&](const Scored& s) {
        found.push_back(
            {fmt::format("{} ({})", s.proposal->shape, layers_of(a, s.proposal->placement)),
             s.objective_ns, why_not_taken(s, chosen, plan) + first_token(s.ttft_ns)});
    };
    for (const ShapeGrid& grid : grids(static_cast<int>(plan.machine.devices.size()))) {
        if (found.size() >= kMost || !seen.insert(grid.name()).second) continue;
        const Scored* best = nullptr;  // what fits before what does not
        for (const Scored& s : scored)
            if (s.proposal->shape == grid.name() &&
                (!best || (!best->refused.empty() && s.refused.empty())))
                best = &s;
        if (best)
            add(*best);
        else if (std::ranges::count(proposals.impossible, grid.name()) > 0)
            found.push_back({grid.name(), 0, "does not fit in memory"});
    }
    std::ranges::stable_sort(found, {}, [](const RunnerUp& r) {
        return std::pair(r.why_not == "does not fit in memory", r.objective_ns);
    });
    size_t others = 0;
    for (const Scored& s : scored) {
        if (found.size() >= kMost || others >= kOthers) break;
        if (!seen.insert(s.proposal->shape).second) continue;
        add(s);
        ++others;
    }
    for (const std::string& shape : proposals.impossible)
        if (found.size() < kMost && seen.insert(shape).second)
            found.push_back({shape, 0, "does not fit in memory"});
}

// Devices that no stage uses, and what using all of them would cost.
void explain_unused(const std::vector<Scored>& scored, const Scored& chosen, Plan& plan) {
    std::vector<std::string> unused;
    for (DeviceId d : unused_devices(plan)) unused.push_back(plan.machine.device(d).name);
    if (unused.empty()) return;
    const ObjectiveRow& row = row_of(plan.options.objective);
    std::string reason(row.leaves_out);
    for (const Scored& s : scored)
        if (s.refused.empty() &&
            s.proposal->devices_used == static_cast<int>(plan.machine.devices.size())) {
            if (!row.fewest_devices && s.objective_ns >= chosen.objective_ns)
                reason = "a plan without them is faster";
            reason += fmt::format(": {} over every device takes {:.3f} ms instead of {:.3f}",
                                  s.proposal->shape, ms(s.objective_ns), ms(chosen.objective_ns));
            break;
        }
    plan.why.binding += fmt::format("; unused: {} ({})", folded_names(unused), reason);
}

// Products and attention that every device of a tensor-parallel stage computes whole, and what
// keeps them together.
void repeated_work(const Analysis& analysis, Plan& plan) {
    std::vector<std::string> names;
    bool integers = false, norms = false;
    for (const Stage& stage : plan.stages)
        for (size_t i = stage.first_op.index();
             stage.devices.size() > 1 && i <= stage.last_op.index(); ++i) {
            const Op& op = analysis.graph.ops[i];
            if (!analysis.splits.ops[i].work.whole() ||
                (op.kind != OpKind::kLinear && op.kind != OpKind::kAttention))
                continue;
            const bool dynamic =
                op.kind == OpKind::kLinear &&
                analysis.graph.weight(op.weights[0]).quantization.dynamic_activations;
            (dynamic ? integers : norms) = true;
            names.push_back(op.name);
        }
    if (names.empty()) return;
    std::vector<std::string> reasons;
    if (integers)
        reasons.emplace_back(
            "products of integers (DynamicQuantizeLinear) round by the smallest and largest number "
            "of their whole "
            "input");
    if (norms)
        reasons.emplace_back(integers ? "what lies between them stays whole with them"
                                      : "queries or keys are normalised over all heads together");
    plan.why.binding += fmt::format(
        "; each device of its stage computes the whole of {} operators ({}{}): {}", names.size(),
        names.front(), names.size() > 1 ? fmt::format(" to {}", names.back()) : "",
        fmt::join(reasons, ", and "));
}

void cuts(const Plan& plan, std::vector<std::string>& lines) {
    for (size_t s = 1; s < plan.stages.size(); ++s) {
        int64_t ns = 0, bytes = 0;
        int count = 0;
        for (const Step& step : plan.decode.steps)
            if (step.stage == static_cast<int>(s) && step.transfer()) {
                ns += step.predicted_ns;
                bytes += step.link_bytes.at(decode_point(plan.workload));
                ++count;
            }
        lines.push_back(fmt::format("between {} and {}: {} in a decode pass, in {}, {}",
                                    plan.graph.op(plan.stages[s - 1].last_op).name,
                                    plan.graph.op(plan.stages[s].first_op).name, bytes_text(bytes),
                                    count_text(count, "transfer"), time_text(ns)));
    }
}

// What METIS brought, zero included: its device order against the user's, and its stage cut against
// the programme's.
void metis(const Proposals& proposals, const std::vector<Scored>& scored, const Scored& chosen,
           Plan& plan) {
    if (!plan.options.use_metis) {
        plan.why.metis = "not used";
        plan.why.topological_cost_ns = chosen.objective_ns;
        return;
    }
    if (!proposals.metis_failure.empty()) {
        plan.why.metis = "left out: " + proposals.metis_failure;
        plan.why.topological_cost_ns = chosen.objective_ns;
        return;
    }
    int64_t own_cut = 0, without = 0;
    for (const Scored& s : scored) {
        if (!s.refused.empty()) continue;
        bool from_metis = s.proposal->source == Source::kMetisCut || s.proposal->metis_order;
        if (!from_metis && (without == 0 || s.objective_ns < without)) without = s.objective_ns;
        if (from_metis && (own_cut == 0 || s.objective_ns < own_cut)) own_cut = s.objective_ns;
    }
    plan.why.metis_cost_ns = own_cut;
    plan.why.topological_cost_ns = without;
    if (own_cut == 0) {
        plan.why.metis = plan.stages.size() == 1
                             ? "nothing to cut: one stage, and the links are alike"
                             : "its groups are the user's order; its cut was clearly worse by the "
                               "estimate, and not simulated";
    } else if (without == 0 || own_cut < without) {
        plan.why.metis = fmt::format("its {} gained {:.2f} % over the plain order",
                                     chosen.proposal->metis_order ? "device order" : "stage cut",
                                     without == 0 ? 0.0
                                                  : 100.0 * static_cast<double>(without - own_cut) /
                                                        static_cast<double>(without));
    } else {
        plan.why.metis = fmt::format(
            "its best proposal costs {:.2f} % more than the programme's, which was taken",
            100.0 * static_cast<double>(own_cut - without) /
                static_cast<double>(std::max<int64_t>(1, without)));
    }
}

}  // namespace

void explain(const Analysis& analysis, const std::vector<const Proposals*>& passes,
             const std::vector<Scored>& scored, const Scored& chosen, Plan& plan) {
    Proposals proposals;  // what no pass found to be possible, and METIS' failure in any
    for (const Proposals* pass : passes) {
        if (proposals.metis_failure.empty()) proposals.metis_failure = pass->metis_failure;
        for (const std::string& name : pass->impossible)
            if (std::ranges::count(proposals.impossible, name) == 0 &&
                std::ranges::none_of(scored,
                                     [&](const Scored& s) { return s.proposal->shape == name; }))
                proposals.impossible.push_back(name);
    }
    plan.why.binding = binding_constraint(plan);
    explain_unused(scored, chosen, plan);
    repeated_work(analysis, plan);
    runners_up(analysis, proposals, scored, chosen, plan);
    cuts(plan, plan.why.cuts);
    metis(proposals, scored, chosen, plan);
}

void explain_replicas(std::vector<ScoredReplicas> scored, size_t chosen,
                      const std::vector<std::string>& spare, Plan& plan) {
    if (!spare.empty())
        plan.why.binding +=
            fmt::format("; unused: {} (no equal part is left for them)", folded_names(spare));
    const double rate = scored[chosen].tokens_per_second;
    scored.erase(scored.begin() + static_cast<std::ptrdiff_t>(chosen));
    std::ranges::stable_sort(scored, std::greater<>(), &ScoredReplicas::tokens_per_second);
    std::vector<RunnerUp> others;
    for (const ScoredReplicas& one : scored) {
        const double fewer = 100 * (1 - one.tokens_per_second / rate);
        others.push_back(
            {one.shape, one.objective_ns,
             fmt::format("{:.0f} tokens/s, {:.1f} % {}{}", one.tokens_per_second, std::abs(fewer),
                         fewer < 0 ? fmt::format("more, {}", kHarder) : "fewer",
                         first_token(one.ttft_ns))});
    }
    plan.why.runners_up.insert(plan.why.runners_up.begin(), others.begin(), others.end());
}

void compare_heads(PlanBuilder& builder, Placement placement, Plan& plan) {
    const auto& config = plan.graph.config;
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
    const PlanBody other = builder.build(placement);
    const double ratio = static_cast<double>(other.prediction.objective_ns) /
                         static_cast<double>(std::max<int64_t>(1, plan.prediction.objective_ns));
    plan.why.runners_up.push_back({whole ? "the same with whole KV groups on each device"
                                         : "the same with heads cut inside KV groups",
                                   other.prediction.objective_ns,
                                   fits_memory(other)
                                       ? fmt::format("{:.2f} % slower", 100 * (ratio - 1))
                                       : "does not fit in memory"});
}

}  // namespace cleave::planner
