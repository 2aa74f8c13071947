// SPDX-License-Identifier: Apache-2.0
// What an executor asks of all its workers at once: one kind of request each. The worker of the
// plan's output device writes the results; what a job refers to outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "runtime/execute/batch.h"
#include "runtime/execute/tensor.h"

namespace cleave::runtime {

// Before the first pass: kernels of devices that will wait for one another run at the same time.
struct Meeting {};

struct LogitPasses {
    std::span<const Batch> passes;
    std::span<std::vector<float>> logits;  // by pass: [num_outputs, vocab]
    int32_t first_pass = 0;                // its number in the trace
};

struct TokenPasses {
    std::span<const Batch> passes;
    std::span<std::vector<int32_t>> tokens;  // by pass: [num_outputs], the greedy choice
    int32_t first_pass = 0;
};

// One pass of a graph over tensors, in the order of its inputs and outputs.
struct TensorPass {
    const Batch& pass;
    std::span<const std::span<const std::byte>> inputs;
    std::span<Tensor> outputs;
    int32_t number = 0;
};

using Job = std::variant<Meeting, LogitPasses, TokenPasses, TensorPass>;

}  // namespace cleave::runtime
