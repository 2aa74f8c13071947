// SPDX-License-Identifier: Apache-2.0
// The race detector of memory that devices exchange values in. Kernels of several devices run at
// the same time; what one has written another may read when a store_release follows the write,
// a load_acquire of that word in front of the read, and barriers order the threads of each block
// with those that did these. Whether that holds is kept by vector clocks (Lamport, "Time, Clocks,
// and the Ordering of Events in a Distributed System", 1978; Flanagan and Freund, "FastTrack",
// 2009), not seen by chance: a missing barrier is found in any order of the devices.
//
// Only accesses of different devices are judged: those of one device's blocks are not ordered by
// what is kept here. The host orders nothing; what it writes begins anew. On AMD GPUs a thread's
// writes leave its caches at its flush_to_peers(), and what another thread acquired it reads after
// its see_peers() (codegen/templates/gpu/signals.cuh): both are demanded there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/simt/memory.h"

namespace cleave::runtime::simt {

// Who did something, and when. Intervals are the block's between barriers, epochs the warp's
// between its warp_syncs, steps the thread's between its releases.
struct Stamp {
    uint32_t device = 0;  // number of its DeviceOrder
    uint32_t launch = 0, block = 0, interval = 0;
    uint32_t thread = 0, warp = 0, epoch = 0, step = 0;
    uint32_t flushes = 0;  // of the thread, before
};

// What somebody knows to have happened.
class Clock {
public:
    void join(const Clock& other);
    // All launches of the device before `launch`.
    void learn_launches(uint32_t device, uint32_t launch);
    // What a block had done before `now`, a point of one of its threads that releases: all
    // intervals before, and in this one the thread itself and what warp_syncs order before it.
    // `flushes` of its threads by then; its own come with the release.
    void learn_block(const Stamp& now, std::shared_ptr<const std::vector<uint32_t>> flushes);

    bool knows(const Stamp& event) const;
    // Whether what the thread wrote had left its caches by the time that is known of; of an event
    // that is known.
    bool has_flushed(const Stamp& event) const;

private:
    // A block of a launch that may not have ended.
    struct Running {
        uint32_t launch, block, interval;  // those before are known
        std::shared_ptr<const std::vector<uint32_t>> flushes;
        std::vector<Stamp> releases;  // the last of each thread
    };
    struct OfDevice {
        uint32_t ended = 0;  // the first launch that may not have
        std::vector<Running> running;
    };
    void learn_block(uint32_t device, const Running& block);
    const Running* running(const Stamp& event) const;
    bool has_ended(const Stamp& event) const {
        return event.device < devices_.size() && event.launch < devices_[event.device].ended;
    }

    std::vector<OfDevice> devices_;  // by number
};

class DeviceOrder;

// What the accesses to one allocation were, by cells of 16 bytes, and of words the clocks that they
// were released with. Thread-safe.
class ExchangeMemory {
public:
    enum class Verdict : uint8_t { kFine, kRaceWithWrite, kRaceWithRead, kUnflushed, kUnseen };
    struct Found {
        Verdict verdict = Verdict::kFine;
        uint64_t offset = 0;  // of the cell
        Stamp other;
    };

    // Makes accesses to the allocation at `address` seen (runtime/simt/memory.h), until the end of
    // the object's life, which comes before the allocation's.
    ExchangeMemory(void* address, uint64_t bytes, const DeviceOrder& owner);
    ~ExchangeMemory();
    ExchangeMemory(const ExchangeMemory&) = delete;
    ExchangeMemory& operator=(const ExchangeMemory&) = delete;

    // A thread's access to [address, address + bytes). `seen` is what it may read without
    // see_peers(), where that is asked for. What the owner reads that no kernel has written is not
    // kept: the host's numbers, which many threads read.
    Found touch(const Stamp& now, const Clock& knows, const Clock* seen, uint64_t address,
                uint32_t bytes, bool writes, bool atomic);
    // A word with its clock: stores both, or loads both.
    void release(unsigned* word, unsigned value, Clock clock);
    // `version` of the clock that was joined last, and on return of this one.
    unsigned acquire(const unsigned* word, Clock& clock, uint64_t& version);
    // The host has written.
    void forget(uint64_t address, uint64_t bytes);

private:
    static constexpr uint64_t kCell = 16, kPage = 64;  // bytes, cells
    struct Access {
        Stamp at;
        uint16_t bytes = 0;  // of the cell, a bit each
        bool atomic = false;
    };
    struct Released {
        uint64_t word = 0, version = 0;
        Clock clock;
    };
    struct Cell {
        std::vector<Access> writers, readers;  // that no later write covers
        std::vector<Released> released;
    };
    struct Page {
        std::mutex mutex;
        Cell cells[kPage];
    };
    Page& page(uint64_t cell);
    // Those of [first, last] in the cell, a bit each.
    static uint16_t bytes_of_cell(uint64_t cell, uint64_t first, uint64_t last);
    Found touch_cell(Cell& cell, const Access& access, const Clock& knows, const Clock* seen,
                     bool writes);

    const uint64_t begin_;
    const uint32_t owner_;
    std::vector<std::atomic<Page*>> pages_;
};

// A device: what its launches know of others', one after the other. Thread-safe.
class DeviceOrder {
public:
    DeviceOrder(std::string name, bool explicit_caches);
    ~DeviceOrder();
    DeviceOrder(const DeviceOrder&) = delete;
    DeviceOrder& operator=(const DeviceOrder&) = delete;

    // Of all that there are at a time, the lowest that is free.
    uint32_t number() const { return number_; }
    // Whether threads have to flush and to see for themselves.
    bool explicit_caches() const { return explicit_caches_; }
    // The number of the launch that begins.
    uint32_t begin_launch();
    // What all threads of the running launch knew from the start.
    const Clock& knows() const { return at_start_; }
    void learn(const Clock& clock);

    // "simt:gfx90a[1]", or that it is gone.
    static std::string name_of(uint32_t number);

private:
    const uint32_t number_;
    const bool explicit_caches_;
    uint32_t launch_ = 0;  // one at a time
    Clock at_start_;
    std::mutex mutex_;
    Clock clock_;
};

// A running block: what its threads know. Costs nothing until one of them comes to memory for
// exchanges.
class BlockOrder {
public:
    // No order is kept for a device of null.
    void begin_launch(DeviceOrder* device, uint32_t launch, uint32_t threads);
    void begin_block(uint32_t block);
    void end_block();

    bool keeps() const { return device_ != nullptr; }
    ExchangeMemory::Found touch(ExchangeMemory& memory, Stamp now, uint64_t address, uint32_t bytes,
                                bool writes, bool atomic);
    void release(ExchangeMemory& memory, Stamp now, unsigned* word, unsigned value);
    unsigned acquire(ExchangeMemory& memory, uint32_t thread, const unsigned* word);
    void barrier() {
        if (has_acquired_) [[unlikely]]
            share_with_block();
    }
    void warp_sync(uint32_t first_thread, uint32_t threads) {
        if (has_acquired_) [[unlikely]]
            share_with_warp(first_thread, threads);
    }
    void flush(uint32_t thread);
    void see(uint32_t thread);

private:
    struct Threads {
        std::optional<Clock> acquired;   // by itself, and by its warp's before a warp_sync
        bool shared = false;             // with the block, at a barrier
        const unsigned* word = nullptr;  // acquired last
        uint64_t version = 0;            // of its clock
        uint32_t steps = 0;
        uint32_t seen = 0;  // which of `known_` it knew when it last saw
    };
    void load();
    void share_with_block();
    void share_with_warp(uint32_t first_thread, uint32_t threads);
    Stamp stamp(Stamp now) const;

    DeviceOrder* device_ = nullptr;
    uint32_t launch_ = 0, block_ = 0;
    bool loaded_ = false, has_acquired_ = false;  // somebody has, since the last barrier
    std::vector<Clock> known_;  // by all threads, since each barrier that brought something
    std::vector<Threads> threads_;
    std::vector<uint32_t> flushes_;
    std::shared_ptr<const std::vector<uint32_t>> published_flushes_;
};

}  // namespace cleave::runtime::simt
