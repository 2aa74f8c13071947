// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "planner/cost/groups.h"
#include "runtime/base/errors.h"
#include "runtime/base/reason.h"
#include "runtime/base/thread_team.h"
#include "runtime/base/threads.h"
#include "runtime/engine/live_request.h"
#include "runtime/execute/greedy.h"
#include "runtime/generate/nan_check.h"
#include "runtime/session/tensor_io.h"

namespace cleave::runtime {

namespace {

using Clock = LiveRequest::Clock;
using Lock = std::unique_lock<std::mutex>;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string why_alone(const planner::Plan& plan, const EngineLimits& limits) {
    if (!limits.whole_passes) return "";
    return fmt::format(
        "{} quantises its activations by all tokens of a pass (DynamicQuantizeLinear), so requests "
        "that shared one would change one another: they run one after another, each prompt in one "
        "pass, and share no prefix",
        plan.graph.name);
}

SchedulerOptions checked(const SchedulerOptions& scheduler) {
    if (scheduler.groups > kMostPassesInFlight)
        throw UserError("{} groups of sequences; at most {} passes are in flight", scheduler.groups,
                        kMostPassesInFlight);
    return scheduler;
}

struct PassInFlight {
    ScheduledPass pass;
    PassResults wanted = PassResults::kNone;
    Clock::time_point submitted;
};

// An event and whose sink takes it.
struct Delivery {
    LiveRequest* request = nullptr;
    EngineEvent event;
};

// What a pass gave.
struct Outcome {
    std::vector<OutputToken> tokens;  // of each output
    std::vector<Delivery> deliveries;
    std::map<RequestId, std::string> faults;  // of requests whose logits are not numbers
};

}  // namespace

// `mutex` guards the scheduler, `live` as a map, its requests' is_cancelled, and the members behind
// it. Requests leave `live` by the engine's thread alone, so that it uses their other members
// without the lock.
struct Engine::Impl {
    Impl(const planner::Plan& p, PassRunner& r, const Tokenizer* t, const EngineOptions& options)
        : plan(p),
          runner(r),
          tokenizer(t),
          limits(limits_of(p)),
          alone(why_alone(p, limits)),
          scheduler(limits, checked(options.scheduler)),
          most_passes(options.scheduler.groups) {
        thread = start_thread([this] { run(); });
    }

    void run();
    bool submit_pass();
    PassResults results_of(const ScheduledPass& pass) const;
    void take_pass();
    std::vector<LiveRequest*> requests_of(const ScheduledPass& pass);
    OutputToken take_output(const ScheduledOutput& output, const PassResult& result,
                            LiveRequest& request, Outcome& outcome);
    void deliver(Delivery& delivery);
    void end_request(RequestId id, FinishReason reason, const std::string& message);
    void end_cancelled();
    void end_all(FinishReason reason, const std::string& message);

    EngineAdmission add(EngineRequest request, EventSink sink);
    void cancel(RequestId id);
    void stop();

    // With the lock: nobody waits for an event, and no pass is in flight.
    bool is_idle() const { return live.empty() && !is_telling && !oldest_submitted; }

    const planner::Plan& plan;
    PassRunner& runner;
    const Tokenizer* tokenizer;
    const EngineLimits limits;
    const std::string alone;

    mutable std::mutex mutex;
    std::condition_variable wake, idle;
    Scheduler scheduler;
    std::map<RequestId, std::unique_ptr<LiveRequest>> live;
    std::vector<RequestId> cancelled;  // whose sinks have not heard of it
    bool has_news = false;             // since the engine last slept
    bool draining = false, stopping = false;
    bool is_telling = false;  // a sink is called
    EngineStatistics counts;
    std::optional<Clock::time_point> oldest_submitted;
    Clock::time_point active_since;  // while a pass is in flight

    // The engine thread's.
    const int64_t most_passes;
    std::deque<PassInFlight> in_flight;
    std::mutex joining;
    std::thread thread;
};

void Engine::Impl::run() {
    try {
        while (true) {
            end_cancelled();
            while (static_cast<int64_t>(in_flight.size()) < most_passes && submit_pass()) {
            }
            if (!in_flight.empty()) {
                take_pass();
                continue;
            }
            Lock lock(mutex);
            wake.wait(lock, [&] { return has_news || stopping; });
            has_news = false;
            if (stopping) break;
        }
        end_all(FinishReason::kCancelled, "");
    } catch (const std::exception& error) {
        {
            const Lock lock(mutex);
            counts.fault = reason_of(error);
            oldest_submitted.reset();
            if (is_idle()) idle.notify_all();
        }
        try {
            end_all(FinishReason::kFault, reason_of(error));
        } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
            // There is no memory to tell all of them with.
        }
        // Those whose last event was lost: their sinks go.
        std::map<RequestId, std::unique_ptr<LiveRequest>> untold;
        const Lock lock(mutex);
        untold.swap(live);
        idle.notify_all();
    }
}

// False where there is none to give.
bool Engine::Impl::submit_pass() {
    PassInFlight next;
    {
        const Lock lock(mutex);
        if (stopping) return false;
        std::optional<ScheduledPass> pass = scheduler.next();
        if (!pass) return false;
        next.pass = std::move(*pass);
        for (const StartedRequest& started : next.pass.started)
            if (const auto at = live.find(started.request); at != live.end())
                at->second->started(started.cached_tokens);
        next.wanted = results_of(next.pass);
        next.submitted = Clock::now();
        if (!oldest_submitted) oldest_submitted = active_since = next.submitted;
    }
    runner.submit(std::move(next.pass.batch), next.wanted);
    in_flight.push_back(std::move(next));
    return true;
}

// Of all requests in the pass, also those that were cancelled: logits where one needs them.
PassResults Engine::Impl::results_of(const ScheduledPass& pass) const {
    if (pass.outputs.empty()) return PassResults::kNone;
    const bool logits = std::ranges::any_of(pass.outputs, [&](const ScheduledOutput& output) {
        const auto at = live.find(output.request);
        return at != live.end() && at->second->wants_logits();
    });
    return logits ? PassResults::kLogits : PassResults::kTokens;
}

// Of each output; null where the request has ended or is cancelled.
std::vector<LiveRequest*> Engine::Impl::requests_of(const ScheduledPass& pass) {
    std::vector<LiveRequest*> requests;
    const Lock lock(mutex);
    for (const ScheduledOutput& output : pass.outputs) {
        const auto at = live.find(output.request);
        const bool takes = at != live.end() && !at->second->is_cancelled;
        requests.push_back(takes ? at->second.get() : nullptr);
    }
    return requests;
}

void Engine::Impl::take_pass() {
    const PassResult result = runner.take();
    const PassInFlight ended = std::move(in_flight.front());
    in_flight.pop_front();
    const std::vector<LiveRequest*> requests = requests_of(ended.pass);
    Outcome outcome;
    for (size_t i = 0; i < requests.size(); ++i)
        outcome.tokens.push_back(
            requests[i] ? take_output(ended.pass.outputs[i], result, *requests[i], outcome)
                        : OutputToken{});
    std::exception_ptr failed;
    {
        const Lock lock(mutex);
        ++counts.passes;
        counts.pass_seconds += seconds_since(ended.submitted);
        oldest_submitted.reset();
        if (!in_flight.empty())
            oldest_submitted = in_flight.front().submitted;
        else
            counts.active_seconds += seconds_since(active_since);
        try {
            scheduler.done(ended.pass.id, outcome.tokens);
            for (const auto& [id, message] : outcome.faults) scheduler.cancel(id);
        } catch (const std::exception&) {
            failed = std::current_exception();  // what the pass gave is told all the same
        }
        if (is_idle()) idle.notify_all();
    }
    for (Delivery& delivery : outcome.deliveries) deliver(delivery);
    for (const auto& [id, message] : outcome.faults) end_request(id, FinishReason::kFault, message);
    if (failed) std::rethrow_exception(failed);
}

// The outputs of a copy make one event.
OutputToken Engine::Impl::take_output(const ScheduledOutput& output, const PassResult& result,
                                      LiveRequest& request, Outcome& outcome) {
    if (outcome.faults.contains(output.request)) return {};
    const auto vocab = static_cast<size_t>(plan.graph.config.vocab_size);
    const auto row = static_cast<size_t>(output.output);
    std::span<const float> logits;
    if (!result.logits.empty()) logits = std::span(result.logits).subspan(row * vocab, vocab);
    std::vector<Delivery>& deliveries = outcome.deliveries;
    if (deliveries.empty() || deliveries.back().request != &request ||
        deliveries.back().event.copy != output.copy) {
        Delivery& fresh = deliveries.emplace_back();
        fresh.request = &request;
        fresh.event.request = output.request;
        fresh.event.copy = output.copy;
    }
    EngineEvent& event = deliveries.back().event;
    bool are_numbers = true;
    if (output.is_prompt_logit)
        are_numbers = request.take_prompt_row(logits, output.position, event);
    if (are_numbers && output.gives_token) {
        const int32_t greedy = result.tokens.empty() ? kNoToken : result.tokens[row];
        are_numbers = request.take_token(logits, greedy, output.position, output.is_last, event);
    }
    if (!are_numbers)
        outcome.faults[output.request] = not_numbers(
            plan, fmt::format("position {} of request {}", output.position, output.request));
    return {event.tokens.empty() ? 0 : event.tokens.back(), event.finish.has_value()};
}

void Engine::Impl::deliver(Delivery& delivery) {
    LiveRequest& request = *delivery.request;
    const EngineEvent& event = delivery.event;
    if (event.tokens.empty() && event.prompt_logprobs.empty() && !event.finish) return;
    std::unique_ptr<LiveRequest> ended;  // goes without the lock: its sink may hold anything
    {
        const Lock lock(mutex);
        counts.new_tokens += static_cast<int64_t>(event.tokens.size());
        if (event.finish) ++counts.finished[static_cast<size_t>(*event.finish)];
        is_telling = true;
        if (event.ends_request) ended = std::move(live.extract(event.request).mapped());
    }
    bool threw = false;
    try {
        if (!request.is_silent) request.sink(event);
    } catch (...) {
        threw = request.is_silent = true;
    }
    const Lock lock(mutex);
    is_telling = false;
    if (threw && !ended && !request.is_cancelled) {
        request.is_cancelled = true;
        cancelled.push_back(event.request);
        scheduler.cancel(event.request);
    }
    if (is_idle()) idle.notify_all();
}

// Nothing for one that has ended.
void Engine::Impl::end_request(RequestId id, FinishReason reason, const std::string& message) {
    LiveRequest* request = nullptr;
    {
        const Lock lock(mutex);
        const auto at = live.find(id);
        if (at != live.end()) request = at->second.get();
    }
    if (!request) return;
    for (const int64_t copy : request->open_copies()) {
        Delivery delivery{request};
        delivery.event.request = id;
        delivery.event.copy = copy;
        request->end(reason, message, delivery.event);
        deliver(delivery);
    }
}

void Engine::Impl::end_cancelled() {
    std::vector<RequestId> ids;
    {
        const Lock lock(mutex);
        ids.swap(cancelled);
    }
    for (const RequestId id : ids) end_request(id, FinishReason::kCancelled, "");
}

void Engine::Impl::end_all(FinishReason reason, const std::string& message) {
    std::vector<RequestId> ids;
    {
        const Lock lock(mutex);
        for (const auto& [id, request] : live) {
            ids.push_back(id);
            try {
                scheduler.cancel(id);
            } catch (const InternalError&) {
                // A fault may have left it half changed, and it schedules no more.
                if (reason != FinishReason::kFault) throw;
            }
        }
    }
    for (const RequestId id : ids) end_request(id, reason, message);
}

EngineAdmission Engine::Impl::add(EngineRequest request, EventSink sink) {
    check_request(request, plan.graph.config.vocab_size, tokenizer);
    ScheduledRequest scheduled{request.prompt, request.max_new_tokens, request.copies, request.salt,
                               request.prompt_logprobs.has_value()};
    auto made = std::make_unique<LiveRequest>(std::move(request), std::move(sink), tokenizer);
    const auto prompt_tokens = static_cast<int64_t>(scheduled.prompt.size());
    const Lock lock(mutex);
    ++counts.refused;
    if (!counts.fault.empty())
        return {std::nullopt, Refusal::kDead, "the engine is dead: " + counts.fault};
    if (draining)
        return {std::nullopt, Refusal::kDraining,
                "the engine is ending and takes no more requests"};
    Admission admission = scheduler.add(std::move(scheduled));
    if (!admission.request)
        return {std::nullopt, admission.queue_full ? Refusal::kQueueFull : Refusal::kNeverFits,
                std::move(admission.reason)};
    --counts.refused;
    ++counts.accepted;
    counts.prompt_tokens += prompt_tokens;
    made->id = *admission.request;
    live.emplace(made->id, std::move(made));
    has_news = true;
    wake.notify_one();
    return {admission.request};
}

void Engine::Impl::cancel(RequestId id) {
    const Lock lock(mutex);
    const auto at = live.find(id);
    if (at == live.end() || at->second->is_cancelled) return;
    cancelled.push_back(id);
    at->second->is_cancelled = true;
    scheduler.cancel(id);
    has_news = true;
    wake.notify_one();
}

void Engine::Impl::stop() {
    {
        const Lock lock(mutex);
        draining = stopping = true;
        wake.notify_one();
    }
    const Lock lock(joining);
    if (thread.joinable()) thread.join();
}

Engine::Engine(const planner::Plan& plan, PassRunner& runner, const Tokenizer* tokenizer,
               const EngineOptions& options) {
    check_takes_batches(plan);
    impl_ = std::make_unique<Impl>(plan, runner, tokenizer, options);
}

Engine::~Engine() { impl_->stop(); }

EngineAdmission Engine::add(EngineRequest request, EventSink sink) {
    return impl_->add(std::move(request), std::move(sink));
}

void Engine::cancel(RequestId request) { impl_->cancel(request); }

bool Engine::drain(std::chrono::duration<double> at_most) {
    using Seconds = std::chrono::duration<double>;
    constexpr Seconds kYear = std::chrono::hours(365 * 24);  // more has no place in a clock's count
    const Seconds waits = at_most > Seconds::zero() ? std::min(at_most, kYear) : Seconds::zero();
    Lock lock(impl_->mutex);
    impl_->draining = true;
    return impl_->idle.wait_for(lock, waits, [&] { return impl_->is_idle(); });
}

void Engine::shutdown() { impl_->stop(); }

EngineStatistics Engine::statistics() const {
    const Lock lock(impl_->mutex);
    EngineStatistics statistics = impl_->counts;
    statistics.scheduler = impl_->scheduler.statistics();
    statistics.requests = static_cast<int64_t>(impl_->live.size());
    if (impl_->oldest_submitted) {
        statistics.oldest_pass_seconds = seconds_since(*impl_->oldest_submitted);
        statistics.active_seconds += seconds_since(impl_->active_since);
    }
    statistics.busy_seconds = impl_->runner.busy_seconds();
    return statistics;
}

int64_t default_groups(const planner::Plan& plan, int64_t threads) {
    static_assert(kMostPassesInFlight == planner::kMostGroups);
    const int64_t cores = available_cores();
    return planner::groups_in_flight(plan, plan.workload.batch, threads > 0 ? threads : cores,
                                     cores);
}

EngineLimits Engine::limits() const { return impl_->limits; }

const std::string& Engine::runs_alone() const { return impl_->alone; }

}  // namespace cleave::runtime
