// SPDX-License-Identifier: Apache-2.0
// How matrix instructions spread a tile over the lanes of a warp: one table for each instruction,
// read by the GPU kernels, by the emulator of runtime/simt and by its tests. D = A B + C with A
// [kRows, kDepth], B [kDepth, kCols] and C, D [kRows, kCols]; lane `l` holds elements 0 .. kA-1 of
// A, 0 .. kB-1 of B and 0 .. kC-1 of C, and the functions give the place of element `i`. Elements
// 2j and 2j + 1 of A and B have depths k and k + 1: of 16 bits, they share one 32-bit register.
// Freestanding; also plain C++.
#pragma once

#if defined(__CUDACC_RTC__) || (defined(__CUDACC__) && !defined(__clang__))
#define CLEAVE_TABLE_CODE static constexpr __device__ __host__
#elif defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define CLEAVE_TABLE_CODE static constexpr __attribute__((device)) __attribute__((host))
#else
#define CLEAVE_TABLE_CODE static constexpr
#endif
#define CLEAVE_TABLE CLEAVE_TABLE_CODE int

namespace cleave {

// mma.sync.aligned.m16n8k16.row.col.f32.{f16,bf16}: PTX ISA, "Matrix fragments for mma.m16n8k16
// with floating point type" (section 9.7.13.4.8 in version 8.5).
struct MmaSync16n8k16 {
    static constexpr int kLanes = 32, kRows = 16, kCols = 8, kDepth = 16;
    static constexpr int kA = 8, kB = 4, kC = 4;
    CLEAVE_TABLE a_row(int lane, int i) { return lane / 4 + 8 * (i / 2 % 2); }
    CLEAVE_TABLE a_depth(int lane, int i) { return lane % 4 * 2 + i % 2 + 8 * (i / 4); }
    CLEAVE_TABLE b_depth(int lane, int i) { return lane % 4 * 2 + i % 2 + 8 * (i / 2); }
    CLEAVE_TABLE b_col(int lane, int) { return lane / 4; }
    CLEAVE_TABLE c_row(int lane, int i) { return lane / 4 + 8 * (i / 2); }
    CLEAVE_TABLE c_col(int lane, int i) { return lane % 4 * 2 + i % 2; }
};

// wgmma.mma_async.sync.aligned.m64nNk16.f32.{f16,bf16} (sm_90a), N = kN a multiple of 8: four
// warps, whose lane of the sum is the thread's number in its warpgroup. PTX
// ISA 9.2, 9.7.15.5.1.1.1, "Matrix fragments for wgmma.mma_async.m64nNk16": accumulator D (figure
// 149), and A in registers: those of D's 16 columns.
template <int kN>
struct Wgmma64 {
    static constexpr int kLanes = 128, kRows = 64, kCols = kN, kDepth = 16;
    static constexpr int kA = 8, kC = kN / 2;
    CLEAVE_TABLE a_row(int thread, int i) { return c_row(thread, i); }
    CLEAVE_TABLE a_depth(int thread, int i) { return c_col(thread, i); }
    CLEAVE_TABLE c_row(int thread, int i) {
        return 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
    }
    CLEAVE_TABLE c_col(int thread, int i) { return 8 * (i / 4) + thread % 4 * 2 + i % 2; }
};

// A and B of the same instruction, in shared memory: rows of 64 elements of 16 bits (rows of A,
// columns of B), eight rows a group of 1024 bytes, the 16-byte chunks of a row exchanged by the
// 128-byte swizzle. PTX ISA 9.2, 9.7.15.5.1.2, "Shared memory matrix layout" (K-major, 128B
// swizzling: figure 157), and 9.7.15.5.1.2.2, "Matrix descriptor format": bits 0-13 the start
// address / 16, 16-29 the leading and 32-45 the stride byte offset / 16, 49-51 the base offset,
// 62-63 the swizzle, 1 for 128 bytes. The stride is that from eight rows to the next; the leading
// one, which this layout does not use, is taken to be 1. The base offset is 0, for the pattern
// starts at multiples of 1024.
struct WgmmaOperand {
    static constexpr int kDepth = 64, kRowBytes = 128, kGroupRows = 8, kGroupBytes = 1024;
    using Descriptor = unsigned long long;
    // Bits 7-9 of an address, its row in the group, are added to bits 4-6, its chunk.
    CLEAVE_TABLE swizzled(int address) { return address ^ (address >> 7 & 7) << 4; }
    // Byte of element `depth` of a row behind the start of row 0, which is a multiple of 1024.
    CLEAVE_TABLE place(int row, int depth) {
        return swizzled(row / kGroupRows * kGroupBytes + row % kGroupRows * kRowBytes + 2 * depth);
    }
    // Of rows that start at a shared address, from depth (address % 128) / 2 on.
    CLEAVE_TABLE_CODE Descriptor descriptor(unsigned address) {
        return Descriptor(address >> 4 & 0x3fff) | Descriptor(1) << 16 |
               Descriptor(kGroupBytes >> 4) << 32 | Descriptor(1) << 62;
    }
    // What the instruction makes of a descriptor.
    CLEAVE_TABLE start(Descriptor d) { return int(d & 0x3fff) << 4; }
    CLEAVE_TABLE stride(Descriptor d) { return int(d >> 32 & 0x3fff) << 4; }
    CLEAVE_TABLE base_offset(Descriptor d) { return int(d >> 49 & 7); }
    CLEAVE_TABLE swizzle_mode(Descriptor d) { return int(d >> 62); }
    CLEAVE_TABLE address(Descriptor d, int row, int depth) {
        return swizzled(start(d) + row / kGroupRows * stride(d) + row % kGroupRows * kRowBytes +
                        2 * depth);
    }
    // B the other way round ("MN-major"): a row is a depth and holds 64 columns; further columns
    // are `panel` bytes on, which is the leading byte offset, and the stride is that from
    // eight depths to the next (table of strides in 9.7.15.5.1.2.1). Columns start at a panel and
    // are whole ones, so that only forms are used that others use too.
    CLEAVE_TABLE_CODE Descriptor transposed(unsigned address, int panel) {
        return Descriptor(address >> 4 & 0x3fff) | Descriptor(panel >> 4 & 0x3fff) << 16 |
               Descriptor(kGroupBytes >> 4) << 32 | Descriptor(1) << 62;
    }
    CLEAVE_TABLE leading(Descriptor d) { return int(d >> 16 & 0x3fff) << 4; }
    CLEAVE_TABLE transposed_address(Descriptor d, int col, int depth) {
        return swizzled(start(d) + col / kDepth * leading(d) + depth / kGroupRows * stride(d) +
                        depth % kGroupRows * kRowBytes + 2 * (col % kDepth));
    }
};

// Three instructions of one block of 16 x 16, whose lanes hold kElements consecutive depths of a
// row of A and of a column of B, 16 lanes each; the output holds four consecutive rows of one
// column. AMD Instinct MI100, MI200 and MI300 (CDNA 1, 2, 3) ISA, section 7, "Matrix arithmetic
// instructions", and AMD's amd_matrix_instruction_calculator.
template <int kElements>
struct Mfma16x16 {
    static constexpr int kLanes = 64, kRows = 16, kCols = 16, kDepth = 4 * kElements;
    static constexpr int kA = kElements, kB = kElements, kC = 4;
    CLEAVE_TABLE a_row(int lane, int) { return lane % 16; }
    CLEAVE_TABLE a_depth(int lane, int i) { return kElements * (lane / 16) + i; }
    CLEAVE_TABLE b_depth(int lane, int i) { return kElements * (lane / 16) + i; }
    CLEAVE_TABLE b_col(int lane, int) { return lane % 16; }
    CLEAVE_TABLE c_row(int lane, int i) { return 4 * (lane / 16) + i; }
    CLEAVE_TABLE c_col(int lane, int) { return lane % 16; }
};
using Mfma16x16x16 = Mfma16x16<4>;  // v_mfma_f32_16x16x16_f16; _bf16_1k (gfx90a, gfx942)
using Mfma16x16x8 = Mfma16x16<2>;   // v_mfma_f32_16x16x8_bf16 (gfx908)
using Mfma16x16x4 = Mfma16x16<1>;   // v_mfma_f32_16x16x4_f32

// v_wmma_f32_16x16x16_f16 and _bf16 of gfx11, wave32: "RDNA 3" ISA, chapter 7, "Wave matrix
// multiply accumulate". Lanes 16-31 repeat the A and B of lanes 0-15.
struct WmmaGfx11 {
    static constexpr int kLanes = 32, kRows = 16, kCols = 16, kDepth = 16;
    static constexpr int kA = 16, kB = 16, kC = 8;
    CLEAVE_TABLE a_row(int lane, int) { return lane % 16; }
    CLEAVE_TABLE a_depth(int, int i) { return i; }
    CLEAVE_TABLE b_depth(int, int i) { return i; }
    CLEAVE_TABLE b_col(int lane, int) { return lane % 16; }
    CLEAVE_TABLE c_row(int lane, int i) { return 2 * i + lane / 16; }
    CLEAVE_TABLE c_col(int lane, int) { return lane % 16; }
};

// v_wmma_f32_16x16x16_f16 and _bf16 of gfx12, wave32: "RDNA 4" ISA, chapter 7, "Wave matrix
// multiply accumulate"; nothing is repeated any more: each half of the wave holds eight consecutive
// depths, or rows of the output.
struct WmmaGfx12 {
    static constexpr int kLanes = 32, kRows = 16, kCols = 16, kDepth = 16;
    static constexpr int kA = 8, kB = 8, kC = 8;
    CLEAVE_TABLE a_row(int lane, int) { return lane % 16; }
    CLEAVE_TABLE a_depth(int lane, int i) { return 8 * (lane / 16) + i; }
    CLEAVE_TABLE b_depth(int lane, int i) { return 8 * (lane / 16) + i; }
    CLEAVE_TABLE b_col(int lane, int) { return lane % 16; }
    CLEAVE_TABLE c_row(int lane, int i) { return 8 * (lane / 16) + i; }
    CLEAVE_TABLE c_col(int lane, int) { return lane % 16; }
};

}  // namespace cleave
