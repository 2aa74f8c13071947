// SPDX-License-Identifier: Apache-2.0
// The state of the block that one OS thread is running: its threads (fibers), warps, the queue of
// threads that can go on, shared memory with its shadow. Threads run one at a time until they meet
// a rendezvous; the last to arrive releases the others. Only seeds decide the order: equal launches
// run alike.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/compile/llvm/simt_record.h"
#include "codegen/kernel/occupancy.h"
#include "runtime/base/split_mix.h"
#include "runtime/simt/device_order.h"
#include "runtime/simt/fiber.h"
#include "runtime/simt/memory.h"
#include "runtime/simt/pending_copies.h"
#include "runtime/simt/report.h"
#include "runtime/simt/shadow.h"
#include "runtime/simt/simt.h"
#include "runtime/simt/written_rows.h"

namespace cleave::runtime::simt {

inline constexpr uint32_t kMaxThreads = 1024;
inline constexpr uint32_t kMaxWidth = 64;

struct Here {
    const char* file = nullptr;
    int line = 0;
    bool operator==(const Here& other) const { return line == other.line && file == other.file; }
};

enum class Meeting : uint8_t {
    kNone,
    kBarrier,
    kWarpSync,
    kShuffle,
    kBallot,
    kReduce,
    kMatrix,
    kWarpgroup
};

struct Warp;
struct Warpgroup;

// What a meeting touches is in the first 64 bytes.
struct alignas(64) Thread {
    FiberPlace fiber;
    Warp* warp = nullptr;
    uint32_t lane = 0;
    uint32_t turn = 0;  // which of the warp's two value rows the next meeting uses
    Here here;          // where it waits, and for what
    Meeting meeting = Meeting::kNone;
    bool exited = false;
    bool early = false;  // it has not waited for the launches before its own
    uint32_t index = 0;  // in the block
    int place[3] = {};
    uint32_t copy_group = 0;
    PendingCopies copies;
    // Of products of its warpgroup: groups that it has committed, and whether a fence came since
    // the last wait.
    uint64_t product_group = 0;
    bool product_fence = false;
};

// Lanes that meet under a mask of their own.
struct PartialMeeting {
    uint64_t lanes = 0, arrived = 0;
    Here here;
};

struct Warp {
    uint32_t arrived = 0;
    uint32_t lanes = 0;  // that exist
    uint32_t first = 0;  // thread of lane 0
    uint32_t index = 0;  // in the block
    uint32_t exited = 0;
    uint64_t epoch = 0;  // counts warp_sync
    Meeting meeting = Meeting::kNone;
    Here here;
    uint64_t values[2][kMaxWidth] = {};
    struct Operands {
        float* c;
        const uint32_t* a;
        const uint32_t* b;
    } operands[kMaxWidth] = {};
    std::vector<PartialMeeting> partial;
};

struct Block {
    // Read by every entry point.
    Thread* current = nullptr;
    char* shared = nullptr;
    int place[3] = {}, threads_in[3] = {}, blocks_in[3] = {};

    Block();
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    // Readies threads, stacks and shared memory for a launch.
    void prepare(const codegen::SimtRecord& record, const codegen::GpuArch& arch,
                 const uint64_t* args, const int (&grid)[3], const int (&block)[3],
                 uint32_t dynamic_bytes, const LaunchOptions& options);
    // Runs block `index` of the grid; false after a fault.
    bool run(uint64_t index);

    // ---- For the entry points
    void make_ready(uint32_t thread) { queue[tail++ % kQueue] = static_cast<uint16_t>(thread); }
    void make_ready_first(uint32_t thread) {
        queue[--head % kQueue] = static_cast<uint16_t>(thread);
    }
    // `count` threads, in the order in which the caller then writes them; null where the queue has
    // no such run of places.
    uint16_t* make_ready_first_run(uint32_t count) {
        const uint32_t at = (head - count) % kQueue;
        if (at + count > kQueue) [[unlikely]]
            return nullptr;
        head -= count;
        return queue + at;
    }
    // All threads, in an order of the seed's or by index.
    void make_all_ready();
    // Gives way to the next thread that can go on; returns when this one can.
    void yield(Thread* self) {
        if (head == tail) [[unlikely]]
            stuck();
        Thread* next = &threads[queue[head++ % kQueue]];
        if (next == self) return;
        current = next;
        switch_fiber(&self->fiber, &next->fiber);
    }
    // Reports and leaves the block; does not return.
    [[noreturn]] void fail(Fault fault, Here here, const char* format, ...)
        __attribute__((format(printf, 4, 5)));
    // Notes a fault that may turn out to be a race before the next barrier; reported there if
    // nothing else was.
    void doubt(Fault fault, Here here, const char* format, ...)
        __attribute__((format(printf, 4, 5)));
    void settle_doubt() {
        if (doubtful) [[unlikely]]
            leave();
    }
    // Whether the kernel may touch allocations of `other`.
    bool reaches(uint32_t other) const {
        if (other == owner) [[likely]]
            return true;
        return std::find(peers.begin(), peers.end(), other) != peers.end();
    }
    // Reports that no thread can go on.
    [[noreturn]] void stuck();
    // Ends the current thread.
    void exit_thread();
    // Reports a thread that has ended and did not wait for the launches before its own.
    [[noreturn]] void fail_without_wait();

    static constexpr uint32_t kQueue = 2048;
    uint16_t queue[kQueue] = {};
    uint32_t head = 0, tail = 0;
    uint32_t num_threads = 0, width = 32, exited = 0;
    uint32_t barrier_arrived = 0;
    Here barrier_here;
    bool checked = false, shuffle_order = false, overlaps = false;
    uint32_t early = 0;                   // threads that have not waited for the launches before
    Here wait_here;                       // of a wait for them
    std::vector<AddressRange> constants;  // what they may read
    uint32_t owner = 0;
    std::span<const uint32_t> peers;
    uint64_t seed = 0;
    SplitMix64 random{0};  // of the running block: equal however blocks are spread over OS threads
    const codegen::SimtRecord* record = nullptr;
    codegen::MatrixInstruction matrix = codegen::MatrixInstruction::kNone;
    const uint64_t* args = nullptr;
    uint32_t shared_end = 0;  // bytes of the arena in use
    Shadow shadow;
    BlockOrder order;
    WrittenRows* rows = nullptr;  // of the device's KV cache; null: nobody keeps them
    FiberStacks stacks;
    std::unique_ptr<Thread[]> threads;
    std::unique_ptr<Warp[]> warps;
    std::vector<Warpgroup> warpgroups;  // empty where the architecture has none
    SimtReport report;
    std::optional<Finding> doubtful;

private:
    void shuffle_permutations();
    Finding describe(Fault fault, Here here, const char* format, va_list list) const;
    [[noreturn]] void leave();  // with the doubtful finding, if there is one

    FiberPlace main_;                  // of whoever called `run`
    std::vector<uint16_t> orders_[8];  // permutations of the block's threads
};

// Reports an access that is out of bounds, misaligned, a race or to nothing; `size` has the
// alignment in its upper half.
void check_access(Block& block, const void* p, uint64_t size, Touch touch, Here here);

// The current thread's place in the order of things, as far as the block knows it.
Stamp stamp_of(const Block& block);

// An access to memory that devices exchange values in: reports a race with another device's, or a
// stale read. Nothing for other memory.
void check_exchange(Block& block, const void* p, uint32_t bytes, bool writes, bool atomic,
                    Here here);

// Reports a verdict. Does not return but for kUninitialised, which may yet turn out to be a race.
void fail_shadow(Block& block, const ShadowVerdict& verdict, Touch touch, Here here);

// The block of this OS thread; set while `Block::run` is under way. Fibers stay on their OS thread,
// so that the place of this variable may be kept across a switch.
extern constinit thread_local Block* running_block;
inline Block& current_block() { return *running_block; }

}  // namespace cleave::runtime::simt
