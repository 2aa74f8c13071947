// SPDX-License-Identifier: Apache-2.0
// Where the members of one communication step meet, in staging memory of the host. Senders post payloads, and
// receivers take them once all are there. Two rounds may be under way at once, so a sender goes on with the next
// pass while receivers still read the last; it waits only before it would overwrite what somebody has not read.
// Waiters block. They leave with an exception when another worker fails, the user interrupts, or nothing in the
// session has moved for the watchdog's time.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/run_control.h"

namespace cleave::runtime {

class Rendezvous {
public:
    // Names for messages: the step, its senders and its receivers.
    Rendezvous(RunControl& control, std::string step, std::vector<std::string> senders,
               std::vector<std::string> receivers);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    // Staging memory of sender `s` for `round`, `bytes` long, once its last use has been read by all.
    std::byte* open(size_t s, uint64_t round, int64_t bytes);
    // What sender `s` wrote there is complete.
    void post(size_t s, uint64_t round);

    // Waits until every sender has posted; the payloads, by sender.
    const std::vector<const std::byte*>& await(size_t receiver, uint64_t round);
    // Receiver `r` will not look at the payloads of `round` again.
    void release(size_t r, uint64_t round);

    // Wakes all waiters, which then find that the run has stopped.
    void wake();

private:
    static constexpr size_t kSlots = 2;
    struct Slot {
        std::vector<std::vector<std::byte>> memory;  // by sender
        std::vector<const std::byte*> payloads;      // of `memory`
        std::vector<uint64_t> posted, released;      // rounds, plus one, by sender and by receiver
    };

    void wait(std::unique_lock<std::mutex>& lock, const std::string& waiter, const std::function<bool()>& ready,
              const std::function<std::string()>& missing);

    RunControl& control_;
    std::string step_;
    std::vector<std::string> senders_, receivers_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<uint64_t> completions_{0};  // rounds posted or released by all; polled before blocking
    std::array<Slot, kSlots> slots_;
};

}  // namespace cleave::runtime
