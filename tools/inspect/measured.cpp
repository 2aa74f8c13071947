// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/measured.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/step_words.h"
#include "runtime/execute/predicted_passes.h"

namespace cleave::tools {

using namespace planner;
using runtime::TraceEvent;
using runtime::TracePass;

namespace {

using Numbers = std::vector<int64_t>;

int64_t median(Numbers numbers) {
    if (numbers.empty()) return 0;
    const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
    std::nth_element(numbers.begin(), middle, numbers.end());
    return *middle;
}

// Passes of the most frequent number of tokens, of those the larger.
std::vector<TracePass> alike(const runtime::Trace& trace, bool is_prefill, int64_t& all) {
    std::map<int64_t, std::vector<TracePass>> by_tokens;
    std::map<int32_t, bool> has_events;
    for (const TraceEvent& e : trace.events) has_events[e.pass] = true;
    all = 0;
    for (const TracePass& pass : trace.passes) {
        if (pass.is_prefill != is_prefill || !has_events.count(pass.number)) continue;
        by_tokens[pass.tokens].push_back(pass);
        ++all;
    }
    std::vector<TracePass> most;
    for (auto& [tokens, passes] : by_tokens)
        if (passes.size() >= most.size()) most = std::move(passes);
    return most;
}

// What one step took on one device, by pass.
struct Samples {
    Numbers start, end, ready, work, waiting;
};

class Comparison {
public:
    Comparison(const Plan& plan, const runtime::Trace& trace, bool is_prefill,
               runtime::PredictedPasses& predicted)
        : plan_(plan), phase_(plan.phase(is_prefill)), trace_(trace), predicted_(predicted) {
        result_.is_prefill = is_prefill;
    }

    std::optional<MeasuredPass> run() {
        const std::vector<TracePass> passes = alike(trace_, result_.is_prefill, result_.num_passes);
        if (passes.empty()) return {};
        result_.compared = std::ssize(passes);
        Numbers keys, outputs;
        for (const TracePass& pass : passes) {
            keys.push_back(pass.keys);
            outputs.push_back(pass.outputs);
        }
        result_.size = passes.front();
        result_.size.keys = median(keys);
        result_.size.outputs = median(outputs);
        collect(passes);
        const std::vector<StepSpan>& spans = predicted_.of(result_.size);
        result_.predicted_ns = runtime::pass_ns(spans);
        for (size_t d = 0; d < plan_.machine.devices.size(); ++d)
            result_.devices.push_back(device(DeviceId(d), spans));
        std::ranges::stable_sort(result_.differences, std::greater<>(),
                                 [](const Difference& d) { return std::abs(d.difference_ns()); });
        return std::move(result_);
    }

private:
    void collect(const std::vector<TracePass>& passes) {
        std::map<int32_t, std::vector<const TraceEvent*>> events;
        for (const TracePass& pass : passes) events[pass.number];
        for (const TraceEvent& e : trace_.events)
            if (const auto at = events.find(e.pass); at != events.end()) at->second.push_back(&e);
        Numbers lengths;
        for (const auto& [pass, list] : events) {
            int64_t begin = INT64_MAX, end = INT64_MIN;
            for (const TraceEvent* e : list) {
                begin = std::min(begin, e->start_ns);
                end = std::max(end, e->end_ns);
            }
            lengths.push_back(end - begin);
            add(list, begin);
        }
        result_.measured_ns = median(lengths);
    }

    // When a step has all that it waits for, and who came last.
    struct Ready {
        int64_t ns = INT64_MIN;
        DeviceId last;
    };
    std::map<StepId, Ready> readiness(const std::vector<const TraceEvent*>& events) const {
        std::map<StepId, Ready> ready;
        for (const TraceEvent* e : events) {
            const Transfer* transfer = phase_.steps[e->step.index()].transfer();
            if (transfer && phase_.values[transfer->source.index()].device != e->device) continue;
            Ready& of = ready[e->step];
            if (e->start_ns > of.ns) of = {e->start_ns, e->device};
        }
        return ready;
    }

    void add(const std::vector<const TraceEvent*>& events, int64_t begin) {
        const std::map<StepId, Ready> ready = readiness(events);
        for (const TraceEvent* e : events) {
            int64_t from = e->start_ns;
            if (const auto at = ready.find(e->step);
                at != ready.end() && !phase_.steps[e->step.index()].compute()) {
                from = std::clamp(at->second.ns, e->start_ns, e->end_ns);
                if (at->second.last != e->device) ++late_[{e->device, e->step}][at->second.last];
            }
            Samples& samples = samples_[{e->device, e->step}];
            samples.start.push_back(e->start_ns - begin);
            samples.end.push_back(e->end_ns - begin);
            samples.ready.push_back(from - begin);
            samples.work.push_back(e->end_ns - from);
            samples.waiting.push_back(from - e->start_ns);
        }
    }

    MeasuredDevice device(DeviceId id, const std::vector<StepSpan>& spans) {
        MeasuredDevice device;
        device.device = id;
        int64_t before = 0;  // the predicted end of the step before
        for (size_t i = 0; i < phase_.steps.size(); ++i) {
            const auto at = samples_.find({id, StepId(i)});
            if (at == samples_.end()) continue;
            const Samples& s = at->second;
            MeasuredStep step;
            step.step = StepId(i);
            step.start_ns = median(s.start);
            step.end_ns = std::max(step.start_ns, median(s.end));
            step.ready_ns = std::clamp(median(s.ready), step.start_ns, step.end_ns);
            step.work_ns = median(s.work);
            step.waiting_ns = median(s.waiting);
            step.predicted_start_ns = spans[i].start_ns;
            step.predicted_end_ns = spans[i].end_ns;
            step.predicted_fixed_ns = spans[i].fixed_ns;
            step.predicted_waiting_ns = std::max<int64_t>(0, spans[i].start_ns - before);
            before = spans[i].end_ns;
            const bool computes = phase_.steps[i].compute() != nullptr;
            (computes ? device.measured.compute_ns : device.measured.exchange_ns) += step.work_ns;
            (computes ? device.predicted.compute_ns : device.predicted.exchange_ns) +=
                step.predicted_ns();
            device.steps.push_back(step);
        }
        const auto rest = [](int64_t whole, const TimeSums& sums) {
            return std::max<int64_t>(0, whole - sums.compute_ns - sums.exchange_ns);
        };
        device.measured.waiting_ns = rest(result_.measured_ns, device.measured);
        device.predicted.waiting_ns = rest(result_.predicted_ns, device.predicted);
        if (!device.steps.empty()) differences(device);
        return device;
    }

    // Steps of a device that do the same.
    struct Group {
        Difference work, wait;
        int64_t fixed_ns = 0, bytes = 0, flops = 0;
        std::map<DeviceId, int64_t> late;
    };

    void differences(const MeasuredDevice& device) {
        std::map<std::string, Group> groups;
        for (const MeasuredStep& s : device.steps) {
            const Step& step = phase_.steps[s.step.index()];
            Group& group = groups[step_words(plan_.graph, step)];
            ++group.work.steps;
            group.work.measured_ns += s.work_ns;
            group.work.predicted_ns += s.predicted_ns();
            group.wait.measured_ns += s.waiting_ns;
            group.wait.predicted_ns += s.predicted_waiting_ns;
            group.fixed_ns += s.predicted_fixed_ns;
            group.bytes += step_bytes(step, runtime::point_of(result_.size));
            if (const Compute* c = step.compute())
                group.flops += c->flops.at(runtime::point_of(result_.size));
            if (const auto late = late_.find({device.device, s.step}); late != late_.end())
                for (const auto& [by, times] : late->second) group.late[by] += times;
        }
        for (auto& [what, group] : groups) {
            group.work.device = group.wait.device = device.device;
            group.work.what = group.wait.what = what;
            group.wait.steps = group.work.steps;
            add_work(group);
            add_wait(group);
        }
        add_rest(device);
    }

    void add_work(Group& group) {
        Difference& d = group.work;
        d.cause = 2 * group.fixed_ns > d.predicted_ns ? Cause::kLaunch : Cause::kRate;
        const auto each = [&](int64_t ns) { return time_text(ns / d.steps); };
        d.says = d.cause == Cause::kLaunch
                     ? fmt::format("{} each, not {}", each(d.measured_ns), each(d.predicted_ns))
                     : rates(group);
        result_.differences.push_back(d);
    }

    // By what bounds it: bytes, or operations.
    std::string rates(const Group& group) const {
        const Difference& d = group.work;
        const DeviceInfo& info = plan_.machine.device(d.device);
        const double by_bytes = static_cast<double>(group.bytes) /
                                static_cast<double>(std::max<int64_t>(1, info.memory_bandwidth));
        const double by_flops = static_cast<double>(group.flops) /
                                static_cast<double>(std::max<int64_t>(1, info.flops_f32));
        const bool computes = by_flops > by_bytes;
        const auto rate = [&](int64_t ns) {
            const double amount = static_cast<double>(computes ? group.flops : group.bytes);
            return fmt::format("{:.3g}", ns > 0 ? amount / static_cast<double>(ns) : 0.0);
        };
        return fmt::format("{} {}, not {}", rate(d.measured_ns), computes ? "GFLOP/s" : "GB/s",
                           rate(d.predicted_ns));
    }

    void add_wait(Group& group) {
        Difference& d = group.wait;
        if (d.measured_ns == 0 && d.predicted_ns == 0) return;
        d.cause = Cause::kWaiting;
        int64_t times = 0;
        DeviceId last;
        for (const auto& [by, count] : group.late) {
            if (!last.valid() || count > group.late[last]) last = by;
            times += count;
        }
        if (last.valid())
            d.says = fmt::format("for {}, last in {} of {}", plan_.machine.device(last).name,
                                 group.late[last], d.steps * result_.compared);
        result_.differences.push_back(d);
    }

    // What no step has: between them, and before the first and behind the last.
    void add_rest(const MeasuredDevice& device) {
        const MeasuredStep& first = device.steps.front();
        const MeasuredStep& last = device.steps.back();
        Difference ends{device.device,
                        Cause::kWaiting,
                        "before and behind its steps",
                        0,
                        0,
                        0,
                        "other devices are at work"};
        ends.measured_ns = first.start_ns + std::max<int64_t>(0, result_.measured_ns - last.end_ns);
        // Before the first it waits for that step, which has it above.
        ends.predicted_ns = std::max<int64_t>(0, result_.predicted_ns - last.predicted_end_ns);
        if (ends.measured_ns > 0 || ends.predicted_ns > 0) result_.differences.push_back(ends);
        Difference between{device.device,
                           Cause::kLaunch,
                           "between steps",
                           std::ssize(device.steps),
                           0,
                           0,
                           "from one step to the next"};
        for (size_t i = 1; i < device.steps.size(); ++i)
            between.measured_ns +=
                std::max<int64_t>(0, device.steps[i].start_ns - device.steps[i - 1].end_ns);
        if (between.measured_ns > 0) result_.differences.push_back(between);
    }

    const Plan& plan_;
    const Phase& phase_;
    const runtime::Trace& trace_;
    runtime::PredictedPasses& predicted_;
    std::map<std::pair<DeviceId, StepId>, Samples> samples_;
    std::map<std::pair<DeviceId, StepId>, std::map<DeviceId, int64_t>> late_;
    MeasuredPass result_;
};

}  // namespace

std::string_view cause_name(Cause cause) {
    constexpr std::string_view kNames[] = {"rate", "launch", "waiting"};
    return kNames[static_cast<size_t>(cause)];
}

Measured compare_with_trace(const Plan& plan, const runtime::Trace& trace,
                            const std::string& path) {
    Measured measured;
    measured.trace = path;
    runtime::PredictedPasses predicted(plan);
    for (bool is_prefill : {false, true})
        measured.pass[is_prefill ? 1 : 0] = Comparison(plan, trace, is_prefill, predicted).run();
    return measured;
}

}  // namespace cleave::tools
