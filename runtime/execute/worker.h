// SPDX-License-Identifier: Apache-2.0
// One device's part of an executor: its steps of both phases, run in plan order, and what it
// records of them. Used by one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/device/run_control.h"
#include "runtime/exchange/rendezvous.h"
#include "runtime/execute/block_table.h"
#include "runtime/execute/device_steps.h"
#include "runtime/execute/overlap_report.h"
#include "runtime/execute/pass_ring.h"
#include "runtime/execute/stream_passes.h"
#include "runtime/execute/trace.h"
#include "runtime/load/arenas.h"
#include "runtime/load/peer_access.h"

namespace cleave::runtime {

class Worker {
public:
    using Clock = std::chrono::steady_clock;

    // Everything is referenced and must outlive the worker. `origin` is time zero of its trace.
    Worker(const planner::Plan& plan, const Arenas& arenas, Device& device, planner::DeviceId id,
           RunControl& control, const PeerLinks& peers, const StreamOptions& options,
           Clock::time_point origin);

    planner::DeviceId id() const { return id_; }
    DevicePhase& phase(bool is_prefill) { return phases_[is_prefill ? 0 : 1]; }
    std::optional<BoundLaunch> meeting;  // the launch of a meeting; none: takes no part

    // Does the device's part of a pass, or throws: Stopped when another worker failed, a
    // DeviceError with the steps that may be at fault, what a wait was ended by. It waits for an
    // asynchronous device only for results, or where the ring has no further pass.
    void run(Pass& pass, PassRing& ring);
    // The first pass whose work on the device is not known to be done.
    Ticket first_unfinished(const Pass& pass) {
        return passes_ ? passes_->first_unfinished() : pass.ticket();
    }

    // Null of a device that has no stream, or whose captures hold nothing that waits for a peer.
    StreamPasses* captures_with_peers();
    // The steps that may have failed; empty: none, or not known.
    std::string place() { return passes_ ? passes_->place() : ""; }

    const std::vector<TraceEvent>& events() const { return events_; }
    int64_t received_bytes() const { return received_bytes_; }
    // In launches so far, without waits for other devices; by any thread. Nothing of an
    // asynchronous device.
    std::optional<double> busy_seconds() const {
        if (passes_) return std::nullopt;
        return 1e-9 * static_cast<double>(busy_ns_.load(std::memory_order_relaxed));
    }
    void add_overlap(OverlapReport& all) const {
        if (passes_) passes_->add_overlap(all);
    }

private:
    void meet();
    void upload_tensors(const Pass& pass);
    void run_pass(const Pass& pass);
    void run_steps(const Pass& pass);
    void download_results(Pass& pass);
    std::vector<float> logits_of(const Pass& pass);
    std::vector<int32_t> tokens_of(const Pass& pass);
    int64_t origin_ns() const;
    int64_t now() const;

    const planner::Plan& plan_;
    const Arenas& arenas_;
    Device& device_;
    planner::DeviceId id_;
    RunControl& control_;
    const PeerLinks& peers_;
    StagingLane lane_;
    BlockTable blocks_;
    bool shares_card_;  // then a fault may be another device's: the executor names all of them
    bool record_, record_passes_;
    Clock::time_point origin_;
    std::array<DevicePhase, 2> phases_;
    std::unique_ptr<StreamPasses> passes_;  // of a device with a stream
    std::vector<TraceEvent> events_;
    int64_t received_bytes_ = 0;
    std::atomic<int64_t> busy_ns_{0};
};

}  // namespace cleave::runtime
