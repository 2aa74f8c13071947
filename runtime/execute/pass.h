// SPDX-License-Identifier: Apache-2.0
// One pass on its way through the workers: what it computes, what its caller wants of it, and what
// the worker of the plan's output device has made of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/execute/batch.h"
#include "runtime/execute/tensor.h"

namespace cleave::runtime {

// Of a pass: 0, 1, 2, ... in the order of submission. Its number in the trace, too.
using Ticket = int64_t;

// Passes that are queued and not finished, at most.
inline constexpr int64_t kMostPassesInFlight = 8;

enum class PassResults : uint8_t { kNone, kLogits, kTokens };

struct PassResult {
    Ticket ticket = 0;
    std::vector<float> logits;    // [num_outputs, vocab_size], where they are wanted
    std::vector<int32_t> tokens;  // [num_outputs], the greedy choice, where that is wanted
};

struct Pass {
    Batch batch;
    PassResults wanted = PassResults::kNone;
    // Of a graph over tensors, in the order of its inputs and outputs; the caller's.
    std::span<const std::span<const std::byte>> inputs;
    std::span<Tensor> outputs;
    // Before the first pass: kernels of devices that will wait for one another run at the same
    // time.
    bool is_meeting = false;
    // Outputs that the caller wants: the first of the batch's, which may have been filled up
    // (runtime/execute/decode_width.h).
    int64_t num_outputs = 0;
    PassResult result;

    Ticket ticket() const { return result.ticket; }
    bool greedily() const { return wanted == PassResults::kTokens; }
    bool wants_results() const { return wanted != PassResults::kNone || !outputs.empty(); }
};

}  // namespace cleave::runtime
