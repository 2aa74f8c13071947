// SPDX-License-Identifier: Apache-2.0
// What specialises a kernel: everything that its source text depends on and nothing else, so that
// equal specs give equal text and exist once in a program. Types only. lower/ makes specs from the
// plan; host/ and gpu/ make kernels from specs, and so do tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "importer/graph/graph.h"
#include "importer/weights/quantized_shard.h"
#include "planner/plan/plan.h"

namespace cleave::codegen {

// Columns [offset, ...) of rows `stride` floats apart: an input may be a part of a wider buffer.
struct View {
    int64_t stride = 0;
    int64_t offset = 0;

    bool operator==(const View&) const = default;
};

// How a matrix lies on the device: elements of one type, or quantised. A type converts to it.
struct WeightFormat {
    DType dtype = DType::kF32;
    std::optional<importer::QuantizedFormat> quantized;  // dtype is then that of its codes

    WeightFormat(DType d = DType::kF32) : dtype(d) {}  // NOLINT: a type is a format
    WeightFormat(const importer::QuantizedFormat& q) : dtype(q.code), quantized(q) {}  // NOLINT
    bool dynamic() const { return quantized && quantized->dynamic_activations; }
    // The type that GPUs' products of many tokens multiply it as.
    DType staged() const { return importer::staged_type(dtype); }

    bool operator==(const WeightFormat&) const = default;
};

struct NormSpec {
    DType weight = DType::kF32;
    double epsilon = 1e-5;
    double offset = 0.0;

    bool operator==(const NormSpec&) const = default;
};

// An elementwise operator that a launch computes on its own result before it is stored.
struct EpilogueStep {
    enum class Kind : uint8_t { kScale, kAdd, kGated };
    Kind kind = Kind::kScale;
    double factor = 1.0, softcap = 0.0;                             // kScale; softcap 0: none
    importer::Activation activation = importer::Activation::kSilu;  // kGated
    bool is_gate = false;       // kGated: the result so far is the gate; else what it multiplies
    std::optional<View> other;  // the second operand; none: the result itself

    bool operator==(const EpilogueStep&) const = default;
};
// In order. Each operand is one further argument, behind all others.
using Epilogue = std::vector<EpilogueStep>;

// Which count of the batch is the number of rows.
enum class RowCount : uint8_t { kTokens, kOutputs };

// Args: ids, first (id of the table's first row), table, out.
struct EmbeddingSpec {
    int64_t hidden = 0;
    int64_t rows = 0;  // that the table holds
    WeightFormat weight;
    float scale = 1.0f;

    bool operator==(const EmbeddingSpec&) const = default;
};

// Args: x, [norm,] weight, [bias,] [residual,] [rows,] out, num_tokens, [all_tokens: rows of x,
// for a weight with dynamic activations].
struct LinearSpec {
    int64_t in = 0, out = 0;
    WeightFormat weight;
    std::optional<DType> bias;
    std::optional<NormSpec> norm;
    std::optional<double> scale;
    double softcap = 0.0;  // after the scale; 0: none
    std::optional<View> residual;
    bool select = false;  // rows of x are the batch's output rows
    bool logits = false;  // the result is f32 whatever the activations are
    RowCount count = RowCount::kTokens;
    View x;
    bool prepared =
        false;  // GPUs: x has WeightFormat::staged(), in rows of whole copies of 16 bytes
    bool factors = false;  // and behind the last of them what PrepareSpec has for f16
    Epilogue epilogue = {};

    bool operator==(const LinearSpec&) const = default;
};

// Args: x, [norm,] gate, [gate_bias,] up, [up_bias,] out, num_tokens.
struct GateUpSpec {
    int64_t in = 0, out = 0;
    WeightFormat gate, up;
    std::optional<DType> gate_bias, up_bias;
    std::optional<NormSpec> norm;
    importer::Activation activation = importer::Activation::kSilu;
    View x;
    bool prepared = false, factors = false;  // as LinearSpec's
    Epilogue epilogue = {};

    bool operator==(const GateUpSpec&) const = default;
};

struct RopeSpec {
    int64_t rotary = 0;
    bool interleaved = false;

    bool operator==(const RopeSpec&) const = default;
};

// Part of the KV cache that a step touches, and the slab it lies in. A slab is
// [heads, num_blocks, planner::kKvBlock, head_dim] of keys, then as much of values; with scales,
// those of keys follow, f32 [heads, num_blocks, kKvBlock], and those of values. Position p of a
// slot is position p % kKvBlock of block blocks[slot * blocks_per_slot + p / kKvBlock].
// A row x of a head is stored as round_to_nearest_even(x * (most / max|x|)) with the scale
// max|x| / most, most being 127 of int8 and 448 of f8e4m3. Where max|x| is below 2^-100, and most /
// max|x| would be too large, both are 0; NaN or an infinity in x makes the scale NaN and what is
// stored 0.
struct SlabSpec {
    int64_t head_dim = 0, v_head_dim = 0;
    int64_t heads = 0;       // of the slab
    int64_t first_head = 0;  // its first KV head
    DType dtype = DType::kF32;

    bool has_scales() const { return planner::has_kv_scales(dtype); }
    bool operator==(const SlabSpec&) const = default;
};

// Args: x, [norm,] q_weight, [q_bias,] k_weight, [k_bias,] v_weight, [v_bias,] [q_norm,] [k_norm,]
// [q_rope,] [k_rope,] q_out, kv, num_blocks, blocks, blocks_per_slot, rope_context, positions,
// slots, num_tokens.
struct QkvSpec {
    int64_t in = 0;
    int64_t q_heads = 0;
    importer::Range kv_heads;
    WeightFormat q, k, v;
    std::optional<DType> q_bias, k_bias, v_bias;
    std::optional<NormSpec> norm, q_norm, k_norm;
    std::optional<RopeSpec> q_rope, k_rope;
    SlabSpec slab;
    View x;
    bool prepared = false, factors = false;  // as LinearSpec's

    bool operator==(const QkvSpec&) const = default;
};

// Args: q, kv, num_blocks, blocks, blocks_per_slot, out, positions, slots, [num_singles,]
// num_tokens. `num_singles` of a prompt's attention: tokens in front that are alone in their
// sequences. Hosts take their heads together, as in decode; GPUs leave them to a launch of decode's
// attention. GPUs: before the last, sequence_starts and num_sequences where many tokens go
// together, or scratch where the keys are split.
struct AttentionSpec {
    importer::Range heads;  // query heads, numbered over the whole model
    int64_t group = 1;      // query heads of a KV head
    double scale = 1.0;
    int64_t window = 0;
    double softcap = 0.0;
    SlabSpec slab;
    View q;
    bool prefill = false;  // items are runs of tokens of a head; else heads of a token

    bool operator==(const AttentionSpec&) const = default;
};

// Args: x, weight, out.
struct RmsNormSpec {
    int64_t out = 0;
    int64_t group = 0;  // features normalised together
    NormSpec norm;
    View x;
    RowCount count = RowCount::kTokens;
    Epilogue epilogue = {};

    bool operator==(const RmsNormSpec&) const = default;
};

// Args: x, table, context, positions, out.
struct RopeOnlySpec {
    int64_t out = 0;
    int64_t head_dim = 0;
    RopeSpec rope;
    View x;
    Epilogue epilogue = {};

    bool operator==(const RopeOnlySpec&) const = default;
};

// Args: k, v, kv, num_blocks, blocks, blocks_per_slot, positions, slots.
struct KvAppendSpec {
    importer::Range kv_heads;
    SlabSpec slab;
    View k, v;

    bool operator==(const KvAppendSpec&) const = default;
};

// Args: gate, up, out.
struct GatedActivationSpec {
    int64_t out = 0;
    importer::Activation activation = importer::Activation::kSilu;
    View gate, up;
    Epilogue epilogue = {};

    bool operator==(const GatedActivationSpec&) const = default;
};

// Args: x, y, out.
struct AddSpec {
    int64_t out = 0;
    View x, y;
    RowCount count = RowCount::kTokens;
    Epilogue epilogue = {};

    bool operator==(const AddSpec&) const = default;
};

// Args: x, out.
struct ScaleSpec {
    int64_t out = 0;
    double factor = 1.0;
    View x;
    RowCount count = RowCount::kTokens;
    double softcap = 0.0;  // 0: none
    Epilogue epilogue = {};

    bool operator==(const ScaleSpec&) const = default;
};

// Args: x, rows, out.
struct SelectTokensSpec {
    int64_t out = 0;
    View x;
    Epilogue epilogue = {};

    bool operator==(const SelectTokensSpec&) const = default;
};

// A launch over tensors (codegen/lower/tensor/): the template that computes it, its constants, and
// its arguments in order.
struct TensorSpec {
    std::string file, call, args_struct;
    std::vector<std::string> config;                        // lines of Config
    std::vector<std::pair<std::string, std::string>> args;  // type and name
    std::vector<std::string> notes;
    std::vector<std::string> left_out;  // template files that it does not use
    int64_t items = 1;

    bool operator==(const TensorSpec&) const = default;
};

using KernelSpec = std::variant<EmbeddingSpec, LinearSpec, GateUpSpec, QkvSpec, AttentionSpec,
                                RmsNormSpec, RopeOnlySpec, KvAppendSpec, GatedActivationSpec,
                                AddSpec, ScaleSpec, SelectTokensSpec, TensorSpec>;

// What the device offers, as far as item sizes depend on it, and the plan's tile: rows of an item
// and tokens of a block of a matrix product. A tile of zero leaves the choice to codegen, by the
// planner's arithmetic.
struct HostTarget {
    int64_t threads = 1;
    planner::Tile tile;
    bool reproducible = false;  // a token's bits do not depend on the tokens beside it
    bool fast = false;          // products round activations (planner::ComputeMode)
};

// What a GPU offers, and the plan's tile. Without one (tile.threads 0), the planner's arithmetic
// chooses for launches of at most `max_tokens` tokens on `context` keys.
struct GpuTarget {
    std::string device;  // as the source's comment has it: "simt:sm_80", "sm_90a"
    planner::DeviceLimits limits;
    planner::Tile tile;
    DType activations = DType::kF32;
    int64_t max_tokens = 1;
    int64_t context = 1;
};

// ---- Kernels beside the steps of a plan

// Sums partial values [num_tokens, out] in f32, in order: the epilogue of an all-reduce.
// Args: source[0] .. source[sources - 1], [residual,] out, [norm, normed].
struct AllReduceSpec {
    int64_t out = 0;
    int64_t sources = 2;
    bool residual = false;
    std::optional<NormSpec> norm;

    bool operator==(const AllReduceSpec&) const = default;
};
// The place of the largest logit of each of num_outputs rows, -1 where one is NaN. Args: logits,
// tokens.
struct ArgmaxSpec {
    int64_t out = 0;

    bool operator==(const ArgmaxSpec&) const = default;
};
// Rows of one type into rows of another: what a device's copy bandwidth is measured with
// (tools/benchmarks/gpu_rates.cpp). No step needs it: values cross devices as they are, and weights
// and caches change their type in registers. Args: from, from_stride, to, to_stride (elements).
struct CopySpec {
    int64_t out = 0;
    DType from = DType::kF32, to = DType::kF32;

    bool operator==(const CopySpec&) const = default;
};
// Activations as a product of many tokens copies them: rows [of those selected,] [normalised,]
// narrowed to the type that its weights are staged as. Rows that become f16 are divided by a power
// of two each (1 unless the row is beyond f16), which stands as f32 behind the last row. Args: x,
// [norm,] [rows,] out.
struct PrepareSpec {
    int64_t in = 0;  // whole runs of 8
    View x;
    std::optional<NormSpec> norm;
    bool select = false;
    RowCount count = RowCount::kTokens;
    DType to = DType::kF16;
    int64_t to_offset = 0;  // elements of `out` before the first row
    bool factors() const { return to == DType::kF16; }

    bool operator==(const PrepareSpec&) const = default;
};
using GpuHelperSpec = std::variant<AllReduceSpec, ArgmaxSpec, CopySpec, PrepareSpec>;

}  // namespace cleave::codegen
