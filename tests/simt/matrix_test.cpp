// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: each layout covers its tile exactly, and a warp's product is the product.
#include <cmath>
#include <map>

#include "codegen/templates/gpu/fragments.cuh"
#include "runtime/base/convert.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;

namespace {

// How often each place of A, B and C is held by some lane.
template <class L>
void check_layout(const char* name, int copies_of_operands) {
    INFO(name);
    std::map<std::pair<int, int>, int> a, b, c;
    for (int l = 0; l < L::kLanes; ++l) {
        for (int i = 0; i < L::kA; ++i) ++a[{L::a_row(l, i), L::a_depth(l, i)}];
        for (int i = 0; i < L::kB; ++i) ++b[{L::b_depth(l, i), L::b_col(l, i)}];
        for (int i = 0; i < L::kC; ++i) ++c[{L::c_row(l, i), L::c_col(l, i)}];
        for (int i = 0; i < L::kA; i += 2) REQUIRE(L::a_depth(l, i + 1) == L::a_depth(l, i) + 1);
        for (int i = 0; i < L::kB; i += 2) REQUIRE(L::b_depth(l, i + 1) == L::b_depth(l, i) + 1);
    }
    auto covers = [](const auto& held, int rows, int cols, int copies) {
        bool right = held.size() == static_cast<size_t>(rows * cols);
        for (auto [place, count] : held)
            right = right && count == copies && place.first >= 0 && place.first < rows &&
                    place.second >= 0 && place.second < cols;
        return right;
    };
    CHECK(covers(a, L::kRows, L::kDepth, copies_of_operands));
    CHECK(covers(b, L::kDepth, L::kCols, copies_of_operands));
    CHECK(covers(c, L::kRows, L::kCols, 1));
}

const char* const kProduct = R"(
template <class T>
DEVICE void product(const T* a, const T* b, float* c, i64 transposed, i64 rows, i64 cols, i64 depth) {
    FragmentC sum = zero_c();
    FragmentA<T> left = load_a(a, 16, int(rows), int(depth));
    if (transposed) {
        multiply_add(sum, left, load_b_transposed(b, 16, int(cols), int(depth)));
    } else {
        multiply_add(sum, left, load_b(b, 16, int(cols), int(depth)));
    }
    for (int i = 0; i < Tile::kC; ++i) c[Tile::c_row(lane(), i) * 16 + Tile::c_col(lane(), i)] = sum.v[i];
}
KERNEL(WARP) in_f16(const f16* a, const f16* b, float* c, i64 transposed, i64 rows, i64 cols, i64 depth) {
    product(a, b, c, transposed, rows, cols, depth);
}
KERNEL(WARP) in_bf16(const bf16* a, const bf16* b, float* c, i64 transposed, i64 rows, i64 cols, i64 depth) {
    product(a, b, c, transposed, rows, cols, depth);
}
)";

}  // namespace

TEST_CASE("every fragment layout holds each element of its tile", "[simt]") {
    check_layout<MmaSync16n8k16>("mma.sync m16n8k16", 1);
    check_layout<Mfma16x16x16>("mfma 16x16x16", 1);
    check_layout<WmmaGfx11>("wmma of gfx11", 2);
    check_layout<WmmaGfx12>("wmma of gfx12", 1);
}

TEST_CASE("a matrix instruction multiplies two tiles and leaves out what lies past their edges",
          "[simt]") {
    for (const char* arch : {"sm_80", "sm_90a", "gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
        for (bool brain : {false, true}) {
            auto program =
                simt::compile_simt(with_prelude(kProduct), brain ? "in_bf16" : "in_f16", arch);
            int width = codegen::gpu_arch(arch).warp_width;
            for (auto [rows, cols, depth] :
                 {std::array{16, 16, 16}, std::array{5, 3, 8}, std::array{16, 9, 2}}) {
                for (uint64_t transposed : {0, 1}) {
                    // Past the edges: NaN, which must not be read into the product.
                    Buffer<uint16_t> a(256, 0x7fff), b(256, 0x7fff);
                    Buffer<float> c(256);
                    auto value = [](int i) { return static_cast<float>(i % 17 - 8) / 4.0f; };
                    auto store = [&](float v) { return brain ? f32_to_bf16(v) : f32_to_f16(v); };
                    for (int k = 0; k < depth; ++k) {
                        for (int r = 0; r < rows; ++r)
                            a[static_cast<size_t>(r * 16 + k)] = store(value(r * 5 + k * 3));
                        for (int n = 0; n < cols; ++n)
                            b[static_cast<size_t>(transposed ? k * 16 + n : n * 16 + k)] =
                                store(value(k * 7 + n));
                    }
                    auto report =
                        run(program,
                            {a.word(), b.word(), c.word(), transposed, static_cast<uint64_t>(rows),
                             static_cast<uint64_t>(cols), static_cast<uint64_t>(depth)},
                            {1, width});
                    INFO(arch << " bf16 " << brain << " "
                              << (report.finding ? report.finding->text() : ""));
                    REQUIRE(report.clean());
                    for (int r = 0; r < 16; ++r) {
                        for (int n = 0; n < 16; ++n) {
                            float expected = 0;  // exact: small multiples of 1/16
                            for (int k = 0; k < depth && r < rows && n < cols; ++k)
                                expected += value(r * 5 + k * 3) * value(k * 7 + n);
                            REQUIRE(c[static_cast<size_t>(r * 16 + n)] == expected);
                        }
                    }
                }
            }
        }
    }
}
