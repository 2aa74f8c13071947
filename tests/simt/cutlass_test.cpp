// SPDX-License-Identifier: Apache-2.0
// The table of fragment layouts held against CuTe's, which NVIDIA's own kernels are made of: its
// layouts are computed while this compiles, for the instructions that the kernels use, and its
// descriptors when the test runs.
#if __has_include(<cute/tensor.hpp>) && __has_include(<cuda_runtime_api.h>)
// CuTe asks the device for the shared address of a pointer; here a pointer is one.
#define CUTE_CVTA_GENERIC_TO_SHARED_ACTIVATED 1
#define __cvta_generic_to_shared(p) reinterpret_cast<unsigned long long>(p)  // NOLINT
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>
#define CLEAVE_HAS_CUTE 1
#endif

#include "codegen/templates/gpu/fragments.cuh"
#include "tests/support/test.h"

using namespace cleave;

namespace {

#ifdef CLEAVE_HAS_CUTE

namespace gmma = cute::SM90::GMMA;
constexpr auto kDepths = gmma::Major::K, kColumns = gmma::Major::MN;

// CuTe's layouts lead from (thread, value) to a place in a tile whose columns (depths of A and B)
// stand one after the other: values are those of a thread's registers in order, two of 16 bits in
// each.
template <class Theirs, class Line, class Column>
void check_values(int threads, int values, int lines, Line line, Column column) {
    REQUIRE(int(cute::size<0>(Theirs{})) == threads);
    REQUIRE(int(cute::size<1>(Theirs{})) == values);
    int wrong = 0;
    for (int t = 0; t < threads; ++t)
        for (int i = 0; i < values; ++i)
            wrong += int(Theirs{}(t, i)) != line(t, i) + column(t, i) * lines;
    CHECK(wrong == 0);
}

template <class Instruction>
void check_mma_sync() {
    using Theirs = cute::MMA_Traits<Instruction>;
    using Ours = MmaSync16n8k16;
    check_values<typename Theirs::ALayout>(32, Ours::kA, Ours::kRows, Ours::a_row, Ours::a_depth);
    check_values<typename Theirs::BLayout>(32, Ours::kB, Ours::kCols, Ours::b_col, Ours::b_depth);
    check_values<typename Theirs::CLayout>(32, Ours::kC, Ours::kRows, Ours::c_row, Ours::c_col);
}

template <class Instruction, int kN>
void check_sums() {
    using Theirs = cute::MMA_Traits<Instruction>;
    using Ours = Wgmma64<kN>;
    CHECK(int(cute::get<1>(typename Theirs::Shape_MNK{})) == kN);
    CHECK(int(cute::get<2>(typename Theirs::Shape_MNK{})) == Ours::kDepth);
    check_values<typename Theirs::CLayout>(128, Ours::kC, Ours::kRows, Ours::c_row, Ours::c_col);
}
template <class Instruction, int kN>
void check_sums_of_registers() {
    check_sums<Instruction, kN>();
    using Ours = Wgmma64<kN>;
    check_values<typename cute::MMA_Traits<Instruction>::ALayout>(128, Ours::kA, Ours::kRows,
                                                                  Ours::a_row, Ours::a_depth);
}

// An address in shared memory, as CuTe's tensors have it.
template <class T>
auto shared_tensor(unsigned address, auto layout) {
    return cute::make_tensor(cute::make_smem_ptr(reinterpret_cast<T*>(uintptr_t{address})), layout);
}

// Rows of 64 depths: weights, activations, queries and keys.
template <class T>
void check_rows() {
    using namespace cute;
    using O = WgmmaOperand;
    constexpr unsigned kAddress = 11 * O::kGroupBytes;
    const auto layout = tile_to_shape(gmma::Layout_K_SW128_Atom<T>{}, Shape<_128, _64>{});
    const auto places = as_position_independent_swizzle_layout(layout);
    int wrong = 0;
    for (int row = 0; row < 128; ++row)
        for (int k = 0; k < O::kDepth; ++k) wrong += 2 * int(places(row, k)) != O::place(row, k);
    CHECK(wrong == 0);
    const auto rows = shared_tensor<T>(kAddress, layout);
    for (int first : {0, 64})
        for (int k = 0; k < O::kDepth; k += 16) {
            const auto part = local_tile(rows, Shape<_64, _16>{}, make_coord(first / 64, k / 16));
            const auto address = kAddress + static_cast<unsigned>(first * O::kRowBytes + 2 * k);
            CHECK(gmma::make_gmma_desc<kDepths>(part).desc_ == O::descriptor(address));
        }
}

// Panels of 64 columns: values, whose rows are depths.
template <class T>
void check_panels() {
    using namespace cute;
    using O = WgmmaOperand;
    constexpr unsigned kAddress = 5 * O::kGroupBytes;
    constexpr int kPanel = 64 * O::kRowBytes;
    const auto layout =
        tile_to_shape(gmma::Layout_MN_SW128_Atom<T>{}, Shape<_128, _64>{}, Step<_2, _1>{});
    const auto places = as_position_independent_swizzle_layout(layout);
    int wrong = 0;
    for (int depth = 0; depth < 64; ++depth)
        for (int col = 0; col < 128; ++col)
            wrong += 2 * int(places(col, depth)) != col / 64 * kPanel + O::place(depth, col % 64);
    CHECK(wrong == 0);
    const auto columns = shared_tensor<T>(kAddress, layout);
    for (int k = 0; k < 64; k += 16) {
        const auto part = local_tile(columns, Shape<_128, _16>{}, make_coord(0, k / 16));
        const auto address = kAddress + static_cast<unsigned>(k * O::kRowBytes);
        const auto ours = O::transposed(address, kPanel);
        CHECK(gmma::make_gmma_desc<kColumns>(part).desc_ == ours);
        // What simt reads there.
        for (int depth = 0; depth < 16; ++depth)
            for (int col = 0; col < 128; ++col)
                wrong += O::transposed_address(ours, col, depth) !=
                         static_cast<int>(kAddress) + 2 * int(places(col, k + depth));
    }
    CHECK(wrong == 0);
}

#endif

}  // namespace

TEST_CASE("fragments, operands and descriptors of NVIDIA's matrix instructions are CuTe's",
          "[simt]") {
#ifdef CLEAVE_HAS_CUTE
    check_mma_sync<cute::SM80_16x8x16_F32F16F16F32_TN>();
    check_mma_sync<cute::SM80_16x8x16_F32BF16BF16F32_TN>();
    using namespace cute::SM90::GMMA;
    check_sums<MMA_64x16x16_F32F16F16_SS<kDepths, kDepths>, 16>();
    check_sums<MMA_64x32x16_F32BF16BF16_SS<kDepths, kDepths>, 32>();
    check_sums<MMA_64x64x16_F32BF16BF16_SS<kDepths, kDepths>, 64>();
    check_sums<MMA_64x128x16_F32BF16BF16_SS<kDepths, kDepths>, 128>();
    check_sums_of_registers<MMA_64x64x16_F32F16F16_RS<kDepths, kColumns>, 64>();
    check_sums_of_registers<MMA_64x128x16_F32BF16BF16_RS<kDepths, kColumns>, 128>();
    check_rows<cute::half_t>();
    check_rows<cute::bfloat16_t>();
    check_panels<cute::half_t>();
    check_panels<cute::bfloat16_t>();
#else
    CLEAVE_SKIP("neither this machine nor the tests' packages have CuTe's headers and CUDA's");
#endif
}
