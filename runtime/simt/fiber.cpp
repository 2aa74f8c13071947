// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/fiber.h"

#include <new>

#include <sys/mman.h>

#if defined(__x86_64__)
// System V ABI, section 3.2.1: rbx, rbp and r12-r15 belong to the caller. A new fiber's stack holds six words for
// them and the address of its main function.
asm(R"(
    .text
    .globl cleave_fiber_switch
    .hidden cleave_fiber_switch
    .type cleave_fiber_switch, @function
    .p2align 4
cleave_fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cleave_fiber_switch, .-cleave_fiber_switch
)");
#else
#error "simt devices need a fiber switch for this processor (runtime/simt/fiber.cpp)"
#endif

namespace cleave::runtime::simt {

namespace {

// Stacks a power of two apart would put every fiber's frames in the same sets of the first-level cache.
constexpr size_t kStagger = 64, kStaggers = 61, kRoom = kStagger * kStaggers + 256;

}  // namespace

FiberStacks::~FiberStacks() {
    if (memory_) ::munmap(memory_, mapped_);
}

void FiberStacks::reserve(uint32_t count, size_t bytes) {
    size_t stride = (bytes + kRoom + 4095) / 4096 * 4096;
    if (stride <= stride_ && count * stride_ <= mapped_) return;
    if (memory_) ::munmap(memory_, mapped_);
    mapped_ = stride * count;
    stride_ = stride;
    void* memory = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory_ = memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
    if (!memory_) {
        mapped_ = stride_ = 0;
        throw std::bad_alloc();
    }
}

void* FiberStacks::start(uint32_t index, FiberMain main) const {
    char* top = memory_ + (index + 1) * stride_ - (index * 7 % kStaggers) * kStagger - 64;
    auto* words = reinterpret_cast<uint64_t*>(reinterpret_cast<uint64_t>(top) & ~uint64_t{63});
    *--words = 0;  // where a return address would stand: keeps the ABI's alignment at entry
    *--words = reinterpret_cast<uint64_t>(main);
    for (int i = 0; i < 6; ++i) *--words = 0;
    return words;
}

}  // namespace cleave::runtime::simt
