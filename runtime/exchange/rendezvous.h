// SPDX-License-Identifier: Apache-2.0
// Where the members of one communication step meet. Senders post payloads in staging memory that
// every host thread can read; receivers take them once all are there, and release them. A sender
// waits only before it would overwrite what somebody has not read, so it may run ahead of its
// receivers by one payload. Waiters block; they leave with an exception when another worker fails,
// the user interrupts, or nothing in the session has moved for the watchdog's time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/spin.h"
#include "runtime/device/run_control.h"

namespace cleave::runtime {

class Rendezvous {
public:
    // Names for messages: the step, its senders and its receivers.
    Rendezvous(RunControl& control, std::string step, std::vector<std::string> senders,
               std::vector<std::string> receivers);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    // Sender `s` has completed its payload of `round`; rounds count from 0 and each waits for the
    // release of the last. It must stay as it is until `await_released`.
    void post(size_t s, uint64_t round, const std::byte* payload);
    // Waits until every receiver has released `round`; `waiter` names who waits.
    void await_released(uint64_t round, const std::string& waiter);

    // Waits until every sender has posted; the payloads, by sender. Receiver `r` then releases
    // them.
    const std::vector<const std::byte*>& await_posted(size_t r, uint64_t round);
    void release(size_t r, uint64_t round);

    // Wakes all waiters, which then find that the run has stopped.
    void wake();

private:
    // Members of one side. Nobody is more than a round ahead of the others, so that one count of
    // arrivals tells which rounds are complete: a receiver needs all payloads, and a sender waits
    // for its last one's release.
    struct Side {
        Side(std::vector<std::string> members, bool may_spin)
            : names(std::move(members)), rounds(names.size()), spin(may_spin) {}
        bool has_finished(uint64_t round) const {
            return arrivals.load(std::memory_order_seq_cst) >= (round + 1) * names.size();
        }
        std::vector<std::string> names;
        std::vector<std::atomic<uint64_t>> rounds;  // that each has finished, for messages
        std::atomic<uint64_t> arrivals{0};
        SpinBudget spin;
    };

    void advance(Side& side, size_t member, uint64_t round);
    void wait(Side& side, uint64_t round, const std::string& waiter);
    [[noreturn]] void report_hang(const Side& side, uint64_t round,
                                  const std::string& waiter) const;

    RunControl& control_;
    std::string step_;
    std::atomic<uint32_t> changes_{0};  // completed rounds and wake-ups: what blocked waiters watch
    std::atomic<uint32_t> blocked_{0};  // waiters that a change must wake
    Side posted_, released_;
    std::vector<const std::byte*> payloads_;  // by sender
};

// The staging memory that one device's payloads leave from, one payload at a time, and where those
// from other hosts arrive.
class StagingLane {
public:
    // `memory` may be null when the device's own staging buffer is out of the host's reach: then
    // the lane has host memory of its own. `owner` names the device.
    // `arrivals` likewise.
    StagingLane(std::string owner, std::byte* memory, int64_t bytes, std::byte* arrivals = nullptr,
                int64_t arrival_bytes = 0);

    // Room for a payload of `bytes`, once the last one from this lane has been released.
    std::byte* open(int64_t bytes);
    // The payload is complete: sender `s` of `meeting` posts it; of several meetings each.
    void post(Rendezvous& meeting, size_t s, uint64_t round);
    // Room for what arrives in one step. Its user is through with it before the next.
    std::byte* arrivals(int64_t bytes);

private:
    std::string owner_;
    std::vector<std::byte> own_, own_arrivals_;
    std::byte *memory_, *arrivals_;
    int64_t bytes_, arrival_bytes_;
    std::vector<std::pair<Rendezvous*, uint64_t>> posted_;  // where the last payload was
};

}  // namespace cleave::runtime
