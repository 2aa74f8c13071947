// SPDX-License-Identifier: Apache-2.0
// Executes a plan's step lists: one worker thread a device, each taking its own steps in plan
// order, pass after pass, with no barrier between passes (pass_ring.h), so that stages of a
// pipeline work on different passes at once. The first exception of a worker stops the others and
// reaches the caller.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codegen/kernel/program.h"
#include "planner/plan/plan.h"
#include "runtime/base/cancel.h"
#include "runtime/device/device.h"
#include "runtime/execute/overlap_report.h"
#include "runtime/execute/pass.h"
#include "runtime/execute/tensor.h"
#include "runtime/execute/trace.h"
#include "runtime/hosts/device_ranks.h"
#include "runtime/load/arenas.h"

namespace cleave::runtime {

class VendorGroups;

struct ExecutorOptions {
    bool record_trace = false;
    bool record_passes = false;  // instead of steps
    bool may_spin = false;       // the process has no more threads than cores
    bool step_by_step = false;   // GPUs: waits after each step, so that one that fails has its name
    int watchdog_seconds = 60;
    const CancelToken* cancel = nullptr;
    VendorGroups* vendor_groups = nullptr;  // of a plan with steps that go by a vendor's library
    const DeviceRanks* ranks = nullptr;     // null: all devices are this process's
    // Of the process that has the output device: each pass's result as soon as it is there, on a
    // worker's thread. Must not throw.
    std::function<void(const PassResult&)> on_result;
};

class Executor {
public:
    // Everything is referenced and must outlive the executor; programs[d] and devices[d] belong to
    // device d, with kernels loaded and weights in place; devices of other ranks are null. The plan
    // has passed check_presence (runtime/load/residency.h).
    Executor(const planner::Plan& plan, std::span<const codegen::Program> programs,
             std::span<const std::unique_ptr<Device>> devices, const Arenas& arenas,
             const ExecutorOptions& options);
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    // Of Session. InternalError for a batch that breaks batch.h's invariants or exceeds the
    // workload. After take() has thrown, every further call throws.
    Ticket submit(Batch batch, PassResults wanted);
    PassResult take();
    int64_t in_flight() const;
    // A pass has failed; take() says how, in its turn.
    bool has_failed() const;

    // The passes in order, each with its results; none may be in flight before.
    std::vector<PassResult> run(std::span<const Batch> passes, PassResults wanted);

    // One pass of a graph over tensors: inputs by the graph's order of inputs, outputs (sized by
    // the caller) likewise.
    void run_tensors(std::span<const std::span<const std::byte>> inputs, std::span<Tensor> outputs);

    // While no pass is in flight.
    const Trace& trace() const;
    int64_t transferred_bytes() const;
    // Of each device of the plan's machine, in launches so far (Worker::busy_seconds). Any thread.
    std::vector<std::optional<double>> busy_seconds() const;
    OverlapReport overlap() const;
    int64_t now_ns() const;  // on the clock of the trace

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::runtime
