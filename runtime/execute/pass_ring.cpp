// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/pass_ring.h"

#include <algorithm>
#include <utility>

namespace cleave::runtime {

PassRing::PassRing(size_t members, Ticket first, Work work)
    : work_(std::move(work)),
      first_(first),
      submitted_(first),
      finished_(first),
      given_(first),
      taken_(first),
      next_(members, first),
      threads_([this] { quit(); }) {
    if (members == 1) return;  // its thread starts with the first pass that is not the caller's
    for (size_t m = 0; m < members; ++m) threads_.start([this, m] { serve(m); });
}

Ticket PassRing::submit(Pass pass, bool by_caller) {
    CLEAVE_CHECK(!by_caller || next_.size() == 1) << "a ring of several members has threads";
    if (!by_caller && threads_.empty()) threads_.start([this] { serve(0); });
    Lock lock(mutex_);
    CLEAVE_CHECK(!broken_) << "this session has failed before; open a new one";
    CLEAVE_CHECK(by_caller == by_caller_ || in_flight() == 0) << "passes in flight of both ways";
    by_caller_ = by_caller;
    done_.wait(lock, [&] {
        return submitted_ - finished_ < kMostPassesInFlight || failed_from_ != kNever;
    });
    pass.result.ticket = submitted_;
    slots_.push_back({std::move(pass)});
    if (!by_caller) wake_.notify_all();
    return submitted_++;
}

PassResult PassRing::take() {
    Lock lock(mutex_);
    CLEAVE_CHECK(!broken_) << "this session has failed before; open a new one";
    CLEAVE_CHECK(in_flight() > 0) << "no pass is in flight";
    while (by_caller_ && next_[0] <= taken_ && left_ == 0)
        if (!walk(lock, 0)) leave();
    // Behind what was given nobody needs to walk once a later pass has failed.
    done_.wait(lock, [&] {
        if (failed_from_ <= taken_) return left_ >= next_.size();
        return taken_ < (failed_from_ == kNever ? finished_ : given_);
    });
    if (failed_from_ <= taken_) {
        broken_ = true;
        std::rethrow_exception(std::exchange(error_, nullptr));
    }
    PassResult result = std::move(slots_[static_cast<size_t>(taken_ - first_)].pass.result);
    ++taken_;
    for (; first_ < std::min(taken_, finished_); ++first_) slots_.pop_front();
    return result;
}

void PassRing::serve(size_t member) {
    Lock lock(mutex_);
    const auto ends = [&] { return stopped_ || next_[member] >= failed_from_; };
    do {
        wake_.wait(lock, [&] { return ends() || (next_[member] < submitted_ && !by_caller_); });
    } while (!ends() && walk(lock, member));
    leave();
}

// The member's part of its next pass; whether it goes on.
bool PassRing::walk(Lock& lock, size_t member) {
    Slot& slot = slots_[static_cast<size_t>(next_[member] - first_)];
    lock.unlock();
    const bool done = work_.take_part(*this, member, slot.pass);
    lock.lock();
    if (!done) return false;
    ++next_[member];
    if (++slot.walked == next_.size()) {
        ++finished_;
        done_.notify_all();
        if (given_ < finished_) {  // its result is another process's to give
            given_ = finished_;
            if (given_ >= failed_from_) stop(lock);
            if (!lock.owns_lock()) lock.lock();
        }
    }
    return true;
}

void PassRing::leave() {
    ++left_;
    done_.notify_all();
}

void PassRing::give(const Pass& pass) {
    Lock lock(mutex_);
    given_ = pass.ticket() + 1;
    if (failed_from_ == kNever) return;
    done_.notify_all();
    if (given_ >= failed_from_) stop(lock);
}

void PassRing::fail(size_t member, const Pass& pass, Ticket unfinished) {
    Lock lock(mutex_);
    // What was given is complete.
    const Ticket from = std::min(pass.ticket(), std::max(unfinished, given_));
    if (stopped_ || from >= failed_from_) return;
    error_ = std::current_exception();
    failed_from_ = from;
    failed_member_ = member;
    has_failed_ = true;
    wake_.notify_all();
    done_.notify_all();
    if (given_ >= failed_from_) stop(lock);
}

void PassRing::stop(Lock& lock) {
    if (std::exchange(stopped_, true)) return;
    lock.unlock();
    work_.stop();
    wake_.notify_all();
}

// Passes that are not finished are given up.
void PassRing::quit() {
    Lock lock(mutex_);
    if (finished_ < submitted_) return stop(lock);
    stopped_ = true;
    wake_.notify_all();
}

}  // namespace cleave::runtime
