// SPDX-License-Identifier: Apache-2.0
// GPU kernels on quantised weights: every form that importers give, beside the sample of them in
// the kernel table.
#include <numeric>

#include "tests/simt/kernel_case.h"
#include "tests/support/quantized_matrix.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
namespace simt = cleave::runtime::simt;

namespace {

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
        const auto linear = [&](int64_t tokens) {
            return linear_case(q, q.columns, q.rows, tokens, {});
        };
        check(linear(other ? 1 : 3), other ? "sm_80" : "gfx90a");
        check(linear(20), other ? "gfx90a" : "sm_80");
    }
}

TEST_CASE("kernels decode every code of mxfp4 with every scale, on hosts and GPUs", "[simt]") {
    const QuantizedMatrix m = all_of_mxfp4();
    const std::vector<std::byte> bytes = device_bytes(m, {0, 256}, {0, 32});
    const auto case_of_all = [&] {
        KernelCase c;
        c.name = "embedding of every code";
        c.kind = planner::KernelKind::kEmbedding;
        c.fused = {"embedding"};
        c.counts = {256, 1, 1};
        std::vector<int32_t> ids(256);
        std::iota(ids.begin(), ids.end(), 0);
        c.add_arg(GuardedBuffer::integers("ids", ids));
        c.add_arg(int64_t{0});
        GuardedBuffer table("table", DType::kF8E4M3, std::ssize(bytes));
        std::memcpy(reinterpret_cast<void*>(table.word()), bytes.data(), bytes.size());
        c.add_weight(std::move(table));
        c.add_arg(GuardedBuffer("out", DType::kF32, 256 * 32));
        c.results = {{2, {}}};  // held against exact numbers below
        c.spec = EmbeddingSpec{32, 256, importer::quantized_format(m.weight())};
        return c;
    };
    const auto check_all = [&](KernelCase& c) {
        for (int64_t i = 0; i < 256 * 32; ++i) {
            CAPTURE(i / 32, i % 16);
            const auto want = static_cast<float>(m.values[static_cast<size_t>(i)]);
            const auto got = static_cast<float>(c.operand(2).at(i));
            REQUIRE((std::isnan(want) ? std::isnan(got) : got == want));
        }
    };
    for (const char* arch : {"sm_90a", "gfx942"}) {
        INFO(arch);
        KernelCase c = case_of_all();
        const Kernel kernel = make_kernel(c, {arch, 8, {}});
        const Outcome outcome = run_on_simt(
            c, kernel, simt::compile_simt(kernel.source, kernel.name, arch, SimtCompileOptions{}));
        CHECK((outcome.report.clean() ? "" : outcome.report.finding->text()) == "");
        CHECK(outcome.wrong == "");
        check_all(c);
    }
    KernelCase c = case_of_all();
    std::mt19937 rng(1);
    CHECK(run_on_host(c, rng).wrong == "");
    check_all(c);
}

TEST_CASE("products of integers are refused on GPUs, with what can be done", "[simt]") {
    QuantizedCase q{importer::Packing::kDequantizeLinear, DType::kInt8, 13, 24, 0};
    q.zeros = Zeros::kInteger;
    q.transposed = q.dynamic = true;
    std::string message =
        user_error([&] { make_kernel(linear_case(q, 24, 13, 1, {}), {"sm_80", 8, {}}); });
    CHECK(message.find("$devices host") != std::string::npos);
}
