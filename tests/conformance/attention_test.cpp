// SPDX-License-Identifier: Apache-2.0
// Attention over tensors beside a plain loop in double: types, layouts, masks, lengths and windows
// in combinations that the standard's cases do not have.
#include <cmath>

#include "tests/conformance/model_writer.h"
#include "tests/conformance/node_case.h"
#include "tests/support/test.h"

using namespace cleave;
using runtime::Tensor;
using test::floats, test::integers, test::ModelWriter, test::Shape;

namespace {

enum class Mask { kNone, kAdded, kChosen };

struct Form {
    const char* name;
    DType dtype = DType::kF32;
    bool packed = false;
    int64_t heads = 4, kv_heads = 2, queries = 5, keys = 7, past = 0, dim = 8, v_dim = 8;
    Mask mask = Mask::kNone;
    Shape mask_shape = {};
    bool causal = false;
    std::vector<int64_t> lengths = {};  // nonpad_kv_seqlen
    int64_t left = -1, right = -1;
    float softcap = 0.0f;
    int64_t mode = -1;
};

constexpr int64_t kBatch = 2;

// clang-format off
const Form kForms[] = {
    {.name = "bf16, packed", .dtype = DType::kBF16, .packed = true},
    {.name = "f16 with past and a causal mask", .dtype = DType::kF16, .past = 3, .causal = true},
    {.name = "more keys than a block", .queries = 19, .keys = 150, .causal = true},
    {.name = "more keys than a block, past, packed", .packed = true, .queries = 3, .keys = 70, .past = 90, .causal = true},
    {.name = "a boolean mask that hides a whole row", .mask = Mask::kChosen, .mask_shape = {5, 7}},
    {.name = "a mask for each head", .mask = Mask::kAdded, .mask_shape = {4, 5, 7}},
    {.name = "a mask shorter than the keys", .mask = Mask::kAdded, .mask_shape = {2, 1, 1, 6}},
    {.name = "lengths and a causal mask", .causal = true, .lengths = {7, 5}},
    {.name = "lengths below the queries", .causal = true, .lengths = {2, 6}},
    {.name = "a window on both sides", .left = 2, .right = 1},
    {.name = "a causal window over the past", .past = 4, .causal = true, .left = 3},
    {.name = "soft cap before the mask", .mask = Mask::kAdded, .mask_shape = {5, 7}, .softcap = 0.5f, .mode = 2},
    {.name = "capped products", .mask = Mask::kAdded, .mask_shape = {5, 7}, .softcap = 0.5f, .mode = 1},
    {.name = "weights of a masked row", .mask = Mask::kChosen, .mask_shape = {5, 7}, .mode = 3},
    {.name = "values wider than keys, one KV head", .kv_heads = 1, .dim = 6, .v_dim = 20},
};
// clang-format on

// The tensors of a form by name, and where an element of [batch, heads, rows, features] stands in a
// packed one.
struct Problem {
    const Form& f;
    std::vector<Tensor> tensors;
    std::vector<double> q, k, v, past_k, past_v, mask;

    explicit Problem(const Form& form) : f(form) {
        const auto shape = [&](int64_t heads, int64_t rows, int64_t features) {
            return f.packed ? Shape{kBatch, rows, heads * features}
                            : Shape{kBatch, heads, rows, features};
        };
        q = add(floats("Q", shape(f.heads, f.queries, f.dim), f.dtype));
        k = add(floats("K", shape(f.kv_heads, f.keys, f.dim), f.dtype, 1));
        v = add(floats("V", shape(f.kv_heads, f.keys, f.v_dim), f.dtype, 2));
        if (f.mask == Mask::kAdded) mask = add(floats("mask", f.mask_shape, f.dtype, 3));
        if (f.mask == Mask::kChosen) {
            Tensor chosen{"mask", DType::kBool, f.mask_shape, {}};
            for (int64_t i = 0; i < f.mask_shape[0] * f.mask_shape[1]; ++i)
                chosen.data.push_back(std::byte(i / f.mask_shape[1] != 2 && i % 3 != 0));
            mask = add(chosen);
        }
        if (f.past > 0) {
            past_k = add(floats("past_key", {kBatch, f.kv_heads, f.past, f.dim}, f.dtype, 4));
            past_v = add(floats("past_value", {kBatch, f.kv_heads, f.past, f.v_dim}, f.dtype, 5));
        }
        if (!f.lengths.empty()) tensors.push_back(integers("lengths", {kBatch}, f.lengths));
    }
    std::vector<double> add(Tensor tensor) {
        tensors.push_back(std::move(tensor));
        return test::elements_of(tensors.back());
    }

    size_t place(int64_t b, int64_t h, int64_t row, int64_t heads, int64_t rows,
                 int64_t features) const {
        const int64_t at = f.packed ? (b * rows + row) * heads + h : (b * heads + h) * rows + row;
        return static_cast<size_t>(at * features);
    }
    double key(int64_t b, int64_t h, int64_t t, int64_t d) const {
        return t < f.past
                   ? past_k[static_cast<size_t>(((b * f.kv_heads + h) * f.past + t) * f.dim + d)]
                   : k[place(b, h, t - f.past, f.kv_heads, f.keys, f.dim) + static_cast<size_t>(d)];
    }
    double value(int64_t b, int64_t h, int64_t t, int64_t d) const {
        return t < f.past
                   ? past_v[static_cast<size_t>(((b * f.kv_heads + h) * f.past + t) * f.v_dim + d)]
                   : v[place(b, h, t - f.past, f.kv_heads, f.keys, f.v_dim) +
                       static_cast<size_t>(d)];
    }
    // The mask's element by numpy's rules; hides what lies past its keys.
    double bias(int64_t b, int64_t h, int64_t s, int64_t t) const {
        if (f.mask == Mask::kNone) return 0;
        if (t >= f.mask_shape.back()) return -INFINITY;
        const int64_t index[] = {b, h, s, t};
        int64_t at = 0;
        for (size_t i = 0; i < f.mask_shape.size(); ++i)
            at = at * f.mask_shape[i] +
                 (f.mask_shape[i] == 1 ? 0 : index[4 - f.mask_shape.size() + i]);
        const double m = mask[static_cast<size_t>(at)];
        return f.mask == Mask::kAdded ? m : m != 0 ? 0 : -INFINITY;
    }
    bool sees(int64_t b, int64_t s, int64_t t) const {
        const int64_t offset =
            f.lengths.empty() ? f.past : f.lengths[static_cast<size_t>(b)] - f.queries;
        const int64_t p = offset + s;
        return (f.lengths.empty() || t < f.lengths[static_cast<size_t>(b)]) &&
               (!f.causal || t <= p) && (f.left < 0 || t >= p - f.left) &&
               (f.right < 0 || t <= p + f.right);
    }
};

struct Result {
    std::vector<double> y, scores;  // [batch, heads, queries, v_dim], [batch, heads, queries, keys]
};

Result plain_loop(const Problem& p) {
    const Form& f = p.f;
    const int64_t all = f.past + f.keys;
    Result result;
    for (int64_t b = 0; b < kBatch; ++b)
        for (int64_t h = 0; h < f.heads; ++h)
            for (int64_t s = 0; s < f.queries; ++s) {
                const int64_t g = h / (f.heads / f.kv_heads);
                std::vector<double> kept, score;
                double top = -INFINITY, total = 0;
                for (int64_t t = 0; t < all; ++t) {
                    double x = 0;
                    const size_t q = p.place(b, h, s, f.heads, f.queries, f.dim);
                    for (int64_t d = 0; d < f.dim; ++d)
                        x += p.q[q + static_cast<size_t>(d)] * p.key(b, g, t, d);
                    x /= std::sqrt(static_cast<double>(f.dim));
                    if (f.softcap > 0) x = f.softcap * std::tanh(x / f.softcap);
                    kept.push_back(x);
                    x = p.sees(b, s, t) ? x + p.bias(b, h, s, t) : -INFINITY;
                    if (f.mode == 2) kept.back() = x;
                    score.push_back(x);
                    top = std::max(top, x);
                }
                for (double& x : score) total += x = std::isinf(top) ? 0 : std::exp(x - top);
                for (double& x : score) x = total > 0 ? x / total : 0;
                result.scores.insert(result.scores.end(),
                                     f.mode == 3 ? score.begin() : kept.begin(),
                                     f.mode == 3 ? score.end() : kept.end());
                for (int64_t d = 0; d < f.v_dim; ++d) {
                    double y = 0;
                    for (int64_t t = 0; t < all; ++t)
                        y += score[static_cast<size_t>(t)] * p.value(b, g, t, d);
                    result.y.push_back(y);
                }
            }
    return result;
}

std::vector<Tensor> run(const Problem& p) {
    const Form& f = p.f;
    ModelWriter w;
    std::vector<std::string> inputs{"Q", "K", "V", "", "", "", ""};
    const std::pair<const char*, int> places[] = {{"Q", 0},      {"K", 1},        {"V", 2},
                                                  {"mask", 3},   {"past_key", 4}, {"past_value", 5},
                                                  {"lengths", 6}};
    for (const Tensor& t : p.tensors) {
        const int type = t.dtype == DType::kF16     ? onnx::TensorProto::FLOAT16
                         : t.dtype == DType::kBF16  ? onnx::TensorProto::BFLOAT16
                         : t.dtype == DType::kBool  ? onnx::TensorProto::BOOL
                         : t.dtype == DType::kInt64 ? onnx::TensorProto::INT64
                                                    : onnx::TensorProto::FLOAT;
        w.input(t.name, t.shape, type);
        for (const auto& [name, place] : places)
            if (t.name == name) inputs[static_cast<size_t>(place)] = name;
    }
    while (inputs.back().empty()) inputs.pop_back();
    onnx::NodeProto& node =
        w.node("Attention", inputs,
               {"Y", f.past > 0 ? "present_key" : "", f.past > 0 ? "present_value" : "",
                f.mode >= 0 ? "scores" : ""});
    if (f.packed) {
        w.number(node, "q_num_heads", f.heads);
        w.number(node, "kv_num_heads", f.kv_heads);
    }
    w.number(node, "is_causal", f.causal);
    w.number(node, "left_window_size", f.left);
    w.number(node, "right_window_size", f.right);
    w.real(node, "softcap", f.softcap);
    if (f.mode >= 0) w.number(node, "qk_matmul_output_mode", f.mode);
    w.output("Y");
    if (f.past > 0) w.output("present_key");
    if (f.mode >= 0) w.output("scores");
    planner::Plan plan = test::plan_tensors(w.graph());
    runtime::SessionOptions options;
    options.poison = true;
    options.threads = 2;
    return runtime::Session(plan, options).run_tensors(p.tensors);
}

double bound(DType dtype) {
    return dtype == DType::kBF16 ? 8e-3 : dtype == DType::kF16 ? 1e-3 : 2e-6;
}

void check_close(const std::vector<double>& got, const std::vector<double>& wanted, double within) {
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
        INFO("element " << i << ": " << got[i] << ", not " << wanted[i]);
        CHECK((got[i] == wanted[i] || std::abs(got[i] - wanted[i]) <= within));
    }
}

}  // namespace

TEST_CASE("attention over tensors is what a plain loop in double gives", "[conformance]") {
    for (const Form& f : kForms) {
        INFO(f.name);
        const Problem problem(f);
        const Result wanted = plain_loop(problem);
        const std::vector<Tensor> got = run(problem);
        const std::vector<double> y = test::elements_of(got[0]);
        std::vector<double> ordered;  // [batch, heads, queries, v_dim], whatever the layout
        for (int64_t b = 0; b < kBatch; ++b)
            for (int64_t h = 0; h < f.heads; ++h)
                for (int64_t s = 0; s < f.queries; ++s) {
                    const size_t at = problem.place(b, h, s, f.heads, f.queries, f.v_dim);
                    ordered.insert(ordered.end(), y.begin() + static_cast<std::ptrdiff_t>(at),
                                   y.begin() + static_cast<std::ptrdiff_t>(at) + f.v_dim);
                }
        check_close(ordered, wanted.y, bound(f.dtype));
        if (f.mode >= 0) check_close(test::elements_of(got.back()), wanted.scores, bound(f.dtype));
        if (f.past > 0) {
            std::vector<double> present;
            for (int64_t b = 0; b < kBatch; ++b)
                for (int64_t h = 0; h < f.kv_heads; ++h)
                    for (int64_t t = 0; t < f.past + f.keys; ++t)
                        for (int64_t d = 0; d < f.dim; ++d)
                            present.push_back(problem.key(b, h, t, d));
            CHECK(test::elements_of(got[1]) == present);
        }
    }
}
