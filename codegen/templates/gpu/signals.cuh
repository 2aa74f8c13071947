// SPDX-License-Identifier: Apache-2.0
// Words by which devices signal to each other while their kernels run: memory order of the whole
// system, time, patience.
//   load_acquire(p), store_release(p, v)   what a device wrote before its store_release of a word,
//   others read after their
//                                          load_acquire of it
//   flush_to_peers()                       by all threads, before the barrier after which one of
//   them signals for the block see_peers()                            by all threads, after the
//   barrier that follows one thread's load_acquire nanoseconds()                          of a
//   clock; of the CPU, what the thread has paused pause_while(p, seen)                   returns
//   soon, on the CPU also when *p is no longer `seen`
// PTX ISA 8.5, 8 "Memory consistency model", 9.7.8.8 ld, 9.7.19.2 nanosleep, 10 %globaltimer; LLVM,
// "User Guide for AMDGPU Backend", memory model. The constant clock of AMD GPUs is taken to run at
// 100 MHz: limits come in its own time (runtime/device/device.h, kernel_nanoseconds), as that of
// gfx906 runs at 25.
#pragma once

#include "prelude.cuh"

#if defined(CLEAVE_SIMT)
extern "C" {
CLEAVE_SIMT_CALL unsigned cleave_simt_load_acquire(const unsigned* p, const char* file, int line);
CLEAVE_SIMT_CALL void cleave_simt_store_release(unsigned* p, unsigned v, const char* file,
                                                int line);
CLEAVE_SIMT_CALL void cleave_simt_flush_to_peers();
CLEAVE_SIMT_CALL void cleave_simt_see_peers();
CLEAVE_SIMT_CALL void cleave_simt_pause(const unsigned* p, unsigned seen);
CLEAVE_SIMT_CALL unsigned long long cleave_simt_nanoseconds();
}
#endif

namespace cleave {

#if defined(CLEAVE_SIMT)

// A pause may be long: each turn looks whether to go on.
constexpr int kTurnsBetweenLooks = 1;
DEVICE u32 load_acquire(const u32* p CLEAVE_HERE) {
    return cleave_simt_load_acquire(p, file, line);
}
DEVICE void store_release(u32* p, u32 v CLEAVE_HERE) {
    cleave_simt_store_release(p, v, file, line);
}
// Of NVIDIA's, order is transitive.
#if defined(CLEAVE_GFX)
DEVICE void flush_to_peers() { cleave_simt_flush_to_peers(); }
DEVICE void see_peers() { cleave_simt_see_peers(); }
#else
DEVICE void flush_to_peers() {}
DEVICE void see_peers() {}
#endif
DEVICE u64 nanoseconds() { return cleave_simt_nanoseconds(); }
DEVICE void pause_while(const u32* p, u32 seen) { cleave_simt_pause(p, seen); }

#elif defined(CLEAVE_CUDA)

constexpr int kTurnsBetweenLooks = 64;
DEVICE u32 load_acquire(const u32* p) {
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE void store_release(u32* p, u32 v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Order is transitive: one thread's release and acquire hold for what barriers order before and
// after them.
DEVICE void flush_to_peers() {}
DEVICE void see_peers() {}
DEVICE u64 nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
DEVICE void pause_while(const u32*, u32) { asm volatile("nanosleep.u32 20;"); }

#else

constexpr int kTurnsBetweenLooks = 64;
DEVICE u32 load_acquire(const u32* p) {
    return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
DEVICE void store_release(u32* p, u32 v) {
    __hip_atomic_store(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
// Each wave writes back and invalidates for itself: caches of a compute unit are not one for all
// waves everywhere.
DEVICE void flush_to_peers() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, ""); }
DEVICE void see_peers() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, ""); }
DEVICE u64 nanoseconds() {
#if __has_builtin(__builtin_readsteadycounter)
    return __builtin_readsteadycounter() * 10;
#elif CLEAVE_GFX >= 0x1100
    u64 ticks;
    asm volatile("s_sendmsg_rtn_b64 %0, sendmsg(MSG_RTN_GET_REALTIME)\n\ts_waitcnt lgkmcnt(0)"
                 : "=s"(ticks));
    return ticks * 10;
#else
    return __builtin_amdgcn_s_memrealtime() * 10;
#endif
}
DEVICE void pause_while(const u32*, u32) { __builtin_amdgcn_s_sleep(1); }

#endif

}  // namespace cleave
