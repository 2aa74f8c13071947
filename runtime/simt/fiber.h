// SPDX-License-Identifier: Apache-2.0
// Threads of a GPU block as fibers: stacks of one size in one mapping, and the switch between them.
// A fiber stays on the OS thread that runs its block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cleave::runtime::simt {

using FiberMain = void (*)();

// Where a fiber that does not run goes on.
struct FiberPlace {
    void* stack = nullptr;
    FiberMain resume = nullptr;
    void* frame = nullptr;
};

#if defined(__x86_64__)
#if defined(__AVX512F__)
#define CLEAVE_FIBER_VECTORS                                                                      \
    "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",     \
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", \
        "k7",
#else
#define CLEAVE_FIBER_VECTORS
#endif

// Saves the running fiber's place in `from` and goes on at `to`. No register keeps its value, and
// the compiler knows it: it saves those that it needs, once, where a function of the ABI would save
// all that a call preserves (System V ABI, section 3.2.1) a second time.
[[gnu::always_inline]] inline void switch_fiber(FiberPlace* from, const FiberPlace* to) {
    static_assert(offsetof(FiberPlace, resume) == 8 && offsetof(FiberPlace, frame) == 16);
    asm volatile(
        "leaq 1f(%%rip), %%rax\n\t"
        "movq %%rsp, (%0)\n\t"
        "movq %%rax, 8(%0)\n\t"
        "movq %%rbp, 16(%0)\n\t"
        "movq (%1), %%rsp\n\t"
        "movq 16(%1), %%rbp\n\t"
        "jmpq *8(%1)\n"
        "1:"
        : "+D"(from), "+S"(to)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
          "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
          "xmm12", "xmm13", "xmm14", "xmm15", CLEAVE_FIBER_VECTORS "cc", "memory");
}
#undef CLEAVE_FIBER_VECTORS
#else
#error "simt devices need a fiber switch for this processor (runtime/simt/fiber.h)"
#endif

class FiberStacks {
public:
    FiberStacks() = default;
    ~FiberStacks();
    FiberStacks(const FiberStacks&) = delete;
    FiberStacks& operator=(const FiberStacks&) = delete;

    // At least `count` stacks of `bytes` each. Existing fibers are lost when the mapping must grow.
    void reserve(uint32_t count, size_t bytes);

    // The place from which fiber `index` starts in `main` at the first switch to it.
    FiberPlace start(uint32_t index, FiberMain main) const;

    bool contains(uint64_t address) const {
        return address - reinterpret_cast<uint64_t>(memory_) < mapped_;
    }

private:
    char* memory_ = nullptr;
    size_t mapped_ = 0, stride_ = 0;
};

}  // namespace cleave::runtime::simt
