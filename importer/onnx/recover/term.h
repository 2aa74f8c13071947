// SPDX-License-Identifier: Apache-2.0
// What the matchers find: terms are the model's own operators, before they are put in order and
// named; a Meaning is what one ONNX value stands for while its neighbours are being read.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "importer/onnx/model.h"
#include "importer/onnx/recover/view.h"

namespace cleave::importer::from_onnx {

// A part of a constant as a value of the graph: [rows, columns] for a matrix, [rows] for a vector.
// `transposed`: the value's rows are the constant's columns. Quantised constants carry their
// scales.
struct WeightView {
    int constant = -1;
    bool vector = false;
    bool transposed = false;
    Range rows, columns;
    double added = 0.0;  // a number that the graph adds to every element (Gemma's 1 + w)
    Packing packing = Packing::kDense;
    DType dtype = DType::kF32;  // of packings other than kDense
    // kDequantizeLinear: quantization.axis is the constant's own axis of the scales.
    Quantization quantization;  // data refs of the Model
    int64_t source_rows = 0,
            source_columns = 0;        // kMatMulNBits: [out, in], not the constant's own shape
    std::vector<int> other_constants;  // scales and zero points, for their names
    friend bool operator==(const WeightView&, const WeightView&);
};

struct Term {
    enum Kind {
        kTokenIds,
        kEmbedding,
        kNorm,
        kLinear,
        kRope,
        kPast,
        kCache,
        kAttention,
        kGated,
        kAdd,
        kScale,
        kSelect
    } kind = kTokenIds;
    std::vector<TermId> in;
    int64_t features = 0;
    std::vector<int> nodes;  // of the Model, that it was made from
    WeightView weight;       // kEmbedding [vocab, hidden], kNorm [group], kLinear [in, out]
    std::optional<WeightView> bias;
    double scale = 1.0;        // kEmbedding, kScale
    double softcap = 0.0;      // kScale
    double epsilon = 0.0;      // kNorm
    int64_t group = 0;         // kNorm
    RopeAttrs rope;            // kRope; the table is an index into Recovery::rope_tables
    AttentionAttrs attention;  // kAttention: in = q, cache of k, cache of v
    Activation activation = Activation::kSilu;  // kGated: in = gate, up
    int input = -1;  // kPast, kCache: the graph input that is the past, -1: none
};

// Nothing is known, and why.
struct Unknown {
    std::string reason;
};
// Depends on shapes, positions, masks and small constants only: a Probe evaluates it.
struct Known {};

// softmax is about to be taken of, or was taken of, scale * q . k plus masks.
struct MaskUse {
    Ref value = kNone;
    bool additive = true;  // else boolean
    bool hides = false;    // boolean: true means hidden
    friend auto operator<=>(const MaskUse&, const MaskUse&) = default;
};
struct Scores {
    View q, k;
    View layout;  // axes of the scores; features are those of q
    double scale = 1.0;
    double softcap = 0.0;
    bool in_tanh = false;  // between the softcap's division and its multiplication
    int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
    std::vector<MaskUse> masks;
    bool normalized = false;  // softmax was taken
};

// A function of one activation, element by element, known by its values at fixed points.
struct Elementwise {
    View x;
    std::vector<double> samples;
};

// The mean of x^2 over groups of features on its way to 1 / sqrt(mean + epsilon).
struct MeanSquare {
    View x;
    int64_t group = 0;
    double epsilon = 0.0;
    enum Stage { kMean, kMeanPlusEpsilon, kRoot, kInverse } stage = kMean;
};
struct Normalized {
    View x;
    int64_t group = 0;
    double epsilon = 0.0;
};

// x with the two features of each pair swapped and the new first one negated: concat(-x2, x1). The
// pairs are `distance` features apart: half of those that turn, or 1 when they are interleaved.
struct Rotated {
    View x;
    int64_t distance = 0;
};
// x * table or rotated(x) * table, waiting for its other half. `width`: entries of a row of the
// table.
struct RopeProduct {
    View x;
    bool rotated = false;
    Ref table = kNone;
    int64_t width = 0;
    int64_t distance = 0;  // of the rotated one
};

// One half of a rotation written without a concat(-x2, x1): x1 * cos - x2 * sin, or x2 * cos + x1 *
// sin.
struct RopeHalf {
    View low, high;
    Ref cos = kNone, sin = kNone;
    bool first = true;
    int64_t width = 0;
};
// The first features of every head, rotated; the rest of each head is to be joined to it.
struct PartlyRotated {
    View x;
    RopeTableId table;
    bool interleaved = false;
};

// Whether probabilities are not a number: where all keys are hidden. Where takes 0 there.
struct NanTest {};

// Outputs of DynamicQuantizeLinear: x as 8-bit integers, its scale (times a weight's scale), its
// zero point.
struct DynamicQuantized {
    View x;
    enum Part { kIntegers, kScale, kZeroPoint } part = kIntegers;
    Ref weight_scale = kNone;
};
// MatMulInteger of such integers and of an integer weight, waiting for both scales.
struct IntegerProduct {
    View x;
    WeightView weight;
};

using Meaning = std::variant<Unknown, Known, WeightView, View, Scores, Elementwise, MeanSquare,
                             Normalized, Rotated, RopeProduct, RopeHalf, PartlyRotated, NanTest,
                             DynamicQuantized, IntegerProduct>;

struct ValueMeaning {
    Meaning meaning = Unknown{};
    std::vector<int> trail;  // nodes read since the last finished term
};

}  // namespace cleave::importer::from_onnx
