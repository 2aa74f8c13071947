// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/forecast.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "planner/cost/groups.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/engine/engine_group.h"
#include "runtime/engine/pass_costs.h"

namespace cleave::runtime {

namespace {

// A replica of a plan without devices. It tells `meter` of what happens.
class ForecastReplica {
public:
    // Replica `number` of `count`; `plan` is its own.
    ForecastReplica(planner::Plan plan, const SchedulerOptions& options, int64_t number,
                    int64_t count, ServeMeter& meter)
        : plan_(std::move(plan)),
          costs_(plan_),
          limits_(limits_of(plan_)),
          options_(with_groups(options)),
          scheduler_(limits_, options_),
          number_(number),
          count_(count),
          stage_free_(plan_.stages.size()),
          host_free_(costs_.num_hosts()),
          stage_busy_(plan_.stages.size()),
          meter_(meter) {}

    // Whether the request is taken; else `reason`, where it has none yet, says why not.
    bool arrive(const TraceRequest& request, std::string& reason);
    void give_passes(double now_ms);
    void end_pass();
    // Of its oldest pass in flight; infinity: there is none.
    double next_end_ms() const { return passes_.empty() ? INFINITY : passes_.front().end_ms; }
    double load() const { return load_of(requests_, limits_); }
    const Scheduler& scheduler() const { return scheduler_; }
    const EngineLimits& limits() const { return limits_; }
    const SchedulerOptions& options() const { return options_; }
    const std::vector<double>& stage_busy() const { return stage_busy_; }

private:
    struct Timed {
        ScheduledPass pass;
        double begin_ms = 0, end_ms = 0;
    };

    SchedulerOptions with_groups(SchedulerOptions options) {
        if (options.groups == 0)
            options.groups = planner::groups_in_flight(plan_, plan_.workload.batch);
        return options;
    }
    int64_t of_meter(RequestId request) const { return request * count_ + number_; }

    planner::Plan plan_;
    PassCosts costs_;
    EngineLimits limits_;
    SchedulerOptions options_;
    Scheduler scheduler_;
    int64_t number_, count_, requests_ = 0;
    std::vector<double> stage_free_;  // when each stage has ended its passes so far
    std::vector<double> host_free_;   // and each host's cores
    std::vector<double> stage_busy_;
    std::deque<Timed> passes_;
    ServeMeter& meter_;
};

// A server without devices: its clock goes from event to event.
class ForecastRun {
public:
    ForecastRun(const planner::Plan& plan, const SchedulerOptions& options) {
        const int64_t count = plan.num_replicas();
        for (int64_t r = 0; r < count; ++r)
            replicas_.push_back(std::make_unique<ForecastReplica>(planner::replica_plan(plan, r),
                                                                  options, r, count, meter_));
    }

    ServeReport run(const std::vector<TraceRequest>& trace);

private:
    void arrive(const TraceRequest& request);
    bool is_idle() const;
    SchedulerStatistics statistics() const;
    void move_clock(double to_ms);
    ServeReport report();

    ServeMeter meter_;
    std::vector<std::unique_ptr<ForecastReplica>> replicas_;
    double now_ms_ = 0;
};

// Tokens stand for none: nothing is shared and nothing reads them.
bool ForecastReplica::arrive(const TraceRequest& request, std::string& reason) {
    ScheduledRequest scheduled{.max_new_tokens = request.output_tokens};
    Admission admission{.reason = prompt_too_long(request, limits_.context)};
    if (admission.reason.empty()) {
        scheduled.prompt.resize(static_cast<size_t>(request.prompt_tokens));
        admission = scheduler_.add(std::move(scheduled));
    }
    if (admission.request) {
        ++requests_;
        meter_.arrive(of_meter(*admission.request), request.arrival_ms, request.prompt_tokens);
        return true;
    }
    if (reason.empty()) reason = admission.reason;
    return false;
}

// Stages take passes in order, each as soon as what the stage before has made of it is there, and
// the cores that it shares with others are free.
void ForecastReplica::give_passes(double now_ms) {
    while (auto pass = scheduler_.next()) {
        const std::vector<StageTime> times = costs_.stage_times(size_of(pass->batch));
        double at = now_ms;
        for (size_t s = 0; s < times.size(); ++s) {
            at = std::max(at, stage_free_[s]);
            for (const size_t host : costs_.hosts_of_stages()[s])
                at = std::max(at, host_free_[host]);
            const double own_ms = times[s].own_ns / 1e6;
            stage_free_[s] = at + own_ms;
            for (const size_t host : costs_.hosts_of_stages()[s]) host_free_[host] = at + own_ms;
            stage_busy_[s] += own_ms;
            at += times[s].whole_ns / 1e6;
        }
        passes_.push_back({*std::move(pass), now_ms, at});
    }
}

void ForecastReplica::end_pass() {
    Timed timed = std::move(passes_.front());
    passes_.pop_front();
    meter_.pass(timed.end_ms - timed.begin_ms);
    for (const ScheduledOutput& output : timed.pass.outputs) {
        meter_.token(of_meter(output.request), timed.end_ms, output.is_last);
        if (output.is_last) --requests_;
    }
    scheduler_.done(timed.pass.id, std::vector<OutputToken>(timed.pass.outputs.size()));
}

// As EngineGroup: to the replica with the fewest for its slots that takes it.
void ForecastRun::arrive(const TraceRequest& request) {
    std::vector<ForecastReplica*> order;
    for (const auto& replica : replicas_) order.push_back(replica.get());
    std::ranges::stable_sort(order, {}, &ForecastReplica::load);
    std::string reason;
    for (ForecastReplica* replica : order)
        if (replica->arrive(request, reason)) return;
    meter_.refuse(reason);
}

bool ForecastRun::is_idle() const {
    return std::ranges::all_of(replicas_,
                               [](const auto& replica) { return replica->scheduler().idle(); });
}

SchedulerStatistics ForecastRun::statistics() const {
    SchedulerStatistics sum;
    for (const auto& replica : replicas_) sum = sum + replica->scheduler().statistics();
    return sum;
}

void ForecastRun::move_clock(double to_ms) {
    meter_.use(to_ms, statistics());
    now_ms_ = to_ms;
}

ServeReport ForecastRun::report() {
    EngineLimits limits = replicas_[0]->limits();
    for (size_t r = 1; r < replicas_.size(); ++r)
        limits.num_blocks += replicas_[r]->limits().num_blocks - 1;
    ServeReport report = meter_.report(limits, replicas_[0]->options(), statistics());
    const double ms = std::max(1e-9, report.seconds * 1e3);
    for (const auto& replica : replicas_)
        for (const double busy : replica->stage_busy()) report.stage_busy.push_back(busy / ms);
    return report;
}

ServeReport ForecastRun::run(const std::vector<TraceRequest>& trace) {
    size_t arrived = 0;
    while (arrived < trace.size() || !is_idle()) {
        while (arrived < trace.size() && trace[arrived].arrival_ms <= now_ms_)
            arrive(trace[arrived++]);
        for (const auto& replica : replicas_) replica->give_passes(now_ms_);
        const double arrival = arrived < trace.size() ? trace[arrived].arrival_ms : INFINITY;
        ForecastReplica& next = **std::ranges::min_element(
            replicas_, {}, [](const auto& replica) { return replica->next_end_ms(); });
        const double end = next.next_end_ms();
        if (arrival == INFINITY && end == INFINITY) break;
        // Before the first arrival nothing is measured.
        if (arrived == 0) {
            now_ms_ = arrival;
        } else {
            move_clock(std::min(arrival, end));
        }
        if (end <= arrival && end != INFINITY) next.end_pass();
    }
    CLEAVE_CHECK(is_idle()) << "requests wait and no pass is given";
    return report();
}

}  // namespace

ServeReport forecast(const planner::Plan& plan, const std::vector<TraceRequest>& trace,
                     SchedulerOptions options) {
    CLEAVE_CHECK(!trace.empty()) << "a trace without requests";
    options.share_prefixes = false;
    options.max_queue = std::max<int64_t>(1, static_cast<int64_t>(trace.size()));
    return ForecastRun(plan, options).run(trace);
}

}  // namespace cleave::runtime
