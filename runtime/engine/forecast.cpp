// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/forecast.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "planner/plan/plan_queries.h"
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
          options_(options),
          scheduler_(limits_, options),
          stage_free_(plan.stages.size()),
          host_free_(costs.num_hosts()),
          stage_busy_(plan.stages.size()) {}

    ServeReport run(const std::vector<TraceRequest>& trace);

private:
    struct Timed {
        ScheduledPass pass;
        double begin_ms = 0, end_ms = 0;
    };

    void arrive(const TraceRequest& request);
    void give_passes();
    void end_pass();
    void move_clock(double to_ms);

    PassCosts& costs_;
    EngineLimits limits_;
    SchedulerOptions options_;
    Scheduler scheduler_;
    double now_ms_ = 0;
    std::vector<double> stage_free_;  // when each stage has ended its passes so far
    std::vector<double> host_free_;   // and each host's cores
    std::vector<double> stage_busy_;
    std::deque<Timed> passes_;
    ServeMeter meter_;
};

// Tokens stand for none: nothing is shared and nothing reads them.
void ForecastRun::arrive(const TraceRequest& request) {
    ScheduledRequest scheduled{.max_new_tokens = request.output_tokens};
    Admission admission{.reason = prompt_too_long(request, limits_.context)};
    if (admission.reason.empty()) {
        scheduled.prompt.resize(static_cast<size_t>(request.prompt_tokens));
        admission = scheduler_.add(std::move(scheduled));
    }
    if (admission.request)
        meter_.arrive(*admission.request, request.arrival_ms, request.prompt_tokens);
    else
        meter_.refuse(admission.reason);
}

// Stages take passes in order, each as soon as the stage before has ended it, and the cores that it
// shares with others are free.
void ForecastRun::give_passes() {
    while (auto pass = scheduler_.next()) {
        std::vector<double> spans = costs_.stage_ns(size_of(pass->batch));
        double at = now_ms_;
        for (size_t s = 0; s < spans.size(); ++s) {
            at = std::max(at, stage_free_[s]);
            for (const size_t host : costs_.hosts_of_stages()[s])
                at = std::max(at, host_free_[host]);
            at += spans[s] / 1e6;
            stage_free_[s] = at;
            for (const size_t host : costs_.hosts_of_stages()[s]) host_free_[host] = at;
            stage_busy_[s] += spans[s] / 1e6;
        }
        passes_.push_back({*std::move(pass), now_ms_, at});
    }
}

void ForecastRun::end_pass() {
    Timed timed = std::move(passes_.front());
    passes_.pop_front();
    meter_.pass(timed.end_ms - timed.begin_ms);
    for (const ScheduledOutput& output : timed.pass.outputs)
        meter_.token(output.request, now_ms_, output.is_last);
    scheduler_.done(timed.pass.id, std::vector<OutputToken>(timed.pass.outputs.size()));
}

void ForecastRun::move_clock(double to_ms) {
    meter_.use(to_ms, scheduler_.statistics());
    now_ms_ = to_ms;
}

ServeReport ForecastRun::run(const std::vector<TraceRequest>& trace) {
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
    ServeReport report = meter_.report(limits_, options_, scheduler_.statistics());
    const double ms = std::max(1e-9, report.seconds * 1e3);
    for (double busy : stage_busy_) report.stage_busy.push_back(busy / ms);
    return report;
}

}  // namespace

ServeReport forecast(const planner::Plan& plan, const std::vector<TraceRequest>& trace,
                     SchedulerOptions options) {
    CLEAVE_CHECK(!trace.empty()) << "a trace without requests";
    demand_one_replica(plan, "a forecast is of");
    PassCosts costs(plan);
    options.share_prefixes = false;
    options.max_queue = std::max<int64_t>(1, static_cast<int64_t>(trace.size()));
    if (options.groups == 0) {
        int64_t past = plan.workload.decode_past();
        options.groups = costs.best_groups(plan.workload.batch, past);
    }
    return ForecastRun(plan, options, costs).run(trace);
}

}  // namespace cleave::runtime
