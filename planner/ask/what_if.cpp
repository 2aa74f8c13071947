// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/what_if.h"

#include <fmt/ranges.h>

#include "planner/plan/text_table.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

std::string room_text(const Plan& plan, const Figures& f) {
    return fmt::format("{} sequences of {}", f.sequences, plan.workload.context);
}

std::string rates_text(const Figures& a, const Figures& b) {
    const auto users = [](const Figures& f) {
        return fmt::format("{} tokens/s for {} users", rate_text(f), f.users);
    };
    if (a.users > 0) return changed_text(users(a), users(b));
    const double slower = slower_by(a, b);
    const std::string token =
        slower_text(slower) == slower_text(0)
            ? time_text(b.objective_ns) + " a token as before"
            : fmt::format("{} a token instead of {}, {}", time_text(b.objective_ns),
                          time_text(a.objective_ns), slower_text(slower));
    return fmt::format("{}; {}", token,
                       changed_text(rate_text(a) + " tokens/s", rate_text(b) + " tokens/s"));
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
    std::string text = change_text(change);
    text = text.starts_with("without") ? "W" + text.substr(1) : "With " + text;
    if (!a.outcome.plan) {
        a.answer = fmt::format("{}: {}{}.", text,
                               a.outcome.lacks_memory ? "it does not fit, it " : "not possible, ",
                               a.outcome.refusal);
        if (!a.outcome.fixes.empty())
            a.answer += fmt::format(" What would fit: {}.", a.outcome.fixes.front());
        return a;
    }
    a.diff = diff(plan, *a.outcome.plan);
    a.after = a.diff->b;
    a.answer =
        fmt::format("{}: {}, {}. Room for {}; the fullest device is {} with {} of {}.", text,
                    changed_text(a.before.shape, a.after->shape), rates_text(a.before, *a.after),
                    changed_text(room_text(plan, a.before), room_text(*a.outcome.plan, *a.after)),
                    a.after->fullest, bytes_text(a.after->needed), bytes_text(a.after->capacity));
    if (const std::string unused = unused_text(*a.outcome.plan); !unused.empty())
        a.answer += fmt::format(" {} of {} devices are used; unused: {}.", a.after->devices,
                                a.after->given, unused);
    if (a.shape_was_freed) a.answer += " The shape, which was forced, is the planner's choice.";
    return a;
}

}  // namespace cleave::planner
