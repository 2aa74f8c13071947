// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/replay.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/base/split_mix.h"
#include "runtime/engine/engine.h"

namespace cleave::runtime {

namespace {

using namespace std::chrono_literals;

// Waits of the caller's thread look at the token so often.
constexpr auto kCancelPeriod = 50ms;

// Between an engine and its runner: what passes take, and what ended them.
class ReplayRun : public PassRunner {
public:
    ReplayRun(const planner::Plan& plan, PassRunner& runner, const ReplayOptions& options,
              int64_t requests)
        : plan_(plan), runner_(runner), options_(options), total_(requests) {
        EngineOptions engine{.scheduler = options.scheduler};
        engine.scheduler.max_queue = std::max<int64_t>(1, requests);
        engine_ = std::make_unique<Engine>(plan, *this, nullptr, engine);
    }

    ServeReport run(const std::vector<TraceRequest>& trace);

    // On the engine's thread.
    Ticket submit(Batch batch, PassResults wanted) override;
    PassResult take() override;

private:
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
    template <class Call>
    auto guarded(Call call) {
        try {
            return call();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            failure_ = std::current_exception();
            throw;
        }
    }

    const planner::Plan& plan_;
    PassRunner& runner_;
    const ReplayOptions& options_;
    const int64_t total_;
    const Clock::time_point start_ = Clock::now();
    std::deque<double> submitted_ms_;  // of passes in flight; the engine thread's

    std::mutex mutex_;
    std::condition_variable changed_;
    ServeMeter meter_;
    int64_t ended_ = 0;
    std::string fault_;  // of a request
    std::exception_ptr failure_;

    std::unique_ptr<Engine> engine_;  // last: its thread uses all of this
};

Ticket ReplayRun::submit(Batch batch, PassResults wanted) {
    submitted_ms_.push_back(now_ms());
    return guarded([&] { return runner_.submit(std::move(batch), wanted); });
}

PassResult ReplayRun::take() {
    PassResult result = guarded([&] { return runner_.take(); });
    const SchedulerStatistics statistics = engine_->statistics().scheduler;
    const double now = now_ms();
    const std::lock_guard lock(mutex_);
    meter_.pass(now - submitted_ms_.front());
    meter_.use(now, statistics);
    submitted_ms_.pop_front();
    return result;
}

void ReplayRun::send(int64_t number, const TraceRequest& request) {
    EngineRequest made{.max_new_tokens = request.output_tokens};
    // The engine sees the whole prompt before it refuses one.
    EngineAdmission admission{.reason = prompt_too_long(request, engine_->limits().context)};
    const std::lock_guard lock(mutex_);
    if (admission.reason.empty()) {
        made.prompt = random_prompt(plan_, number, request.prompt_tokens);
        admission = engine_->add(std::move(made), [this, number](const EngineEvent& event) {
            take_event(number, event);
        });
    }
    if (admission.request) return meter_.arrive(number, request.arrival_ms, request.prompt_tokens);
    // A dead engine's requests end with its failure.
    if (admission.refusal != Refusal::kDead) meter_.refuse(admission.reason);
    end_one();
}

void ReplayRun::take_event(int64_t number, const EngineEvent& event) {
    const double now = now_ms();
    const std::lock_guard lock(mutex_);
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
    engine_->shutdown();
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (!fault_.empty()) throw UserError(fault_);
    return meter_.report(engine_->limits(), options_.scheduler, engine_->statistics().scheduler);
}

}  // namespace

std::vector<int32_t> random_prompt(const planner::Plan& plan, int64_t number, int64_t tokens) {
    SplitMix64 random(static_cast<uint64_t>(number));
    const auto vocab = static_cast<int>(plan.graph.config.vocab_size);
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < tokens; ++i) prompt.push_back(random.below(vocab));
    return prompt;
}

ServeReport replay(const planner::Plan& plan, PassRunner& runner,
                   const std::vector<TraceRequest>& trace, const ReplayOptions& options) {
    CLEAVE_CHECK(!trace.empty()) << "a trace without requests";
    return ReplayRun(plan, runner, options, static_cast<int64_t>(trace.size())).run(trace);
}

}  // namespace cleave::runtime
