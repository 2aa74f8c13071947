// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/what_if.h"

#include <fmt/ranges.h>

#include "planner/plan/text_table.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

std::string room_text(const Figures& f) {
    return fmt::format("{}", f.room.max_sequences * f.replicas);
}

std::string rates_text(const Figures& a, const Figures& b) {
    if (a.users > 0)
        return fmt::format("{} tokens/s for {} users instead of {} for {}", rate_text(b), b.users,
                           rate_text(a), a.users);
    return fmt::format("{} a token instead of {}, {}; {} tokens/s instead of {}",
                       time_text(b.objective_ns), time_text(a.objective_ns),
                       slower_text(slower_by(a, b)), rate_text(b), rate_text(a));
}

}  // namespace

std::string change_text(const Change& c) {
    std::vector<std::string> parts;
    for (const std::string& list : c.add) parts.push_back(list + " more");
    for (const std::string& list : c.remove) parts.push_back("without " + list);
    if (c.batch > 0) parts.push_back(fmt::format("batch {}", c.batch));
    if (c.context > 0) parts.push_back(fmt::format("context {}", c.context));
    if (c.dtype) parts.push_back(fmt::format("{} weights", *c.dtype));
    if (c.kv_dtype) parts.push_back(fmt::format("{} KV cache", *c.kv_dtype));
    for (const auto& [kind, factor] : c.links)
        parts.push_back(fmt::format("{} {:g} times as fast", kind, factor));
    return fmt::format("{}", fmt::join(parts, ", "));
}

Case changed(Case asked, const Change& change) {
    const size_t before = asked.machine.devices.size();
    for (const std::string& list : change.add) asked.machine = with_devices(asked.machine, list);
    for (const std::string& list : change.remove)
        asked.machine = without_devices(asked.machine, list);
    for (const auto& [kind, factor] : change.links)
        asked.machine = with_links(std::move(asked.machine), kind, factor);
    if (asked.machine.devices.size() != before)
        asked.options.tensor_parallel = asked.options.pipeline_stages = 0;
    if (change.batch > 0) {
        asked.workload.batch = change.batch;
        asked.options.most_users = false;
    }
    if (change.context > 0) asked.workload.context = change.context;
    if (change.dtype) asked.workload.dtype = change.dtype;
    if (change.kv_dtype) asked.workload.kv_dtype = change.kv_dtype;
    return asked;
}

WhatIfAnswer what_if(const Plan& plan, const Case& asked, const Change& change) {
    WhatIfAnswer a;
    a.before = figures_of(plan);
    const Case then = changed(asked, change);
    a.shape_was_freed = (asked.options.tensor_parallel > 0 || asked.options.pipeline_stages > 0) &&
                        then.machine.devices.size() != asked.machine.devices.size();
    if (change.context > 0) a.outcome.refusal = why_no_context(asked.graph, change.context);
    if (a.outcome.refusal.empty()) a.outcome = outcome_of(then);
    const std::string text = change_text(change);
    if (!a.outcome.plan) {
        a.answer = fmt::format("With {}: {}{}.", text,
                               a.outcome.lacks_memory ? "it does not fit, it " : "not possible, ",
                               a.outcome.refusal);
        if (!a.outcome.fixes.empty())
            a.answer += fmt::format(" It would with {}.", a.outcome.fixes.front());
        return a;
    }
    a.diff = diff(plan, *a.outcome.plan);
    a.after = a.diff->b;
    a.answer = fmt::format(
        "With {}: {}, {}. Room for {} sequences of {} instead of {} of {}; the fullest device is "
        "{} with {} of {}.",
        text, a.after->shape, rates_text(a.before, *a.after), room_text(*a.after),
        a.outcome.plan->workload.context, room_text(a.before), plan.workload.context,
        a.after->fullest, bytes_text(a.after->needed), bytes_text(a.after->capacity));
    if (a.after->devices < a.after->given)
        a.answer += fmt::format(" {} of {} devices are used: {}.", a.after->devices, a.after->given,
                                a.outcome.plan->why.binding);
    if (a.shape_was_freed) a.answer += " The shape, which was forced, is the planner's choice.";
    return a;
}

}  // namespace cleave::planner
