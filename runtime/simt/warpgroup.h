// SPDX-License-Identifier: Apache-2.0
// Asynchronous products of four warps (wgmma): what has been issued and not yet waited for. A
// checked kernel's sums arrive when a thread waits for the last of them, NaN until then; operands
// must stay as they are until all threads have waited for their product.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/simt/block.h"
#include "runtime/simt/matrix.h"

namespace cleave::runtime::simt {

inline constexpr uint32_t kWarpgroupThreads = 128;

// A by its descriptor, or in registers, and then B is transposed.
struct WarpgroupOperands {
    uint64_t a = 0, b = 0;
    bool in_registers = false;
    std::array<const uint32_t*, kWarpgroupThreads> registers{};
};

// Products into one sum of a warpgroup, since it was last waited for.
struct PendingSum {
    struct Operands {
        WarpgroupOperands from;
        uint64_t interval;  // between barriers, in which they were issued
        uint64_t group;     // of its product
        Here here;
        WarpgroupFragments fragments;  // as A's registers were
        uint32_t num_waited = 0;       // threads that have waited for it
    };
    int n = 0;
    uint64_t group = 0;  // of the last one
    std::array<float*, kWarpgroupThreads> registers{};
    std::array<bool, kWarpgroupThreads> arrived{};
    std::array<uint64_t, kWarpgroupThreads> waited{};  // groups before that one, by thread
    uint32_t num_arrived = 0;
    std::vector<Operands> operands;
    std::vector<float> sum;  // [64, n]
};

struct Warpgroup {
    uint32_t arrived = 0;
    Here here;
    std::array<float*, kWarpgroupThreads> registers{};
    WarpgroupOperands operands;
    int n = 0;
    std::vector<PendingSum> pending;

    void begin_block() {
        arrived = 0;
        pending.clear();
    }
};

// Reports a product that a thread leaves the kernel without having waited for.
void check_products_at_exit(Block& block, const Thread& self);

}  // namespace cleave::runtime::simt
