// SPDX-License-Identifier: Apache-2.0
// Threads of a GPU block as fibers: stacks of one size in one mapping, and the switch between them, which saves what
// the ABI says a call preserves. A fiber stays on the OS thread that runs its block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cleave::runtime::simt {

using FiberMain = void (*)();

// Saves the running fiber's place in *save and goes on at `target`.
extern "C" void cleave_fiber_switch(void** save, void* target);

class FiberStacks {
public:
    FiberStacks() = default;
    ~FiberStacks();
    FiberStacks(const FiberStacks&) = delete;
    FiberStacks& operator=(const FiberStacks&) = delete;

    // At least `count` stacks of `bytes` each. Existing fibers are lost when the mapping must grow.
    void reserve(uint32_t count, size_t bytes);

    // The place from which fiber `index` starts in `main` at the first switch to it.
    void* start(uint32_t index, FiberMain main) const;

    bool contains(uint64_t address) const {
        return address - reinterpret_cast<uint64_t>(memory_) < mapped_;
    }

private:
    char* memory_ = nullptr;
    size_t mapped_ = 0, stride_ = 0;
};

}  // namespace cleave::runtime::simt
