// SPDX-License-Identifier: Apache-2.0
// GPU kernels on quantised weights: every form that importers give, beside the sample of them in
// the kernel table.
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

TEST_CASE("products of integers are refused on GPUs, with what can be done", "[simt]") {
    QuantizedCase q{importer::Packing::kDequantizeLinear, DType::kInt8, 13, 24, 0};
    q.zeros = Zeros::kInteger;
    q.transposed = q.dynamic = true;
    std::string message =
        user_error([&] { make_kernel(linear_case(q, 24, 13, 1, {}), {"sm_80", 8, {}}); });
    CHECK(message.find("$devices host") != std::string::npos);
}
