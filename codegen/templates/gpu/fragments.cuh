// SPDX-License-Identifier: Apache-2.0
// How matrix instructions spread a tile over the lanes of a warp: one table for each instruction, read by the GPU
// kernels, by the emulator of runtime/simt and by its tests. D = A B + C with A [kRows, kDepth], B [kDepth, kCols]
// and C, D [kRows, kCols]; lane `l` holds elements 0 .. kA-1 of A, 0 .. kB-1 of B and 0 .. kC-1 of C, and the
// functions give the place of element `i`. Elements 2j and 2j + 1 of A and B have depths k and k + 1: they
// share one 32-bit register. Freestanding; also plain C++.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__CUDA__) || defined(__HIP__)
#define CLEAVE_TABLE static constexpr __attribute__((device)) __attribute__((host)) int
#if defined(__CUDACC_RTC__) || (defined(__CUDACC__) && !defined(__clang__))
#undef CLEAVE_TABLE
#define CLEAVE_TABLE static constexpr __device__ __host__ int
#endif
#else
#define CLEAVE_TABLE static constexpr int
#endif

namespace cleave {

// mma.sync.aligned.m16n8k16.row.col.f32.{f16,bf16}: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point
// type" (section 9.7.13.4.8 in version 8.5).
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

// v_mfma_f32_16x16x16_f16 and _bf16_1k (gfx90a, gfx942): AMD Instinct MI200 and MI300 (CDNA 2, 3) ISA, section 7,
// "Matrix arithmetic instructions", and AMD's amd_matrix_instruction_calculator: a group of four lanes-of-16
// holds four consecutive depths; the output holds four consecutive rows of one column.
struct Mfma16x16x16 {
    static constexpr int kLanes = 64, kRows = 16, kCols = 16, kDepth = 16;
    static constexpr int kA = 4, kB = 4, kC = 4;
    CLEAVE_TABLE a_row(int lane, int) { return lane % 16; }
    CLEAVE_TABLE a_depth(int lane, int i) { return 4 * (lane / 16) + i; }
    CLEAVE_TABLE b_depth(int lane, int i) { return 4 * (lane / 16) + i; }
    CLEAVE_TABLE b_col(int lane, int) { return lane % 16; }
    CLEAVE_TABLE c_row(int lane, int i) { return 4 * (lane / 16) + i; }
    CLEAVE_TABLE c_col(int lane, int) { return lane % 16; }
};

// v_wmma_f32_16x16x16_f16 and _bf16 of gfx11, wave32: "RDNA 3" ISA, chapter 7, "Wave matrix multiply accumulate".
// Lanes 16-31 repeat the A and B of lanes 0-15.
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

// v_wmma_f32_16x16x16_f16 and _bf16 of gfx12, wave32: "RDNA 4" ISA, chapter 7, "Wave matrix multiply accumulate";
// nothing is repeated any more: each half of the wave holds eight consecutive depths, or rows of the output.
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
