// SPDX-License-Identifier: Apache-2.0
// GPU kernels on quantised weights: codes of 4 and 8 bits and 8-bit floats, with every kind of scale and zero point,
// against a double reference of the dequantised matrix.
#include <cstring>

#include "tests/simt/kernel_case.h"
#include "tests/support/quantized_matrix.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;
namespace simt = cleave::runtime::simt;

namespace {

// A shard as the runtime would place it, of exactly its size.
GuardedBuffer place(const QuantizedMatrix& matrix, const QuantizedCase& c) {
    std::vector<std::byte> bytes = device_bytes(matrix, {0, c.rows}, {0, c.columns});
    GuardedBuffer buffer("weight", DType::kF8E4M3, static_cast<int64_t>(bytes.size()));
    std::memcpy(reinterpret_cast<void*>(buffer.word()), bytes.data(), bytes.size());
    return buffer;
}

double dot(const QuantizedMatrix& matrix, int64_t row, const Row& x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
        sum += matrix.values[static_cast<size_t>(row) * x.size() + i] * x[i];
    return sum;
}

KernelCase quantized_linear(const QuantizedCase& q, int64_t tokens) {
    KernelCase c;
    c.name = fmt::format("linear {}, {} tokens", describe(q), tokens);
    c.fused = {"linear"};
    std::mt19937 rng(static_cast<uint32_t>(q.columns * 31 + q.rows + tokens));
    QuantizedMatrix matrix = random_quantized(q, rng);
    LinearSpec s;
    s.in = q.columns;
    s.out = q.rows;
    s.weight = importer::quantized_format(matrix.weight());
    s.x = {q.columns + 3, 2};
    c.counts = {tokens, 1, 1};
    int x = c.add_arg(GuardedBuffer::random("x", DType::kF32, tokens * s.x.stride, rng));
    c.add_arg(place(matrix, q));
    int out = c.add_arg(GuardedBuffer::output("out", tokens * q.rows));
    c.add_arg(tokens);
    KernelCase::Result result{out, {}};
    double size = 0;
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t r = 0; r < q.rows; ++r) {
            result.want.push_back(dot(matrix, r, read_row(c.operand(x), t, s.x, q.columns)));
            size = std::max(size, std::abs(result.want.back()));
        }
    c.results = {result};
    c.matrix_tolerance = 2e-3 * (1 + size);  // both operands in f16
    c.spec = s;
    return c;
}

KernelCase quantized_embedding(const QuantizedCase& q) {
    KernelCase c;
    c.name = "embedding " + describe(q);
    c.kind = KernelKind::kEmbedding;
    c.fused = {"embedding"};
    std::mt19937 rng(3);
    QuantizedMatrix matrix = random_quantized(q, rng);
    const std::vector<int32_t> ids = {5, static_cast<int32_t>(4 + q.rows), 4, 400};
    c.counts = {4, 1, 1};
    EmbeddingSpec s;
    s.hidden = q.columns;
    s.rows = q.rows;
    s.weight = importer::quantized_format(matrix.weight());
    c.spec = s;
    c.add_arg(GuardedBuffer::integers("ids", ids));
    c.add_arg(4);
    c.add_arg(place(matrix, q));
    int out = c.add_arg(GuardedBuffer::output("out", 4 * q.columns));
    KernelCase::Result result{out, {}};
    for (int32_t id : ids)
        for (int64_t i = 0; i < q.columns; ++i)
            result.want.push_back(id >= 4 && id < 4 + q.rows
                                      ? matrix.values[static_cast<size_t>((id - 4) * q.columns + i)]
                                      : 0.0);
    c.results = {result};
    return c;
}

void check(KernelCase c, const std::string& arch) {
    INFO(arch << ": " << c.name);
    Kernel kernel = make_kernel(c, {arch, 8, {}});
    simt::SimtProgram program =
        simt::compile_simt(kernel.source, kernel.name, arch, SimtCompileOptions{});
    Outcome outcome = run_on_simt(c, kernel, program, {5, true, 0});
    CHECK((outcome.report.clean() ? "" : outcome.report.finding->text()) == "");
    CHECK(outcome.wrong == "");
}

}  // namespace

TEST_CASE("GPU products read every quantised form as its dequantised matrix", "[simt]") {
    // Few tokens on one architecture, many on the other, by turns.
    bool other = false;
    for (const QuantizedCase& q : quantized_cases()) {
        other = !other;
        check(quantized_linear(q, other ? 1 : 3), other ? "sm_80" : "gfx90a");
        check(quantized_linear(q, 20), other ? "gfx90a" : "sm_80");
    }
}

TEST_CASE("a warpgroup reads quantised weights through shared memory", "[simt]") {
    for (DType code : {DType::kUInt4, DType::kUInt8})
        check(quantized_linear({importer::Packing::kMatMulNBits, code, 50, 200, 32, DType::kF16,
                                Zeros::kInteger},
                               70),
              "sm_90a");
}

TEST_CASE("quantised rows of any length are read to their last element on GPUs", "[simt]") {
    for (int64_t columns : {1, 31, 33, 300})
        for (DType code : {DType::kUInt4, DType::kUInt8}) {
            QuantizedCase q{importer::Packing::kMatMulNBits,
                            code,
                            21,
                            columns,
                            16,
                            DType::kF16,
                            Zeros::kInteger};
            for (int64_t tokens : {1, 20}) check(quantized_linear(q, tokens), "gfx1100");
            check(quantized_embedding(q), "gfx1100");
        }
}

TEST_CASE("products of integers are refused on GPUs, with what can be done", "[simt]") {
    QuantizedCase q{importer::Packing::kDequantizeLinear, DType::kInt8, 13, 24, 0};
    q.zeros = Zeros::kInteger;
    q.transposed = q.dynamic = true;
    std::string message =
        user_error([&] { make_kernel(quantized_linear(q, 1), {"sm_80", 8, {}}); });
    CHECK(message.find("--devices host") != std::string::npos);
}
