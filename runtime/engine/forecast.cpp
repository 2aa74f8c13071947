// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/forecast.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "planner/plan/kv_room.h"
#include "runtime/base/errors.h"
#include "runtime/engine/pass_costs.h"

namespace cleave::runtime {

namespace {

// A server without devices: its clock goes from event to event.
class ForecastRun {
public:
    ForecastRun(const planner::Plan& plan, const SchedulerOptions& options, PassCosts& costs)
        : costs_(costs),
          limits_(limits_of(plan)),
          scheduler_(limits_, options),
          stage_free_(plan.stages.size()),
          stage_busy_(plan.stages.size()) {}

    Forecast run(const std::vector<TraceRequest>& trace);

private:
    struct Timed {
        ScheduledPass pass;
        double end_ms = 0;
    };
    struct Progress {
        double arrival_ms = 0, last_ms = 0;
        int64_t tokens = 0;
    };

    void arrive(const TraceRequest& request);
    void give_passes();
    void end_pass();
    void move_clock(double to_ms);
    void finish(const std::vector<TraceRequest>& trace);

    PassCosts& costs_;
    EngineLimits limits_;
    Scheduler scheduler_;
    double now_ms_ = 0;
    std::vector<double> stage_free_;  // when each stage has ended its passes so far
    std::vector<double> stage_busy_;
    std::deque<Timed> passes_;
    std::map<RequestId, Progress> progress_;
    std::vector<double> first_ms_, gaps_ms_, whole_ms_;
    double kv_time_ = 0, sequences_time_ = 0;  // integrals over time
    Forecast result_;
};

// Tokens stand for none: nothing is shared and nothing reads them.
void ForecastRun::arrive(const TraceRequest& request) {
    ScheduledRequest scheduled{.max_new_tokens = request.output_tokens};
    Admission admission{.reason = {}};
    if (request.prompt_tokens <= limits_.context) {
        scheduled.prompt.resize(static_cast<size_t>(request.prompt_tokens));
        admission = scheduler_.add(std::move(scheduled));
    } else {
        admission.reason = fmt::format("a prompt of {} tokens; the context has {}",
                                       request.prompt_tokens, limits_.context);
    }
    if (!admission.request) {
        if (result_.refused++ == 0) result_.refusal = admission.reason;
        return;
    }
    ++result_.requests;
    result_.prompt_tokens += request.prompt_tokens;
    progress_[*admission.request] = {.arrival_ms = request.arrival_ms};
}

// Stages take passes in order, each as soon as the stage before has ended it.
void ForecastRun::give_passes() {
    while (auto pass = scheduler_.next()) {
        std::vector<double> spans = costs_.stage_ns(size_of(pass->batch));
        double at = now_ms_;
        for (size_t s = 0; s < spans.size(); ++s) {
            at = std::max(at, stage_free_[s]) + spans[s] / 1e6;
            stage_free_[s] = at;
            stage_busy_[s] += spans[s] / 1e6;
        }
        passes_.push_back({*std::move(pass), at});
    }
}

void ForecastRun::end_pass() {
    Timed timed = std::move(passes_.front());
    passes_.pop_front();
    for (const ScheduledOutput& output : timed.pass.outputs) {
        Progress& progress = progress_.at(output.request);
        if (progress.tokens++ == 0) {
            first_ms_.push_back(now_ms_ - progress.arrival_ms);
        } else {
            gaps_ms_.push_back(now_ms_ - progress.last_ms);
        }
        progress.last_ms = now_ms_;
        ++result_.output_tokens;
        if (!output.is_last) continue;
        whole_ms_.push_back(now_ms_ - progress.arrival_ms);
        progress_.erase(output.request);
    }
    scheduler_.done(timed.pass.id, std::vector<OutputToken>(timed.pass.outputs.size()));
}

void ForecastRun::move_clock(double to_ms) {
    SchedulerStatistics now = scheduler_.statistics();
    int64_t held = now.blocks_held * planner::kKvBlock;
    result_.most_kv_tokens = std::max(result_.most_kv_tokens, held);
    kv_time_ += static_cast<double>(held) * (to_ms - now_ms_);
    sequences_time_ += static_cast<double>(now.running) * (to_ms - now_ms_);
    now_ms_ = to_ms;
}

void ForecastRun::finish(const std::vector<TraceRequest>& trace) {
    SchedulerStatistics end = scheduler_.statistics();
    double ms = std::max(1e-9, now_ms_ - trace.front().arrival_ms);
    result_.seconds = ms / 1e3;
    result_.tokens_per_second = static_cast<double>(result_.output_tokens) * 1e3 / ms;
    auto both = [](const std::vector<double>& values) {
        return Percentiles{percentile(values, 0.5), percentile(values, 0.99)};
    };
    result_.first_token_ms = both(first_ms_);
    result_.token_gap_ms = both(gaps_ms_);
    result_.request_ms = both(whole_ms_);
    result_.kv_tokens = planner::kv_tokens(limits_.num_blocks);
    result_.mean_kv_use = kv_time_ / ms / static_cast<double>(result_.kv_tokens);
    result_.mean_sequences = sequences_time_ / ms;
    result_.passes = end.passes;
    result_.preemptions = end.preemptions;
    for (double busy : stage_busy_) result_.stage_busy.push_back(busy / ms);
}

Forecast ForecastRun::run(const std::vector<TraceRequest>& trace) {
    size_t arrived = 0;
    while (arrived < trace.size() || !scheduler_.idle()) {
        while (arrived < trace.size() && trace[arrived].arrival_ms <= now_ms_) {
            arrive(trace[arrived++]);
        }
        give_passes();
        double arrival = arrived < trace.size() ? trace[arrived].arrival_ms : INFINITY;
        double end = passes_.empty() ? INFINITY : passes_.front().end_ms;
        if (arrival == INFINITY && end == INFINITY) break;
        // Before the first arrival nothing is measured.
        if (arrived == 0) {
            now_ms_ = arrival;
        } else {
            move_clock(std::min(arrival, end));
        }
        if (end <= arrival && end != INFINITY) end_pass();
    }
    CLEAVE_CHECK(scheduler_.idle()) << "requests wait and no pass is given";
    finish(trace);
    return std::move(result_);
}

}  // namespace

double percentile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    auto place = values.begin() + static_cast<ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
    std::ranges::nth_element(values, place);
    return *place;
}

Forecast forecast(const planner::Plan& plan, const std::vector<TraceRequest>& trace,
                  SchedulerOptions options) {
    CLEAVE_CHECK(!trace.empty()) << "a trace without requests";
    PassCosts costs(plan);
    options.share_prefixes = false;
    options.max_queue = std::max<int64_t>(1, static_cast<int64_t>(trace.size()));
    if (options.groups == 0) {
        int64_t past = plan.workload.decode_past();
        options.groups = costs.best_groups(plan.workload.batch, past);
    }
    Forecast result = ForecastRun(plan, options, costs).run(trace);
    result.groups = options.groups;
    return result;
}

}  // namespace cleave::runtime
