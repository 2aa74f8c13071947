// SPDX-License-Identifier: Apache-2.0
// What the runtime's tests share: host devices with kernels written in C++, and a small plan made
// by hand that has one of each kind of step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "codegen/kernel/program.h"
#include "planner/plan/plan.h"
#include "runtime/drivers/host/host_device.h"
#include "runtime/execute/executor.h"
#include "runtime/load/arenas.h"

namespace cleave::runtime::test {

// A host device's description with `memory` bytes.
planner::DeviceInfo host_info(int index, int64_t memory = int64_t{1} << 30);

// A loader that ignores the compiled kernels and gives these functions.
KernelLoader fixed_kernels(const std::vector<codegen::HostEntry>& entries);

// On host[0] and host[1], hidden 4, vocabulary 4, one-layer "model":
//   0 compute   host[0]: x = embedding of the token ids: x[t, c] = id + c / 4
//   1 transfer  x to host[1]
//   2 compute   host[0]: p = x (a partial sum)      3 compute host[1]: p = 2 x (the other)
//   4 all_reduce p with the Add of x: y = 4 x on both
//   5 compute   host[0]: logits[:, 0:2) = y         6 compute host[1]: logits[:, 2:4) = y, rows of
//   output_rows 7 all_gather logits on host[1]
// Prefill and decode have the same steps.
struct TinyPlan {
    static constexpr int64_t kColumns = 4;
    planner::Plan plan;
    std::vector<codegen::Program> programs;

    TinyPlan();
    static std::vector<codegen::HostEntry> kernels();  // embedding, scale, select
};

// A TinyPlan brought to life.
struct TinySession {
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<Arenas> arenas;
    std::unique_ptr<Executor> executor;

    explicit TinySession(const TinyPlan& tiny, const ExecutorOptions& options = {},
                         bool poison = true,
                         const std::vector<codegen::HostEntry>& kernels = TinyPlan::kernels());

    // Of each pass its logits, or its tokens.
    std::vector<std::vector<float>> run(std::span<const Batch> passes);
    std::vector<std::vector<int32_t>> run_greedy(std::span<const Batch> passes);
};

// One sequence in slot 0 with these tokens at positions 0, 1, ...; logits of the last token.
Batch tiny_batch(std::vector<int32_t> tokens);

}  // namespace cleave::runtime::test
