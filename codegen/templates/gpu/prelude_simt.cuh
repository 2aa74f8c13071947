// SPDX-License-Identifier: Apache-2.0
// The CPU's back end of the prelude: every operation that involves another thread is a call into
// runtime/simt, which also checks it. The names `cleave_simt_*` are the ABI of
// runtime/simt/entry_points.h.
#pragma once

#include "words.cuh"

#if defined(CLEAVE_SIMT)

#define KERNEL(threads) extern "C" void
#define KERNEL_ALONE(threads) KERNEL(threads)
#define CLEAVE_SIMT_SHARED __attribute__((section("cleave_shared")))
#define SHARED(type, ...) static CLEAVE_SIMT_SHARED type __VA_ARGS__
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(cleave_simt_dynamic_shared)

// A call may meet other threads: it is neither merged with another one nor moved.
#define CLEAVE_SIMT_CALL __attribute__((convergent))
#define CLEAVE_SIMT_PURE __attribute__((const))
extern "C" {
extern CLEAVE_SIMT_SHARED __attribute__((aligned(16))) char cleave_simt_dynamic_shared[];
CLEAVE_SIMT_PURE int cleave_simt_thread(int axis);
CLEAVE_SIMT_PURE int cleave_simt_block(int axis);
CLEAVE_SIMT_PURE int cleave_simt_threads(int axis);
CLEAVE_SIMT_PURE int cleave_simt_blocks(int axis);
CLEAVE_SIMT_CALL void cleave_simt_barrier(const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_warp_sync(const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_fence();
// `how`: 0 a lane, 1 xor, 2 up, 3 down. `operation`: 0 sum, 1 maximum.
CLEAVE_SIMT_CALL unsigned long long cleave_simt_shuffle(unsigned long long lanes,
                                                        unsigned long long bits, int how,
                                                        int operand, const char* file, int line);
CLEAVE_SIMT_CALL unsigned cleave_simt_shuffle_all(unsigned bits, int how, int operand,
                                                  const char* file, int line);
CLEAVE_SIMT_CALL unsigned long long cleave_simt_ballot(int predicate, const char* file, int line);
CLEAVE_SIMT_CALL float cleave_simt_reduce(float v, int width, int operation, const char* file,
                                          int line);
// `operation`: 0 add, 1 maximum, 2 minimum, 3 exchange.
CLEAVE_SIMT_CALL unsigned cleave_simt_atomic_u32(unsigned* p, unsigned v, int operation,
                                                 const char* file, int line);
CLEAVE_SIMT_CALL int cleave_simt_atomic_i32(int* p, int v, int operation, const char* file,
                                            int line);
CLEAVE_SIMT_CALL unsigned long long cleave_simt_atomic_u64(unsigned long long* p,
                                                           unsigned long long v, const char* file,
                                                           int line);
CLEAVE_SIMT_CALL float cleave_simt_atomic_f32(float* p, float v, const char* file, int line);
CLEAVE_SIMT_CALL unsigned cleave_simt_atomic_cas(unsigned* p, unsigned expected, unsigned v,
                                                 const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_async_copy(void* shared, const void* global, int bytes, int valid,
                                             const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_async_commit();
CLEAVE_SIMT_CALL void cleave_simt_async_wait(int pending, const char* file, int line);
// `kind`: 0 f16, 1 bf16, 2 f32, of the device's own instruction, as many times as Tile needs it.
CLEAVE_SIMT_CALL void cleave_simt_matrix(int kind, float* c, const unsigned* a, const unsigned* b,
                                         const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_await_previous(const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_kv_block(int id, long long num_blocks, const char* file,
                                           int line);
CLEAVE_SIMT_CALL void cleave_simt_kv_wrote(const void* p, long long bytes);
CLEAVE_SIMT_CALL void cleave_simt_kv_reads(const void* p, long long bytes, const char* file,
                                           int line);
#if defined(CLEAVE_WGMMA)
CLEAVE_SIMT_CALL unsigned cleave_simt_shared_address(const void* p, const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_async_fence();
// 64 x n x 16; `kind` as above.
CLEAVE_SIMT_CALL void cleave_simt_wgmma(int kind, int n, float* sum, unsigned long long a,
                                        unsigned long long b, const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_wgmma_registers(int kind, int n, float* sum, const unsigned* a,
                                                  unsigned long long b, const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_wgmma_fence();
CLEAVE_SIMT_CALL void cleave_simt_wgmma_commit();
CLEAVE_SIMT_CALL void cleave_simt_wgmma_wait(int pending, const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_wgmma_read(const float* sum, const char* file, int line);
#endif
}

namespace cleave {

// ---- Places

DEVICE int thread_x() { return cleave_simt_thread(0); }
DEVICE int thread_y() { return cleave_simt_thread(1); }
DEVICE int thread_z() { return cleave_simt_thread(2); }
DEVICE int block_x() { return cleave_simt_block(0); }
DEVICE int block_y() { return cleave_simt_block(1); }
DEVICE int block_z() { return cleave_simt_block(2); }
DEVICE int threads_x() { return cleave_simt_threads(0); }
DEVICE int threads_y() { return cleave_simt_threads(1); }
DEVICE int threads_z() { return cleave_simt_threads(2); }
DEVICE int blocks_x() { return cleave_simt_blocks(0); }
DEVICE int blocks_y() { return cleave_simt_blocks(1); }
DEVICE int blocks_z() { return cleave_simt_blocks(2); }

// ---- Bits and numbers

DEVICE u32 as_u32(float v) { return __builtin_bit_cast(u32, v); }
DEVICE float as_float(u32 v) { return __builtin_bit_cast(float, v); }
DEVICE float f16_to_float(u16 bits) {
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
DEVICE u16 float_to_f16(float v) { return __builtin_bit_cast(u16, static_cast<_Float16>(v)); }
DEVICE u16 fma_f16(u32 a, u32 b, u32 c) {
    return float_to_f16(
        __builtin_fmaf(f16_to_float(u16(a)), f16_to_float(u16(b)), f16_to_float(u16(c))));
}
DEVICE u32 fma_f16_pair(u32 a, u32 b, u32 c) {
    return fma_f16(a, b, c) | u32(fma_f16(a >> 16, b >> 16, c >> 16)) << 16;
}
DEVICE float sqrt(float x) { return __builtin_sqrtf(x); }
DEVICE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
DEVICE float reciprocal(float x) { return 1.0f / x; }
DEVICE float exp2(float x) { return __builtin_exp2f(x); }
DEVICE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float log2(float x) { return __builtin_log2f(x); }
DEVICE float floor(float x) { return __builtin_floorf(x); }
DEVICE float abs(float x) { return __builtin_fabsf(x); }
DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// ---- Order

DEVICE void barrier(CLEAVE_HERE_ONLY) { cleave_simt_barrier(file, line); }
DEVICE void warp_sync(CLEAVE_HERE_ONLY) { cleave_simt_warp_sync(file, line); }
DEVICE void fence_block() { cleave_simt_fence(); }
DEVICE void fence_device() { cleave_simt_fence(); }

// ---- Warp operations

template <class T>
DEVICE T shuffle_bits(T v, int how, int operand, const char* file, int line) {
    if constexpr (sizeof(T) == 8) {
        return __builtin_bit_cast(T, cleave_simt_shuffle(kAllLanes, __builtin_bit_cast(u64, v), how,
                                                         operand, file, line));
    } else {
        return __builtin_bit_cast(
            T, cleave_simt_shuffle_all(__builtin_bit_cast(u32, v), how, operand, file, line));
    }
}
template <class T>
DEVICE T shuffle_bits(mask_t lanes, T v, int how, int operand, const char* file, int line) {
    if constexpr (sizeof(T) == 8) {
        return __builtin_bit_cast(
            T, cleave_simt_shuffle(lanes, __builtin_bit_cast(u64, v), how, operand, file, line));
    } else {
        u64 bits = __builtin_bit_cast(u32, v);
        return __builtin_bit_cast(T,
                                  u32(cleave_simt_shuffle(lanes, bits, how, operand, file, line)));
    }
}
#define CLEAVE_SIMT_SHUFFLE(name, how)                           \
    template <class T>                                           \
    DEVICE T name(T v, int operand CLEAVE_HERE) {                \
        return shuffle_bits(v, how, operand, file, line);        \
    }                                                            \
    template <class T>                                           \
    DEVICE T name(mask_t lanes, T v, int operand CLEAVE_HERE) {  \
        return shuffle_bits(lanes, v, how, operand, file, line); \
    }
CLEAVE_SIMT_SHUFFLE(shuffle, 0)
CLEAVE_SIMT_SHUFFLE(shuffle_xor, 1)
CLEAVE_SIMT_SHUFFLE(shuffle_up, 2)
CLEAVE_SIMT_SHUFFLE(shuffle_down, 3)

DEVICE mask_t ballot(bool p CLEAVE_HERE) {
    return static_cast<mask_t>(cleave_simt_ballot(p, file, line));
}
DEVICE bool warp_any(bool p CLEAVE_HERE) { return cleave_simt_ballot(p, file, line) != 0; }
DEVICE bool warp_all(bool p CLEAVE_HERE) { return cleave_simt_ballot(!p, file, line) == 0; }
template <int WIDTH>
DEVICE float group_sum(float v CLEAVE_HERE) {
    return cleave_simt_reduce(v, WIDTH, 0, file, line);
}
template <int WIDTH>
DEVICE float group_max(float v CLEAVE_HERE) {
    return cleave_simt_reduce(v, WIDTH, 1, file, line);
}

// ---- Atomics

DEVICE u32 atomic_add(u32* p, u32 v CLEAVE_HERE) {
    return cleave_simt_atomic_u32(p, v, 0, file, line);
}
DEVICE i32 atomic_add(i32* p, i32 v CLEAVE_HERE) {
    return cleave_simt_atomic_i32(p, v, 0, file, line);
}
DEVICE u64 atomic_add(u64* p, u64 v CLEAVE_HERE) {
    return cleave_simt_atomic_u64(p, v, file, line);
}
DEVICE float atomic_add(float* p, float v CLEAVE_HERE) {
    return cleave_simt_atomic_f32(p, v, file, line);
}
DEVICE u32 atomic_max(u32* p, u32 v CLEAVE_HERE) {
    return cleave_simt_atomic_u32(p, v, 1, file, line);
}
DEVICE i32 atomic_max(i32* p, i32 v CLEAVE_HERE) {
    return cleave_simt_atomic_i32(p, v, 1, file, line);
}
DEVICE u32 atomic_min(u32* p, u32 v CLEAVE_HERE) {
    return cleave_simt_atomic_u32(p, v, 2, file, line);
}
DEVICE i32 atomic_min(i32* p, i32 v CLEAVE_HERE) {
    return cleave_simt_atomic_i32(p, v, 2, file, line);
}
DEVICE u32 atomic_exchange(u32* p, u32 v CLEAVE_HERE) {
    return cleave_simt_atomic_u32(p, v, 3, file, line);
}
DEVICE u32 atomic_cas(u32* p, u32 expected, u32 v CLEAVE_HERE) {
    return cleave_simt_atomic_cas(p, expected, v, file, line);
}
template <class T>
DEVICE T load_volatile(const T* p) {
    return *const_cast<const volatile T*>(p);
}
template <class T>
DEVICE void store_volatile(T* p, T v) {
    *const_cast<volatile T*>(p) = v;
}

// ---- Asynchronous copies

#if defined(CLEAVE_ASYNC_COPIES)
template <int BYTES>
DEVICE void async_copy(void* shared, const void* global, bool valid = true CLEAVE_HERE) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16,
                  "an asynchronous copy moves 4, 8 or 16 bytes");
    cleave_simt_async_copy(shared, global, BYTES, valid, file, line);
}
DEVICE void async_commit() { cleave_simt_async_commit(); }
template <int PENDING>
DEVICE void async_wait(CLEAVE_HERE_ONLY) {
    cleave_simt_async_wait(PENDING, file, line);
}
#endif

// ---- Launches

#if defined(CLEAVE_OVERLAP)
DEVICE void await_previous_launch(CLEAVE_HERE_ONLY) { cleave_simt_await_previous(file, line); }
#endif

// ---- KV cache

#if defined(CLEAVE_SIMT_CHECKS)
DEVICE i32 kv_block_id(i32 id, i64 num_blocks CLEAVE_HERE) {
    cleave_simt_kv_block(id, num_blocks, file, line);
    return id;
}
template <class T>
DEVICE void kv_wrote(const T* p, int n) {
    cleave_simt_kv_wrote(p, i64(n) * sizeof(T));
}
template <class T>
DEVICE void kv_reads(const T* p, int n CLEAVE_HERE) {
    cleave_simt_kv_reads(p, i64(n) * sizeof(T), file, line);
}
#endif

// ---- Matrix instruction

template <class T>
struct MatrixKind;
template <>
struct MatrixKind<f16> {
    static constexpr int kKind = 0;
};
template <>
struct MatrixKind<bf16> {
    static constexpr int kKind = 1;
};
template <>
struct MatrixKind<float> {
    static constexpr int kKind = 2;
};
template <class T>
DEVICE void matrix_multiply_add(float* c, const u32* a, const u32* b CLEAVE_HERE) {
    cleave_simt_matrix(MatrixKind<T>::kKind, c, a, b, file, line);
}

// ---- Products of a warpgroup

#if defined(CLEAVE_WGMMA)
DEVICE u32 shared_address(const void* p CLEAVE_HERE) {
    return cleave_simt_shared_address(p, file, line);
}
DEVICE void async_fence() { cleave_simt_async_fence(); }
DEVICE void wgmma_fence() { cleave_simt_wgmma_fence(); }
DEVICE void wgmma_commit() { cleave_simt_wgmma_commit(); }
template <int PENDING>
DEVICE void wgmma_wait(CLEAVE_HERE_ONLY) {
    cleave_simt_wgmma_wait(PENDING, file, line);
}
DEVICE void wgmma_hold(float&) {}
DEVICE void wgmma_hold(u32&) {}
DEVICE void wgmma_read(const float* sum, const char* file, int line) {
    cleave_simt_wgmma_read(sum, file, line);
}
template <class T, int N>
DEVICE void wgmma_issue(float* sum, u64 a, u64 b, const char* file, int line) {
    cleave_simt_wgmma(MatrixKind<T>::kKind, N, sum, a, b, file, line);
}
template <class T, int N>
DEVICE void wgmma_issue(float* sum, const u32* a, u64 b, const char* file, int line) {
    cleave_simt_wgmma_registers(MatrixKind<T>::kKind, N, sum, a, b, file, line);
}
#endif

}  // namespace cleave

#endif
