// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/engine_group.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/errors.h"

namespace cleave::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Smaller: it may accept the request sooner.
size_t wait_of(Refusal refusal) {
    constexpr std::array kSoonestFirst{Refusal::kNone, Refusal::kQueueFull, Refusal::kDraining,
                                       Refusal::kNeverFits, Refusal::kDead};
    return static_cast<size_t>(std::ranges::find(kSoonestFirst, refusal) - kSoonestFirst.begin());
}

// Of an engine that is dead more than of any other.
double load_of(const Engine& engine) {
    const EngineStatistics now = engine.statistics();
    return now.fault.empty() ? runtime::load_of(now.requests, engine.limits()) : 1e300;
}

void add_to(EngineStatistics& sum, const EngineStatistics& one) {
    sum.scheduler = sum.scheduler + one.scheduler;
    for (const auto field : {&EngineStatistics::requests, &EngineStatistics::accepted,
                             &EngineStatistics::refused, &EngineStatistics::prompt_tokens,
                             &EngineStatistics::new_tokens, &EngineStatistics::passes})
        sum.*field += one.*field;
    for (size_t i = 0; i < sum.finished.size(); ++i) sum.finished[i] += one.finished[i];
    sum.pass_seconds += one.pass_seconds;
    sum.active_seconds += one.active_seconds;
    sum.oldest_pass_seconds = std::max(sum.oldest_pass_seconds, one.oldest_pass_seconds);
    sum.busy_seconds.insert(sum.busy_seconds.end(), one.busy_seconds.begin(),
                            one.busy_seconds.end());
    if (one.fault.empty()) sum.fault.clear();
}

}  // namespace

double load_of(int64_t requests, const EngineLimits& limits) {
    return static_cast<double>(requests) / static_cast<double>(std::max<int64_t>(1, limits.slots));
}

SchedulerStatistics operator+(const SchedulerStatistics& a, const SchedulerStatistics& b) {
    SchedulerStatistics sum = a;
    for (const auto field :
         {&SchedulerStatistics::blocks_free, &SchedulerStatistics::blocks_held,
          &SchedulerStatistics::blocks_cached, &SchedulerStatistics::tokens_held,
          &SchedulerStatistics::waiting, &SchedulerStatistics::running,
          &SchedulerStatistics::in_flight, &SchedulerStatistics::passes,
          &SchedulerStatistics::tokens, &SchedulerStatistics::preemptions,
          &SchedulerStatistics::prefix_queries, &SchedulerStatistics::prefix_hits})
        sum.*field += b.*field;
    return sum;
}

EngineGroup::EngineGroup(Engine& engine) : EngineGroup(std::vector{&engine}) {}

EngineGroup::EngineGroup(std::vector<Engine*> engines)
    : engines_(std::move(engines)), refused_too_(std::make_shared<std::atomic<int64_t>>(0)) {
    CLEAVE_CHECK(!engines_.empty()) << "a group of no engine";
}

std::vector<Engine*> EngineGroup::by_load() const {
    if (engines_.size() == 1) return engines_;
    std::vector<std::pair<double, Engine*>> loads;
    for (Engine* engine : engines_) loads.emplace_back(load_of(*engine), engine);
    std::ranges::stable_sort(loads, {}, &std::pair<double, Engine*>::first);
    std::vector<Engine*> sorted;
    for (const auto& [load, engine] : loads) sorted.push_back(engine);
    return sorted;
}

EngineAdmission EngineGroup::add(EngineRequest request, const EventSink& sink) const {
    if (engines_.size() == 1) return engines_[0]->add(std::move(request), sink);
    const auto count = static_cast<RequestId>(engines_.size());
    std::optional<EngineAdmission> refused;
    for (Engine* engine : by_load()) {
        const RequestId number = std::ranges::find(engines_, engine) - engines_.begin();
        EngineAdmission admission =
            engine->add(request, [sink, count, number](const EngineEvent& event) {
                EngineEvent of_group = event;
                of_group.request = event.request * count + number;
                sink(of_group);
            });
        if (admission.request) {
            if (refused) ++*refused_too_;
            admission.request = *admission.request * count + number;
            return admission;
        }
        if (refused) ++*refused_too_;
        if (!refused || wait_of(admission.refusal) < wait_of(refused->refusal))
            refused = std::move(admission);
    }
    return *refused;
}

void EngineGroup::cancel(RequestId request) const {
    const auto count = static_cast<RequestId>(engines_.size());
    if (request < 0) return;
    engines_[static_cast<size_t>(request % count)]->cancel(request / count);
}

bool EngineGroup::drain(std::chrono::duration<double> at_most) const {
    for (Engine* engine : engines_) engine->drain(std::chrono::seconds(0));  // none takes more
    const Clock::time_point begin = Clock::now();
    bool all = true;
    for (Engine* engine : engines_) {
        const std::chrono::duration<double> left = at_most - (Clock::now() - begin);
        all = engine->drain(std::max(left, std::chrono::duration<double>::zero())) && all;
    }
    return all;
}

void EngineGroup::shutdown() const {
    for (Engine* engine : engines_) engine->drain(std::chrono::seconds(0));
    for (Engine* engine : engines_) engine->shutdown();
}

size_t EngineGroup::alive() const {
    const auto lives = [](const Engine* engine) { return engine->statistics().fault.empty(); };
    return static_cast<size_t>(std::ranges::count_if(engines_, lives));
}

EngineStatistics EngineGroup::statistics() const {
    EngineStatistics sum = engines_[0]->statistics();
    for (size_t i = 1; i < engines_.size(); ++i) add_to(sum, engines_[i]->statistics());
    sum.refused -= *refused_too_;
    return sum;
}

EngineLimits EngineGroup::limits() const {
    EngineLimits most = engines_[0]->limits();
    for (const Engine* engine : engines_)
        if (const EngineLimits limits = engine->limits(); limits.slots > most.slots) most = limits;
    return most;
}

int64_t EngineGroup::kv_blocks() const {
    int64_t blocks = 0;
    for (const Engine* engine : engines_) blocks += engine->limits().num_blocks - 1;
    return blocks;
}

const std::string& EngineGroup::runs_alone() const { return engines_[0]->runs_alone(); }

}  // namespace cleave::runtime
