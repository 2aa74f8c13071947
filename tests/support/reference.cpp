// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "importer/weights/weight_reader.h"
#include "runtime/base/errors.h"

namespace cleave::test {
namespace {

using namespace importer;
using Row = std::span<double>;
using ConstRow = std::span<const double>;

// [rows, columns], row major.
struct Matrix {
    int64_t rows = 0, columns = 0;
    std::vector<double> data;
    Matrix() = default;
    Matrix(int64_t r, int64_t c) : rows(r), columns(c), data(r * c) {}
    Row row(int64_t r) { return Row(data).subspan(r * columns, columns); }
    ConstRow row(int64_t r) const { return ConstRow(data).subspan(r * columns, columns); }
};

class Interpreter {
public:
    Interpreter(const Graph& graph, std::span<const int32_t> tokens)
        : graph_(graph), tokens_(tokens), reader_(graph) {}

    std::vector<double> run() {
        for (const Op& op : graph_.ops) step(op);
        for (ValueId out : graph_.outputs)
            if (graph_.value(out).kind == ValueKind::kLogits) return values_.at(out).data;
        throw UserError("{}: the graph has no logits to compare with", graph_.name);
    }

private:
    struct KvState {
        Matrix k, v;  // [tokens, kv_heads * head_dim]
    };

    const Matrix& in(const Op& op, size_t i) const { return values_.at(op.inputs.at(i)); }

    // A whole weight as [rows, columns]; a vector has one row.
    Matrix weight(WeightId id) const {
        const Weight& w = graph_.weight(id);
        bool vector = w.shape.size() == 1;
        Matrix m(vector ? 1 : w.shape[0], vector ? w.shape[0] : w.shape[1]);
        std::vector<float> f(m.data.size());
        reader_.read(id, Range{0, w.shape[0]}, Range{0, vector ? 1 : w.shape[1]}, DType::kF32,
                     std::as_writable_bytes(std::span(f)));
        std::copy(f.begin(), f.end(), m.data.begin());
        return m;
    }

    void step(const Op& op) {
        Matrix out;
        switch (op.kind) {
            case OpKind::kEmbedding: out = embedding(op); break;
            case OpKind::kRmsNorm: out = rms_norm(op); break;
            case OpKind::kLinear: out = linear(op); break;
            case OpKind::kRope: out = rope(op); break;
            case OpKind::kKvAppend: kv_[op.outputs.at(0)] = {in(op, 0), in(op, 1)}; return;
            case OpKind::kAttention: out = attention(op); break;
            case OpKind::kGatedActivation: out = gated_activation(op); break;
            case OpKind::kAdd: out = add(op); break;
            case OpKind::kScale:
                out = in(op, 0);
                for (double& x : out.data) {
                    x *= op.as<ScaleAttrs>().factor;
                    if (const double cap = op.as<ScaleAttrs>().softcap; cap > 0)
                        x = cap * std::tanh(x / cap);
                }
                break;
            case OpKind::kSelectTokens: out = in(op, 0); break;  // all rows are asked for
            case OpKind::kOpaque:
            case OpKind::kTensor:
                throw UserError("{}: operator {} ({}) is not a Llama operator; it cannot be run",
                                graph_.name, op.name, onnx_op_type(op));
        }
        values_[op.outputs.at(0)] = std::move(out);
    }

    Matrix embedding(const Op& op) const {
        Matrix table = weight(op.weights.at(0));
        Matrix out(tokens_.size(), table.columns);
        for (size_t t = 0; t < tokens_.size(); ++t) {
            if (tokens_[t] < 0 || tokens_[t] >= table.rows)
                throw UserError("token id {} is outside the vocabulary of {}", tokens_[t],
                                table.rows);
            for (int64_t i = 0; i < table.columns; ++i)
                out.row(t)[i] = table.row(tokens_[t])[i] * op.as<EmbeddingAttrs>().scale;
        }
        return out;
    }

    Matrix rms_norm(const Op& op) const {
        const auto& attrs = op.as<RmsNormAttrs>();
        Matrix out = in(op, 0), w = weight(op.weights.at(0));
        const int64_t group = attrs.group > 0 ? attrs.group : out.columns;
        for (int64_t begin = 0; begin < static_cast<int64_t>(out.data.size()); begin += group) {
            Row x = Row(out.data).subspan(begin, group);
            double squares = 0;
            for (double v : x) squares += v * v;
            double inverse = 1.0 / std::sqrt(squares / static_cast<double>(group) + attrs.epsilon);
            for (int64_t i = 0; i < group; ++i) x[i] *= inverse * (attrs.weight_offset + w.data[i]);
        }
        return out;
    }

    // What DynamicQuantizeLinear makes of a tensor: 256 steps between its smallest and largest
    // element. https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
    static Matrix rounded_to_8_bits(Matrix x) {
        double low = 0, high = 0;
        for (double v : x.data) {
            low = std::min(low, v);
            high = std::max(high, v);
        }
        const double scale = (high - low) / 255;
        if (scale == 0) return x;
        const double zero = std::nearbyint(std::clamp(-low / scale, 0.0, 255.0));
        for (double& v : x.data)
            v = (std::clamp(std::nearbyint(v / scale) + zero, 0.0, 255.0) - zero) * scale;
        return x;
    }

    Matrix linear(const Op& op) const {
        const Matrix w = weight(op.weights.at(0));
        const Quantization& q = graph_.weight(op.weights[0]).quantization;
        const Matrix x = q.dynamic_activations ? rounded_to_8_bits(in(op, 0)) : in(op, 0);
        Matrix out(x.rows, w.rows);
        CLEAVE_CHECK(x.columns == w.columns)
            << op.name << ": " << x.columns << " features meet " << w.columns;
        for (int64_t t = 0; t < x.rows; ++t)
            for (int64_t o = 0; o < w.rows; ++o) {
                double sum = 0;
                for (int64_t i = 0; i < w.columns; ++i) sum += x.row(t)[i] * w.row(o)[i];
                out.row(t)[o] = sum;
            }
        if (!op.as<LinearAttrs>().has_bias) return out;
        Matrix bias = weight(op.weights.at(1));
        for (int64_t t = 0; t < out.rows; ++t)
            for (int64_t o = 0; o < out.columns; ++o) out.row(t)[o] += bias.data[o];
        return out;
    }

    // cos and sin of every position, [tokens, rotary_dim / 2].
    std::pair<Matrix, Matrix> rope_angles(const RopeTable& table) const {
        const int64_t half = table.rotary_dim / 2, n = tokens_.size();
        Matrix cos(n, half), sin(n, half);
        if (!table.frequencies.empty()) {
            for (int64_t t = 0; t < n; ++t)
                for (int64_t i = 0; i < half; ++i) {
                    double angle = static_cast<double>(t) * table.frequencies[i];
                    cos.row(t)[i] = std::cos(angle) * table.magnitude;
                    sin.row(t)[i] = std::sin(angle) * table.magnitude;
                }
            return {cos, sin};
        }
        Matrix all_cos = weight(table.cos), all_sin = weight(table.sin);
        if (n > all_cos.rows)
            throw UserError("{} tokens, but the rotary table has {} positions", n, all_cos.rows);
        std::copy_n(all_cos.data.begin(), n * half, cos.data.begin());
        std::copy_n(all_sin.data.begin(), n * half, sin.data.begin());
        return {cos, sin};
    }

    Matrix rope(const Op& op) const {
        const auto& attrs = op.as<RopeAttrs>();
        Matrix out = in(op, 0);
        auto [cos, sin] = rope_angles(graph_.rope_table(attrs.table));
        const int64_t half = attrs.rotary_dim / 2;
        for (int64_t t = 0; t < out.rows; ++t)
            for (int64_t h = 0; h < attrs.num_heads; ++h) {
                Row x = out.row(t).subspan(h * attrs.head_dim, attrs.rotary_dim);
                for (int64_t i = 0; i < half; ++i) {
                    double& a = x[attrs.interleaved ? 2 * i : i];
                    double& b = x[attrs.interleaved ? 2 * i + 1 : i + half];
                    double c = cos.row(t)[i], s = sin.row(t)[i];
                    double rotated = a * c - b * s;
                    b = b * c + a * s;
                    a = rotated;
                }
            }
        return out;
    }

    Matrix attention(const Op& op) const {
        const auto& a = op.as<AttentionAttrs>();
        const Matrix& q = in(op, 0);
        const KvState& kv = kv_.at(op.inputs.at(1));
        Matrix out(q.rows, a.num_heads * a.v_head_dim);
        const int64_t per_kv = a.num_heads / a.num_kv_heads;
        for (int64_t t = 0; t < q.rows; ++t)
            for (int64_t h = 0; h < a.num_heads; ++h) {
                const int64_t first = a.window > 0 ? std::max<int64_t>(0, t - a.window + 1) : 0;
                const int64_t last = a.causal ? t : q.rows - 1;
                ConstRow query = q.row(t).subspan(h * a.head_dim, a.head_dim);
                Row result = out.row(t).subspan(h * a.v_head_dim, a.v_head_dim);
                attend(a, query, kv, h / per_kv, Range{first, last + 1}, result);
            }
        return out;
    }

    // One query of one head over the keys [begin, end).
    static void attend(const AttentionAttrs& a, ConstRow query, const KvState& kv, int64_t kv_head,
                       Range keys, Row result) {
        std::vector<double> scores(keys.size());
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < keys.size(); ++j) {
            ConstRow key = kv.k.row(keys.begin + j).subspan(kv_head * a.head_dim, a.head_dim);
            double s = 0;
            for (int64_t i = 0; i < a.head_dim; ++i) s += query[i] * key[i];
            s *= a.scale;
            if (a.softcap > 0) s = a.softcap * std::tanh(s / a.softcap);
            scores[j] = s;
            largest = std::max(largest, s);
        }
        for (double& s : scores) sum += s = std::exp(s - largest);
        for (int64_t j = 0; j < keys.size(); ++j) {
            ConstRow value = kv.v.row(keys.begin + j).subspan(kv_head * a.v_head_dim, a.v_head_dim);
            for (int64_t i = 0; i < a.v_head_dim; ++i) result[i] += scores[j] / sum * value[i];
        }
    }

    Matrix gated_activation(const Op& op) const {
        Matrix out = in(op, 0);
        const Matrix& up = in(op, 1);
        const auto activate = row_of(op.as<GatedActivationAttrs>().activation).formula;
        for (size_t i = 0; i < out.data.size(); ++i)
            out.data[i] = activate(out.data[i]) * up.data[i];
        return out;
    }

    Matrix add(const Op& op) const {
        Matrix out = in(op, 0);
        const Matrix& b = in(op, 1);
        CLEAVE_CHECK(out.data.size() == b.data.size()) << op.name << ": operands of unequal size";
        for (size_t i = 0; i < out.data.size(); ++i) out.data[i] += b.data[i];
        return out;
    }

    const Graph& graph_;
    std::span<const int32_t> tokens_;
    WeightReader reader_;
    std::map<ValueId, Matrix> values_;
    std::map<ValueId, KvState> kv_;
};

}  // namespace

std::vector<double> reference_logits(const Graph& graph, std::span<const int32_t> tokens) {
    return Interpreter(graph, tokens).run();
}

}  // namespace cleave::test
