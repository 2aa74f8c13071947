// SPDX-License-Identifier: Apache-2.0
// Which back end compiles, which device it compiles for, and the integer and 16-bit types that
// every kernel uses.
//   CLEAVE_SIMT                      runs on the CPU; with CLEAVE_SM=80 or CLEAVE_GFX=0x90a, the
//   device imitated, and
//                                    CLEAVE_WGMMA where it has sm_90a's own instructions;
//                                    CLEAVE_SIMT_CHECKS where each access is checked
//   NVRTC or nvcc                    CLEAVE_SM follows __CUDA_ARCH__, CLEAVE_WGMMA the feature set
//   sm_90a hipRTC, or Clang for amdgcn      CLEAVE_GFX follows __gfx90a__ and its like
#pragma once

#if defined(CLEAVE_SIMT)
#elif defined(__CUDACC_RTC__) || (defined(__CUDACC__) && !defined(__HIP__))
#define CLEAVE_CUDA 1
#ifdef __CUDA_ARCH__
#define CLEAVE_SM (__CUDA_ARCH__ / 10)
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CLEAVE_WGMMA 1
#endif
#else
#define CLEAVE_SM 80  // nvcc's pass for the host
#endif
#else
#define CLEAVE_HIP 1
#if defined(__gfx906__)
#define CLEAVE_GFX 0x906
#elif defined(__gfx908__)
#define CLEAVE_GFX 0x908
#elif defined(__gfx90a__)
#define CLEAVE_GFX 0x90a
#elif defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
#define CLEAVE_GFX 0x942
#elif defined(__gfx950__)
#define CLEAVE_GFX 0x950
#elif defined(__GFX10__)
#define CLEAVE_GFX 0x1030
#elif defined(__GFX11__)
#define CLEAVE_GFX 0x1100
#elif defined(__GFX12__)
#define CLEAVE_GFX 0x1200
#else
#define CLEAVE_GFX 0x906  // the pass for the host
#endif
#endif

// The matrix instruction of the device, if it has one.
#if defined(CLEAVE_SM)
#if CLEAVE_SM >= 80
#define CLEAVE_MMA_SYNC 1
#endif
#elif CLEAVE_GFX >= 0x908 && CLEAVE_GFX < 0x1000
#define CLEAVE_MFMA 1
#elif CLEAVE_GFX >= 0x1100 && CLEAVE_GFX < 0x1200
#define CLEAVE_WMMA_GFX11 1
#elif CLEAVE_GFX >= 0x1200
#define CLEAVE_WMMA_GFX12 1
#endif
#if defined(CLEAVE_MMA_SYNC) || defined(CLEAVE_MFMA) || defined(CLEAVE_WMMA_GFX11) || \
    defined(CLEAVE_WMMA_GFX12)
#define CLEAVE_MATRIX 1
#endif

// Launches that begin before those before them have ended.
#if defined(CLEAVE_SM) && CLEAVE_SM >= 90
#define CLEAVE_OVERLAP 1
#endif

// Copies into shared memory beside their thread. The CPU makes them at once where nobody checks who
// waits for them.
#if defined(CLEAVE_SM) && CLEAVE_SM >= 80 && (!defined(CLEAVE_SIMT) || defined(CLEAVE_SIMT_CHECKS))
#define CLEAVE_ASYNC_COPIES 1
#endif

// gfx9 has waves of 64 lanes; everything else runs here in warps of 32.
#if defined(CLEAVE_GFX) && CLEAVE_GFX < 0x1000
#define CLEAVE_WARP 64
#else
#define CLEAVE_WARP 32
#endif

#if defined(CLEAVE_CUDA)
#define DEVICE __device__ __forceinline__
#elif defined(CLEAVE_SIMT)
#define DEVICE inline __attribute__((always_inline))
#else
#define DEVICE __attribute__((device)) inline __attribute__((always_inline))
#endif

// The CPU's warp operations and barriers take the place of their call, for reports.
#if defined(CLEAVE_SIMT)
#define CLEAVE_HERE , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define CLEAVE_HERE_ONLY const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define CLEAVE_AT , file, line
#else
#define CLEAVE_HERE
#define CLEAVE_HERE_ONLY
#define CLEAVE_AT
#endif

namespace cleave {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

constexpr int WARP = CLEAVE_WARP;
#if CLEAVE_WARP == 64
using mask_t = u64;
#else
using mask_t = u32;
#endif
constexpr mask_t kAllLanes = ~mask_t(0);

}  // namespace cleave
