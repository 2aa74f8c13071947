// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/fiber.h"

#include <new>

#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace cleave::runtime::simt {

namespace {

// Stacks a power of two apart would put every fiber's frames in the same sets of the first-level
// cache.
constexpr size_t kStagger = 64, kStaggers = 61, kRoom = kStagger * kStaggers + 256;

// A fiber never returns from its frames, so AddressSanitizer's marks of them would stay: for the
// next fiber on the stack, or for what is mapped there next.
void forget_frames([[maybe_unused]] char* stack, [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(stack, bytes);
#endif
}

void unmap(char* stacks, size_t bytes) {
    if (!stacks) return;
    forget_frames(stacks, bytes);
    ::munmap(stacks, bytes);
}

}  // namespace

FiberStacks::~FiberStacks() { unmap(memory_, mapped_); }

void FiberStacks::reserve(uint32_t count, size_t bytes) {
    size_t stride = (bytes + kRoom + 4095) / 4096 * 4096;
    if (stride <= stride_ && count * stride_ <= mapped_) return;
    unmap(memory_, mapped_);
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

FiberPlace FiberStacks::start(uint32_t index, FiberMain main) const {
    forget_frames(memory_ + index * stride_, stride_);
    char* top = memory_ + (index + 1) * stride_ - (index * 7 % kStaggers) * kStagger - 64;
    auto* words = reinterpret_cast<uint64_t*>(reinterpret_cast<uint64_t>(top) & ~uint64_t{63});
    *--words = 0;  // in place of a return address: keeps the ABI's alignment at entry
    return {words, main, nullptr};
}

}  // namespace cleave::runtime::simt
