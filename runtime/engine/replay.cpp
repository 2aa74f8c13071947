// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/replay.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/base/split_mix.h"
#include "runtime/engine/engine_group.h"

namespace cleave::runtime {

namespace {

using namespace std::chrono_literals;

// Waits of the caller's thread look at the token so often.
constexpr auto kCancelPeriod = 50ms;

class ReplayRun;

// Between an engine and its runner: what passes take, and what ended them.
class WatchedRunner : public PassRunner {
public:
    WatchedRunner(ReplayRun& run, PassRunner& runner) : run_(run), runner_(runner) {}

    // On the engine's thread.
    Ticket submit(Batch batch, PassResults wanted) override;
    PassResult take() override;

private:
    template <class Call>
    auto guarded(Call call);

    ReplayRun& run_;
    PassRunner& runner_;
    std::deque<double> submitted_ms_;  // of passes in flight
};

class ReplayRun {
public:
    ReplayRun(std::span<const ReplayedReplica> replicas, const ReplayOptions& options,
              int64_t requests)
        : plan_(replicas.front().plan), options_(options), total_(requests) {
        std::vector<Engine*> all;
        for (const ReplayedReplica& replica : replicas) {
            EngineOptions engine{.scheduler = options.scheduler};
            engine.scheduler.max_queue = std::max<int64_t>(1, requests);
            runners_.push_back(std::make_unique<WatchedRunner>(*this, replica.runner));
            engines_.push_back(
                std::make_unique<Engine>(replica.plan, *runners_.back(), nullptr, engine));
            all.push_back(engines_.back().get());
        }
        group_.emplace(all);
    }

    ServeReport run(const std::vector<TraceRequest>& trace);

private:
    friend class WatchedRunner;
    using Clock = std::chrono::steady_clock;

    double now_ms() const {
        return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
    }
    void send(int64_t number, const TraceRequest& request);
    void take_event(int64_t number, const EngineEvent& event);
    void end_one();  // with the mutex
    void check_cancelled() const {
        if (options_.cancel) options_.cancel->throw_if_cancelled();
    }

    const planner::Plan& plan_;
    const ReplayOptions& options_;
    const int64_t total_;
    const Clock::time_point start_ = Clock::now();

    std::mutex mutex_;
    std::condition_variable changed_;
    ServeMeter meter_;
    int64_t ended_ = 0;
    std::string fault_;  // of a request
    std::exception_ptr failure_;

    std::vector<std::unique_ptr<WatchedRunner>> runners_;
    std::optional<EngineGroup> group_;
    // Last: their threads use all of this.
    std::vector<std::unique_ptr<Engine>> engines_;
};

template <class Call>
auto WatchedRunner::guarded(Call call) {
    try {
        return call();
    } catch (...) {
        const std::lock_guard lock(run_.mutex_);
        run_.failure_ = std::current_exception();
        throw;
    }
}

Ticket WatchedRunner::submit(Batch batch, PassResults wanted) {
    submitted_ms_.push_back(run_.now_ms());
    return guarded([&] { return runner_.submit(std::move(batch), wanted); });
}

PassResult WatchedRunner::take() {
    PassResult result = guarded([&] { return runner_.take(); });
    const SchedulerStatistics statistics = run_.group_->statistics().scheduler;
    const std::lock_guard lock(run_.mutex_);
    const double now = run_.now_ms();
    run_.meter_.pass(now - submitted_ms_.front());
    run_.meter_.use(now, statistics);
    submitted_ms_.pop_front();
    return result;
}

void ReplayRun::send(int64_t number, const TraceRequest& request) {
    EngineRequest made{.max_new_tokens = request.output_tokens};
    // The engine sees the whole prompt before it refuses one.
    EngineAdmission admission{.reason = prompt_too_long(request, group_->limits().context)};
    const std::lock_guard lock(mutex_);
    if (admission.reason.empty()) {
        made.prompt = random_prompt(plan_, number, request.prompt_tokens);
        admission = group_->add(std::move(made), [this, number](const EngineEvent& event) {
            take_event(number, event);
        });
    }
    if (admission.request) return meter_.arrive(number, request.arrival_ms, request.prompt_tokens);
    // A dead engine's requests end with its failure.
    if (admission.refusal != Refusal::kDead) meter_.refuse(admission.reason);
    end_one();
}

void ReplayRun::take_event(int64_t number, const EngineEvent& event) {
    const std::lock_guard lock(mutex_);
    const double now = now_ms();
    for (size_t i = 0; i < event.tokens.size(); ++i)
        meter_.token(number, now, event.ends_request && i + 1 == event.tokens.size());
    if (event.finish == FinishReason::kFault && fault_.empty()) fault_ = event.message;
    if (!event.ends_request) return;
    end_one();
    changed_.notify_one();
}

void ReplayRun::end_one() {
    ++ended_;
    if (options_.progress) options_.progress(ended_, total_);
}

ServeReport ReplayRun::run(const std::vector<TraceRequest>& trace) {
    for (int64_t number = 0; number < total_; ++number) {
        const TraceRequest& request = trace[static_cast<size_t>(number)];
        const auto arrival =
            start_ + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double, std::milli>(request.arrival_ms));
        std::unique_lock lock(mutex_);
        while (Clock::now() < arrival && !failure_) {
            check_cancelled();
            changed_.wait_until(lock, std::min(arrival, Clock::now() + kCancelPeriod));
        }
        lock.unlock();
        send(number, request);
    }
    {
        std::unique_lock lock(mutex_);
        while (ended_ < total_) {
            check_cancelled();
            changed_.wait_for(lock, kCancelPeriod);
        }
    }
    group_->shutdown();
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (!fault_.empty()) throw UserError(fault_);
    EngineLimits limits = group_->limits();
    limits.num_blocks = group_->kv_blocks() + 1;
    return meter_.report(limits, options_.scheduler, group_->statistics().scheduler);
}

}  // namespace

std::vector<int32_t> random_prompt(const planner::Plan& plan, int64_t number, int64_t tokens) {
    SplitMix64 random(static_cast<uint64_t>(number));
    const auto vocab = static_cast<int>(plan.graph.config.vocab_size);
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < tokens; ++i) prompt.push_back(random.below(vocab));
    return prompt;
}

ServeReport replay(std::span<const ReplayedReplica> replicas,
                   const std::vector<TraceRequest>& trace, const ReplayOptions& options) {
    CLEAVE_CHECK(!trace.empty() && !replicas.empty()) << "a trace without requests, or no replica";
    return ReplayRun(replicas, options, static_cast<int64_t>(trace.size())).run(trace);
}

ServeReport replay(const planner::Plan& plan, PassRunner& runner,
                   const std::vector<TraceRequest>& trace, const ReplayOptions& options) {
    const ReplayedReplica alone{plan, runner};
    return replay(std::span(&alone, 1), trace, options);
}

}  // namespace cleave::runtime
