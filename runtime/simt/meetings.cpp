// SPDX-License-Identifier: Apache-2.0
// Entry points at which threads meet: barrier, warp_sync, shuffles, ballots, reductions, matrix
// instructions. The last to arrive computes for its warp and releases it. Values are in two rows
// that take turns, so that a lane may arrive at the next meeting before the slowest has read the
// last one.
#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/simt/block.h"
#include "runtime/simt/entry_points.h"
#include "runtime/simt/matrix.h"

namespace cleave::runtime::simt {

namespace {

// Lanes of a full warp in an order of `bits`: an odd step visits every lane of a power of two once.
// Eight at a time.
template <uint32_t LANES>
void order_lanes(uint16_t* places, uint32_t first, uint64_t bits) {
    using Eight [[gnu::vector_size(16)]] = uint16_t;
    constexpr uint16_t kMask = LANES - 1;
    const auto start = static_cast<uint16_t>(bits & kMask);
    const auto step = static_cast<uint16_t>((bits >> 8 & kMask) | 1);
    Eight turn = {LANES - 1, LANES - 2, LANES - 3, LANES - 4,
                  LANES - 5, LANES - 6, LANES - 7, LANES - 8};
    for (uint32_t i = 0; i < LANES; i += 8, turn -= 8) {
        const Eight lane = ((start + turn * step) & kMask) + static_cast<uint16_t>(first);
        std::memcpy(places + i, &lane, sizeof lane);
    }
}

void release_warp(Block& block, Warp& warp) {
    warp.arrived = 0;
    const uint32_t lanes = warp.lanes;
    uint16_t* places = block.make_ready_first_run(lanes);
    uint16_t apart[kMaxWidth];
    uint16_t* order = places ? places : apart;
    if (!block.shuffle_order) {
        for (uint32_t i = 0; i < lanes; ++i) order[i] = static_cast<uint16_t>(warp.first + i);
    } else {
        const uint64_t bits = block.random.next();
        if (lanes == 32 && block.width == 32) {
            order_lanes<32>(order, warp.first, bits);
        } else if (lanes == 64) {
            order_lanes<64>(order, warp.first, bits);
        } else {
            for (uint32_t i = 0; i < lanes; ++i)
                order[i] = static_cast<uint16_t>(warp.first + (bits + lanes - 1 - i) % lanes);
        }
    }
    if (places) return;
    for (uint32_t i = lanes; i-- > 0;) block.make_ready_first(apart[i]);
}

// Counts the current lane in; true for the last of its warp.
inline bool arrive(Block& block, Thread& self, Meeting meeting, Here here) {
    Warp& warp = *self.warp;
    self.meeting = meeting;
    // Member by member: a copy of 12 bytes goes through memory.
    self.here.file = here.file;
    self.here.line = here.line;
    if (warp.exited > 0) [[unlikely]]
        block.fail(Fault::kDivergentWarp, here, "%u lanes of this warp have left the kernel",
                   warp.exited);
    if (warp.arrived++ == 0) {
        warp.meeting = meeting;
        warp.here.file = here.file;
        warp.here.line = here.line;
    } else if (warp.meeting != meeting || !(warp.here == here)) [[unlikely]] {
        block.fail(Fault::kDivergentWarp, here, "other lanes of this warp are at line %d",
                   warp.here.line);
    }
    return warp.arrived == warp.lanes;
}

// The butterfly of the GPU back ends, all steps at once and four lanes at a time: lane i takes in
// the value of lane i ^ step.
void reduce_row(uint64_t* row, uint32_t lanes, uint32_t width, int operation) {
    using Four [[gnu::vector_size(16)]] = float;
    Four now[kMaxWidth / 4], other[kMaxWidth / 4];
    const uint32_t fours = lanes / 4;
    for (uint32_t i = 0; i < lanes; ++i)
        now[i / 4][i % 4] = std::bit_cast<float>(static_cast<uint32_t>(row[i]));
    for (uint32_t step = width / 2; step > 0; step /= 2) {
        for (uint32_t i = 0; i < fours; ++i)
            other[i] = step >= 4   ? now[i ^ step / 4]
                       : step == 2 ? __builtin_shufflevector(now[i], now[i], 2, 3, 0, 1)
                                   : __builtin_shufflevector(now[i], now[i], 1, 0, 3, 2);
        for (uint32_t i = 0; i < fours; ++i)
            now[i] = operation == 0 ? now[i] + other[i] : (now[i] > other[i] ? now[i] : other[i]);
    }
    for (uint32_t i = 0; i < lanes; ++i) row[i] = std::bit_cast<uint32_t>(now[i / 4][i % 4]);
}

uint32_t source_lane(uint32_t lane, int how, int operand, uint32_t width) {
    auto wanted = static_cast<uint32_t>(operand);
    switch (how) {
        case 0: return wanted & (width - 1);
        case 1: return (lane ^ wanted) & (width - 1);
        case 2: return lane >= wanted ? lane - wanted : lane;
        default: return lane + wanted < width ? lane + wanted : lane;
    }
}

// The value of `source`, which must be among `lanes`.
uint64_t value_of(Block& block, const Thread& self, const uint64_t* row, uint32_t source,
                  uint64_t lanes, Here here) {
    if (!(lanes >> source & 1)) [[unlikely]]
        block.fail(Fault::kInactiveLane, here, "lane %u reads lane %u, which does not take part",
                   self.lane, source);
    return row[source];
}

uint64_t all_lanes(uint32_t count) {
    return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// A meeting of some lanes of the warp. Groups without a common lane may be under way at once.
void meet_partially(Block& block, Thread& self, uint64_t lanes, Here here) {
    Warp& warp = *self.warp;
    self.meeting = Meeting::kShuffle;
    self.here = here;
    uint64_t own = uint64_t{1} << self.lane;
    if (!(lanes & own))
        block.fail(Fault::kInactiveLane, here, "lane %u calls with a mask that leaves it out",
                   self.lane);
    if (lanes & ~all_lanes(warp.lanes))
        block.fail(Fault::kInactiveLane, here,
                   "the mask names a lane that the block does not have");
    for (uint64_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        if (block.threads[warp.first + lane].exited)
            block.fail(Fault::kInactiveLane, here,
                       "the mask names lane %u, which has left the kernel", lane);
    }
    auto found = std::find_if(
        warp.partial.begin(), warp.partial.end(),
        [&](const PartialMeeting& p) { return p.lanes == lanes && !(p.arrived & own); });
    if (found == warp.partial.end()) found = warp.partial.insert(found, {lanes, 0, here});
    if (!(found->here == here))
        block.fail(Fault::kDivergentWarp, here, "other lanes of this mask are at line %d",
                   found->here.line);
    found->arrived |= own;
    if (found->arrived != lanes) {
        block.yield(&self);
        return;
    }
    warp.partial.erase(found);
    for (uint64_t rest = lanes; rest; rest &= rest - 1)
        block.make_ready_first(warp.first + static_cast<uint32_t>(std::countr_zero(rest)));
    block.yield(&self);
}

}  // namespace

extern "C" {

void cleave_simt_barrier(const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    Here here{file, line};
    self.meeting = Meeting::kBarrier;
    self.here = here;
    if (block.barrier_arrived++ == 0) {
        block.barrier_here = here;
        if (block.exited > 0) [[unlikely]]
            block.fail(Fault::kDivergentBarrier, here,
                       "%u threads of the block have left the kernel", block.exited);
    } else if (!(block.barrier_here == here)) [[unlikely]] {
        block.fail(Fault::kDivergentBarrier, here, "other threads are at the barrier of line %d",
                   block.barrier_here.line);
    }
    if (block.barrier_arrived == block.num_threads) {
        block.settle_doubt();
        block.barrier_arrived = 0;
        block.shadow.next_interval();
        block.order.barrier();
        block.make_all_ready();
    }
    block.yield(&self);
}

void cleave_simt_warp_sync(const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    if (arrive(block, self, Meeting::kWarpSync, {file, line})) {
        ++self.warp->epoch;
        block.order.warp_sync(self.warp->first, self.warp->lanes);
        release_warp(block, *self.warp);
    }
    block.yield(&self);
}

unsigned cleave_simt_shuffle_all(unsigned bits, int how, int operand, const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    Warp& warp = *self.warp;
    uint64_t* row = warp.values[self.turn++ & 1];
    row[self.lane] = bits;
    const uint32_t source = source_lane(self.lane, how, operand, block.width);
    if (arrive(block, self, Meeting::kShuffle, {file, line})) release_warp(block, warp);
    if (source >= warp.lanes) [[unlikely]]
        block.fail(Fault::kInactiveLane, {file, line},
                   "lane %u reads lane %u, which the block does not have", self.lane, source);
    // One address is all that the thread keeps while it waits.
    const uint64_t* given = row + source;
    block.yield(&self);
    return static_cast<unsigned>(*given);
}

unsigned long long cleave_simt_shuffle(unsigned long long lanes, unsigned long long bits, int how,
                                       int operand, const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    Warp& warp = *self.warp;
    Here here{file, line};
    uint64_t* row = warp.values[self.turn++ & 1];
    row[self.lane] = bits;
    lanes &= all_lanes(block.width);
    if (lanes == all_lanes(block.width)) {
        if (arrive(block, self, Meeting::kShuffle, here)) release_warp(block, warp);
        block.yield(&self);
        lanes = all_lanes(warp.lanes);
    } else {
        meet_partially(block, self, lanes, here);
    }
    return value_of(block, self, row, source_lane(self.lane, how, operand, block.width), lanes,
                    here);
}

unsigned long long cleave_simt_ballot(int predicate, const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    Warp& warp = *self.warp;
    uint64_t* row = warp.values[self.turn++ & 1];
    row[self.lane] = predicate != 0;
    if (arrive(block, self, Meeting::kBallot, {file, line})) {
        uint64_t mask = 0;
        for (uint32_t i = 0; i < warp.lanes; ++i) mask |= row[i] << i;
        for (uint32_t i = 0; i < warp.lanes; ++i) row[i] = mask;
        release_warp(block, warp);
    }
    block.yield(&self);
    return row[self.lane];
}

float cleave_simt_reduce(float v, int width, int operation, const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    Warp& warp = *self.warp;
    uint64_t* row = warp.values[self.turn++ & 1];
    row[self.lane] = std::bit_cast<uint32_t>(v);
    if (arrive(block, self, Meeting::kReduce, {file, line})) {
        if (warp.lanes < block.width)
            block.fail(Fault::kInactiveLane, {file, line},
                       "the last warp of the block has only %u lanes", warp.lanes);
        reduce_row(row, warp.lanes, static_cast<uint32_t>(width), operation);
        release_warp(block, warp);
    }
    const uint64_t* given = row + self.lane;
    block.yield(&self);
    return std::bit_cast<float>(static_cast<uint32_t>(*given));
}

void cleave_simt_matrix(int kind, float* c, const unsigned* a, const unsigned* b, const char* file,
                        int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    Warp& warp = *self.warp;
    warp.operands[self.lane] = {c, a, b};
    if (arrive(block, self, Meeting::kMatrix, {file, line})) {
        if (warp.lanes < block.width)
            block.fail(Fault::kInactiveLane, {file, line},
                       "the last warp of the block has only %u lanes", warp.lanes);
        multiply_add(block.matrix, kind, warp);
        release_warp(block, warp);
    }
    block.yield(&self);
}

}  // extern "C"

}  // namespace cleave::runtime::simt
