// SPDX-License-Identifier: Apache-2.0
// What a checked launch found: the first fault, or nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cleave::runtime::simt {

enum class Fault : uint8_t {
    kGlobalBounds,   // outside an allocation
    kSharedBounds,   // outside a variable of shared memory
    kPrivateBounds,  // index outside a private array
    kWildAccess,     // an address of nothing
    kMisaligned,     // an address that the access's type does not allow
    kRace,           // two threads, one of them writing, with no barrier between
    kUninitialised,  // shared memory read before it was written in this block
    kAsyncCopy,      // the target of a copy that has not been waited for
    kAsyncProduct,   // a warpgroup's product: not fenced, not waited for, operands or sums touched
                     // meanwhile
    kStaleRead,  // of what another device wrote: not flushed there, or not looked at afresh here
    kDivergentBarrier,  // threads of a block at different barriers, or gone
    kDivergentWarp,     // lanes of a warp at different operations, or gone
    kInactiveLane,      // a lane that does not take part is named or read
    kDeadlock,          // no thread can go on
    kCacheBlock,        // the block table names a block that the KV pool does not have
    kUnwrittenRow,      // a row of the KV cache read before anybody wrote it
    kEarlyAccess,       // of a launch that overlaps: something else than weights before the wait
    kNoWait,            // of such a launch: a thread ends that did not wait for the launches before
};

std::string_view fault_name(Fault fault);

struct Finding {
    Fault fault = Fault::kDeadlock;
    std::string kernel;
    std::string file;  // of the source line
    int line = 0;      // 0: no place in the source
    std::array<int, 3> block{}, thread{};
    std::string detail;

    // "attention.cuh:41: race in kernel attention, block (0, 1, 0), thread (33, 0, 0): ..."
    std::string text() const;
};

struct SimtReport {
    std::optional<Finding> finding;
    bool clean() const { return !finding; }
};

}  // namespace cleave::runtime::simt
