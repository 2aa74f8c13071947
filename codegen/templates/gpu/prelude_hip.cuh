// SPDX-License-Identifier: Apache-2.0
// The AMD back end of the prelude, for hipRTC and for Clang's amdgcn target with neither ROCm
// headers nor device library: compiler built-ins alone. LLVM: "User Guide for AMDGPU Backend",
// memory model and built-ins.
#pragma once

#include "words.cuh"

#if defined(CLEAVE_HIP)

#define KERNEL(threads)                \
    extern "C" __attribute__((global)) \
    __attribute__((amdgpu_flat_work_group_size(threads, threads))) void
#define KERNEL_ALONE(threads) KERNEL(threads)
#define SHARED(type, ...) static __attribute__((shared)) type __VA_ARGS__
#define DYNAMIC_SHARED(type, name)                                                            \
    extern __attribute__((shared)) __attribute__((aligned(16))) char cleave_dynamic_shared[]; \
    type* name = reinterpret_cast<type*>(cleave_dynamic_shared)

namespace cleave {

// ---- Places

DEVICE int thread_x() { return int(__builtin_amdgcn_workitem_id_x()); }
DEVICE int thread_y() { return int(__builtin_amdgcn_workitem_id_y()); }
DEVICE int thread_z() { return int(__builtin_amdgcn_workitem_id_z()); }
DEVICE int block_x() { return int(__builtin_amdgcn_workgroup_id_x()); }
DEVICE int block_y() { return int(__builtin_amdgcn_workgroup_id_y()); }
DEVICE int block_z() { return int(__builtin_amdgcn_workgroup_id_z()); }
DEVICE int threads_x() { return int(__builtin_amdgcn_workgroup_size_x()); }
DEVICE int threads_y() { return int(__builtin_amdgcn_workgroup_size_y()); }
DEVICE int threads_z() { return int(__builtin_amdgcn_workgroup_size_z()); }
// The grid's size counts work items; launches are of whole blocks.
DEVICE int blocks_x() {
    return int(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x());
}
DEVICE int blocks_y() {
    return int(__builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y());
}
DEVICE int blocks_z() {
    return int(__builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z());
}

// ---- Bits and numbers

DEVICE u32 as_u32(float v) { return __builtin_bit_cast(u32, v); }
DEVICE float as_float(u32 v) { return __builtin_bit_cast(float, v); }
DEVICE float f16_to_float(u16 bits) {
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
DEVICE u16 float_to_f16(float v) { return __builtin_bit_cast(u16, static_cast<_Float16>(v)); }
typedef _Float16 HalfPair __attribute__((ext_vector_type(2)));
DEVICE u32 fma_f16_pair(u32 a, u32 b, u32 c) {
    return __builtin_bit_cast(u32,
                              __builtin_bit_cast(HalfPair, a) * __builtin_bit_cast(HalfPair, b) +
                                  __builtin_bit_cast(HalfPair, c));
}
DEVICE float sqrt(float x) { return __builtin_amdgcn_sqrtf(x); }
DEVICE float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
#if __has_builtin(__builtin_amdgcn_exp2f)
DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
DEVICE float log2(float x) { return __builtin_amdgcn_logf(x); }
#else
DEVICE float exp2(float x) { return __builtin_exp2f(x); }
DEVICE float log2(float x) { return __builtin_log2f(x); }
#endif
DEVICE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float floor(float x) { return __builtin_floorf(x); }
DEVICE float abs(float x) { return __builtin_fabsf(x); }
DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// ---- Order

// The barrier instruction orders execution only; the fences order memory.
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEVICE void warp_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
DEVICE void fence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
DEVICE void fence_device() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

// ---- Warp operations

// The lane's number in its wave, for blocks of any shape.
DEVICE int hardware_lane() {
#if CLEAVE_WARP == 64
    return int(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)));
#else
    return int(__builtin_amdgcn_mbcnt_lo(~0u, 0u));
#endif
}

template <class T>
DEVICE T shuffle(T v, int source) {
    source &= WARP - 1;
    if constexpr (sizeof(T) == 8) {
        u64 bits = __builtin_bit_cast(u64, v);
        u32 low = u32(__builtin_amdgcn_ds_bpermute(source << 2, int(bits)));
        u32 high = u32(__builtin_amdgcn_ds_bpermute(source << 2, int(bits >> 32)));
        return __builtin_bit_cast(T, u64(high) << 32 | low);
    } else {
        static_assert(sizeof(T) == 4, "a shuffle moves 4 or 8 bytes");
        return __builtin_bit_cast(
            T, __builtin_amdgcn_ds_bpermute(source << 2, __builtin_bit_cast(int, v)));
    }
}
template <class T>
DEVICE T shuffle_xor(T v, int mask) {
    return shuffle(v, hardware_lane() ^ mask);
}
template <class T>
DEVICE T shuffle_up(T v, int delta) {
    int l = hardware_lane();
    return shuffle(v, l >= delta ? l - delta : l);
}
template <class T>
DEVICE T shuffle_down(T v, int delta) {
    int l = hardware_lane();
    return shuffle(v, l + delta < WARP ? l + delta : l);
}
// Lanes run in step: the mask is a promise that needs no code.
template <class T>
DEVICE T shuffle(mask_t, T v, int source) {
    return shuffle(v, source);
}
template <class T>
DEVICE T shuffle_xor(mask_t, T v, int mask) {
    return shuffle_xor(v, mask);
}
template <class T>
DEVICE T shuffle_up(mask_t, T v, int delta) {
    return shuffle_up(v, delta);
}
template <class T>
DEVICE T shuffle_down(mask_t, T v, int delta) {
    return shuffle_down(v, delta);
}

// Compilers before LLVM 16 lack the ballot built-ins but have the compare that they become; 33 is
// "not equal".
DEVICE mask_t ballot(bool p) {
#if CLEAVE_WARP == 64 && __has_builtin(__builtin_amdgcn_ballot_w64)
    return __builtin_amdgcn_ballot_w64(p);
#elif CLEAVE_WARP == 32 && __has_builtin(__builtin_amdgcn_ballot_w32)
    return __builtin_amdgcn_ballot_w32(p);
#else
    return mask_t(__builtin_amdgcn_uicmp(u32(p), 0u, 33));
#endif
}

// ---- Atomics

template <class T>
DEVICE T atomic_add(T* p, T v) {
    return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T>
DEVICE T atomic_max(T* p, T v) {
    return __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T>
DEVICE T atomic_min(T* p, T v) {
    return __hip_atomic_fetch_min(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
DEVICE u32 atomic_exchange(u32* p, u32 v) {
    return __hip_atomic_exchange(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
DEVICE u32 atomic_cas(u32* p, u32 expected, u32 v) {
    __hip_atomic_compare_exchange_strong(p, &expected, v, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                         __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}
template <class T>
DEVICE T load_volatile(const T* p) {
    return *const_cast<const volatile T*>(p);
}
template <class T>
DEVICE void store_volatile(T* p, T v) {
    *const_cast<volatile T*>(p) = v;
}

// ---- Matrix instruction

#if defined(CLEAVE_MATRIX)

typedef float Float4 __attribute__((ext_vector_type(4)));
typedef float Float8 __attribute__((ext_vector_type(8)));
template <class T>
struct MatrixWords;
template <>
struct MatrixWords<f16> {
    typedef _Float16 Four __attribute__((ext_vector_type(4)));
    typedef _Float16 Eight __attribute__((ext_vector_type(8)));
    typedef _Float16 Sixteen __attribute__((ext_vector_type(16)));
};
template <>
struct MatrixWords<bf16> {
    typedef short Four __attribute__((ext_vector_type(4)));
    typedef short Eight __attribute__((ext_vector_type(8)));
    typedef short Sixteen __attribute__((ext_vector_type(16)));
};
template <>
struct MatrixWords<float> {
    typedef Float4 Four;
};

#if defined(CLEAVE_MFMA)
DEVICE Float4 matrix_leaf(MatrixWords<f16>::Four a, MatrixWords<f16>::Four b, Float4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
}
DEVICE Float4 matrix_leaf(MatrixWords<bf16>::Four a, MatrixWords<bf16>::Four b, Float4 c) {
#if CLEAVE_GFX == 0x908
    c = __builtin_amdgcn_mfma_f32_16x16x8bf16(a.lo, b.lo, c, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x8bf16(a.hi, b.hi, c, 0, 0, 0);
#else
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
#endif
}
DEVICE Float4 matrix_leaf(Float4 a, Float4 b, Float4 c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c = __builtin_amdgcn_mfma_f32_16x16x4f32(a[i], b[i], c, 0, 0, 0);
    return c;
}
#elif defined(CLEAVE_WMMA_GFX11)
DEVICE Float8 matrix_leaf(MatrixWords<f16>::Sixteen a, MatrixWords<f16>::Sixteen b, Float8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
}
DEVICE Float8 matrix_leaf(MatrixWords<bf16>::Sixteen a, MatrixWords<bf16>::Sixteen b, Float8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
}
#elif defined(CLEAVE_WMMA_GFX12)
DEVICE Float8 matrix_leaf(MatrixWords<f16>::Eight a, MatrixWords<f16>::Eight b, Float8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
}
DEVICE Float8 matrix_leaf(MatrixWords<bf16>::Eight a, MatrixWords<bf16>::Eight b, Float8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
}
#endif

template <class T>
DEVICE void matrix_multiply_add(float* c, const u32* a, const u32* b) {
#if defined(CLEAVE_MFMA)
    using Operand = typename MatrixWords<T>::Four;
    using Result = Float4;
#elif defined(CLEAVE_WMMA_GFX11)
    using Operand = typename MatrixWords<T>::Sixteen;
    using Result = Float8;
#else
    using Operand = typename MatrixWords<T>::Eight;
    using Result = Float8;
#endif
    Operand left, right;
    Result sum;
    __builtin_memcpy(&left, a, sizeof left);
    __builtin_memcpy(&right, b, sizeof right);
    __builtin_memcpy(&sum, c, sizeof sum);
    sum = matrix_leaf(left, right, sum);
    __builtin_memcpy(c, &sum, sizeof sum);
}

#endif

}  // namespace cleave

#endif
