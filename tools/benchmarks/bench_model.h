// SPDX-License-Identifier: Apache-2.0
// The model that the benchmarks run: a Llama shape with stand-in weights, a prompt, and how many
// bytes of it a token reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "models/llama_graph.h"
#include "runtime/base/errors.h"
#include "runtime/execute/batch.h"

namespace cleave::bench {

// UserError for a shape that models/ does not know, with those that it does.
inline models::Shape shape_of(const std::string& name) {
    const std::optional<models::Shape> shape = models::find_shape(name);
    if (!shape || !shape->is_plain())
        throw UserError("no plain Llama '{}'; known are {}", name,
                        fmt::join(models::shape_names(), ", "));
    return *shape;
}

// The graph has the type that is stored; weights of fewer bits are made of bf16.
inline importer::Graph graph_of(const std::string& name, DType dtype) {
    return models::build_llama_graph(shape_of(name), dtype_bits(dtype) < 16 ? DType::kBF16 : dtype);
}

// A token of each of `count` sequences behind `past` others, from slot `first` on.
inline runtime::Batch decode_pass(int64_t first, int64_t count, int64_t past) {
    runtime::Batch pass;
    pass.sequence_starts = {0};
    for (int64_t i = 0; i < count; ++i) {
        pass.token_ids.push_back(static_cast<int32_t>(i + 1));
        pass.positions.push_back(static_cast<int32_t>(past));
        pass.slots.push_back(static_cast<int32_t>(first + i));
        pass.sequence_starts.push_back(static_cast<int32_t>(i + 1));
        pass.output_rows.push_back(static_cast<int32_t>(i));
    }
    pass.is_prefill = false;
    return pass;
}

inline std::vector<int32_t> prompt(int64_t tokens, int64_t vocabulary) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i)
        ids.push_back(static_cast<int32_t>((i * 7919 + 1) % vocabulary));
    return ids;
}

// Bytes of weights that one decode step reads: all but the embedding table, where it reads one row
// (a tied table is read whole by lm_head).
inline int64_t decode_weight_bytes(const importer::Graph& graph) {
    int64_t bytes = 0;
    for (const importer::Op& op : graph.ops)
        if (op.kind != importer::OpKind::kEmbedding)
            for (importer::WeightId w : op.weights) bytes += graph.weight(w).packed_bytes();
    return bytes;
}

}  // namespace cleave::bench
