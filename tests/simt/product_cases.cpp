// SPDX-License-Identifier: Apache-2.0
// Rows of the kernel table: matrix products, on weights of every form.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "tests/simt/case_parts.h"

namespace cleave::test {

using namespace codegen;
using importer::Activation;
using planner::KernelKind;

std::string MatrixForm::text(int64_t rows, int64_t columns) const {
    if (!quantized) return fmt::format("{} {}x{}", dtype, rows, columns);
    QuantizedCase q = *quantized;
    q.rows = rows;
    q.columns = columns;
    return describe(q);
}

Row Matrix::times(const Row& x, int64_t first, int64_t rows, const GuardedBuffer* bias) const {
    Row y;
    for (int64_t r = first; r < first + rows; ++r) {
        double sum = bias ? bias->at(r) : 0.0;
        for (size_t i = 0; i < x.size(); ++i)
            sum += values[static_cast<size_t>(r) * x.size() + i] * x[i];
        y.push_back(sum);
    }
    return y;
}

Matrix Draw::matrix(const char* name, const MatrixForm& form, int64_t rows, int64_t columns,
                    double size) {
    if (!form.quantized) {
        Matrix m{c.add_weight((*this)(name, form.dtype, rows * columns, size)), form.dtype, {}};
        for (int64_t i = 0; i < rows * columns; ++i) m.values.push_back(c.operand(m.operand).at(i));
        return m;
    }
    QuantizedCase q = *form.quantized;
    q.rows = rows;
    q.columns = columns;
    QuantizedMatrix made = random_quantized(q, rng);
    const std::vector<std::byte> bytes = device_bytes(made, {0, rows}, {0, columns});
    GuardedBuffer buffer(name, DType::kF8E4M3, std::ssize(bytes));  // of as many bytes
    std::memcpy(reinterpret_cast<void*>(buffer.word()), bytes.data(), bytes.size());
    return {c.add_weight(std::move(buffer)), importer::quantized_format(made.weight()),
            std::move(made.values)};
}

Row Activations::row(const KernelCase& c, int64_t t, int64_t in) const {
    Row made = read_row(c.operands[static_cast<size_t>(operand)], t, view, in);
    for (double& v : made) v *= factor(t);
    return made;
}

Activations draw_activations(Draw& draw, const MatrixForm& form, bool prepared, const View& view,
                             int64_t rows, double size) {
    const DType activations = draw.c.activations;
    Activations x{-1, view, prepared, false};
    if (!prepared) {
        x.operand = draw.c.add_arg(draw("x", activations, rows * view.stride, size));
        return x;
    }
    const DType staged = staged_as(form);
    x.factors = staged == DType::kF16 && (form.quantized || activations != form.dtype);
    const int64_t end = view.offset + rows * view.stride;
    x.operand = draw.c.add_arg(draw("x", staged, end + (x.factors ? 2 * rows : 0), size));
    for (int64_t t = 0; x.factors && t < rows; ++t) {
        const auto factor = static_cast<float>(x.factor(t));
        std::memcpy(reinterpret_cast<float*>(draw.c.operand(x.operand).word() + 2 * end) + t,
                    &factor, sizeof factor);
    }
    return x;
}

void put_beyond(KernelCase& c, int x, const View& view, int64_t rows, int64_t in, int norm) {
    int64_t widest = 0;
    for (int64_t i = 0; norm >= 0 && i < in; ++i)
        if (std::abs(c.operand(norm).at(i)) > std::abs(c.operand(norm).at(widest))) widest = i;
    for (int64_t t = 1; t < rows; t += 4) {
        const int64_t first = t * view.stride + view.offset;
        const double by = t % 12 == 1 ? 1e5 : t % 12 == 5 ? 1e7 : 1e9;
        if (norm >= 0) c.operand(x).set(first + widest, by);
        for (int64_t i = first; norm < 0 && i < first + in; ++i)
            c.operand(x).set(i, c.operand(x).at(i) * by);
    }
}

void bounds(KernelCase& c, const MatrixForm& form) {
    bounds(c, staged_as(form));  // of many tokens
    // Without zero points all weights of a row have one sign: what is left of their sum is smaller
    // than its terms.
    if (form.quantized) c.matrix_tolerance *= 2;
}

KernelCase linear_case(const MatrixForm& form, int64_t in, int64_t out, int64_t tokens,
                       LinearOptions o, DType activations) {
    KernelCase c;
    c.activations = activations;
    c.name =
        fmt::format("linear {} of {} tokens{}{}{}{}{}{}{}, activations {}", form.text(out, in),
                    tokens, o.prepared ? ", prepared" : "", o.beyond ? ", beyond f16" : "",
                    o.norm ? ", norm" : "", o.bias ? ", bias" : "", o.residual ? ", residual" : "",
                    o.scale ? ", scale" : "", o.select ? ", selected" : "", activations);
    c.fused = {"linear"};
    Draw draw{c, std::mt19937(static_cast<uint32_t>(in * 31 + out + tokens))};
    LinearSpec s;
    s.in = in;
    s.out = out;
    s.x = o.select ? View{in, 0} : o.prepared ? View{in + 16, 8} : View{in + 12, 4};
    s.prepared = o.prepared;
    s.logits = o.logits;
    if (o.norm) s.norm = NormSpec{form.dtype, 1e-5, 0.5};
    if (o.bias) s.bias = DType::kF32;
    if (o.scale) s.scale = 0.75;
    if (o.residual) s.residual = View{out + 8, 2};
    s.select = o.select;
    s.count = o.select ? RowCount::kOutputs : RowCount::kTokens;
    const int64_t rows = o.select ? 2 * tokens : tokens;
    c.counts = {rows, o.select ? tokens : 1, 1};
    const double size = 1.0 / std::sqrt(static_cast<double>(in));
    const Activations x =
        draw_activations(draw, form, o.prepared, s.x, rows, form.quantized ? 0.5 : 2.0);
    s.factors = x.factors;
    int norm = o.norm ? c.add_weight(draw("norm", form.dtype, in, norm_size(o.beyond))) : -1;
    if (o.beyond) put_beyond(c, x.operand, s.x, rows, in, norm);
    const Matrix weight = draw.matrix("weight", form, out, in, size);
    s.weight = weight.format;
    int bias = o.bias ? c.add_weight(draw("bias", DType::kF32, out)) : -1;
    int residual = o.residual ? c.add_arg(draw("residual", activations, rows * (out + 8))) : -1;
    std::vector<int32_t> selected;
    for (int64_t t = 0; t < tokens; ++t) selected.push_back(static_cast<int32_t>(2 * t + t % 2));
    if (o.select) c.add_arg(GuardedBuffer::integers("output_rows", selected));
    int y = o.logits ? c.add_arg(GuardedBuffer::output("out", tokens * out))
                     : draw.result("out", tokens * out);
    c.add_arg(tokens);
    KernelCase::Result result{y, {}, out};
    for (int64_t t = 0; t < tokens; ++t) {
        int64_t from = o.select ? selected[static_cast<size_t>(t)] : t;
        Row row = x.row(c, from, in);
        if (o.norm) rms_norm(row, c.operand(norm), 1e-5, 0.5);
        Row made = weight.times(row, 0, out, o.bias ? &c.operand(bias) : nullptr);
        for (int64_t i = 0; i < out; ++i) {
            double v = made[static_cast<size_t>(i)];
            if (o.scale) v *= 0.75;
            if (o.residual) v += c.operand(residual).at(t * (out + 8) + 2 + i);
            result.want.push_back(v);
        }
    }
    c.results = {result};
    bounds(c, form);
    c.spec = s;
    return c;
}

KernelCase gate_up_case(const MatrixForm& form, int64_t in, int64_t out, int64_t tokens,
                        Activation activation, bool extras, DType activations, bool prepared,
                        bool beyond) {
    KernelCase c;
    c.activations = activations;
    c.name = fmt::format("gate_up {} of {} tokens, activation {}{}{}{}, activations {}",
                         form.text(out, in), tokens, static_cast<int>(activation),
                         prepared ? ", prepared" : "", beyond ? ", beyond f16" : "",
                         extras ? ", norm and biases" : "", activations);
    c.kind = KernelKind::kNormGateUp;
    c.fused = {"linear", "linear", "gated_activation"};
    Draw draw{c, std::mt19937(static_cast<uint32_t>(in + 7 * out + tokens))};
    GateUpSpec s;
    s.in = in;
    s.out = out;
    s.activation = activation;
    s.x = {in, 0};
    s.prepared = prepared;
    if (extras) {
        s.norm = NormSpec{DType::kF32, 1e-6, 0.0};
        s.gate_bias = s.up_bias = form.dtype;
    }
    c.counts = {tokens, 1, 1};
    const double size = 2.0 / std::sqrt(static_cast<double>(in));
    const Activations x =
        draw_activations(draw, form, prepared, s.x, tokens, form.quantized ? 0.5 : 2.0);
    s.factors = x.factors;
    int norm = extras ? c.add_weight(draw("norm", DType::kF32, in, norm_size(beyond))) : -1;
    if (beyond) put_beyond(c, x.operand, s.x, tokens, in, norm);
    const Matrix gate = draw.matrix("gate", form, out, in, size);
    int gate_bias = extras ? c.add_weight(draw("gate_bias", form.dtype, out)) : -1;
    const Matrix up = draw.matrix("up", form, out, in, size);
    int up_bias = extras ? c.add_weight(draw("up_bias", form.dtype, out)) : -1;
    s.gate = gate.format;
    s.up = up.format;
    int y = draw.result("out", tokens * out);
    c.add_arg(tokens);
    KernelCase::Result result{y, {}, out};
    for (int64_t t = 0; t < tokens; ++t) {
        Row row = x.row(c, t, in);
        if (extras) rms_norm(row, c.operand(norm), 1e-6, 0.0);
        Row g = gate.times(row, 0, out, extras ? &c.operand(gate_bias) : nullptr);
        Row u = up.times(row, 0, out, extras ? &c.operand(up_bias) : nullptr);
        for (size_t i = 0; i < g.size(); ++i)
            result.want.push_back(activate(activation, g[i]) * u[i]);
    }
    c.results = {result};
    bounds(c, form);
    c.matrix_tolerance *= 4;  // the error of one factor is as large as the other
    c.spec = s;
    return c;
}

namespace {

std::string qkv_name(const MatrixForm& form, DType kv_dtype, int64_t tokens, const QkvOptions& o,
                     DType activations) {
    return fmt::format(
        "qkv {}, cache {}, {} tokens, heads {} + {} of {}/{}, rotary {}{}{}{}{}{}{}, "
        "activations {}",
        form.text(o.q_heads * o.head_dim, o.in), kv_dtype, tokens, o.q_heads, o.kv_heads,
        o.head_dim, o.v_head_dim, o.rotary, o.interleaved ? " interleaved" : "",
        o.head_norms ? ", head norms" : "", o.biases ? ", biases" : "", o.norm ? "" : ", no norm",
        o.prepared ? ", prepared" : "", o.beyond ? ", beyond f16" : "", activations);
}

// Positions of the rope's tables, and where rows of the cache go.
void add_batch(KernelCase& c, const RaggedBatch& batch) {
    c.add_arg(kCacheContext);
    c.add_arg(GuardedBuffer::integers("positions", batch.positions));
    c.add_arg(GuardedBuffer::integers("slots", batch.slots));
    c.add_arg(batch.num_tokens());
}

// Without the formats of its matrices.
QkvSpec qkv_spec(DType kv_dtype, const QkvOptions& o) {
    QkvSpec s;
    s.in = o.in;
    s.q_heads = o.q_heads;
    s.kv_heads = {2, 2 + o.kv_heads};
    if (o.biases) s.q_bias = s.k_bias = s.v_bias = DType::kF32;
    if (o.norm) s.norm = NormSpec{DType::kF32, 1e-5, 0.0};
    if (o.head_norms) {
        s.q_norm = NormSpec{DType::kF32, 1e-6, 0.25};
        s.k_norm = NormSpec{DType::kF32, 1e-6, 0.0};
    }
    s.q_rope = s.k_rope = RopeSpec{o.rotary, o.interleaved};
    s.slab = {o.head_dim, o.v_head_dim, o.kv_heads + 1, 1, kv_dtype};
    s.x = {o.in + 8, 8};
    s.prepared = o.prepared;
    return s;
}

}  // namespace

KernelCase qkv_case(bool host, const MatrixForm& form, DType kv_dtype, const RaggedBatch& batch,
                    QkvOptions o, DType activations) {
    KernelCase c;
    c.activations = activations;
    const int64_t tokens = batch.num_tokens();
    c.name = qkv_name(form, kv_dtype, tokens, o, activations);
    c.kind = KernelKind::kNormQkvRopeAppend;
    c.fused = {"rms_norm", "linear", "linear", "linear", "rope", "rope", "kv_append"};
    Draw draw{c, std::mt19937(static_cast<uint32_t>(o.in + o.head_dim + tokens))};
    QkvSpec s = qkv_spec(kv_dtype, o);
    c.counts = {tokens, 1, 1};
    const double size = 1.0 / std::sqrt(static_cast<double>(o.in));
    const Activations x = draw_activations(draw, form, o.prepared, s.x, tokens, 2.0);
    s.factors = x.factors;
    int norm = o.norm ? c.add_weight(draw("norm", DType::kF32, o.in, norm_size(o.beyond))) : -1;
    if (o.beyond) put_beyond(c, x.operand, s.x, tokens, o.in, norm);
    auto weight = [&](const char* name, int64_t rows) {
        return draw.matrix(name, form, rows, o.in, size);
    };
    auto bias = [&](const char* name, int64_t rows) {
        return o.biases ? c.add_weight(draw(name, DType::kF32, rows)) : -1;
    };
    const Matrix q = weight("q", o.q_heads * o.head_dim);
    const int qb = bias("q_bias", o.q_heads * o.head_dim);
    const Matrix k = weight("k", o.kv_heads * o.head_dim);
    const int kb = bias("k_bias", o.kv_heads * o.head_dim);
    const Matrix v = weight("v", o.kv_heads * o.v_head_dim);
    const int vb = bias("v_bias", o.kv_heads * o.v_head_dim);
    s.q = q.format;
    s.k = k.format;
    s.v = v.format;
    int qn = o.head_norms ? c.add_weight(draw("q_norm", DType::kF32, o.head_dim)) : -1;
    int kn = o.head_norms ? c.add_weight(draw("k_norm", DType::kF32, o.head_dim)) : -1;
    int table = c.add(draw("rope", DType::kF32, kCacheContext * o.rotary));
    c.weights.insert(table);
    c.args.push_back({table, 0});
    c.args.push_back({table, 0});
    int q_out = draw.result("q_out", tokens * o.q_heads * o.head_dim);
    const SlabPlace place = cache_place(host);
    int kv = add_cache(draw, s.slab, place);
    add_batch(c, batch);

    KernelCase::Result queries{q_out, {}, o.head_dim};
    std::vector<WrittenRow> written;
    for (int64_t t = 0; t < tokens; ++t) {
        Row row = x.row(c, t, o.in);
        if (o.norm) rms_norm(row, c.operand(norm), 1e-5, 0.0);
        int64_t position = batch.positions[static_cast<size_t>(t)],
                slot = batch.slots[static_cast<size_t>(t)];
        auto finish = [&](Row head, int norm_weight, double offset) {
            if (o.head_norms) rms_norm(head, c.operand(norm_weight), 1e-6, offset);
            rope(head, {o.rotary, o.interleaved}, c.operand(table), kCacheContext, position);
            return head;
        };
        auto head_of = [&](const Matrix& m, int b, int64_t h, int64_t dim) {
            return m.times(row, h * dim, dim, b >= 0 ? &c.operand(b) : nullptr);
        };
        for (int64_t h = 0; h < o.q_heads; ++h) {
            Row head = finish(head_of(q, qb, h, o.head_dim), qn, 0.25);
            queries.want.insert(queries.want.end(), head.begin(), head.end());
        }
        for (int64_t h = 0; h < o.kv_heads; ++h) {
            Row key = finish(head_of(k, kb, h, o.head_dim), kn, 0.0);
            Row value = head_of(v, vb, h, o.v_head_dim);
            written.push_back({{false, slot, 1 + h, position}, std::move(key)});
            written.push_back({{true, slot, 1 + h, position}, std::move(value)});
        }
    }
    KernelCase::Result cache = appended(c, kv, s.slab, place, written);
    if (o.head_dim == o.v_head_dim) cache.row = o.head_dim;
    c.results = {queries, cache};
    c.tolerance = std::max(c.tolerance, narrowed_bound(kv_dtype));
    bounds(c, form);
    if (o.head_norms) c.matrix_tolerance *= 4;  // dividing by a norm enlarges what was lost before
    c.spec = s;
    return c;
}

}  // namespace cleave::test
