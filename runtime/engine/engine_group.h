// SPDX-License-Identifier: Apache-2.0
// The engines of a plan's replicas, used as one. In: requests from any thread; each goes to the
// engine that has the fewest for its slots, and stays there with all its copies. Out: their events,
// on the thread of that engine, so that two requests' events may come at once.
//  - One engine is the group: nothing is added to it.
//  - Prefixes are shared within an engine.
//  - An engine whose device failed takes no requests; the others go on.
// Request ids are the group's: r, r + n, r + 2n, ... are those of engine r of n.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"

namespace cleave::runtime {

// Of several schedulers together: sums.
SchedulerStatistics operator+(const SchedulerStatistics& a, const SchedulerStatistics& b);

// Of an engine with so many requests, by which they are shared out: requests for each slot.
double load_of(int64_t requests, const EngineLimits& limits);

class EngineGroup {
public:
    // The engines must outlive the group and its copies, and hold the same model.
    EngineGroup(Engine& engine);                         // NOLINT(google-explicit-constructor)
    explicit EngineGroup(std::vector<Engine*> engines);  // at least one

    // As the functions of Engine. A request that one engine refuses is offered to the next; where
    // all refuse, the reason is that of the one which may accept it soonest.
    EngineAdmission add(EngineRequest request, const EventSink& sink) const;
    void cancel(RequestId request) const;
    bool drain(std::chrono::duration<double> at_most) const;  // of all engines together
    void shutdown() const;

    size_t size() const { return engines_.size(); }
    size_t alive() const;  // whose devices have not failed
    // Of all: sums, but for oldest_pass_seconds, which is the largest. `fault` is empty while one
    // of them lives; busy_seconds are those of the first engine's devices, then of the next one's.
    EngineStatistics statistics() const;
    EngineStatistics statistics_of(size_t engine) const {
        return engines_.at(engine)->statistics();
    }
    EngineLimits limits() const;  // of the engine with the most slots
    int64_t kv_blocks() const;    // of all pools, without the blocks that are no sequence's
    const std::string& runs_alone() const;

private:
    std::vector<Engine*> by_load() const;

    std::vector<Engine*> engines_;
    // Refusals of requests that another engine took, or refused as well.
    std::shared_ptr<std::atomic<int64_t>> refused_too_;
};

}  // namespace cleave::runtime
