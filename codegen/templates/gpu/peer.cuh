// SPDX-License-Identifier: Apache-2.0
// Exchange between devices whose kernels reach each other's memory (planner/cost/peer_exchange.h).
// A block has a channel of its own: what it sends is in its slice of this device's area, and
// counters of messages announce it to the others. The sender waits until all have released its last
// message of the channel, writes, and makes the next one ready; the receiver waits for it, reads,
// and releases it. A block thus waits for the same block of other devices only, and the plan's
// order of steps is the same everywhere: every wait ends once all are resident.
//
// A wait is bounded: after `limit` nanoseconds, or when the host sets the stop word, the block
// writes into the mailbox whom it waited for and leaves, and so do all later ones.
#pragma once

#include "mailbox.cuh"
#include "signals.cuh"
#include "vectors.cuh"

#if defined(CLEAVE_CUDA)
// The grid has a block for every second multiprocessor at most (planner/cost/peer_exchange.cpp):
// registers for two blocks are enough. Unasked, NVRTC aims at more and keeps words in memory for
// it.
#undef KERNEL
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 2)
#endif

namespace cleave {

struct PeerWatch {
    u32* mailbox = nullptr;
    i64 limit = 0;  // nanoseconds of one wait
    i64 tag = 0;    // of the step: within kMailTagMask
};

// Config: kDevices (of the machine), kChannels (of a signals' row), kThreads, kSharedBytes.
template <class C>
struct Peers {
    static constexpr i64 kPart = i64(C::kDevices) * C::kChannels;

    static DEVICE u32* word(u32* row, PeerPart part) { return row + part * kPart + block_x(); }

    // This thread's one of `rows`, null for further threads: the code has one wait, for
    // all who wait.
    template <int N>
    static DEVICE u32* of_thread(u32* const (&rows)[N]) {
        u32* row = nullptr;
#pragma unroll
        for (int i = 0; i < N; ++i) row = choose(thread_x() == i, rows[i], row);
        return row;
    }

    // Whether `word` has come to `goal` before the limit. `whom`: what the mailbox says if not,
    // within kMailWhomMask.
    static DEVICE bool await(const u32* word, u32 goal, const PeerWatch& w, u32 whom) {
        u64 begin = 0;
        for (i64 turn = 0;; ++turn) {
            u32 seen = load_acquire(word);
            if (i32(seen - goal) >= 0) return true;
            if (turn % kTurnsBetweenLooks == kTurnsBetweenLooks - 1) {
                if (load_acquire(w.mailbox + kMailStop) != 0) return false;
                if (load_acquire(w.mailbox + kMailLost) != 0) return false;
                u64 now = nanoseconds();
                if (begin == 0) begin = now;
                if (i64(now - begin) > w.limit) {
                    store_release(w.mailbox + kMailLost,
                                  kMailMark | whom << kMailWhomShift | u32(w.tag));
                    return false;
                }
            }
            pause_while(word, seen);
        }
    }

    // All threads of the block: whether each of them had what it waited for.
    static DEVICE bool all(bool mine) {
        DYNAMIC_SHARED(u32, lost);  // [1]
        if (thread_x() == 0) lost[0] = 0;
        barrier();
        if (!mine) atomic_max(lost, 1u);
        barrier();
        bool fine = lost[0] == 0;
        barrier();
        return fine;
    }

    // Until everybody has released what this device last sent on the channel. `own`: its signals.
    static DEVICE bool may_write(u32* own, const PeerWatch& w) {
        bool mine = true;
        if (thread_x() < int(C::kDevices)) {
            u32* row = own + i64(thread_x()) * C::kChannels;
            mine = await(word(row, kPeerReleased), *word(row, kPeerSent), w,
                         kMailReleaseFrom + u32(thread_x()));
        }
        return all(mine);
    }

    // What the block wrote becomes a message to each of `count` devices: `here[i]` is its row of
    // this device's signals, `there[i]` this device's row of its own.
    template <int N>
    static DEVICE void send(u32* const (&here)[N], u32* const (&there)[N]) {
        flush_to_peers();
        barrier();
        if (u32* row = of_thread(here)) {
            u32* sent = word(row, kPeerSent);
            u32 count = *sent + 1;
            *sent = count;
            store_release(word(of_thread(there), kPeerReady), count);
        }
    }

    // Until the next message of each source but `ahead` is there.
    template <int N>
    static DEVICE bool receive(u32* const (&here)[N], const PeerWatch& w, u32 ahead = 0) {
        bool mine = true;
        if (u32* row = of_thread(here))
            mine = await(word(row, kPeerReady), *word(row, kPeerTaken) + 1 + ahead, w,
                         u32(thread_x()));
        bool fine = all(mine);
        see_peers();
        return fine;
    }

    // The block has read `messages` of each source.
    template <int N>
    static DEVICE void release(u32* const (&here)[N], u32* const (&there)[N], u32 messages = 1) {
        barrier();
        if (u32* row = of_thread(here)) {
            u32* taken = word(row, kPeerTaken);
            u32 count = *taken + messages;
            *taken = count;
            store_release(word(of_thread(there), kPeerReleased), count);
        }
    }
};

// This block's part of `bytes`: a begin and an end.
struct PeerSpan {
    i64 begin, end;
};
template <class C>
DEVICE PeerSpan peer_span(i64 bytes) {
    i64 units = ceil_div<i64>(bytes, C::kUnit);
    return {units * block_x() / blocks_x() * C::kUnit,
            min<i64>(units * (block_x() + 1) / blocks_x() * C::kUnit, bytes)};
}

// ---- Meeting

// An empty message from each to each on every channel: it ends only when the kernels of all run at
// the same time.
template <class C>
struct PeerMeetArgs : PeerWatch {
    u32* here[C::kMembers];
    u32* there[C::kMembers];
};

template <class C>
DEVICE void peer_meet(const PeerMeetArgs<C>& a) {
    using P = Peers<C>;
    P::send(a.here, a.there);
    if (!P::receive(a.here, a)) return;
    P::release(a.here, a.there);
}

// ---- One device to others

// Config: kRowBytes, kSlice, kWord (bytes of a load), kMembers (receivers), and what Peers takes.
template <class C>
struct PeerSendArgs : PeerWatch {
    const char* source = nullptr;  // [rows, kRowBytes]
    char* area = nullptr;
    u32* own = nullptr;
    u32* here[C::kMembers];
    u32* there[C::kMembers];
    i64 rows = 0;
};

template <class C>
DEVICE void peer_send(const PeerSendArgs<C>& a) {
    using P = Peers<C>;
    using Word = Vector<u8, int(C::kWord)>;
    if (!P::may_write(a.own, a)) return;
    PeerSpan part = peer_span<C>(a.rows * C::kRowBytes);
    char* slice = a.area + i64(block_x()) * C::kSlice;
    for (i64 i = part.begin + thread_x() * C::kWord; i < part.end; i += C::kThreads * C::kWord)
        *reinterpret_cast<Word*>(slice + (i - part.begin)) =
            *reinterpret_cast<const Word*>(a.source + i);
    P::send(a.here, a.there);
}

// Config: kSources, and by source kRowBytes[], kOffset[] (where its bytes begin in a row of the
// destination), kSlice[]; kStride (bytes of a row of the destination), kWord, and what Peers takes.
template <class C>
struct PeerReceiveArgs : PeerWatch {
    const char* area[C::kSources];
    u32* here[C::kSources];
    u32* there[C::kSources];
    char* out = nullptr;  // [rows, kStride]
    i64 rows = 0;
};

template <class C>
DEVICE void peer_receive(const PeerReceiveArgs<C>& a) {
    using P = Peers<C>;
    using Word = Vector<u8, int(C::kWord)>;
    if (!P::receive(a.here, a)) return;
#pragma unroll
    for (int s = 0; s < int(C::kSources); ++s) {
        const i64 bytes = C::row_bytes(s);
        PeerSpan part = peer_span<C>(a.rows * bytes);
        const char* slice = a.area[s] + i64(block_x()) * C::slice(s);
        char* out = a.out + C::offset(s);
        for (i64 i = part.begin + thread_x() * C::kWord; i < part.end;
             i += C::kThreads * C::kWord) {
            i64 row = i / bytes;
            *reinterpret_cast<Word*>(out + row * C::kStride + (i - row * bytes)) =
                *reinterpret_cast<const Word*>(slice + (i - part.begin));
        }
    }
    P::release(a.here, a.there);
}

// ---- Sums

// Partial values [rows, kOut] of the sources, added in f32 in their order on every member, so that
// all get the same bits, then the residual. In one exchange everybody adds everything, and may
// normalise the rows (kNorm), which its blocks then have whole; in two phases (kTwoPhase) each
// source adds a part of what the block has, residual included, and all take the finished parts.
// Config: kOut, kRun, X, kSources, kMembers, kSlice[] by source, kOwnSlice, kResidual, kTwoPhase,
// kNorm, NormWeight, kEpsilon, kNormOffset, and what Peers takes.
template <class C>
struct PeerAllReduceArgs : PeerWatch {
    const typename C::X* partial = nullptr;  // null on a member that contributes nothing
    char* own_area = nullptr;
    u32* own = nullptr;
    const char* area[C::kSources];
    u32* source_here[C::kSources];
    u32* source_there[C::kSources];
    u32* here[C::kMembers];
    u32* there[C::kMembers];
    i64 place = 0;  // of this device among the sources; -1: none
    const typename C::X* residual = nullptr;
    typename C::X* out = nullptr;
    const typename C::NormWeight* norm = nullptr;  // [kOut]
    typename C::X* normed = nullptr;               // [rows, kOut]
    i64 rows = 0;
};

// Sources whose runs are loaded together. On sm_100, NVRTC 13.0 has no registers for eight of f32
// beside a row to normalise, and 13.5 none for four; on sm_120 none for three where rows are long.
#if defined(CLEAVE_SM) && CLEAVE_SM >= 100
constexpr int kSourcesAtOnce = 3, kSourcesOfLongRows = 2;
#else
constexpr int kSourcesAtOnce = 64, kSourcesOfLongRows = 64;
#endif

// The run of sums at element i of the value, `at` elements into the block's slices, as it is
// stored.
template <int kMost = kSourcesAtOnce, class C>
DEVICE Vector<typename C::X, int(C::kRun)> peer_run(const PeerAllReduceArgs<C>& a, i64 i, i64 at) {
    using X = typename C::X;
    constexpr int kRun = int(C::kRun);
    // As they are stored: floats of all sources would not fit the registers.
    constexpr int kSources = int(C::kSources), kAtOnce = min(kSources, kMost);
    Floats<kRun> sum;
#pragma unroll
    for (int first = 0; first < kSources; first += kAtOnce) {
        Vector<X, kRun> v[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const int s = first + n;
            if (s < kSources)
                v[n] = load_vector<kRun>(
                    reinterpret_cast<const X*>(a.area[s] + i64(block_x()) * C::slice(s)) + at);
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
#pragma unroll
            for (int j = 0; j < kRun; ++j)
                if (first + n < kSources)
                    sum[j] = first + n == 0 ? to_float(v[n][j]) : sum[j] + to_float(v[n][j]);
    }
    if constexpr (C::kResidual) {
        Floats<kRun> r = load_floats<kRun>(a.residual + i);
#pragma unroll
        for (int j = 0; j < kRun; ++j) sum[j] += r[j];
    }
    Vector<X, kRun> stored;
#pragma unroll
    for (int j = 0; j < kRun; ++j) stored[j] = from_float<X>(sum[j]);
    return stored;
}

// out = the sum of elements [begin, end) of the block's part, whose slices begin at `first`.
template <class C>
DEVICE void peer_sum(const PeerAllReduceArgs<C>& a, i64 first, i64 begin, i64 end,
                     typename C::X* copy) {
    using X = typename C::X;
    constexpr int kRun = int(C::kRun);
    for (i64 i = begin + thread_x() * kRun; i < end; i += C::kThreads * kRun) {
        const Vector<X, kRun> sum = peer_run(a, i, i - first);
        write_vector(a.out + i, sum);
        if (copy) write_vector(copy + (i - first), sum);
    }
}

// out = the sums of the rows [first, last) of elements, normed = what the norm makes of them as
// they are stored, so that it is what a launch that reads them would make. A thread keeps up to 64
// bytes of the row in registers; a longer part, as rows of a 405B model have, it reads back but for
// the first load's.
template <class C>
DEVICE void peer_sum_norm(const PeerAllReduceArgs<C>& a, i64 first, i64 last) {
    using X = typename C::X;
    constexpr int kRun = int(C::kRun), kWarps = int(C::kThreads) / WARP;
    constexpr int kTurns = int(ceil_div<i64>(C::kOut, C::kThreads * kRun));
    constexpr int kBytes = int(sizeof(Vector<X, kRun>));
    constexpr bool kIsLong = kTurns * kBytes > 64;
    constexpr int kKept = kIsLong ? 1 : kTurns,
                  kAtOnce = kIsLong ? kSourcesOfLongRows : kSourcesAtOnce;
    static_assert(2 * kWarps * 4 <= C::kSharedBytes);
    DYNAMIC_SHARED(float, words);  // [2, kWarps]: rows take turns, and one barrier each is enough
    for (i64 row = first, turn_of_row = 0; row < last; row += C::kOut, turn_of_row ^= 1) {
        float* partial = words + turn_of_row * kWarps;
        Vector<X, kRun> kept[kKept];
        float squares = 0.0f;
        const auto place = [&](int turn) { return (i64(turn) * C::kThreads + thread_x()) * kRun; };
        const auto take = [&](i64 i) {
            const Vector<X, kRun> sum = peer_run<kAtOnce>(a, row + i, row + i - first);
            write_vector(a.out + row + i, sum);
#pragma unroll
            for (int j = 0; j < kRun; ++j) {
                const float v = to_float(sum[j]);
                squares = fma(v, v, squares);
            }
            return sum;
        };
#pragma unroll
        for (int turn = 0; turn < kKept; ++turn)
            if (place(turn) < C::kOut) kept[turn] = take(place(turn));
#pragma unroll 1
        for (int turn = kKept; turn < kTurns; ++turn)
            if (place(turn) < C::kOut) take(place(turn));
        squares = warp_sum(squares);
        if (lane() == 0) partial[warp()] = squares;
        barrier();
        squares = 0.0f;
        for (int w = 0; w < kWarps; ++w) squares += partial[w];
        const float scale = rsqrt(squares * (1.0f / float(C::kOut)) + C::kEpsilon);
        const auto finish = [&](i64 i, const Vector<X, kRun>& sum) {
            Floats<kRun> w = load_floats<kRun>(a.norm + i);
#pragma unroll
            for (int j = 0; j < kRun; ++j)
                w[j] = to_float(sum[j]) * scale * (w[j] + C::kNormOffset);
            write_run<kRun>(a.normed + row + i, w);
        };
#pragma unroll
        for (int turn = 0; turn < kKept; ++turn)
            if (place(turn) < C::kOut) finish(place(turn), kept[turn]);
#pragma unroll 1
        for (int turn = kKept; turn < kTurns; ++turn)
            if (place(turn) < C::kOut)
                finish(place(turn), load_vector<kRun>(a.out + row + place(turn)));
    }
}

template <class C>
DEVICE void peer_all_reduce(const PeerAllReduceArgs<C>& a) {
    using P = Peers<C>;
    using X = typename C::X;
    constexpr int kRun = int(C::kRun), kSources = int(C::kSources);
    constexpr i64 kSize = i64(sizeof(X));
    PeerSpan bytes = peer_span<C>(a.rows * C::kOut * kSize);
    const i64 first = bytes.begin / kSize, last = bytes.end / kSize;
    X* mine = reinterpret_cast<X*>(a.own_area + i64(block_x()) * C::kOwnSlice);
    if (a.partial) {
        if (!P::may_write(a.own, a)) return;
        for (i64 i = first + thread_x() * kRun; i < last; i += C::kThreads * kRun)
            write_vector(mine + (i - first), load_vector<kRun>(a.partial + i));
        P::send(a.here, a.there);
    }
    if constexpr (!C::kTwoPhase) {
        if (!P::receive(a.source_here, a)) return;
        if constexpr (C::kNorm)
            peer_sum_norm(a, first, last);
        else
            peer_sum(a, first, first, last, static_cast<X*>(nullptr));
        P::release(a.source_here, a.source_there);
    } else {
        const i64 runs = (last - first) / kRun;
        auto edge = [&](i64 s) { return first + runs * s / kSources * kRun; };
        if (a.partial) {
            if (!P::receive(a.source_here, a)) return;
            peer_sum(a, first, edge(a.place), edge(a.place + 1), mine);
            P::send(a.here, a.there);
        }
        if (!P::receive(a.source_here, a, 1)) return;
#pragma unroll
        for (int s = 0; s < kSources; ++s) {
            if (s == int(a.place)) continue;
            const X* sums = reinterpret_cast<const X*>(a.area[s] + i64(block_x()) * C::slice(s));
            const i64 end = edge(s + 1);
            for (i64 i = edge(s) + thread_x() * kRun; i < end; i += C::kThreads * kRun)
                write_vector(a.out + i, load_vector<kRun>(sums + (i - first)));
        }
        P::release(a.source_here, a.source_there, 2);
    }
}

}  // namespace cleave
