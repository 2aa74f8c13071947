// SPDX-License-Identifier: Apache-2.0
// A payload that goes through staging memory in pieces, where a GPU sends or receives: while the
// host has one, or a receiver copies it in, the sender's next is on its way out. Each piece is a
// meeting of its own; all sides cut alike. To a receiver of another host a message brings what that
// one reads of a piece; the job's thread takes the part of the other side here. Threads as for
// Communication: each sender and each receiver by its own worker.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/exchange/communication.h"

namespace cleave::runtime {

// A payload of one pass, the same for all senders and receivers.
struct Payload {
    int64_t pieces = 1;
    // The bytes of sender s's payload that receiver r reads in a piece.
    std::function<planner::Range(size_t s, size_t r, int64_t piece)> read;
};

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
    // `memory`: what the lane opened.
    void post(StagingLane& lane, const std::byte* memory, size_t s, const Payload& payload,
              int64_t piece);
    // Until every sender has, from the first piece on; their payloads' beginnings. Then `release`
    // of all that were awaited.
    const std::vector<const std::byte*>& await(StagingLane& lane, size_t r, const Payload& payload,
                                               int64_t piece);
    void release(size_t r, int64_t count);
    void wake();

private:
    // A sender and a receiver, one of them another rank's.
    struct FarPair {
        size_t s, r;
        int rank, channel;
        std::vector<std::unique_ptr<Rendezvous>> meetings;  // by piece
        std::vector<uint64_t> rounds;
    };
    void expect(StagingLane& lane, size_t r, const Payload& payload);

    HostJob* job_;
    std::vector<std::unique_ptr<Rendezvous>> meetings_;   // by piece: of those here
    std::vector<size_t> senders_, receivers_;             // their numbers in it
    std::vector<std::vector<uint64_t>> sent_, received_;  // rounds, by side and piece
    std::vector<std::vector<FarPair>> to_, from_;         // by sender and by receiver here
    std::vector<std::vector<const std::byte*>> there_;    // by receiver, of those with far senders
    int64_t piece_bytes_;
};

// The pieces of one sender's payload on their way out: a few ahead of what was posted, so that
// other copies find their way between them; of a device that copies at once, all of them.
class Outgoing {
public:
    // `copy(p)` asks for the copy of piece p into the lane, which has opened `memory`.
    Outgoing(Pieces& pieces, size_t s, const Participant& self, const std::byte* memory,
             Payload payload, std::function<void(int64_t)> copy);

    // Posts the first `count` pieces, once they are out.
    void post_until(int64_t count);

private:
    void start_until(int64_t count);

    Pieces& pieces_;
    size_t s_;
    const Participant& self_;
    const std::byte* memory_;
    Payload payload_;
    DeviceStream* stream_;
    int64_t count_, started_ = 0, posted_ = 0;
    std::function<void(int64_t)> copy_;
};

}  // namespace cleave::runtime
