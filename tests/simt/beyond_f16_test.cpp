// SPDX-License-Identifier: Apache-2.0
// Rows of activations that are larger than f16 holds, in products of many tokens that narrow them
// to it: the kernel table has their numbers, here is that only such rows are scaled.
#include <cstring>

#include "tests/simt/case_parts.h"
#include "tests/simt/shipped.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace simt = cleave::runtime::simt;

namespace {

constexpr const char* kCheckedArchs[] = {"sm_80", "sm_90a", "gfx90a", "gfx1100"};

std::string without_factors(std::string source) {
    const std::string on = "kFactors = true", off = "kFactors = false";
    for (size_t at = source.find(on); at != std::string::npos; at = source.find(on, at))
        source.replace(at, on.size(), off);
    return source;
}

bool has(const Shipped& shipped, const char* text) {
    return shipped.sources().front().find(text) != std::string::npos;
}

std::vector<std::byte> result_of(KernelCase c, const std::string& arch, int64_t units) {
    const codegen::Kernel kernel = make_kernel(c, {arch, units, {}});
    const simt::SimtProgram program =
        simt::compile_simt(kernel.source, kernel.name, arch, codegen::SimtCompileOptions{});
    const Outcome outcome = run_on_simt(c, kernel, program, {1, true, 0});
    CHECK((outcome.report.clean() ? "" : outcome.report.finding->text()) == "");
    const GuardedBuffer& made = c.operand(c.results[0].operand);
    std::vector<std::byte> bytes(static_cast<size_t>(made.bytes()));
    std::memcpy(bytes.data(), reinterpret_cast<const void*>(made.word()), bytes.size());
    return bytes;
}

}  // namespace

TEST_CASE("a kernel that does not scale rows is wrong on each row of the table beyond f16",
          "[simt]") {
    for (const char* arch : kCheckedArchs) {
        int scaled = 0;
        for (const Shipped& shipped : shipped_kernels(arch)) {
            if (shipped.name.find("beyond f16") == std::string::npos || scaled++ % kOneOf != 0)
                continue;
            INFO(shipped.name << " on " << arch);
            CHECK(has(shipped, "kFactors = true"));
            CHECK(shipped.wrong(without_factors, 0, 1) != "");
        }
        CHECK(scaled >= 10);
    }
}

TEST_CASE("products whose rows are within f16 have the bits that they have without factors",
          "[simt]") {
    for (const char* arch : kCheckedArchs) {
        int within = 0;
        for (const Shipped& shipped : shipped_kernels(arch)) {
            if (shipped.name.find("beyond f16") != std::string::npos ||
                !has(shipped, "kFactors = true") || !has(shipped, "kPrepared = false") ||
                within++ % kOneOf != 0)
                continue;
            INFO(shipped.name << " on " << arch);
            CHECK(shipped.same_bits(without_factors, 1));
        }
        CHECK(within >= 10);
    }
}

TEST_CASE("a row within f16 has the same bits whatever the rows beside it hold", "[simt]") {
    constexpr int64_t kOut = 70, kTokens = 20;
    for (const char* arch : kCheckedArchs) {
        const auto rows = [&](bool beyond) {
            return result_of(linear_case(DType::kF16, 288, kOut, kTokens, {.beyond = beyond}), arch,
                             8);
        };
        const std::vector<std::byte> alone = rows(false), beside = rows(true);
        for (int64_t t = 0; t < kTokens; ++t) {
            CAPTURE(arch, t);
            const auto at = static_cast<size_t>(t * kOut * 4);
            CHECK((std::memcmp(&alone[at], &beside[at], kOut * 4) == 0) == (t % 4 != 1));
        }
    }
}
