// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: each layout covers its tile exactly, and a warp's product is the product.
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "codegen/gpu_arch.h"
#include "codegen/kernel_compiler.h"
#include "codegen/templates/gpu/fragments.cuh"
#include "runtime/base/convert.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;

namespace {

uint16_t convert(float v, bool brain) { return brain ? f32_to_bf16(v) : f32_to_f16(v); }

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

// A and B of a warpgroup: each 16-byte chunk of a row of 64 elements has a place of its own, its elements side by side,
// and the descriptor leads the instruction to the same place.
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

// [64, N] = a [64, 64] b [N, 64] transposed, by a warpgroup, in two steps of 32.
const char* const kWarpgroupProduct = R"(
template <class T, int N>
DEVICE void product(const T* a, const T* b, float* c) {
    DYNAMIC_SHARED(T, shared);
    const int t = thread_x();
    T* start = shared + (1024 - shared_address(shared) % 1024) % 1024 / 2;
    T* right = start + 64 * 64;
    for (int i = t; i < 64 * 64; i += 128) start[WgmmaOperand::place(i / 64, i % 64) / 2] = a[i];
    for (int i = t; i < N * 64; i += 128) right[WgmmaOperand::place(i / 64, i % 64) / 2] = b[i];
    WarpgroupSum<N> sum;
    sum.clear();
    async_fence();
    barrier();
    for (int half = 0; half < 64; half += 32) {
        wgmma_fence();
        for (int k = half; k < half + 32; k += 16)
            wgmma<T>(sum, WgmmaOperand::descriptor(shared_address(start + k)),
                     WgmmaOperand::descriptor(shared_address(right + k)));
        wgmma_commit();
        /* meanwhile */
        wgmma_wait<0>();
    }
    sum.hold();
    for (int i = 0; i < sum.kC; ++i)
        c[Wgmma64<N>::c_row(t, i) * N + Wgmma64<N>::c_col(t, i)] = sum.at(i);
}
KERNEL(128) in_f16(const f16* a, const f16* b, float* c) { product<f16, COLUMNS>(a, b, c); }
KERNEL(128) in_bf16(const bf16* a, const bf16* b, float* c) { product<bf16, COLUMNS>(a, b, c); }
)";

// The same with A in registers and b, one depth a row, in panels of 64 columns.
const char* const kRegistersProduct = R"(
template <class T, int N>
DEVICE void product(const T* a, const T* b, float* c) {
    DYNAMIC_SHARED(T, shared);
    const int t = thread_x();
    T* right = shared + (1024 - shared_address(shared) % 1024) % 1024 / 2;
    for (int i = t; i < N * 64; i += 128)
        right[(i / 64 / 64 * 64 * 128 + WgmmaOperand::place(i % 64, i / 64 % 64)) / 2] = b[i];
    WarpgroupSum<N> sum;
    WarpgroupFragment<T> left[4];
    using L = Wgmma64<16>;
    for (int k = 0; k < 4; ++k)
        for (int i = 0; i < 4; ++i) {
            const T* from = a + L::a_row(t, 2 * i) * 64 + 16 * k + L::a_depth(t, 2 * i);
            left[k].set(i, to_float(from[0]), to_float(from[1]));
        }
    sum.clear();
    async_fence();
    barrier();
    for (int half = 0; half < 64; half += 32) {
        wgmma_fence();
        for (int k = half; k < half + 32; k += 16)
            wgmma<T>(sum, left[k / 16],
                     WgmmaOperand::transposed(shared_address(right + k * 64), 64 * 128));
        wgmma_commit();
        /* meanwhile */
        wgmma_wait<0>();
    }
    sum.hold();
    for (int i = 0; i < sum.kC; ++i)
        c[Wgmma64<N>::c_row(t, i) * N + Wgmma64<N>::c_col(t, i)] = sum.at(i);
}
KERNEL(128) in_f16(const f16* a, const f16* b, float* c) { product<f16, COLUMNS>(a, b, c); }
KERNEL(128) in_bf16(const bf16* a, const bf16* b, float* c) { product<bf16, COLUMNS>(a, b, c); }
)";

std::string warpgroup_source(int columns, std::string body = kWarpgroupProduct) {
    for (size_t at = 0; (at = body.find("COLUMNS")) != std::string::npos;)
        body.replace(at, 7, std::to_string(columns));
    return with_prelude(body);
}

// The report of the kernel of 32 columns on operands that make each element of the sum another one.
simt::SimtReport run_warpgroup(const std::string& source, bool brain, int columns, bool checks,
                               Buffer<float>& c, int threads = 128, uint64_t seed = 0) {
    auto program =
        simt::compile_simt(source, brain ? "in_bf16" : "in_f16", "sm_90a", {1, checks, {}, ""});
    const auto n = static_cast<size_t>(columns);
    Buffer<uint16_t> a(64 * 64), b(n * 64);
    for (size_t i = 0; i < 64 * 64; ++i)
        a[i] = convert(static_cast<float>(i * 7 % 23) - 11.0f, brain);
    for (size_t i = 0; i < n * 64; ++i)
        b[i] = convert(static_cast<float>(i * 5 % 19) / 4.0f - 2.0f, brain);
    return run(program, {a.word(), b.word(), c.word()}, {1, threads, 32768}, {seed, seed != 0});
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

TEST_CASE("a warpgroup multiplies what lies in shared memory, in every width, checked or not",
          "[simt]") {
    check_operand_layout();
    check_warpgroup_sum<16>();
    check_warpgroup_sum<128>();
    struct Form {
        const char* body;
        int columns;
    };
    for (auto [body, columns] :
         {Form{kWarpgroupProduct, 16}, Form{kWarpgroupProduct, 32}, Form{kWarpgroupProduct, 64},
          Form{kWarpgroupProduct, 128}, Form{kRegistersProduct, 64}, Form{kRegistersProduct, 128}})
        for (bool brain : {false, true}) {
            const bool checks = columns != 64 || (body == kRegistersProduct && brain);
            Buffer<float> c(static_cast<size_t>(64 * columns));
            auto report =
                run_warpgroup(warpgroup_source(columns, body), brain, columns, checks, c, 128, 3);
            INFO(columns << " columns, bf16 " << brain << " "
                         << (report.finding ? report.finding->text() : ""));
            REQUIRE(report.clean());
            for (int r = 0; r < 64; ++r)
                for (int j = 0; j < columns; ++j) {
                    float want = 0;  // exact: multiples of a quarter
                    for (int k = 0; k < 64; ++k)
                        want += (static_cast<float>((r * 64 + k) * 7 % 23) - 11.0f) *
                                (static_cast<float>((j * 64 + k) * 5 % 19) / 4.0f - 2.0f);
                    REQUIRE(c[static_cast<size_t>(r * columns + j)] == want);
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
        const char* body = kWarpgroupProduct;
        int columns = 32;
    };
    auto registers = [](const char* text, const char* instead, Fault fault) {
        return Case{text, instead, fault, 128, kRegistersProduct, 64};
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
        std::string source = warpgroup_source(c.columns, c.body);
        size_t at = source.rfind(c.text);
        REQUIRE(at != std::string::npos);
        source.replace(at, std::strlen(c.text), c.instead);
        for (uint64_t seed : {0, 1}) {
            Buffer<float> sums(static_cast<size_t>(64 * c.columns));
            auto report = run_warpgroup(source, false, c.columns, true, sums, c.threads, seed);
            INFO(c.text << " -> " << c.instead << ", seed " << seed);
            REQUIRE_FALSE(report.clean());
            INFO(report.finding->text());
            CHECK(simt::fault_name(report.finding->fault) == simt::fault_name(c.fault));
            CHECK(report.finding->file == "test.cu");
            CHECK(report.finding->line > 0);
        }
    }
}

TEST_CASE(
    "a warpgroup's layouts are those of CUTLASS, which were read from other sources than the table",
    "[simt]") {
    // include/cute/atom/mma_traits_sm90_gmma.hpp of CUTLASS 3: CLayout_64xN, shape ((4, 8, 4), (2, 2, N / 8)), strides
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
    // GmmaDescriptor of include/cute/arch/mma_sm90_desc.hpp: start_address, leading_byte_offset, stride_byte_offset and
    // layout_type at bits 0, 16, 32 and 62, offsets in units of 16 bytes, LayoutType::B128 = 1.
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
    // make_gmma_desc<Major::MN>, LayoutType::B128: Swizzle<3, 4, 3> of ((T, 8, m), (8, k)) : ((1, T, LBO), (8 T, SBO)),
    // T = 8 elements of 16 bits.
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
    for (const char* arch : {"gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
        INFO(arch);
        CHECK(instructions(arch, clang, with_prelude(kProduct)) > 0);
    }
    const codegen::GpuCompilerInfo info = codegen::nvrtc_info(nvrtc);
    if (!info.available) CLEAVE_SKIP("no NVRTC: " + info.reason);
    for (const char* arch : {"sm_80", "sm_90a"}) {
        INFO(arch);
        CHECK(instructions(arch, nvrtc, with_prelude(kProduct)) > 0);
    }
    for (int columns : {16, 32, 64, 128}) {
        INFO(columns << " columns");
        CHECK(instructions("sm_90a", nvrtc, warpgroup_source(columns)) > 0);
        if (columns >= 64)
            CHECK(instructions("sm_90a", nvrtc, warpgroup_source(columns, kRegistersProduct)) > 0);
    }
}

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
