// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: each layout covers its tile exactly, and a warp's product is the product.
#include <map>
#include <set>
#include <tuple>

#include "codegen/compile/choose.h"
#include "codegen/compile/vendor.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/templates/gpu/fragments.cuh"
#include "tests/simt/instruction_checks.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace simt = cleave::runtime::simt;

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
        for (int i = 1; i < L::kA; i += 2) REQUIRE(L::a_depth(l, i) == L::a_depth(l, i - 1) + 1);
        for (int i = 1; i < L::kB; i += 2) REQUIRE(L::b_depth(l, i) == L::b_depth(l, i - 1) + 1);
    }
    auto covers = [](const auto& held, int rows, int cols, int copies) {
        bool right = held.size() == static_cast<size_t>(rows) * static_cast<size_t>(cols);
        for (auto [place, count] : held)
            right = right && count == copies && place.first >= 0 && place.first < rows &&
                    place.second >= 0 && place.second < cols;
        return right;
    };
    CHECK(covers(a, L::kRows, L::kDepth, copies_of_operands));
    CHECK(covers(b, L::kDepth, L::kCols, copies_of_operands));
    CHECK(covers(c, L::kRows, L::kCols, 1));
}

// A and B of a warpgroup: each 16-byte chunk of a row of 64 elements has a place of its own, its
// elements side by side, and the descriptor leads the instruction to the same place.
void check_operand_layout() {
    using O = WgmmaOperand;
    std::set<int> chunks;
    for (int row = 0; row < 128; ++row)
        for (int k = 0; k < O::kDepth; ++k) {
            int place = O::place(row, k);
            REQUIRE((place >= 0 && place < 128 * O::kRowBytes));
            if (k % 8 == 0) chunks.insert(place / 16);
            REQUIRE(place == O::place(row, k / 8 * 8) + 2 * (k % 8));
            // Rows from a group of eight on, depths from a multiple of 16 on.
            const int group = row / 8 * 8, step = k / 16 * 16;
            auto d = O::descriptor(
                static_cast<unsigned>(3 * O::kGroupBytes + O::place(group, 0) + 2 * step));
            REQUIRE(O::address(d, row - group, k - step) == 3 * O::kGroupBytes + place);
        }
    CHECK(chunks.size() == 128 * 8);
    // The other way round, a panel of 64 columns has a row for each of 32 depths.
    constexpr int kPanel = 32 * O::kRowBytes;
    for (int depth = 0; depth < 32; ++depth)
        for (int col = 0; col < 128; ++col) {
            const int step = depth / 16 * 16;
            auto d =
                O::transposed(static_cast<unsigned>(O::kGroupBytes + step * O::kRowBytes), kPanel);
            REQUIRE(O::transposed_address(d, col, depth - step) ==
                    O::kGroupBytes + col / 64 * kPanel + O::place(depth, col % 64));
        }
    // Eight rows, as one load of a matrix takes them, lie in different banks.
    for (int k = 0; k < O::kDepth; k += 8) {
        std::set<int> banks;
        for (int row = 0; row < 8; ++row) banks.insert(O::place(row, k) / 16 % 8);
        CHECK(banks.size() == 8);
    }
}

template <int kN>
void check_warpgroup_sum() {
    std::set<std::pair<int, int>> held;
    for (int t = 0; t < 128; ++t)
        for (int i = 0; i < Wgmma64<kN>::kC; ++i)
            held.insert({Wgmma64<kN>::c_row(t, i), Wgmma64<kN>::c_col(t, i)});
    CHECK(held.size() == 64 * kN);
    CHECK(*held.begin() == std::pair{0, 0});
    CHECK(*held.rbegin() == std::pair{63, kN - 1});
}

}  // namespace

TEST_CASE("a warpgroup multiplies what lies in shared memory, in every width, checked or not",
          "[simt]") {
    check_operand_layout();
    check_warpgroup_sum<16>();
    check_warpgroup_sum<128>();
    for (bool brain : {false, true})
        for (int columns : {16, 32, 64, 128})
            for (bool in_registers : {false, true}) {
                if (in_registers && columns < 64) continue;
                const bool checks = columns != 64 || (in_registers && brain);
                CHECK(wrong_in_warpgroup_product(columns, in_registers, brain,
                                                 on_simt("sm_90a", 3, checks)) == "");
            }
}

TEST_CASE("operands of a warpgroup's product may change once it was waited for, not before",
          "[simt]") {
    // The second product goes on while the first one's operands, depths 0 to 31, are written again.
    for (auto [depth, pending, fine] :
         {std::tuple(3, 1, true), std::tuple(40, 1, false), std::tuple(40, 0, true)}) {
        std::string source = warpgroup_source(32, false);
        const std::string wait = "        wgmma_wait<0>();\n    }\n";
        const size_t at = source.find(wait);
        REQUIRE(at != std::string::npos);
        source.replace(at, wait.size(),
                       fmt::format("        wgmma_wait<{}>();\n        if (half == 32) {{\n"
                                   "            barrier();\n"
                                   "            if (t == 5) right[WgmmaOperand::place(0, {}) / 2] "
                                   "= b[0];\n        }}\n    }}\n    wgmma_wait<0>();\n",
                                   pending, depth));
        for (uint64_t seed : {0, 1}) {
            INFO("depth " << depth << ", " << pending << " pending, seed " << seed);
            SmallLaunch launch = warpgroup_launch(source, 32, false);
            const std::string report = on_simt("sm_90a", seed)(launch);
            CHECK(report.empty() == fine);
            if (!fine) CHECK_THAT(report, Catch::Matchers::Contains("was waited for"));
        }
    }
}

TEST_CASE("a warpgroup's product that is not fenced, waited for or left alone is reported",
          "[simt]") {
    using simt::Fault;
    struct Case {
        const char *text, *instead;
        Fault fault;
        int threads = 128;
        bool in_registers = false;
        int columns = 32;
    };
    auto registers = [](const char* text, const char* instead, Fault fault) {
        return Case{text, instead, fault, 128, true, 64};
    };
    for (const Case& c : {
             Case{"    barrier();", "", Fault::kRace},
             Case{"    async_fence();", "", Fault::kAsyncProduct},
             Case{"        wgmma_fence();", "        if (half == 0) wgmma_fence();",
                  Fault::kAsyncProduct},
             Case{"        wgmma_fence();", "", Fault::kAsyncProduct},
             Case{"        wgmma_commit();", "", Fault::kAsyncProduct},
             Case{"        wgmma_wait<0>();", "", Fault::kAsyncProduct},
             Case{"        wgmma_wait<0>();", "        wgmma_wait<1>();", Fault::kAsyncProduct},
             Case{"/* meanwhile */", "if (t == 5) start[77] = a[0];", Fault::kRace},
             Case{"/* meanwhile */", "barrier(); if (t == 5) start[77] = a[0];",
                  Fault::kAsyncProduct},
             Case{"/* meanwhile */", "if (t == 5) sum.v[3] = 1.0f;", Fault::kAsyncProduct},
             Case{"/* meanwhile */", "if (t == 5) c[0] = sum.at(1);", Fault::kAsyncProduct},
             Case{"shared_address(right + k)", "shared_address(right + 64 + k)",
                  Fault::kMisaligned},
             Case{"shared_address(right + k)", "shared_address(right + k + 512 * (t / 32))",
                  Fault::kDivergentWarp},
             Case{"shared_address(right + k)", "shared_address(right + k + 12288)",
                  Fault::kSharedBounds},
             Case{"i < N * 64", "i < (N - 8) * 64", Fault::kUninitialised},
             Case{"wgmma_fence();", "wgmma_fence(); if (t >= 64) return;", Fault::kInactiveLane,
                  64},
             registers("    async_fence();", "", Fault::kAsyncProduct),
             registers("        wgmma_fence();", "", Fault::kAsyncProduct),
             registers("        wgmma_wait<0>();", "", Fault::kAsyncProduct),
             registers("/* meanwhile */", "if (t == 5) left[half / 16].set(1, 9.0f, 9.0f);",
                       Fault::kAsyncProduct),
             registers("/* meanwhile */", "barrier(); if (t == 5) right[77] = a[0];",
                       Fault::kAsyncProduct),
             registers("right + k * 64", "right + k * 64 + 16", Fault::kMisaligned),
             registers("i < N * 64", "i < N * 63", Fault::kUninitialised),
         }) {
        std::string source = warpgroup_source(c.columns, c.in_registers);
        size_t at = source.rfind(c.text);
        REQUIRE(at != std::string::npos);
        source.replace(at, std::strlen(c.text), c.instead);
        for (uint64_t seed : {0, 1}) {
            SmallLaunch launch = warpgroup_launch(source, c.columns, false);
            launch.threads = c.threads;
            const std::string report = on_simt("sm_90a", seed)(launch);
            INFO(c.text << " -> " << c.instead << ", seed " << seed);
            CHECK_THAT(report, Catch::Matchers::Contains(std::string(simt::fault_name(c.fault))) &&
                                   Catch::Matchers::StartsWith("test.cu:"));
        }
    }
}

TEST_CASE(
    "a warpgroup's layouts are those of CUTLASS, which were read from other sources than the table",
    "[simt]") {
    // include/cute/atom/mma_traits_sm90_gmma.hpp of CUTLASS 3: CLayout_64xN, shape ((4, 8, 4), (2,
    // 2, N / 8)), strides
    // ((128, 1, 16), (64, 8, 512)) over a 64 x N tile whose columns stand one after the other.
    for (int t = 0; t < 128; ++t)
        for (int i = 0; i < Wgmma64<128>::kC; ++i) {
            const int index =
                t % 4 * 128 + t / 4 % 8 + t / 32 * 16 + i % 2 * 64 + i / 2 % 2 * 8 + i / 4 * 512;
            REQUIRE(Wgmma64<128>::c_row(t, i) == index % 64);
            REQUIRE(Wgmma64<128>::c_col(t, i) == index / 64);
        }
    // Layout_K_SW128_Atom, Swizzle<3, 4, 3>: of a byte's address, bits 7-9 are added to bits 4-6.
    for (int address = 0; address < 4096; ++address)
        REQUIRE(WgmmaOperand::swizzled(address) == (address ^ ((address & 0x380) >> 3)));
    // GmmaDescriptor of include/cute/arch/mma_sm90_desc.hpp: start_address, leading_byte_offset,
    // stride_byte_offset and layout_type at bits 0, 16, 32 and 62, offsets in units of 16 bytes,
    // LayoutType::B128 = 1.
    const auto descriptor = WgmmaOperand::descriptor(0x2c40);
    REQUIRE(descriptor == (0x2c4ull | 1ull << 16 | 64ull << 32 | 1ull << 62));
    // ALayout_64x16, shape ((4, 8, 4), (2, 2, 2)), strides ((128, 1, 16), (64, 8, 512)).
    for (int t = 0; t < 128; ++t)
        for (int i = 0; i < Wgmma64<16>::kA; ++i) {
            const int index =
                t % 4 * 128 + t / 4 % 8 + t / 32 * 16 + i % 2 * 64 + i / 2 % 2 * 8 + i / 4 * 512;
            REQUIRE(Wgmma64<16>::a_row(t, i) == index % 64);
            REQUIRE(Wgmma64<16>::a_depth(t, i) == index / 64);
        }
    // make_gmma_desc<Major::MN>, LayoutType::B128: Swizzle<3, 4, 3> of ((T, 8, m), (8, k)) : ((1,
    // T, LBO), (8 T, SBO)), T = 8 elements of 16 bits.
    const auto transposed = WgmmaOperand::transposed(0x2800, 8192);
    REQUIRE(transposed == (0x280ull | 512ull << 16 | 64ull << 32 | 1ull << 62));
    for (int col = 0; col < 128; ++col)
        for (int depth = 0; depth < 16; ++depth) {
            const int address = 0x2800 + 2 * (col % 8 + col / 8 % 8 * 8) + col / 64 * 8192 +
                                depth % 8 * 128 + depth / 8 * 1024;
            REQUIRE(WgmmaOperand::transposed_address(transposed, col, depth) ==
                    (address ^ ((address & 0x380) >> 3)));
        }
}

TEST_CASE("MFMA is the instruction of each type, with every compiler that knows the arch",
          "[simt]") {
    codegen::CompileOptions clang, hiprtc;
    clang.gpu_compiler = "clang";
    hiprtc.gpu_compiler = "hiprtc";
    const codegen::GpuCompilerInfo info = codegen::hiprtc_info(hiprtc);
    if (!info.available) WARN("not compiled with hipRTC: " << info.reason);
    for (const char* arch : {"gfx908", "gfx90a", "gfx942"}) {
        const bool old = std::string_view(arch) == "gfx908";
        for (const codegen::CompileOptions& options : {clang, hiprtc}) {
            // hipRTC 5.2 knows the first two.
            if (options.gpu_compiler == "hiprtc" &&
                (!info.available || std::string_view(arch) == "gfx942"))
                continue;
            const auto compiler = codegen::make_gpu_compiler(codegen::gpu_arch(arch), options);
            for (auto [entry, instruction] :
                 {std::pair("in_f16", "v_mfma_f32_16x16x16"),
                  {"in_bf16", old ? "v_mfma_f32_16x16x8" : "v_mfma_f32_16x16x16"},
                  {"in_f32", "v_mfma_f32_16x16x4"}}) {
                codegen::Kernel kernel;
                kernel.name = entry;
                kernel.source = product_source();
                const auto counts = compiler->compile(kernel).matrix_instructions;
                CAPTURE(arch, options.gpu_compiler, entry, counts);
                REQUIRE(counts.size() == 1);
                CHECK(counts.begin()->first.starts_with(instruction));
            }
        }
    }
}

TEST_CASE("the checks of matrix instructions compile with the GPUs' own compilers", "[simt]") {
    codegen::CompileOptions nvrtc, clang;
    nvrtc.gpu_compiler = "nvrtc";
    clang.gpu_compiler = "clang";
    auto instructions = [](const char* arch, const codegen::CompileOptions& options,
                           const std::string& source) {
        codegen::Kernel kernel;
        kernel.name = "in_bf16";
        kernel.source = source;
        auto compiled =
            codegen::make_gpu_compiler(codegen::gpu_arch(arch), options)->compile(kernel);
        int64_t all = 0;
        for (const auto& [name, count] : compiled.matrix_instructions) all += count;
        return all;
    };
    for (const char* arch : {"gfx1100", "gfx1201"}) {
        INFO(arch);
        CHECK(instructions(arch, clang, product_source()) > 0);
    }
    const codegen::GpuCompilerInfo info = codegen::nvrtc_info(nvrtc);
    if (!info.available) CLEAVE_SKIP("no NVRTC: " + info.reason);
    for (const char* arch : {"sm_80", "sm_90a"}) {
        INFO(arch);
        CHECK(instructions(arch, nvrtc, product_source()) > 0);
    }
    for (int columns : {16, 32, 64, 128}) {
        INFO(columns << " columns");
        CHECK(instructions("sm_90a", nvrtc, warpgroup_source(columns, false)) > 0);
        if (columns >= 64)
            CHECK(instructions("sm_90a", nvrtc, warpgroup_source(columns, true)) > 0);
    }
}

// IREE's description of an operand (getSingleSubgroupLayout in
// compiler/src/iree/compiler/Codegen/Dialect/GPU/IR/ IREEGPUAttrs.cpp, MFMA_F32_16x16x16_F16,
// _16x16x8_BF16 and _16x16x4_F32): where a lane's elements begin, by axis.
template <class L>
void check_against_iree() {
    struct Axis {
        int threads, stride, elements;
        int at(int lane) const { return lane / stride % threads * elements; }
    };
    constexpr Axis kLine{16, 1, 1};                        // rows of A, columns of B and C
    constexpr Axis kDepths{4, 16, L::kA}, kOut{4, 16, 4};  // rows of C
    for (int l = 0; l < L::kLanes; ++l) {
        for (int i = 0; i < L::kA; ++i) {
            REQUIRE((L::a_row(l, i) == kLine.at(l) && L::a_depth(l, i) == kDepths.at(l) + i));
            REQUIRE((L::b_col(l, i) == kLine.at(l) && L::b_depth(l, i) == kDepths.at(l) + i));
        }
        for (int i = 0; i < L::kC; ++i)
            REQUIRE((L::c_col(l, i) == kLine.at(l) && L::c_row(l, i) == kOut.at(l) + i));
    }
}

TEST_CASE("the layouts of MFMA are those of IREE", "[simt]") {
    check_against_iree<Mfma16x16x16>();
    check_against_iree<Mfma16x16x8>();
    check_against_iree<Mfma16x16x4>();
    CHECK((Mfma16x16x16::kA == 4 && Mfma16x16x8::kA == 2 && Mfma16x16x4::kA == 1));
}

// AMD's amd_matrix_instruction_calculator says where an element lies, this table which one lies
// there. Of RDNA 3, 16-bit operands: A[i][k] in half k % 2 of register k / 2, lanes i and i + 16,
// B[k][j] likewise in lanes j and j + 16; D[i][j] in register 16 i / 32 of lane 16 i % 32 + j. Of
// MFMA 16x16: A[i][k] in lane i + 16 (k / E), its element k % E; D[i][j] in register i % 4 of lane
// 16 (i / 4) + j. RDNA 4, of AMD's "Using the Matrix Cores of AMD RDNA 4 architecture GPUs":
// element e of lane l is A[l % 16][8 (l / 16) + e], B[8 (l / 16) + e][l % 16] and D[8 (l / 16) +
// e][l % 16].
struct Lies {
    int lane, element;
};
template <class L, class OfLine, class OfSum>
void check_against_amd(int lane_copies, OfLine line_place, OfSum sum_place) {
    for (int i = 0; i < 16; ++i) {
        for (int k = 0; k < L::kDepth; ++k)
            for (int copy = 0; copy < lane_copies; ++copy) {
                const Lies at = line_place(i, k);
                const int lane = at.lane + 16 * copy;
                REQUIRE((L::a_row(lane, at.element) == i && L::a_depth(lane, at.element) == k));
                REQUIRE((L::b_col(lane, at.element) == i && L::b_depth(lane, at.element) == k));
            }
        for (int j = 0; j < 16; ++j) {
            const Lies at = sum_place(i, j);
            REQUIRE((L::c_row(at.lane, at.element) == i && L::c_col(at.lane, at.element) == j));
        }
    }
}
template <class L>
void check_mfma_against_amd() {
    check_against_amd<L>(
        1, [](int i, int k) { return Lies{i + 16 * (k / L::kA), k % L::kA}; },
        [](int i, int j) { return Lies{16 * (i / 4) + j, i % 4}; });
}

TEST_CASE("fragments of AMD's matrix instructions lie where AMD says that each element does",
          "[simt]") {
    check_mfma_against_amd<Mfma16x16x16>();
    check_mfma_against_amd<Mfma16x16x8>();
    check_mfma_against_amd<Mfma16x16x4>();
    check_against_amd<WmmaGfx11>(
        2, [](int i, int k) { return Lies{i, k / 2 * 2 + k % 2}; },
        [](int i, int j) { return Lies{16 * i % 32 + j, 16 * i / 32}; });
    check_against_amd<WmmaGfx12>(
        1, [](int i, int k) { return Lies{i + 16 * (k / 8), k % 8}; },
        [](int i, int j) { return Lies{j + 16 * (i / 8), i % 8}; });
}

TEST_CASE("every fragment layout holds each element of its tile", "[simt]") {
    check_layout<MmaSync16n8k16>("mma.sync m16n8k16", 1);
    check_layout<Mfma16x16x16>("mfma 16x16x16", 1);
    check_layout<Mfma16x16x8>("mfma 16x16x8", 1);
    check_layout<Mfma16x16x4>("mfma 16x16x4", 1);
    check_layout<WmmaGfx11>("wmma of gfx11", 2);
    check_layout<WmmaGfx12>("wmma of gfx12", 1);
}

TEST_CASE("a matrix instruction multiplies two tiles and leaves out what lies past their edges",
          "[simt]") {
    for (const char* arch : {"sm_80", "sm_90a", "gfx908", "gfx90a", "gfx942", "gfx1100", "gfx1201"})
        CHECK(wrong_in_products(codegen::gpu_arch(arch), on_simt(arch)) == "");
}

TEST_CASE("lanes, atomics and asynchronous copies do as the prelude says on every architecture",
          "[simt]") {
    for (const char* arch : {"sm_75", "sm_80", "gfx90a", "gfx1100"})
        CHECK(wrong_in_lanes(codegen::gpu_arch(arch), on_simt(arch, 5)) == "");
    CHECK(wrong_in_numbers(on_simt("gfx1100")) == "");
}
