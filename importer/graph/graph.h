// SPDX-License-Identifier: Apache-2.0
// The Graph: what an ONNX file says, as Llama-level operators. Artefact of importer/; input of the
// planner.
//
// Invariants (looked at by `graph_fault`):
//  - plain values: vectors and strong indices, no pointers; ops are in topological order;
//  - every value has exactly one producer, or is in `inputs`;
//  - activations are ragged: [num_tokens, features], rows of all sequences one after the other.
//    Padding never reaches an operator: positions, sequences and cache slots come with the batch;
//  - KV is state: KvAppend makes a value of kind kKvState, which that layer's Attention reads. Its
//    meaning is [num_slots, context, 2, num_kv_heads, head_dim]. It is no input and no output;
//  - logits are computed for the rows that SelectTokens picks ([num_outputs, vocab]);
//  - weights have a logical shape and are views of files; nothing is expanded or copied at import;
//  - every operator keeps the names of the ONNX nodes that it came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "importer/graph/activation.h"
#include "runtime/base/dtype.h"
#include "runtime/base/gguf.h"
#include "runtime/base/index.h"

namespace cleave::importer {

using OpId = Index<struct OpTag>;
using ValueId = Index<struct ValueTag>;
using WeightId = Index<struct WeightTag>;
using RopeTableId = Index<struct RopeTableTag>;
using FileId = Index<struct FileTag>;
using BlobId = Index<struct BlobTag>;

// ---- Weights

// A file that weights are read from; `path` is absolute or relative to the working directory.
struct SourceFile {
    std::string path;
    uint64_t size = 0;
    bool present =
        true;  // false: named by the graph but absent (`--weights none`): may be planned, not run
};

// Where bytes are: [offset, offset + length) of a file, or a whole blob that import computed.
// Neither (both ids invalid): a weight of a shape name, without data.
struct DataRef {
    FileId file;
    BlobId blob;
    uint64_t offset = 0;
    uint64_t length = 0;
    bool has_data() const { return file.valid() || blob.valid(); }
};

struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t size() const { return end - begin; }
    bool empty() const { return end <= begin; }
    friend bool operator==(const Range&, const Range&) = default;
};

enum class Packing : uint8_t {
    kDense,             // source_shape elements, row major
    kMatMulNBits,       // com.microsoft: [out, blocks, block * bits / 8], zero points packed alike
    kDequantizeLinear,  // ONNX: source_shape integer elements; scales per tensor, axis or block
    // GPTQ and AWQ, [in, out] in int32 words of several codes: GPTQ's of consecutive inputs, AWQ's
    // of eight outputs in an order of their own. Scales and zero points are [blocks, out].
    kGptq,
    kAwq,
};

// Quantised storage, beside the weight's type (importer/weights/formats.h): the logical weight is
// (code - zero_point) * scale, with one scale for each `block` elements along the input features
// (0: one block for the whole axis).
struct Quantization {
    int64_t block = 0;
    int axis = 1;  // of the logical [out, in] shape, along which blocks run
    DType scale_dtype = DType::kF32;
    DataRef scales;  // [out, blocks] row major, or [blocks, out] when `scales_transposed`
    bool scales_transposed = false;
    int64_t scale_count = 0;  // elements in `scales`; 1: one for the whole tensor
    DataRef zero_points;      // absent: 2^(bits - 1) for kMatMulNBits, 0 for kDequantizeLinear
    DType zero_point_dtype = DType::kUInt8;
    bool zero_points_in_words = false;  // int32 of consecutive outputs, [out / codes, blocks]
    int zero_offset = 0;     // added to zero points as stored, modulo 2^bits (the first GPTQ's: 1)
    int64_t scale_rows = 1;  // output features that share a scale
    bool dynamic_activations = false;  // MatMulInteger after DynamicQuantizeLinear
    // Set: the weight's data is dense, of this type, and is quantised as shards are cut; there are
    // no scales to be read.
    std::optional<DType> rounded_from;
};

// A logical tensor, [out_features, in_features] for a matrix, [n] for a vector. It views the
// rectangle `rows` x `columns` of a stored matrix of `source_shape`, transposed when `transposed`
// (then the logical row is a column of the source). For vectors only `rows` counts.
struct Weight {
    std::string name;            // the initializer's name, with a suffix for a part of one
    std::vector<int64_t> shape;  // logical
    DType dtype = DType::kF32;   // of the stored elements
    Packing packing = Packing::kDense;
    DataRef data;
    std::vector<int64_t> source_shape;  // as stored, before transposition
    bool transposed = false;
    Range rows, columns;        // of the logical (already transposed) source; whole by default
    Quantization quantization;  // for packing != kDense
    // `data` are blocks of that type of a GGUF file, scales and zero points within them. kDense:
    // they are expanded to `dtype`, f32, as they are read.
    std::optional<GgufType> gguf;
    std::vector<std::string> initializers;  // ONNX names it came from

    int64_t num_elements() const;
    int64_t packed_bytes() const;  // elements, scales and zero points, as stored
};

// cos and sin for position p, index i of rotary_dim / 2: either p * frequencies[i] evaluated in
// double and multiplied by `magnitude` (yarn's attention factor), or rows of stored tables
// [max_positions, rotary_dim / 2].
struct RopeTable {
    std::vector<float> frequencies;  // empty: use the tables
    double magnitude = 1.0;
    WeightId cos, sin;
    int64_t rotary_dim = 0;
    int64_t max_positions = 0;  // 0: unlimited (computed from frequencies)
    std::string name;
};

// ---- Values

// A dimension: a number, or a symbol whose number the workload gives. The importer's own symbols
// are "num_tokens", "num_outputs" and "num_sequences"; opaque graphs keep their ONNX symbols.
struct Dim {
    int64_t value = -1;
    std::string symbol;
    Dim() = default;
    Dim(int64_t v) : value(v) {}  // NOLINT: a number is a dimension
    explicit Dim(std::string s) : symbol(std::move(s)) {}
    bool is_static() const { return value >= 0; }
    friend bool operator==(const Dim&, const Dim&) = default;
};

// What a symbolic dimension counts in a pass. kSequences: every symbol but those of tokens and
// outputs. kNone: the dimension is a number.
enum class Rows : uint8_t { kTokens, kOutputs, kSequences, kNone };
Rows rows_of(const Dim& dim);

enum class ValueKind : uint8_t { kActivation, kTokenIds, kKvState, kLogits, kTensor };

struct Value {
    std::string name;
    ValueKind kind = ValueKind::kActivation;
    std::vector<Dim> shape;
    DType dtype = DType::kF32;
};
// Of the leading dimension; kNone for a value without dimensions.
Rows rows_of(const Value& value);

// ---- Operators

enum class OpKind : uint8_t {
    kEmbedding,        // token_ids [T], weight [vocab, hidden] -> [T, hidden]
    kRmsNorm,          // x [T, n], weight [group] -> [T, n]
    kLinear,           // x [T, in], weight [out, in], optional bias [out] -> [T, out]
    kRope,             // x [T, heads * head_dim] -> same
    kKvAppend,         // k, v [T, kv_heads * head_dim] -> KV state
    kAttention,        // q [T, heads * head_dim], KV state -> [T, heads * v_head_dim]
    kGatedActivation,  // gate, up [T, n] -> act(gate) * up
    kAdd,              // a, b -> a + b
    kScale,            // x -> x * factor, then a soft cap
    kSelectTokens,     // x [T, n] -> [num_outputs, n]: the batch's output rows
    kOpaque,           // anything else: has a cost and a place, is refused by the runtime by name
    kTensor,           // an ONNX operator over whole tensors, in a graph that is no Llama
};

struct EmbeddingAttrs {
    float scale = 1.0f;  // Gemma: sqrt(hidden)
};
struct RmsNormAttrs {
    double epsilon = 1e-5;
    double weight_offset = 0.0;  // Gemma: 1, y = x / rms(x) * (offset + weight)
    int64_t group =
        0;  // elements normalised together: the whole row, or head_dim (Qwen3's q/k norm)
};
struct LinearAttrs {
    bool has_bias = false;  // then weights = {weight, bias}
};
struct RopeAttrs {
    int64_t num_heads = 0;
    int64_t head_dim = 0;
    int64_t rotary_dim = 0;
    bool interleaved = false;  // pairs (2i, 2i+1); else (i, i + rotary_dim / 2)
    RopeTableId table;
};
struct KvAppendAttrs {
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    int64_t v_head_dim = 0;
};
struct AttentionAttrs {
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    int64_t v_head_dim = 0;
    double scale = 0.0;    // of q . k
    int64_t window = 0;    // a query at p sees keys in (p - window, p]; 0: all
    double softcap = 0.0;  // s = cap * tanh(s / cap); 0: none
    bool causal = true;
};
struct GatedActivationAttrs {
    Activation activation = Activation::kSilu;
};
struct AddAttrs {};
struct ScaleAttrs {
    double factor = 1.0;
    double softcap = 0.0;  // y = cap * tanh(factor * x / cap); 0: none. Gemma-2's logits
};
struct SelectTokensAttrs {};
struct OpaqueAttrs {
    std::string domain;
    std::string op_type;
    int64_t flops = 0;   // an estimate at the default workload, for planning
    int64_t bytes = 0;   // read and written, likewise
    std::string reason;  // why it is none of kTensor: what of it is not supported; may be empty
};

// An operand or result of a tensor operator: dense, row major, `shape` as ONNX has it.
struct TensorOperand {
    std::string name;   // as the ONNX standard calls it: "past_key"
    int32_t index = 0;  // of Op::inputs or Op::outputs; an initializer: -1 - index of Op::weights
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
};
// A number, or numbers, that the operator depends on: ONNX's attributes with defaults filled in,
// and what follows from them and the shapes. Reals for some names, integers for the others.
struct TensorAttribute {
    std::string name;
    std::vector<int64_t> integers;
    std::vector<double> reals;
};
// An operator of the ONNX standard whose sizes are all known. Its values are of kind kTensor;
// initializers that it reads are vectors of their elements (int4: of their bytes).
// importer/onnx/tensor/ says which operators there are, codegen/lower/tensor/ how each is computed.
struct TensorAttrs {
    std::string op_type;  // "RotaryEmbedding"
    std::vector<TensorOperand> operands, results;
    std::vector<TensorAttribute> attributes;
    int64_t flops = 0;
};

using OpAttrs = std::variant<EmbeddingAttrs, RmsNormAttrs, LinearAttrs, RopeAttrs, KvAppendAttrs,
                             AttentionAttrs, GatedActivationAttrs, AddAttrs, ScaleAttrs,
                             SelectTokensAttrs, OpaqueAttrs, TensorAttrs>;

struct Op {
    OpKind kind =
        OpKind::kOpaque;  // always agrees with the alternative held by `attrs` (same order)
    std::string name;     // "layers.3.attention", unique
    int layer = -1;  // decoder layer, -1 before the first (embedding), num_layers after the last
    OpAttrs attrs;
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    std::vector<WeightId> weights;
    std::vector<std::string> onnx_nodes;

    template <class Attrs>
    const Attrs& as() const {
        return std::get<Attrs>(attrs);
    }
};

// ---- The model's description

// Numbers that the operators imply, gathered once for printing and for sizing. Zero: not a Llama.
struct ModelConfig {
    std::string model_type = "llama";
    int64_t vocab_size = 0;
    int64_t hidden_size = 0;
    int64_t intermediate_size = 0;
    int64_t num_layers = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    int64_t max_positions = 0;  // 0: unknown
    double rms_norm_eps = 1e-5;
    double rope_theta = 0.0;  // 0: unknown (a table)
    bool tied_embeddings = false;
};

// How the ONNX file itself is called; what `export` and the padding checks need.
struct Interface {
    bool has_past = false;
    bool has_position_ids = false;
    bool has_attention_mask = false;
    bool assumes_right_padding = false;
};

struct Graph {
    std::string name;      // file name or shape name
    std::string path;      // of the .onnx file; empty for a shape name
    std::string exporter;  // guessed, with producer and version; empty: built, not imported
    int64_t opset = 0;
    ModelConfig config;
    Interface interface;
    DType dtype = DType::kF32;  // of the model's activations, as exported
    std::vector<Op> ops;
    std::vector<Value> values;
    std::vector<Weight> weights;
    std::vector<RopeTable> rope_tables;
    std::vector<SourceFile> files;
    std::vector<std::vector<std::byte>> blobs;
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    std::vector<std::string> notes;  // what was folded, inlined, specialised: a line each

    const Op& op(OpId id) const { return ops[id.index()]; }
    const Value& value(ValueId id) const { return values[id.index()]; }
    const Weight& weight(WeightId id) const { return weights[id.index()]; }
    const RopeTable& rope_table(RopeTableId id) const { return rope_tables[id.index()]; }
};

std::string_view op_kind_name(OpKind kind);  // "rms_norm"
// Operators that keep their ONNX form. How they may be split is unknown, so they never are.
inline bool keeps_onnx_form(const Op& op) {
    return op.kind == OpKind::kOpaque || op.kind == OpKind::kTensor;
}
std::string onnx_op_type(const Op& op);  // of such an operator, "com.microsoft.Gelu"

// A name or note that would break a line of what is printed, with ? for its control characters;
// empty where there is none.
std::string unprintable_name(const Graph& graph);

// The first invariant of the header that does not hold, with the operator's or weight's name; empty
// where all do. Indices of a graph that comes from a file are checked before.
std::string graph_fault(const Graph& graph);

// Throws InternalError with `graph_fault` where there is one: for graphs that Cleave made.
void check_graph(const Graph& graph);

// The graph as text, one operator a line; equal graphs give equal text.
std::string to_text(const Graph& graph);

// A digest of everything but weight bytes and file paths.
std::string graph_digest(const Graph& graph);

}  // namespace cleave::importer
