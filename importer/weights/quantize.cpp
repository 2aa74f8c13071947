// SPDX-License-Identifier: Apache-2.0
#include "importer/weights/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "importer/weights/read_transposed.h"
#include "importer/weights/round_weights.h"
#include "importer/weights/weight_reader.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

constexpr int64_t kStripRows = kTransposedTileRows;  // read at once

// The same type, as a quantised weight of a file may name it.
bool is_of(const Weight& weight, DType to) {
    return quantized_type(weight.dtype).code == quantized_type(to).code;
}

void round_later(Weight& weight, const QuantizedType& to) {
    Quantization q;
    q.rounded_from = weight.gguf ? DType::kF32 : weight.dtype;
    q.block = to.block;
    q.scale_dtype = to.scale;
    weight.quantization = q;
    weight.packing = Packing::kMatMulNBits;
    weight.dtype = to.dtype;
}

// The weight before round_later.
Weight dense_of(Weight weight) {
    weight.packing = Packing::kDense;
    weight.dtype = *weight.quantization.rounded_from;
    weight.quantization = {};
    return weight;
}

// Rows of the dense weight in f32, a strip at a time.
class Strips {
public:
    Strips(const WeightReader& reader, const Weight& weight, Range rows, Range columns)
        : reader_(reader), dense_(dense_of(weight)), rows_(rows), columns_(columns) {
        line_.resize(std::min(kStripRows, rows.size()) * columns.size());
    }

    const float* row(int64_t r) {
        if (r < begin_ || r >= end_) {
            begin_ = r;
            end_ = std::min(r + kStripRows, rows_.end);
            const size_t count = (end_ - begin_) * columns_.size();
            reader_.read(dense_, {begin_, end_}, columns_, DType::kF32,
                         std::as_writable_bytes(std::span(line_).first(count)));
        }
        return line_.data() + (r - begin_) * columns_.size();
    }

private:
    const WeightReader& reader_;
    Weight dense_;
    Range rows_, columns_;
    std::vector<float> line_;
    int64_t begin_ = 0, end_ = 0;
};

// The element of largest magnitude, with its sign. NaN if an element is NaN or
// infinite: no scale holds those.
float extreme_of(const float* x, int64_t n) {
    float largest = 0, smallest = 0, not_finite = 0;
    for (int64_t i = 0; i < n; ++i) {
        largest = std::max(largest, x[i]);
        smallest = std::min(smallest, x[i]);
        not_finite += x[i] * 0.0f;  // 0, or NaN
    }
    if (not_finite != 0) return not_finite;
    return largest >= -smallest ? largest : smallest;
}

float stored(float scale, DType dtype) {
    if (dtype == DType::kF32) return scale;
    uint16_t bits = 0;
    convert_elements(DType::kF32, &scale, dtype, &bits, 1);
    convert_elements(dtype, &bits, DType::kF32, &scale, 1);
    return scale;
}

// Codes of some elements with one scale.
void round_block(const float* x, int64_t n, float scale, const QuantizedType& to, uint8_t* codes) {
    to.round(x, n, scale == 0 ? 0 : 1 / scale, codes);
}

// One row: a code for each column of `columns` and the scales of its blocks.
class RowRounder {
public:
    RowRounder(const WeightReader& reader, const Weight& weight, Range rows, Range columns)
        : weight_(weight),
          type_(quantized_type(weight.dtype)),
          columns_(columns),
          // A scale of a whole row depends on all of it, also where a part is asked for.
          read_(weight.quantization.block > 0 ? columns : Range{0, weight.shape[1]}),
          block_(weight.quantization.block > 0 ? weight.quantization.block : weight.shape[1]),
          strips_(reader, weight, rows, read_) {
        CLEAVE_CHECK(columns.begin % block_ == 0 || weight.quantization.block == 0)
            << weight.name << ": column " << columns.begin << " lies within a block";
        codes.resize(columns.size());
        scales.resize((read_.size() + block_ - 1) / block_);
    }

    void round(int64_t r) {
        const float* line = strips_.row(r);
        for (size_t b = 0; b < scales.size(); ++b) {
            const int64_t begin = static_cast<int64_t>(b) * block_;
            const int64_t n = std::min(block_, read_.size() - begin);
            scales[b] = scale_of(line + begin, n, r);
            if (weight_.quantization.block > 0)
                round_block(line + begin, n, scales[b], type_, codes.data() + begin);
        }
        if (weight_.quantization.block == 0)
            round_block(line + columns_.begin, columns_.size(), scales[0], type_, codes.data());
    }

    std::vector<uint8_t> codes;
    std::vector<float> scales;  // as stored

private:
    float scale_of(const float* x, int64_t n, int64_t row) const {
        const float extreme = extreme_of(x, n);
        if (!(std::abs(extreme) <= 3.4e38f))
            throw UserError(
                "{}: row {} holds a NaN or an infinity, which {} cannot; leave $dtype out, or "
                "give f32, f16 or bf16",
                weight_.name, row, weight_.dtype);
        return stored(type_.scale_of(extreme), type_.scale);
    }

    const Weight& weight_;
    const QuantizedType& type_;
    Range columns_, read_;
    int64_t block_;
    Strips strips_;
};

// Codes in the order of importer/weights/quantized_shard.h, into a row that was zero.
void write_codes(const std::vector<uint8_t>& codes, DType dtype, std::byte* to) {
    if (dtype_bits(dtype) == 8) {
        std::memcpy(to, codes.data(), codes.size());
        return;
    }
    for (size_t i = 0; i < codes.size(); ++i)
        put_four_bits(to, static_cast<int64_t>(i), static_cast<std::byte>(codes[i]));
}

// What quantising changes of an operator: its matrix, or nothing.
const Weight* matrix_of(const Graph& graph, const Op& op) {
    if ((op.kind != OpKind::kLinear && op.kind != OpKind::kEmbedding) || op.weights.empty())
        return nullptr;
    const Weight& weight = graph.weight(op.weights[0]);
    return weight.shape.size() == 2 ? &weight : nullptr;
}

}  // namespace

std::string why_not_quantized(const Graph& graph, DType to) {
    if (!is_quantizing(to))
        return fmt::format("$dtype {}: weights cannot be quantised to that; use one of {}", to,
                           quantized_type_names(true));
    bool any = false;
    for (const Op& op : graph.ops) {
        const Weight* weight = matrix_of(graph, op);
        if (!weight) continue;
        any = true;
        if (weight->packing != Packing::kDense && !weight->gguf && !is_of(*weight, to))
            return fmt::format(
                "$dtype {}: '{}' is quantised already, as {}; quantise the model that it was "
                "made from, or leave $dtype out",
                to, weight->name, weight->dtype);
    }
    if (any) return "";
    return fmt::format(
        "$dtype {}: {} has no Linear or Embedding whose weights could be quantised; leave "
        "$dtype out",
        to, graph.name);
}

std::string types_to_requantize(const Graph& graph) {
    std::map<std::string_view, int> counts;
    for (const Weight& weight : graph.weights)
        if (weight.gguf && weight.packing == Packing::kDense)
            ++counts[gguf_layout(*weight.gguf).name];
    std::string text;
    for (const auto& [name, count] : counts)
        text += fmt::format("{}{} ({} tensor{})", text.empty() ? "" : ", ", name, count,
                            count == 1 ? "" : "s");
    return text;
}

Graph quantize_weights(Graph graph, DType to) {
    if (std::string reason = why_not_quantized(graph, to); !reason.empty())
        throw UserError("{}", reason);
    for (const Op& op : graph.ops) {
        const Weight* weight = matrix_of(graph, op);
        if (!weight) continue;
        const bool dense = weight->packing == Packing::kDense && is_floating(weight->dtype);
        if (dense ? weight->dtype != to : weight->gguf && !is_of(*weight, to))
            round_later(graph.weights[op.weights[0].index()], quantized_type(to));
    }
    return graph;
}

Graph weights_as_stored(Graph graph) {
    for (Weight& weight : graph.weights)
        if (weight.quantization.rounded_from) weight = dense_of(weight);
    return graph;
}

void pack_rounded(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                  const QuantizedParts& parts) {
    const QuantizedFormat format = quantized_format(weight);
    const QuantizedLayout l = quantized_layout(format, rows.size(), columns.size());
    std::fill(parts.codes.begin(), parts.codes.end(), std::byte{0});
    RowRounder row(reader, weight, rows, columns);
    for (int64_t r = 0; r < rows.size(); ++r) {
        row.round(rows.begin + r);
        write_codes(row.codes, weight.dtype, parts.codes.data() + r * l.row_bytes);
        convert_elements(DType::kF32, row.scales.data(), format.scale,
                         parts.scales.data() + r * l.scale_row_bytes, l.blocks);
    }
}

void expand_rounded(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                    DType to, std::span<std::byte> destination) {
    const int64_t block = weight.quantization.block;
    // What is asked for may begin anywhere, a block may not.
    const int64_t first = block > 0 ? columns.begin / block * block : columns.begin;
    const Range whole{first,
                      columns.end < weight.shape[1] && block > 0
                          ? std::min(weight.shape[1], (columns.end + block - 1) / block * block)
                          : columns.end};
    const QuantizedType& type = quantized_type(weight.dtype);
    const float zero = type.value(type.middle);
    RowRounder row(reader, weight, rows, whole);
    std::vector<float> line(columns.size());
    const size_t line_bytes = dtype_bytes(to, columns.size());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
        row.round(r);
        for (int64_t c = columns.begin; c < columns.end; ++c) {
            const int64_t i = c - whole.begin;
            line[c - columns.begin] =
                (type.value(row.codes[i]) - zero) * row.scales[block > 0 ? i / block : 0];
        }
        convert_elements(DType::kF32, line.data(), to,
                         destination.data() + (r - rows.begin) * line_bytes, columns.size());
    }
}

}  // namespace cleave::importer
