// SPDX-License-Identifier: Apache-2.0
// Weights of few tokens on their way through shared memory (gemv.cuh, kStages > 0): a ring of
// kStages slots of 16 bytes for each row that a lane takes together, private to its thread. The
// thread copies its own pieces so far ahead, past the ends of rows and of the activations staged at
// once, waits for its own and reads them back. Nobody else touches its slots, so no barrier is
// needed, and what is under way takes no registers.
#pragma once

#include "vectors.cuh"

namespace cleave {

// F: Gemv. RowOf: row j of the block's table.
template <class F, class RowOf>
struct WeightRing {
    static constexpr int kPieceBytes = F::kThreads * 16, kSlotBytes = F::kR * kPieceBytes;
    static constexpr int kBytes = F::kStages * kSlotBytes;

    const RowOf& row_of;
    u8* pieces;             // this thread's in slot 0
    int first;              // feature that it takes in a step
    int slot = 0;           // bytes from slot 0 to the oldest one
    int base = 0, end = 0;  // features of `row` to be copied next, by all lanes
    int turn = 0;           // rows begun
    typename F::Matrix::Row row[F::kR];

    DEVICE WeightRing(float* shared, const RowOf& rows)
        : row_of(rows),
          pieces(reinterpret_cast<u8*>(shared) + thread_x() * 16),
          first(F::first_feature()) {}

    // The next piece of each row; `kCopies` false where ahead() has asked for it.
    template <bool kCopies>
    DEVICE void step(int to) {
        if (base >= end) {
            if (turn == F::kTurns * F::kChunks) return;
            base = turn / F::kTurns * F::kDepth;
            end = min(base + F::kDepth, F::kIn);
#pragma unroll
            for (int r = 0; r < F::kR; ++r) row[r] = row_of(F::first_row(turn % F::kTurns) + r);
            ++turn;
        }
        const int k = base + first;
        if (kCopies && (F::kEven || k < end)) {
#pragma unroll
            for (int r = 0; r < F::kR; ++r)
                async_copy<16>(pieces + to + r * kPieceBytes, row[r] + k);
        }
        base += F::kStep;
    }

    // Before anything else; `kCopies` as above.
    template <bool kCopies>
    DEVICE void begin() {
#pragma unroll turns(F::kStages)
        for (int s = 0; s < F::kStages; ++s) {
            step<kCopies>(s * kSlotBytes);
            if (kCopies) async_commit();
        }
    }

    // The oldest piece of each row is there.
    DEVICE void wait() { async_wait<F::kStages - 1>(); }
    DEVICE const u8* piece(int r) const { return pieces + slot + r * kPieceBytes; }
    // It has been read.
    DEVICE void refill() {
        step<true>(slot);
        async_commit();
        slot = slot + kSlotBytes == kBytes ? 0 : slot + kSlotBytes;
    }
};

}  // namespace cleave
