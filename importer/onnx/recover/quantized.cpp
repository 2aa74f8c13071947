// SPDX-License-Identifier: Apache-2.0
// Quantised weights: MatMulNBits, GatherBlockQuantized's table, DequantizeLinear of constants,
// MatMulInteger. Nothing is expanded; the weight keeps its packing, scales and zero points.
#include <algorithm>

#include "importer/onnx/recover/matchers.h"
#include "importer/weights/formats.h"

namespace cleave::importer::from_onnx {
namespace {

// An input that is a constant, perhaps through nodes that only change its shape.
Ref stored(const Recovery& r, Ref value) {
    const Node* node = r.model.producer_of(value);
    while (node && r.model.constant_of(value) == nullptr &&
           (node->is("Reshape") || node->is("Identity") || node->is("Flatten") ||
            node->is("Squeeze") || node->is("Unsqueeze"))) {
        value = node->input(0);
        node = r.model.producer_of(value);
    }
    return value;
}

const Constant* constant(const Recovery& r, const Node& node, size_t i) {
    return r.model.constant_of(stored(r, node.input(i)));
}

int constant_index(const Recovery& r, const Node& node, size_t i) {
    return r.model.values[stored(r, node.input(i))].constant;
}

void add_scales(const Recovery& r, const Node& node, size_t input, WeightView& w) {
    const Constant& c = *constant(r, node, input);
    w.quantization.scales = c.data;
    w.quantization.scale_dtype = *dtype_of(c.elem_type);
    w.quantization.scale_count = c.count();
    w.other_constants.push_back(constant_index(r, node, input));
}

void add_zero_points(const Recovery& r, const Node& node, size_t input, WeightView& w) {
    const Constant& c = *constant(r, node, input);
    w.quantization.zero_points = c.data;
    w.quantization.zero_point_dtype = *dtype_of(c.elem_type);
    w.other_constants.push_back(constant_index(r, node, input));
}

std::optional<std::string> unsupported(const Node& node) {
    static constexpr std::string_view kKnown[] = {"K", "N", "bits", "block_size", "accuracy_level"};
    for (const onnx::AttributeProto& a : node.proto->attribute())
        if (std::find(std::begin(kKnown), std::end(kKnown), a.name()) == std::end(kKnown)) {
            if (a.name() == "weight_prepacked" && a.i() == 0) continue;
            return fmt::format("its attribute '{}' is not supported{}", a.name(),
                               a.name() == "weight_prepacked"
                                   ? ": its weight is laid out for one GPU; export it "
                                     "for the CPU"
                                   : "");
        }
    return std::nullopt;
}

// Of a file's own numbers: their products stay far from overflow.
bool is_size(int64_t n) { return n > 0 && n <= int64_t{1} << 28; }

std::string not_supported(int64_t bits, int64_t block) {
    return fmt::format("{} bits in blocks of {} are not supported; 4 and 8 are", bits, block);
}

// Whether g_idx says what is so without it: row i belongs to group i / block.
bool in_order(Recovery& r, Ref groups, int64_t k, int64_t block) {
    const auto group = r.integers(groups);
    if (!group || std::ssize(*group) != k) return false;
    for (int64_t i = 0; i < k; ++i)
        if ((*group)[i] != i / block) return false;
    return true;
}

// (A, B [N, blocks, bytes], scales, zero points, g_idx, bias).
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
Meaning matmul_nbits(Recovery& r, const Node& node) {
    const View* x = r.get<View>(node.input(0));
    const Constant *b = constant(r, node, 1), *scales = constant(r, node, 2),
                   *zeros = constant(r, node, 3);
    if (const auto why = unsupported(node)) return unknown(r, node, *why);
    if (!x || !b || !scales || !scales->is_floating() || (node.input(3) != kNone && !zeros))
        return unknown(r, node, "its weight, scales or zero points are no constants");
    const int64_t k = node.integer("K", 0), n = node.integer("N", 0),
                  block = node.integer("block_size", 0);
    const int64_t bits = node.integer("bits", 4);
    if (!is_size(k) || !is_size(n) || !is_size(block) || block < 2 || (bits != 4 && bits != 8))
        return unknown(r, node, not_supported(bits, block));
    if (node.input(4) != kNone && !in_order(r, node.input(4), k, block))
        return unknown(r, node,
                       "its rows are not in the order of their groups (g_idx: GPTQ with desc_act), "
                       "which is not supported; quantise without desc_act");
    const int64_t blocks = (k + block - 1) / block;
    if (b->count() != n * blocks * block * bits / 8 || scales->count() != n * blocks)
        return unknown(r, node,
                       "the sizes of its weight and scales disagree with N, K and block_size");
    WeightView w;
    w.constant = constant_index(r, node, 1);
    w.transposed = true;
    w.rows = {0, k};
    w.columns = {0, n};
    w.packing = Packing::kMatMulNBits;
    w.source_rows = n;
    w.source_columns = k;
    w.dtype = bits == 4 ? DType::kUInt4 : DType::kUInt8;
    w.quantization.block = block;
    add_scales(r, node, 2, w);
    if (zeros) {
        add_zero_points(r, node, 3, w);
        if (!zeros->is_floating() && bits == 4) w.quantization.zero_point_dtype = DType::kUInt4;
        const int64_t expected = zeros->is_floating() ? n * blocks : n * ((blocks * bits + 7) / 8);
        if (zeros->count() != expected)
            return unknown(r, node, "its zero points have another size than its scales");
    }
    const WeightView* bias = r.get<WeightView>(node.input(5));
    if (node.input(5) != kNone && !bias) return unknown(r, node, "its bias is no constant");
    const View copy = *x;
    return linear(r, node, copy, w, bias ? std::optional(*bias) : std::nullopt);
}

}  // namespace

// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatherBlockQuantized
// uint8 tables follow MatMulNBits: two codes of 4 bits in a byte of the last dimension, the middle
// code is the zero point where none is given. Tables of int4 and uint4 follow DequantizeLinear.
std::optional<WeightView> block_quantized_table(Recovery& r, const Node& node, std::string& why) {
    const Constant *table = constant(r, node, 0), *scales = constant(r, node, 2),
                   *zeros = constant(r, node, 3);
    const auto sizes = r.sizes(node.input(0));
    std::optional<DType> dtype;
    if (table) dtype = dtype_of(table->elem_type);
    const bool bytes = dtype == DType::kUInt8;
    const int64_t bits = bytes ? node.integer("bits", 4) : 4,
                  block = node.integer("block_size", 128), axis = node.integer("quantize_axis", 1);
    why.clear();
    if (!table || !scales || !scales->is_floating() || (node.input(3) != kNone && !zeros) || !sizes)
        why = "its table, scales or zero points are no constants";
    else if (!bytes && dtype != DType::kInt4 && dtype != DType::kUInt4)
        why = fmt::format("tables of {} are not supported; uint8, int4 and uint4 are",
                          elem_type_name(table->elem_type));
    else if (sizes->size() != 2 || node.integer("gather_axis", 0) != 0 || (axis != 1 && axis != -1))
        why = "only rows of a matrix, in blocks along a row, are supported";
    else if (!is_size(block) || block < 2 || (bits != 4 && bits != 8))
        why = not_supported(bits, block);
    if (!why.empty()) return std::nullopt;
    const int64_t vocab = (*sizes)[0][0], stored_columns = (*sizes)[1][0],
                  hidden = bytes ? stored_columns * 8 / bits : stored_columns,
                  blocks = (hidden + block - 1) / block;
    if (bytes && hidden % block != 0)
        why = fmt::format("rows of {} are no whole blocks of {}", hidden, block);
    else if (scales->count() != vocab * blocks)
        why = fmt::format("it has {} scales where {} are needed", scales->count(), vocab * blocks);
    if (!why.empty()) return std::nullopt;
    WeightView w;
    w.constant = constant_index(r, node, 0);
    w.rows = {0, vocab};
    w.columns = {0, hidden};
    w.packing = bytes ? Packing::kMatMulNBits : Packing::kDequantizeLinear;
    w.source_rows = hidden;
    w.source_columns = vocab;
    w.dtype = bytes && bits == 4 ? DType::kUInt4 : *dtype;
    w.quantization.block = block;
    w.quantization.axis = 1;
    add_scales(r, node, 2, w);
    if (!zeros) return w;
    add_zero_points(r, node, 3, w);
    if (bytes && bits == 4) w.quantization.zero_point_dtype = DType::kUInt4;
    const int64_t expected = bytes ? vocab * ((blocks * bits + 7) / 8) : vocab * blocks;
    if (zeros->count() == expected) return w;
    why = "its zero points have another size than its scales";
    return std::nullopt;
}

Meaning read_dequantize(Recovery& r, const Node& node) {
    const Constant *x = constant(r, node, 0), *scales = constant(r, node, 1),
                   *zeros = constant(r, node, 2);
    const std::optional<DType> dtype = x ? dtype_of(x->elem_type) : std::nullopt;
    if (!x || !scales || (node.input(2) != kNone && !zeros) || x->dims.size() != 2 || !dtype)
        return Known{};
    const QuantizedType* type = find_quantized_type(*dtype);
    if (!type)
        return unknown(r, node,
                       fmt::format("{} weights are not supported; {} are",
                                   elem_type_name(x->elem_type), quantized_type_names(false)));
    const auto scale_dtype = dtype_of(scales->elem_type);
    if (!scale_dtype || (!is_floating(*scale_dtype) && *scale_dtype != type->scale))
        return unknown(r, node,
                       fmt::format("scales of {} are not supported for {} weights",
                                   elem_type_name(scales->elem_type), *dtype));
    WeightView w;
    w.constant = r.model.values[node.input(0)].constant;
    w.rows = {0, x->dims[0]};
    w.columns = {0, x->dims[1]};
    w.packing = Packing::kDequantizeLinear;
    w.dtype = *dtype;
    w.quantization.block = node.integer("block_size", 0);
    const int64_t axis = node.integer("axis", 1);
    if (axis < -2 || axis > 1) return unknown(r, node, "its axis is out of range");
    w.quantization.axis = static_cast<int>(axis < 0 ? axis + 2 : axis);
    if (w.quantization.block != 0 && !is_size(w.quantization.block))
        return unknown(r, node, fmt::format("its block_size is {}", w.quantization.block));
    add_scales(r, node, 1, w);
    if (zeros) add_zero_points(r, node, 2, w);
    const int64_t along = x->dims[w.quantization.axis], other = x->dims[1 - w.quantization.axis];
    const int64_t block = w.quantization.block;
    const int64_t expected = block > 0 ? (along + block - 1) / block * other : along;
    if (scales->count() != 1 && scales->count() != expected)
        return unknown(
            r, node,
            fmt::format("it has {} scales where {} are needed", scales->count(), expected));
    if (zeros && zeros->count() != scales->count())
        return unknown(r, node, "zero points and scales differ in number");
    if (scales->count() == 1) w.quantization.block = 0;
    if (type->one_form &&
        (w.quantization.block != type->block || *scale_dtype != type->scale || zeros))
        return unknown(r, node,
                       fmt::format("weights of {} are supported in blocks of {} with {} scales and "
                                   "without zero points ({})",
                                   elem_type_name(x->elem_type), type->block, type->scale, *dtype));
    return w;
}

namespace {

// x -> (integers, scale, zero point), over the whole tensor.
Meaning dynamic_quantize(Recovery& r, const Node& node) {
    const View* x = r.get<View>(node.input(0));
    if (!x) return unknown(r, node, "quantises a value in the middle of a pattern");
    const View copy = *x;
    r.set(node, 1, DynamicQuantized{copy, DynamicQuantized::kScale, kNone});
    r.set(node, 2, DynamicQuantized{copy, DynamicQuantized::kZeroPoint, kNone});
    return DynamicQuantized{copy, DynamicQuantized::kIntegers, kNone};
}

// (integers, weight [in, out], zero point, zero point of the weight).
Meaning matmul_integer(Recovery& r, const Node& node) {
    const auto *a = r.get<DynamicQuantized>(node.input(0)),
               *zero = r.get<DynamicQuantized>(node.input(2));
    const Constant *b = constant(r, node, 1), *b_zero = constant(r, node, 3);
    if (!a || a->part != DynamicQuantized::kIntegers || !zero ||
        zero->part != DynamicQuantized::kZeroPoint || !(a->x == zero->x) || !b ||
        b->dims.size() != 2 || (node.input(3) != kNone && !b_zero))
        return unknown(
            r, node,
            "only DynamicQuantizeLinear's output times a stored weight is supported, not "
            "products of activations (attention's scores): quantise with "
            "MatMulConstBOnly of ONNX Runtime's quantiser");
    const std::optional<DType> dtype = dtype_of(b->elem_type);
    if (dtype != DType::kInt8 && dtype != DType::kUInt8)
        return unknown(r, node, "its weight is neither int8 nor uint8");
    IntegerProduct p{a->x, {}};
    p.weight.constant = r.model.values[node.input(1)].constant;
    p.weight.rows = {0, b->dims[0]};
    p.weight.columns = {0, b->dims[1]};
    p.weight.packing = Packing::kDequantizeLinear;
    p.weight.dtype = *dtype;
    p.weight.quantization.axis = 1;
    p.weight.quantization.dynamic_activations = true;
    if (b_zero) add_zero_points(r, node, 3, p.weight);
    return p;
}

Meaning quantize(Recovery& r, const Node& node) {
    return unknown(r, node,
                   "rounds activations to integers by a scale of the file (static quantisation), "
                   "which is not supported; quantise the weights alone, or the activations "
                   "dynamically");
}

}  // namespace

// scale of x * scale of the weight, and the integer product times that.
std::optional<Meaning> match_integer_arithmetic(Recovery& r, const Node& node) {
    if (!node.is("Mul") || node.in.size() != 2) return std::nullopt;
    for (int i : {0, 1}) {
        const Ref other = node.input(1 - i);
        const auto* scale = r.get<DynamicQuantized>(node.input(i));
        if (!scale || scale->part != DynamicQuantized::kScale) continue;
        if (const Constant* c = r.model.constant_of(other);
            c && c->is_floating() && scale->weight_scale == kNone) {
            DynamicQuantized both = *scale;
            both.weight_scale = other;
            return both;
        }
        const auto* product = r.get<IntegerProduct>(other);
        if (!product || !(product->x == scale->x) || scale->weight_scale == kNone)
            return unknown(r, node,
                           "scales an integer product by something other than its two scales");
        IntegerProduct p = *product;
        const Constant& c = *r.model.constant_of(scale->weight_scale);
        Quantization& q = p.weight.quantization;
        q.scales = c.data;
        q.scale_dtype = *dtype_of(c.elem_type);
        q.scale_count = c.count();
        p.weight.other_constants.push_back(r.model.values[scale->weight_scale].constant);
        if (c.count() != 1 && c.count() != p.weight.columns.size())
            return unknown(r, node, "its weight's scales are neither one nor one for each column");
        return linear(r, node, p.x, p.weight, std::nullopt);
    }
    return std::nullopt;
}

std::vector<NamedMatcher> quantized_matchers() {
    return {{"MatMulNBits", matmul_nbits},
            {"DynamicQuantizeLinear", dynamic_quantize},
            {"QuantizeLinear", quantize},
            {"MatMulInteger", matmul_integer}};
}

}  // namespace cleave::importer::from_onnx
