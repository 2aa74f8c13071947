// SPDX-License-Identifier: Apache-2.0
// The NVIDIA back end of the prelude: CUDA built-ins that NVRTC declares by itself, and PTX for the
// rest. Shared addresses in PTX are 32-bit. PTX ISA 8.5: cvt 9.7.9, ex2 9.7.3, cp.async 9.7.8.22,
// mma 9.7.13.4.
#pragma once

#include "words.cuh"

#if defined(CLEAVE_CUDA)

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define KERNEL_ALONE(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define SHARED(type, ...) __shared__ type __VA_ARGS__
#define DYNAMIC_SHARED(type, name)                                \
    extern __shared__ __align__(16) char cleave_dynamic_shared[]; \
    type* name = reinterpret_cast<type*>(cleave_dynamic_shared)

namespace cleave {

// ---- Places

DEVICE int thread_x() { return int(threadIdx.x); }
DEVICE int thread_y() { return int(threadIdx.y); }
DEVICE int thread_z() { return int(threadIdx.z); }
DEVICE int block_x() { return int(blockIdx.x); }
DEVICE int block_y() { return int(blockIdx.y); }
DEVICE int block_z() { return int(blockIdx.z); }
DEVICE int threads_x() { return int(blockDim.x); }
DEVICE int threads_y() { return int(blockDim.y); }
DEVICE int threads_z() { return int(blockDim.z); }
DEVICE int blocks_x() { return int(gridDim.x); }
DEVICE int blocks_y() { return int(gridDim.y); }
DEVICE int blocks_z() { return int(gridDim.z); }

// ---- Bits and numbers

DEVICE u32 as_u32(float v) { return __float_as_uint(v); }
DEVICE float as_float(u32 v) { return __uint_as_float(v); }
DEVICE float f16_to_float(u16 bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}
DEVICE u16 float_to_f16(float v) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}
DEVICE u32 fma_f16_pair(u32 a, u32 b, u32 c) {
    u32 v;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
    return v;
}
#if CLEAVE_SM >= 89
#define CLEAVE_F8_CONVERSION 1
DEVICE u32 f8e4m3_pair_to_f16(u16 pair) {
    u32 v;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(v) : "h"(pair));
    return v;
}
#endif
DEVICE float sqrt(float x) {
    float v;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}
DEVICE float rsqrt(float x) {
    float v;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}
DEVICE float reciprocal(float x) {
    float v;
    asm("rcp.rn.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}
DEVICE float exp2(float x) {
    float v;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}
DEVICE float larger(float a, float b) {
    float v;
    asm("max.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
    return v;
}
DEVICE float log2(float x) {
    float v;
    asm("lg2.approx.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}
DEVICE float floor(float x) {
    float v;
    asm("cvt.rmi.f32.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}
DEVICE float abs(float x) { return as_float(as_u32(x) & 0x7fffffffu); }
DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// ---- Order

DEVICE void barrier() { __syncthreads(); }
DEVICE void warp_sync() { __syncwarp(); }
DEVICE void fence_block() { __threadfence_block(); }
DEVICE void fence_device() { __threadfence(); }

// ---- Warp operations

#define CLEAVE_CUDA_SHUFFLE(name, intrinsic)        \
    template <class T>                              \
    DEVICE T name(mask_t lanes, T v, int operand) { \
        return intrinsic(lanes, v, operand);        \
    }                                               \
    template <class T>                              \
    DEVICE T name(T v, int operand) {               \
        return intrinsic(kAllLanes, v, operand);    \
    }
CLEAVE_CUDA_SHUFFLE(shuffle, __shfl_sync)
CLEAVE_CUDA_SHUFFLE(shuffle_xor, __shfl_xor_sync)
CLEAVE_CUDA_SHUFFLE(shuffle_up, __shfl_up_sync)
CLEAVE_CUDA_SHUFFLE(shuffle_down, __shfl_down_sync)

DEVICE mask_t ballot(bool p) { return __ballot_sync(kAllLanes, p); }

// ---- Atomics

DEVICE u32 atomic_add(u32* p, u32 v) { return atomicAdd(p, v); }
DEVICE i32 atomic_add(i32* p, i32 v) { return atomicAdd(p, v); }
DEVICE u64 atomic_add(u64* p, u64 v) { return atomicAdd(p, v); }
DEVICE float atomic_add(float* p, float v) { return atomicAdd(p, v); }
DEVICE u32 atomic_max(u32* p, u32 v) { return atomicMax(p, v); }
DEVICE i32 atomic_max(i32* p, i32 v) { return atomicMax(p, v); }
DEVICE u32 atomic_min(u32* p, u32 v) { return atomicMin(p, v); }
DEVICE i32 atomic_min(i32* p, i32 v) { return atomicMin(p, v); }
DEVICE u32 atomic_exchange(u32* p, u32 v) { return atomicExch(p, v); }
DEVICE u32 atomic_cas(u32* p, u32 expected, u32 v) { return atomicCAS(p, expected, v); }
template <class T>
DEVICE T load_volatile(const T* p) {
    return *const_cast<const volatile T*>(p);
}
template <class T>
DEVICE void store_volatile(T* p, T v) {
    *const_cast<volatile T*>(p) = v;
}

// ---- Stores of several floats to global memory

DEVICE void write_floats(float* p, float a, float b) {
    asm volatile("st.global.v2.f32 [%0], {%1,%2};" ::"l"(__cvta_generic_to_global(p)), "f"(a),
                 "f"(b)
                 : "memory");
}
DEVICE void write_floats(float* p, float a, float b, float c, float d) {
    asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(__cvta_generic_to_global(p)), "f"(a),
                 "f"(b), "f"(c), "f"(d)
                 : "memory");
}

// ---- Asynchronous copies

#if defined(CLEAVE_ASYNC_COPIES)
template <int BYTES>
DEVICE void async_copy(void* shared, const void* global, bool valid = true) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16,
                  "an asynchronous copy moves 4, 8 or 16 bytes");
    u32 target = u32(__cvta_generic_to_shared(shared));
    int bytes = valid ? BYTES : 0;
    if constexpr (BYTES == 16) {  // past the first-level cache, which 16 bytes alone may bypass
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global),
                     "r"(bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(global),
                     "n"(BYTES), "r"(bytes)
                     : "memory");
    }
}
DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
DEVICE void async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#endif

// ---- Launches: PTX ISA 8.5, "griddepcontrol"

#if defined(CLEAVE_OVERLAP)
DEVICE void await_previous_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#endif

// ---- Matrix instruction

#if defined(CLEAVE_MMA_SYNC)
template <class T>
DEVICE void matrix_multiply_add(float* c, const u32* a, const u32* b);
template <>
DEVICE void matrix_multiply_add<f16>(float* c, const u32* a, const u32* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
DEVICE void matrix_multiply_add<bf16>(float* c, const u32* a, const u32* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// ---- Products of a warpgroup: PTX ISA 9.2, 9.7.15 (wgmma); "fence.proxy.async" under "membar /
// fence"

#if defined(CLEAVE_WGMMA)
DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
// What this thread wrote to shared memory becomes visible to instructions that read it
// asynchronously.
DEVICE void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
DEVICE void wgmma_hold(float& v) { asm volatile("" : "+f"(v)); }
DEVICE void wgmma_hold(u32& v) { asm volatile("" : "+r"(v)); }
DEVICE void wgmma_read(const float*) {}

// Both operands K-major in shared memory, neither negated, added to what the registers hold.
#define CLEAVE_WGMMA_ASM(n, type, registers, a, b)                                 \
    "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                 \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" registers \
    "}, "                                                                          \
    "%" #a ", %" #b ", add, 1, 1, 0, 0;\n}"
#define CLEAVE_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define CLEAVE_R1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define CLEAVE_R2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define CLEAVE_R3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define CLEAVE_R4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define CLEAVE_R5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define CLEAVE_R6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define CLEAVE_R7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define CLEAVE_R_16 CLEAVE_R0
#define CLEAVE_R_32 CLEAVE_R_16 "," CLEAVE_R1
#define CLEAVE_R_64 CLEAVE_R_32 "," CLEAVE_R2 "," CLEAVE_R3
#define CLEAVE_R_128 CLEAVE_R_64 "," CLEAVE_R4 "," CLEAVE_R5 "," CLEAVE_R6 "," CLEAVE_R7
#define CLEAVE_D8(i)                                                                            \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define CLEAVE_D_16 CLEAVE_D8(0)
#define CLEAVE_D_32 CLEAVE_D_16, CLEAVE_D8(8)
#define CLEAVE_D_64 CLEAVE_D_32, CLEAVE_D8(16), CLEAVE_D8(24)
#define CLEAVE_D_128 CLEAVE_D_64, CLEAVE_D8(32), CLEAVE_D8(40), CLEAVE_D8(48), CLEAVE_D8(56)

// A in registers, B transposed.
#define CLEAVE_WGMMA_REGISTERS_ASM(n, type, registers, a0, a1, a2, a3, b)          \
    "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                 \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" registers \
    "}, "                                                                          \
    "{%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b ", add, 1, 1, 1;\n}"

template <class T, int N>
struct WgmmaIssue;
#define CLEAVE_WGMMA_ISSUE(T, type, n, a, b)                           \
    template <>                                                        \
    struct WgmmaIssue<T, n> {                                          \
        static DEVICE void of(float* d, u64 left, u64 right) {         \
            asm volatile(CLEAVE_WGMMA_ASM(n, type, CLEAVE_R_##n, a, b) \
                         : CLEAVE_D_##n                                \
                         : "l"(left), "l"(right)                       \
                         : "memory");                                  \
        }                                                              \
    };
#define CLEAVE_WGMMA_ISSUES(T, type)        \
    CLEAVE_WGMMA_ISSUE(T, type, 16, 8, 9)   \
    CLEAVE_WGMMA_ISSUE(T, type, 32, 16, 17) \
    CLEAVE_WGMMA_ISSUE(T, type, 64, 32, 33) \
    CLEAVE_WGMMA_ISSUE(T, type, 128, 64, 65)
CLEAVE_WGMMA_ISSUES(f16, "f16")
CLEAVE_WGMMA_ISSUES(bf16, "bf16")

template <class T, int N>
struct WgmmaIssueRegisters;
#define CLEAVE_WGMMA_ISSUE_REGISTERS(T, type, n, a0, a1, a2, a3, b)                           \
    template <>                                                                               \
    struct WgmmaIssueRegisters<T, n> {                                                        \
        static DEVICE void of(float* d, const u32* a, u64 right) {                            \
            asm volatile(CLEAVE_WGMMA_REGISTERS_ASM(n, type, CLEAVE_R_##n, a0, a1, a2, a3, b) \
                         : CLEAVE_D_##n                                                       \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right)             \
                         : "memory");                                                         \
        }                                                                                     \
    };
CLEAVE_WGMMA_ISSUE_REGISTERS(f16, "f16", 64, 32, 33, 34, 35, 36)
CLEAVE_WGMMA_ISSUE_REGISTERS(f16, "f16", 128, 64, 65, 66, 67, 68)
CLEAVE_WGMMA_ISSUE_REGISTERS(bf16, "bf16", 64, 32, 33, 34, 35, 36)
CLEAVE_WGMMA_ISSUE_REGISTERS(bf16, "bf16", 128, 64, 65, 66, 67, 68)

template <class T>
DEVICE u32 narrow_pair(float low, float high);
template <>
DEVICE u32 narrow_pair<f16>(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <>
DEVICE u32 narrow_pair<bf16>(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <class T, int N>
DEVICE void wgmma_issue(float* d, u64 a, u64 b) {
    WgmmaIssue<T, N>::of(d, a, b);
}
template <class T, int N>
DEVICE void wgmma_issue(float* d, const u32* a, u64 b) {
    WgmmaIssueRegisters<T, N>::of(d, a, b);
}
#endif

}  // namespace cleave

#endif
