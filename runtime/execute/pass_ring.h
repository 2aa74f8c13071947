// SPDX-License-Identifier: Apache-2.0
// Passes in flight, and the threads that walk them: one a member, each in the order of tickets and
// at its own pace. In: passes. Out: their results, in order. A member without a pass sleeps; it
// waits for nobody, so no watchdog counts. One thread submits and takes.
//
// A member that fails ends the passes from that one on. Those before it are finished first: their
// results are still given, and take() throws in the failed pass's turn.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/base/threads.h"
#include "runtime/execute/pass.h"

namespace cleave::runtime {

class PassRing {
public:
    struct Work {
        // A member's part in a pass, on its thread; false: the member leaves, after `fail` or
        // because another one failed. Must not throw.
        std::function<bool(PassRing& ring, size_t member, Pass& pass)> take_part;
        // Ends every wait of the members. Called once at most, from any thread.
        std::function<void()> stop;
    };
    // The first pass has the ticket `first`. UserError when the system gives no threads.
    PassRing(size_t members, Ticket first, Work work);
    PassRing(const PassRing&) = delete;
    PassRing& operator=(const PassRing&) = delete;

    // Queues a pass and wakes the members; waits while kMostPassesInFlight are not finished.
    // `by_caller`: the member of a ring of one does its part in take(), on the caller's thread,
    // which saves waking another. Then the caller takes in time, and all passes in flight are the
    // caller's.
    Ticket submit(Pass pass, bool by_caller = false);
    // The oldest pass not yet taken, once all members are through it; waits. Throws what the member
    // that failed in it threw, once no member runs any more; later calls, of submit as well, throw
    // InternalError.
    PassResult take();
    int64_t in_flight() const { return submitted_ - taken_; }

    // Of members, within their part of a pass.
    // Whether another pass is queued behind it.
    bool has_more(const Pass& pass) const { return submitted_ > pass.ticket() + 1; }
    // Its result is complete.
    void give(const Pass& pass);
    // The exception under way ends the passes from `pass` on, or from `unfinished`, where that is
    // before: the first whose work on the member may have failed.
    void fail(size_t member, const Pass& pass, Ticket unfinished);

    bool has_failed() const { return has_failed_; }
    // The member whose exception take() threw.
    size_t failed_member() const { return failed_member_; }

private:
    static constexpr Ticket kNever = INT64_MAX;
    using Lock = std::unique_lock<std::mutex>;
    void serve(size_t member);
    bool walk(Lock& lock, size_t member);
    void leave();
    void stop(Lock& lock);
    void quit();

    struct Slot {
        Pass pass;
        size_t walked = 0;  // members that are through it
    };

    Work work_;
    std::mutex mutex_;  // of all below but the threads
    std::condition_variable wake_, done_;
    std::deque<Slot> slots_;
    Ticket first_;                   // of `slots_`
    std::atomic<Ticket> submitted_;  // passes so far, as all of these; the caller writes it
    Ticket finished_, given_, taken_;
    std::vector<Ticket> next_;  // by member
    bool by_caller_ = false, stopped_ = false, broken_ = false;
    size_t left_ = 0;           // members that walk no further
    std::exception_ptr error_;  // of the first failed pass
    Ticket failed_from_ = kNever;
    size_t failed_member_ = 0;
    std::atomic<bool> has_failed_{false};
    Threads threads_;  // the last member: they end before the others go
};

}  // namespace cleave::runtime
