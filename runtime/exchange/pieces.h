// SPDX-License-Identifier: Apache-2.0
// A payload that goes through staging memory in pieces, where a GPU sends or receives: while the
// host has one, or a receiver copies it in, the sender's next is on its way out. Each piece is a
// meeting of its own; all sides cut alike. Threads as for Communication: each sender and each
// receiver by its own worker.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/exchange/communication.h"

namespace cleave::runtime {

class Pieces {
public:
    Pieces(const CommunicationContext& context, const std::vector<planner::DeviceId>& senders,
           const std::vector<planner::DeviceId>& receivers);

    // How many a payload of `bytes` has. None is smaller than one of its `units` (rows
    // or elements).
    int64_t count(int64_t bytes, int64_t units) const;
    // The units of one.
    static planner::Range part(int64_t piece, int64_t count, int64_t units) {
        return {units * piece / count, units * (piece + 1) / count};
    }

    // Sender `s` has completed a piece of what its lane holds; pieces in order.
    void post(StagingLane& lane, size_t s, int64_t piece);
    // Until every sender has; their payloads' beginnings. Then `release` of all that were awaited.
    const std::vector<const std::byte*>& await(size_t r, int64_t piece);
    void release(size_t r, int64_t count);
    void wake();

private:
    std::vector<std::unique_ptr<Rendezvous>> meetings_;   // by piece
    std::vector<std::vector<uint64_t>> sent_, received_;  // rounds, by side and piece
    int64_t piece_bytes_;
};

// The pieces of one sender's payload on their way out: a few ahead of what was posted, so that
// other copies find their way between them; of a device that copies at once, all of them.
class Outgoing {
public:
    // `copy(p)` asks for the copy of piece p into the lane, which is open.
    Outgoing(Pieces& pieces, size_t s, const Participant& self, int64_t count,
             std::function<void(int64_t)> copy);

    // Posts the first `count` pieces, once they are out.
    void post_until(int64_t count);

private:
    void start_until(int64_t count);

    Pieces& pieces_;
    size_t s_;
    const Participant& self_;
    DeviceStream* stream_;
    int64_t count_, started_ = 0, posted_ = 0;
    std::function<void(int64_t)> copy_;
};

}  // namespace cleave::runtime
