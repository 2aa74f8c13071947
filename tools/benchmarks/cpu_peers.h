// SPDX-License-Identifier: Apache-2.0
// `tools/bench cpu --peers`: prefill of 512 tokens and decode behind 256 of a Llama shape, by us,
// by llama.cpp's llama-bench and by onnxruntime-genai in alternating rounds, each with as many
// threads as there are cores. Out: a table, and a JSON file of the same where one is asked for.
#pragma once

#include <optional>
#include <string>

#include "planner/plan/workload.h"
#include "runtime/base/dtype.h"

namespace cleave::bench {

struct PeersOptions {
    std::string shape;
    std::optional<DType> dtype;                   // none: f32, bf16, int8 and int4
    std::optional<planner::ComputeMode> compute;  // of narrow weights; none: fast
    std::string llama_cpp;                        // a folder with llama-bench and llama-quantize
    std::string python;  // of onnxruntime-genai, onnxruntime and onnx; empty: without that peer
    std::string cleave;  // the program, which writes that peer's model
    std::string json;    // a file, or empty
    int rounds = 3;
};

// UserError where a peer's programs are absent or fail.
void beside_peers(const PeersOptions& options);

}  // namespace cleave::bench
