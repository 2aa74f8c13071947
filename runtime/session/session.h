// SPDX-License-Identifier: Apache-2.0
// A plan brought to life: devices opened, kernels compiled and loaded, arenas allocated as the plan
// says, weights cut and uploaded shard by shard, one worker thread per device. Runs passes; records
// the Trace. One thread uses a Session at a time. Destruction joins the workers and returns all
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/compile/compiler.h"
#include "planner/plan/plan.h"
#include "runtime/base/cancel.h"
#include "runtime/cards/drivers.h"
#include "runtime/execute/overlap_report.h"
#include "runtime/execute/pass.h"
#include "runtime/execute/tensor.h"
#include "runtime/execute/trace.h"
#include "runtime/hosts/job.h"
#include "runtime/load/communicator_account.h"

namespace cleave::runtime {

struct SessionOptions {
    int threads = 0;  // of the host devices of each stage together; 0: one per core
    codegen::CompileOptions compile;
    bool record_trace = false;
    bool record_passes =
        false;  // instead: the trace has passes whole, and GPUs replay captured decode as ever
    bool poison = false;        // fill arenas with NaN patterns before use
    bool step_by_step = false;  // GPUs: waits after each step, so that one that fails has its name
    std::optional<uint64_t> simt_seed;  // of the order of threads on simt devices; none: by index
    int watchdog_seconds =
        60;  // a transfer or collective that a member never reaches: error naming the step
    int settle_seconds = 10;  // that a GPU given up may take to end; at most the watchdog's
    std::function<void(int64_t bytes_done, int64_t bytes_total)> upload_progress;
    bool keep_packed = false;  // UploadOptions; what was kept or not goes to `note`
    std::function<void(const std::string& line)> note;
    const CancelToken* cancel = nullptr;
    // The process's, where other sessions use its cards, too. Null: the session opens its own.
    Drivers* drivers = nullptr;
    // The run on several hosts that this process takes part in. Of a plan with devices of its hosts
    // each rank opens its own, at the same time: rank 0 here, the others in `follow`
    // (runtime/session/follow.h).
    HostJob* job = nullptr;
    // With a job: what rank 0 tells the others of its plan, plan_message of follow.h. Not called
    // from here, so that a session needs no plan files.
    std::function<std::string(const planner::Plan& plan)> plan_message;
};

class Session {
public:
    // Keeps a reference to `plan`, which must outlive it, and writes into it the tiles that kernels
    // took as they were compiled. UserError for weights that are absent, kinds of device this build
    // cannot drive, and devices of hosts that are no part of the run; on several hosts what one
    // refuses all refuse.
    Session(planner::Plan& plan, const SessionOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Queues a pass and returns at once, so that stages of a pipeline work on different passes;
    // waits only while kMostPassesInFlight are not finished. Passes run in order, also of one
    // sequence. InternalError of a batch that breaks batch.h's invariants, before it is queued.
    Ticket submit(Batch batch, PassResults wanted);

    // The result of the oldest pass that is not taken yet; waits for it. kTokens gives of each
    // output only the token whose logit is largest, the first among equals, or kNoToken
    // (runtime/execute/greedy.h) where one of its logits is NaN. A GPU that holds the logits
    // chooses itself (codegen::Program::greedy), and 4 bytes of an output are all that is copied.
    // Throws what a worker threw in that pass; the Session is then unusable: further calls throw
    // InternalError.
    PassResult take();

    // Passes submitted and not taken.
    int64_t in_flight() const;

    // Submits all and takes all: of each pass its logits, or its tokens. None may be in flight
    // before. One device does its passes on the caller's thread.
    std::vector<std::vector<float>> run(std::span<const Batch> passes);
    std::vector<std::vector<int32_t>> run_greedy(std::span<const Batch> passes);

    // Runs a graph whose inputs and outputs are tensors once: its inputs by name, in any order; all
    // its outputs, in the graph's order. UserError naming the input that is missing, unknown, or of
    // another type or shape, and for a Llama, which takes Batches.
    std::vector<Tensor> run_tensors(std::span<const Tensor> inputs);

    // Of a rank other than 0: does its part of what rank 0 submits, until that one's session ends.
    void follow();

    // Of the weights, from the first byte read of the files to the last on its device.
    struct Loading {
        int64_t bytes = 0;  // on all devices
        double seconds = 0;
    };
    Loading loading() const;

    // These while no pass is in flight. On rank 0 they are of all ranks, times of the trace by this
    // one's clock.
    const Trace& trace() const;
    int64_t now_ns() const;  // on the trace's clock
    // What ranks sent one another: payloads of the plan's steps, and messages about them; 0 on one
    // host.
    struct Network {
        int64_t payload_bytes = 0, message_bytes = 0;
    };
    Network network() const;
    // How many launches of GPUs began before those before them had ended, and where that cannot be.
    OverlapReport overlap() const;
    // Of each device of the plan's machine, in launches so far, without waits for other devices; by
    // any thread. Nothing of an asynchronous device. Those of other hosts as they told them last,
    // which they do each second.
    std::vector<std::optional<double>> busy_seconds() const;
    int64_t transferred_bytes() const;  // sum over all transfers and collectives so far
    std::map<std::string, int64_t> peak_memory_bytes() const;  // by device name
    // What a vendor's library of collectives took of the cards that it joins, and what the plan
    // keeps for it.
    const std::vector<LibraryMemory>& library_memory() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::runtime
