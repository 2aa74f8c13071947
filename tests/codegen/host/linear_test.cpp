// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;

namespace {

struct LinearCase {
    int64_t in, out, tokens;
    DType weight;
    bool bias = false, norm = false, scale = false, residual = false, select = false;
};

struct LinearData {
    View x_view, residual_view;
    std::vector<int32_t> rows;
    GuardedBuffer x, weight, bias, norm, residual;
};

LinearData make_data(const LinearCase& c, std::mt19937& rng) {
    View view{c.in + 5, 3}, residual{c.out + 2, 1};
    std::vector<int32_t> rows;
    for (int64_t t = 0; t < c.tokens; ++t) rows.push_back(static_cast<int32_t>(2 * t + 1));
    int64_t x_rows = c.select ? 2 * c.tokens : c.tokens;
    return {view,
            residual,
            rows,
            GuardedBuffer::random("x", DType::kF32, x_rows * view.stride, rng),
            GuardedBuffer::random("weight", c.weight, c.in * c.out, rng),
            GuardedBuffer::random("bias", c.weight, c.out, rng),
            GuardedBuffer::random("norm", DType::kF32, c.in, rng),
            GuardedBuffer::random("residual", DType::kF32, c.tokens * residual.stride, rng)};
}

// y = scale * (W norm(x) + b) + residual, in double.
std::vector<double> reference(const LinearCase& c, const LinearData& d) {
    std::vector<double> y, v(static_cast<size_t>(c.in));
    for (int64_t t = 0; t < c.tokens; ++t) {
        int64_t row = c.select ? d.rows[static_cast<size_t>(t)] : t;
        double squares = 0.0;
        for (int64_t i = 0; i < c.in; ++i) {
            double x = d.x.at(row * d.x_view.stride + d.x_view.offset + i);
            v[static_cast<size_t>(i)] = x;
            squares += x * x;
        }
        double rms = 1.0 / std::sqrt(squares / static_cast<double>(c.in) + 1e-5);
        if (c.norm)
            for (int64_t i = 0; i < c.in; ++i)
                v[static_cast<size_t>(i)] *= rms * (d.norm.at(i) + 1.0);
        for (int64_t o = 0; o < c.out; ++o) {
            double sum = c.bias ? d.bias.at(o) : 0.0;
            for (int64_t i = 0; i < c.in; ++i)
                sum += d.weight.at(o * c.in + i) * v[static_cast<size_t>(i)];
            if (c.scale) sum *= 0.125;
            if (c.residual)
                sum += d.residual.at(t * d.residual_view.stride + d.residual_view.offset + o);
            y.push_back(sum);
        }
    }
    return y;
}

void check_linear(const LinearCase& c, const std::string& cpu = "") {
    CAPTURE(c.in, c.out, c.tokens, dtype_name(c.weight), c.bias, c.norm, c.scale, c.residual,
            c.select, cpu);
    std::mt19937 rng(static_cast<uint32_t>(c.in * 31 + c.out * 7 + c.tokens));
    LinearData d = make_data(c, rng);
    auto rows = GuardedBuffer::integers("rows", d.rows);
    auto out = GuardedBuffer::output("out", c.tokens * c.out);

    LinearSpec spec;
    spec.in = c.in;
    spec.out = c.out;
    spec.weight = c.weight;
    spec.x = d.x_view;
    if (c.bias) spec.bias = c.weight;
    if (c.norm) spec.norm = NormSpec{DType::kF32, 1e-5, 1.0};
    if (c.scale) spec.scale = 0.125;
    if (c.residual) spec.residual = d.residual_view;
    spec.select = c.select;
    std::vector<uint64_t> args = {d.x.word()};
    if (c.norm) args.push_back(d.norm.word());
    args.push_back(d.weight.word());
    if (c.bias) args.push_back(d.bias.word());
    if (c.residual) args.push_back(d.residual.word());
    if (c.select) args.push_back(rows.word());
    args.push_back(out.word());
    args.push_back(static_cast<uint64_t>(c.tokens));
    Kernel kernel = make_host_kernel(spec, KernelKind::kLinear, {"linear"}, HostTarget{2, {}});
    run_kernel(kernel, args, {c.tokens, c.tokens, 1}, rng, cpu);
    check_close(out, reference(c, d), 2e-5);
}

}  // namespace

TEST_CASE("a linear kernel equals the double reference at every number of tokens", "[codegen]") {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
        for (int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 26, 32, 33, 48, 65, 140})
            check_linear({64, 100, tokens, dtype});
}

TEST_CASE("a linear kernel is right at sizes that no vector divides", "[codegen]") {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
        for (auto [in, out] :
             {std::pair<int64_t, int64_t>{43, 64}, {172, 64}, {86, 7}, {1, 3}, {531, 192}})
            for (int64_t tokens : {1, 6, 37}) check_linear({in, out, tokens, dtype});
}

TEST_CASE("a linear kernel fuses norm, bias, scale, residual and selection in any combination",
          "[codegen]") {
    for (int bits = 0; bits < 32; ++bits)
        for (int64_t tokens : {1, 3, 20})
            check_linear({48, 40, tokens, bits % 3 ? DType::kF32 : DType::kBF16, (bits & 1) != 0,
                          (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0});
}

TEST_CASE("one source serves CPUs with 4, 8 and 16 lanes", "[codegen]") {
    for (const std::string& cpu : cpus_of_each_width()) {
        for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
            for (int64_t tokens : {1, 7, 41})
                for (bool select : {false, true})
                    check_linear({90, 45, tokens, dtype, true, true, false, true, select}, cpu);
    }
}
