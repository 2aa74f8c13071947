// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/why_not.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "planner/ask/diff.h"
#include "planner/ask/what.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "planner/plan/workload_request.h"
#include "planner/search/simplicity.h"
#include "runtime/base/split.h"

namespace cleave::planner {
namespace {

[[noreturn]] void refuse_what(const std::string& what, const Plan& plan) {
    throw UserError(
        "'{}' is nothing that can be forced; ask for tp=N, pp=N, tp=N,pp=M, replicas=N, a device "
        "({}), or a pin (layers.0-9={})",
        what, plan.machine.devices.back().name, plan.machine.devices.back().name);
}

// "tp=4" and others as changes of the options; false for any other text.
bool force_shape(const std::string& what, PlanOptions& options) {
    int tp = 0, pp = 0, replicas = 0;
    for (const std::string& part : split_at(what, ',')) {
        const size_t equals = part.find('=');
        if (equals == std::string::npos) return false;
        const std::string key = part.substr(0, equals), value = part.substr(equals + 1);
        int* number = key == "tp"         ? &tp
                      : key == "pp"       ? &pp
                      : key == "replicas" ? &replicas
                                          : nullptr;
        if (!number) return false;
        const auto [end, error] =
            std::from_chars(value.data(), value.data() + value.size(), *number);
        if (error != std::errc() || end != value.data() + value.size() || *number < 1 ||
            *number > 1024)
            throw UserError("{}: '{}' is no whole number from 1 to 1024; write {}=N", what, value,
                            key);
    }
    if (tp > 0 || pp > 0) {
        options.tensor_parallel = tp;
        options.pipeline_stages = pp;
    }
    if (replicas > 0) options.replicas = replicas;
    return true;
}

// The best plan that uses the device: with one end or the middle of the model on it.
Outcome with_device(const Plan& plan, const Case& asked, const std::string& device) {
    const auto layers = plan.graph.config.num_layers;
    std::vector<std::string> parts;
    if (layers > 0)
        parts = {fmt::format("layers.{}", layers - 1), "layers.0",
                 fmt::format("layers.{}", layers / 2)};
    else if (!plan.graph.ops.empty())
        parts = {plan.graph.ops.front().name, plan.graph.ops.back().name};
    Outcome best;
    for (const std::string& part : parts) {
        Case forced = asked;
        forced.options.pins.push_back({part, device});
        Outcome outcome = outcome_of(forced);
        const bool better = outcome.plan && (!best.plan || outcome.plan->prediction.objective_ns <
                                                               best.plan->prediction.objective_ns);
        if (better || best.refusal.empty()) {
            if (better || !best.plan) best = std::move(outcome);
        }
    }
    return best;
}

// Whether the plan has what is asked for.
bool has_shape(const Plan& plan, const PlanOptions& forced, const PlanOptions& before) {
    const auto width = static_cast<int>(plan.stages.front().devices.size());
    const bool regular = std::ranges::all_of(
        plan.stages, [&](const Stage& s) { return static_cast<int>(s.devices.size()) == width; });
    const bool forces = forced.tensor_parallel > 0 || forced.pipeline_stages > 0;
    const bool shape =
        (!forces || plan.others.empty()) &&
        (forced.tensor_parallel == 0 || (regular && forced.tensor_parallel == width)) &&
        (forced.pipeline_stages == 0 || forced.pipeline_stages == std::ssize(plan.stages));
    const bool replicas =
        forced.replicas == before.replicas || forced.replicas == plan.num_replicas();
    return shape && replicas;
}

std::string memory_text(const Figures& f) {
    return fmt::format("{} of {} ({})", bytes_text(f.needed), bytes_text(f.capacity), f.fullest);
}

void compare(const Plan& plan, WhyNotAnswer& a) {
    a.forced = figures_of(*a.outcome.plan);
    a.slower = slower_by(a.plan, *a.forced);
    if (const PlanDiff d = diff(plan, *a.outcome.plan); d.moved.empty() && d.devices.empty()) {
        a.verdict = Verdict::kSame;
        a.answer = fmt::format("{} changes nothing: the plan, {}, has it so already.", a.what,
                               a.plan.shape);
        return;
    }
    a.verdict = a.slower < -0.0005 ? Verdict::kBetter : Verdict::kWorse;
    const std::string causes = causes_text(a.plan, *a.forced);
    a.answer =
        fmt::format("{}: {} instead of {} ({}), {}; the fullest device has {}{}.", a.forced->shape,
                    speed_text(*a.forced), speed_text(a.plan), a.plan.shape, slower_text(a.slower),
                    changed_text(memory_text(a.plan), memory_text(*a.forced)),
                    causes.empty() ? "" : fmt::format("; in a decode pass {}", causes));
    if (a.verdict != Verdict::kBetter) return;
    const double simpler = hardship(plan.stages), other = hardship(a.outcome.plan->stages);
    const Plan& forced = *a.outcome.plan;
    const bool by_devices = loses_by_devices(
        forced.prediction.objective_ns, used_devices(forced).size(), plan.prediction.objective_ns,
        used_devices(plan).size(), plan.options.objective);
    a.answer += row_of(plan.options.objective).fewest_devices
                    ? " The objective is the fewest devices, not time."
                : by_devices ? fmt::format(" It was not taken: {}.",
                                           row_of(plan.options.objective).leaves_out)
                : other > simpler
                    ? " It was not taken: its stages are harder to run (unequal widths, a layer "
                      "in two, or more stages), and that must gain up to 7 %."
                : plan.options.tensor_parallel > 0 || plan.options.pipeline_stages > 0 ||
                        !plan.options.pins.empty()
                    ? " The plan's own shape or pins were forced."
                    : " The search did not find it: its estimate was worse than its simulation.";
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::kSame: return "same";
        case Verdict::kWorse: return "worse";
        case Verdict::kBetter: return "better";
        case Verdict::kNoMemory: return "no memory";
        case Verdict::kForbidden: return "forbidden";
    }
    return "";
}

WhyNotAnswer why_not(const Plan& plan, const Case& asked, const std::string& what) {
    WhyNotAnswer a{.what = what};
    a.plan = figures_of(plan);
    Case forced = asked;
    const auto same = [&](const std::string& text) {
        a.verdict = Verdict::kSame;
        a.answer = text;
        return a;
    };
    if (force_shape(what, forced.options)) {
        if (has_shape(plan, forced.options, asked.options))
            return same(fmt::format("The plan is that: {}.", a.plan.shape));
        a.outcome = outcome_of(forced);
    } else if (what.find('=') != std::string::npos) {
        const Pin pin = parse_pin(what);
        if (find_part(plan, pin.what).ops.empty()) refuse_what(what, plan);
        find_device(asked.machine, pin.device);
        // It replaces what was pinned there.
        std::erase_if(forced.options.pins, [&](const Pin& p) { return p.what == pin.what; });
        forced.options.pins.push_back(pin);
        a.outcome = outcome_of(forced);
    } else {
        DeviceId device;
        try {
            device = find_device(asked.machine, what);
        } catch (const UserError&) {
            refuse_what(what, plan);
        }
        const std::string& name = asked.machine.device(device).name;
        if (used_device_names(plan).contains(name))
            return same(fmt::format("{} is used; why it has what it has: `why` {}.", name, name));
        a.outcome = with_device(plan, asked, name);
    }
    if (a.outcome.plan) {
        compare(plan, a);
    } else if (a.outcome.lacks_memory) {
        a.verdict = Verdict::kNoMemory;
        a.answer = fmt::format("{} does not fit: it {}.", what, a.outcome.refusal);
        if (!a.outcome.fixes.empty())
            a.answer += fmt::format(" What would fit: {}.", a.outcome.fixes.front());
    } else {
        a.verdict = Verdict::kForbidden;
        a.answer = fmt::format("{} is not possible: {}.", what, a.outcome.refusal);
    }
    return a;
}

}  // namespace cleave::planner
