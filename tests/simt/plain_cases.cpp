// SPDX-License-Identifier: Apache-2.0
// Rows of the kernel table: operators that stand alone, and what drivers launch between the steps
// of a plan.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tests/simt/case_parts.h"

namespace cleave::test {

using namespace codegen;
using importer::Activation;
using planner::KernelKind;

// ---- Operators that stand alone
// -----------------------------------------------------------------------

KernelCase embedding_case(const MatrixForm& form, int64_t hidden, DType activations) {
    KernelCase c;
    c.activations = activations;
    const int64_t rows = 10, first = 20;
    c.name = fmt::format("embedding {}, activations {}", form.text(rows, hidden), activations);
    c.kind = KernelKind::kEmbedding;
    c.fused = {"embedding"};
    Draw draw{c, std::mt19937(5)};
    const std::vector<int32_t> ids = {20, 3, 29, 30, 25};
    c.counts = {5, 1, 1};
    c.add_arg(GuardedBuffer::integers("ids", ids));
    c.add_arg(first);
    const Matrix table = draw.matrix("table", form, rows, hidden, 1.0);
    c.spec = EmbeddingSpec{hidden, rows, table.format, 1.5f};
    int out = draw.result("out", 5 * hidden);
    KernelCase::Result result{out, {}};
    for (int32_t id : ids)
        for (int64_t i = 0; i < hidden; ++i)
            result.want.push_back(
                id >= first && id < first + rows
                    ? 1.5 * table.values[static_cast<size_t>((id - first) * hidden + i)]
                    : 0.0);
    c.results = {result};
    bounds(c, activations);
    return c;
}

KernelCase rms_norm_case(DType dtype, int64_t out, int64_t group) {
    KernelCase c;
    c.name = fmt::format("rms_norm {} of {} in groups of {}", dtype, out, group);
    c.kind = KernelKind::kRmsNorm;
    c.fused = {"rms_norm"};
    Draw draw{c, std::mt19937(6)};
    const int64_t tokens = 3;
    c.counts = {tokens, 1, 1};
    RmsNormSpec s{out, group, {dtype, 1e-5, 1.0}, {out + 5, 3}, RowCount::kTokens};
    int x = c.add_arg(draw("x", DType::kF32, tokens * (out + 5), 3.0));
    int weight = c.add_weight(draw("weight", dtype, group));
    int y = draw.result("out", tokens * out);
    KernelCase::Result result{y, {}};
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t g = 0; g < out; g += group) {
            Row row = read_row(c.operand(x), t, {out + 5, 3 + g}, group);
            rms_norm(row, c.operand(weight), 1e-5, 1.0);
            result.want.insert(result.want.end(), row.begin(), row.end());
        }
    c.results = {result};
    c.spec = s;
    return c;
}

KernelCase rope_case(int64_t rotary, bool interleaved) {
    KernelCase c;
    c.name = fmt::format("rope {}{}", rotary, interleaved ? " interleaved" : "");
    c.kind = KernelKind::kRope;
    c.fused = {"rope"};
    Draw draw{c, std::mt19937(7)};
    const int64_t dim = 20, heads = 3, tokens = 4;
    const std::vector<int32_t> positions = {0, 7, 149, 30};
    c.counts = {tokens, 1, 1};
    c.spec = RopeOnlySpec{heads * dim, dim, {rotary, interleaved}, {heads * dim + 4, 4}};
    int x = c.add_arg(draw("x", DType::kF32, tokens * (heads * dim + 4)));
    int table = c.add_weight(draw("table", DType::kF32, kCacheContext * rotary));
    c.add_arg(kCacheContext);
    c.add_arg(GuardedBuffer::integers("positions", positions));
    int y = draw.result("out", tokens * heads * dim);
    KernelCase::Result result{y, {}};
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < heads; ++h) {
            Row head = read_row(c.operand(x), t, {heads * dim + 4, 4 + h * dim}, dim);
            rope(head, {rotary, interleaved}, c.operand(table), kCacheContext,
                 positions[static_cast<size_t>(t)]);
            result.want.insert(result.want.end(), head.begin(), head.end());
        }
    c.results = {result};
    return c;
}

namespace {

// Rows whose scale is no number, zero, or would be too small, among others.
void put_edges(GuardedBuffer& k, GuardedBuffer& v) {
    k.set(8 + 5, std::numeric_limits<double>::quiet_NaN());
    v.set(16 + 8 + 2, -std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < 12; ++i) k.set(2 * 32 + 8 + 12 + i, 0.0);
    for (int64_t i = 0; i < 8; ++i) v.set(3 * 16 + i, 1e-37 * static_cast<double>(i));
}

}  // namespace

KernelCase::Result appended(const KernelCase& c, int kv, const codegen::SlabSpec& slab,
                            const SlabPlace& place, const std::vector<WrittenRow>& written) {
    const GuardedBuffer& before = c.operands[static_cast<size_t>(kv)];
    KernelCase::Result result{kv, {}};
    if (is_scaled(slab.dtype)) {
        // To the bit where rows come as they are.
        const bool exact = c.kind == KernelKind::kKvAppend;
        result.check = [=](const GuardedBuffer& got, double tolerance) {
            return compare_scaled_slab(got, before, slab, place, written, exact ? 0.0 : tolerance);
        };
        return result;
    }
    GuardedBuffer after = before;
    for (const WrittenRow& one : written) set_row(after, slab, place, one.row, one.features);
    for (int64_t i = 0; i < after.count(); ++i) result.want.push_back(after.at(i));
    return result;
}

KernelCase kv_append_case(bool host, DType dtype) {
    KernelCase c;
    c.name = fmt::format("kv_append {}", dtype);
    c.kind = KernelKind::kKvAppend;
    c.fused = {"kv_append"};
    Draw draw{c, std::mt19937(8)};
    const int64_t heads = 2, tokens = 4;
    RaggedBatch batch = RaggedBatch().add(2, 10, 3).add(0, 149, 1);
    KvAppendSpec s;
    s.kv_heads = {1, 3};
    s.slab = {12, 8, 3, 0, dtype};
    s.k = {32, 8};
    s.v = {16, 0};
    c.counts = {tokens, 1, 1};
    int k = c.add_arg(draw("k", DType::kF32, tokens * 32));
    int v = c.add_arg(draw("v", DType::kF32, tokens * 16));
    const SlabPlace place = cache_place(host);
    int kv = add_cache(draw, s.slab, place);
    c.add_arg(GuardedBuffer::integers("positions", batch.positions));
    c.add_arg(GuardedBuffer::integers("slots", batch.slots));
    if (is_scaled(dtype)) put_edges(c.operand(k), c.operand(v));
    std::vector<WrittenRow> written;
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < heads; ++h) {
            int64_t slot = batch.slots[static_cast<size_t>(t)],
                    position = batch.positions[static_cast<size_t>(t)];
            written.push_back(
                {{false, slot, 1 + h, position}, read_row(c.operand(k), t, {32, 8 + h * 12}, 12)});
            written.push_back(
                {{true, slot, 1 + h, position}, read_row(c.operand(v), t, {16, h * 8}, 8)});
        }
    const KernelCase::Result result = appended(c, kv, s.slab, place, written);
    c.results = {result};
    bounds(c, dtype);
    c.tolerance = narrowed_bound(dtype);
    c.spec = s;
    return c;
}

KernelCase plain_case(Plain which, int64_t n, DType activations) {
    KernelCase c;
    c.activations = activations;
    Draw draw{c, std::mt19937(9)};
    const int64_t tokens = 5;
    const std::vector<int32_t> rows = {1, 4};
    c.counts = {tokens, 2, 1};
    const View x{n + 4, 4}, y{n + 8, 0};
    int a = c.add_arg(draw("x", activations, tokens * x.stride, 3.0));
    int b = -1;
    if (which == Plain::kGated || which == Plain::kAdd)
        b = c.add_arg(draw("y", activations, tokens * y.stride, 3.0));
    if (which == Plain::kSelect) c.add_arg(GuardedBuffer::integers("rows", rows));
    int64_t made = which == Plain::kSelect ? 2 : tokens;
    int out = draw.result("out", made * n);
    KernelCase::Result result{out, {}};
    auto at = [&](int64_t t, int64_t i) { return c.operand(a).at(t * x.stride + x.offset + i); };
    auto other = [&](int64_t t, int64_t i) { return c.operand(b).at(t * y.stride + y.offset + i); };
    for (int64_t t = 0; t < made; ++t)
        for (int64_t i = 0; i < n; ++i) switch (which) {
                case Plain::kGated:
                    result.want.push_back(activate(Activation::kSilu, at(t, i)) * other(t, i));
                    break;
                case Plain::kAdd: result.want.push_back(at(t, i) + other(t, i)); break;
                case Plain::kScale: result.want.push_back(at(t, i) * 1.25); break;
                case Plain::kSelect:
                    result.want.push_back(at(rows[static_cast<size_t>(t)], i));
                    break;
            }
    switch (which) {
        case Plain::kGated:
            c.spec = GatedActivationSpec{n, Activation::kSilu, x, y};
            c.kind = KernelKind::kGatedActivation;
            break;
        case Plain::kAdd:
            c.spec = AddSpec{n, x, y, RowCount::kTokens};
            c.kind = KernelKind::kAdd;
            break;
        case Plain::kScale:
            c.spec = ScaleSpec{n, 1.25, x, RowCount::kTokens};
            c.kind = KernelKind::kScale;
            break;
        case Plain::kSelect:
            c.spec = SelectTokensSpec{n, x};
            c.kind = KernelKind::kSelectTokens;
            break;
    }
    c.name =
        fmt::format("{} of {}, activations {}", planner::kernel_kind_name(c.kind), n, activations);
    c.fused = {std::string(planner::kernel_kind_name(c.kind))};
    c.results = {result};
    bounds(c, activations);
    return c;
}

namespace {

double after(const EpilogueStep& step, double v, double other) {
    switch (step.kind) {
        case EpilogueStep::Kind::kScale:
            v *= step.factor;
            return step.softcap > 0 ? step.softcap * std::tanh(v / step.softcap) : v;
        case EpilogueStep::Kind::kAdd: return v + other;
        case EpilogueStep::Kind::kGated:
            return step.is_gate ? activate(step.activation, v) * other
                                : activate(step.activation, other) * v;
    }
    return v;
}

}  // namespace

KernelCase with_epilogue(KernelCase c, int64_t n, const Epilogue& epilogue) {
    static constexpr const char* kKinds[] = {"scale", "add", "gated_activation"};
    std::mt19937 rng(14);
    std::vector<double>& want = c.results[0].want;
    const int64_t rows = static_cast<int64_t>(want.size()) / n;
    for (const EpilogueStep& step : epilogue) {
        c.fused.emplace_back(kKinds[static_cast<size_t>(step.kind)]);
        c.name += fmt::format(" + {}{}", c.fused.back(), step.other ? "" : " of itself");
        int other = -1;
        if (step.other)
            other = c.add_arg(
                GuardedBuffer::random("other", c.activations, rows * step.other->stride, rng, 2.0));
        for (int64_t i = 0; i < rows * n; ++i) {
            double& v = want[static_cast<size_t>(i)];
            double second = v;
            if (step.other)
                second =
                    c.operand(other).at(i / n * step.other->stride + step.other->offset + i % n);
            v = after(step, v, second);
        }
    }
    std::visit(
        [&](auto& spec) {
            if constexpr (requires { spec.epilogue; }) spec.epilogue = epilogue;
        },
        c.spec);
    return c;
}

// ---- Between the steps of a plan
// ------------------------------------------------------------------------

KernelCase all_reduce_case(int64_t sources, int64_t out, bool residual, bool norm,
                           DType activations) {
    KernelCase c;
    c.activations = activations;
    c.name = fmt::format("all_reduce of {} x {}{}{}, activations {}", sources, out,
                         residual ? ", residual" : "", norm ? ", norm" : "", activations);
    Draw draw{c, std::mt19937(10)};
    const int64_t rows = 3;
    c.counts = {rows, 1, 1};
    AllReduceSpec s{out, sources, residual, {}};
    if (norm) s.norm = NormSpec{DType::kF32, 1e-5, 0.5};
    std::vector<int> partial;
    for (int64_t i = 0; i < sources; ++i)
        partial.push_back(c.add_arg(draw("partial", activations, rows * out)));
    int x = residual ? c.add_arg(draw("residual", activations, rows * out)) : -1;
    int sum = draw.result("out", rows * out);
    int weight = norm ? c.add_weight(draw("norm", DType::kF32, out)) : -1;
    int normed = norm ? draw.result("normed", rows * out) : -1;
    KernelCase::Result sums{sum, {}}, norms{normed, {}};
    for (int64_t t = 0; t < rows; ++t) {
        Row row(static_cast<size_t>(out), 0.0);
        for (int64_t i = 0; i < out; ++i) {
            for (int p : partial) row[static_cast<size_t>(i)] += c.operand(p).at(t * out + i);
            if (residual) row[static_cast<size_t>(i)] += c.operand(x).at(t * out + i);
        }
        sums.want.insert(sums.want.end(), row.begin(), row.end());
        if (norm) rms_norm(row, c.operand(weight), 1e-5, 0.5);
        norms.want.insert(norms.want.end(), row.begin(), row.end());
    }
    c.results = {sums};
    if (norm) c.results.push_back(norms);
    bounds(c, activations);
    c.helper = s;
    return c;
}

// Rows whose largest value stands twice, of -infinity, of infinities, and with a NaN behind all
// that is larger or first of all.
KernelCase argmax_case(int64_t vocabulary) {
    KernelCase c;
    c.name = fmt::format("argmax of {}", vocabulary);
    Draw draw{c, std::mt19937(11)};
    const int64_t rows = 6;
    c.counts = {rows, rows, 1};
    int logits = c.add_arg(draw("logits", DType::kF32, rows * vocabulary));
    const auto set = [&](int64_t row, int64_t i, double v) {
        c.operand(logits).set(row * vocabulary + i, v);
    };
    for (int64_t i : {vocabulary - 1, vocabulary / 2}) set(0, i, 2.0);
    for (int64_t i : {int64_t{0}, vocabulary - 1}) set(1, i, 3.0);
    for (int64_t i = 0; i < vocabulary; ++i) set(2, i, -HUGE_VAL);
    for (int64_t i : {int64_t{7}, vocabulary - 2}) set(3, i, HUGE_VAL);
    set(4, 3, HUGE_VAL);
    set(4, vocabulary - 1, std::nan(""));
    set(5, 0, -std::nan(""));
    int tokens = c.add_arg(GuardedBuffer("tokens", DType::kInt32, rows));
    const int64_t middle = vocabulary / 2;
    c.results = {{tokens, {static_cast<double>(middle), 0.0, 0.0, 7.0, -1.0, -1.0}}};
    c.helper = ArgmaxSpec{vocabulary};
    return c;
}

KernelCase copy_case(DType from, DType to) {
    KernelCase c;
    c.name = fmt::format("copy {} to {}", from, to);
    Draw draw{c, std::mt19937(12)};
    const int64_t rows = 3, n = 36;
    c.counts = {rows, 1, 1};
    int source = c.add_arg(draw("from", from, rows * (n + 3)));
    c.add_arg(n + 3);
    int target = c.add_arg(GuardedBuffer("to", to, rows * n));
    c.add_arg(n);
    KernelCase::Result result{target, {}};
    for (int64_t t = 0; t < rows; ++t)
        for (int64_t i = 0; i < n; ++i)
            result.want.push_back(c.operand(source).at(t * (n + 3) + i));
    c.results = {result};
    bounds(c, to);
    c.tolerance = narrowed_bound(to);
    c.helper = CopySpec{n, from, to};
    return c;
}

KernelCase prepare_case(DType activations, DType to, int64_t in, bool norm, bool select,
                        bool beyond) {
    KernelCase c;
    c.activations = activations;
    c.name = fmt::format("prepare {} of {} for {}{}{}{}", in, activations, to, norm ? ", norm" : "",
                         select ? ", selected" : "", beyond ? ", beyond f16" : "");
    Draw draw{c, std::mt19937(13)};
    const int64_t tokens = 5, offset = 24;
    const std::vector<int32_t> selected = {4, 0, 3};
    const int64_t rows = select ? std::ssize(selected) : tokens;
    c.counts = {tokens, select ? rows : 1, 1};
    PrepareSpec s;
    s.in = in;
    s.x = {in + 12, 4};
    if (norm) s.norm = NormSpec{to, 1e-5, 0.5};
    s.select = select;
    s.count = select ? RowCount::kOutputs : RowCount::kTokens;
    s.to = to;
    s.to_offset = offset;
    const int x = c.add_arg(draw("x", activations, tokens * s.x.stride, 3.0));
    const int weight = norm ? c.add_weight(draw("norm", to, in, norm_size(beyond))) : -1;
    if (beyond) put_beyond(c, x, s.x, tokens, in, weight);
    if (select) c.add_arg(GuardedBuffer::integers("output_rows", selected));
    // What lies in front of the rows stays as it is.
    const int64_t factors = s.factors() ? 2 * rows : 0;  // as pairs of f16
    const int out = c.add_arg(draw("out", to, offset + rows * in + factors));
    KernelCase::Result result{out, {}, 8};
    GuardedBuffer behind("factors", to, factors);
    for (int64_t i = 0; i < offset; ++i) result.want.push_back(c.operand(out).at(i));
    for (int64_t t = 0; t < rows; ++t) {
        Row row = read_row(c.operand(x), select ? selected[static_cast<size_t>(t)] : t, s.x, in);
        if (norm) rms_norm(row, c.operand(weight), 1e-5, 0.5);
        if (s.factors()) {
            double largest = 0;
            for (double v : row) largest = std::max(largest, std::abs(v));
            const auto factor =
                static_cast<float>(largest > 65504 ? std::exp2(std::ilogb(largest) - 14) : 1.0);
            for (double& v : row) v /= factor;
            std::memcpy(reinterpret_cast<float*>(behind.word()) + t, &factor, sizeof factor);
        }
        result.want.insert(result.want.end(), row.begin(), row.end());
    }
    for (int64_t i = 0; i < factors; ++i) result.want.push_back(behind.at(i));
    c.results = {result};
    c.tolerance = narrowed_bound(to);
    c.helper = s;
    return c;
}

}  // namespace cleave::test
