// SPDX-License-Identifier: Apache-2.0
// What end-to-end tests share: small models of the project's own, plans on so many host devices,
// and the numbers that an independent implementation gives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "importer/graph/graph.h"
#include "models/shapes.h"
#include "planner/planner.h"
#include "runtime/generate/generate.h"
#include "runtime/session/session.h"
#include "tests/support/failures.h"

namespace cleave::test {

// A small Llama: 2 layers, 8 query heads over 4 KV heads, odd sizes of MLP and vocabulary.
models::Shape small_shape();

// The graph of `shape` with random f32 weights held in its blobs.
importer::Graph random_model(const models::Shape& shape, uint64_t seed);

struct DeviceShape {
    const char* name;
    const char* devices;
    int tensor_parallel, pipeline_stages;
};

// The shapes that results must not depend on; ranges of heads are unequal for 3 and may be empty
// for 8.
const std::vector<DeviceShape>& device_shapes();

planner::Plan plan_for(const importer::Graph& graph, const DeviceShape& shape,
                       const planner::Workload& workload);

// Room for `batch` sequences of `context` tokens with the logits of every token. Products are
// exact, as those of references are.
planner::Workload all_logits_workload(int64_t batch, int64_t context, int64_t prefill_chunk);

// One prompt of at most 8 tokens, continued to at most 16 on devices of that shape, with the logits
// of every token.
runtime::SequenceResult continue_prompt(const importer::Graph& graph, const DeviceShape& shape,
                                        const std::vector<int32_t>& prompt, size_t new_tokens,
                                        std::optional<DType> kv_dtype = {});

// Options of a session in poisoned memory that records its trace.
runtime::SessionOptions checked_options();
// These, with CompileOptions::reproducible.
runtime::SessionOptions reproducible_options();
// Options of a session on the fakes of the vendors' drivers (tests/runtime_fakes), in poisoned
// memory.
runtime::SessionOptions options_for_fakes();

// reference/NAME.json and its logits, in ../shared/data.
struct Reference {
    std::vector<int32_t> prompt, greedy;             // greedy: the new tokens only
    std::vector<float> prefill_logits, step_logits;  // [prompt, vocab], [1, vocab]
    std::vector<std::vector<int32_t>> padded_batch;  // without the padding
    std::vector<std::vector<float>> padded_logits;   // of each sequence's own rows
};
Reference load_reference(const std::string& name);

// Little-endian float32.
std::vector<float> read_floats(const std::filesystem::path& path);

// Largest |a - b|; infinity when the sizes differ or either is no number.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace cleave::test
