// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/block.h"

#include <cstdio>
#include <numeric>

#include <sys/mman.h>

#include "runtime/base/errors.h"
#include "runtime/simt/arena.h"
#include "runtime/simt/warpgroup.h"

namespace cleave::runtime::simt {

namespace {

// The body of every fiber: one kernel thread after the other, a block each.
void fiber_main() {
    for (;;) {
        Block& block = current_block();
        block.record->run(block.args);
        current_block().exit_thread();
    }
}

const char* meeting_name(Meeting meeting) {
    switch (meeting) {
        case Meeting::kBarrier: return "barrier";
        case Meeting::kWarpSync: return "warp_sync";
        case Meeting::kShuffle: return "shuffle";
        case Meeting::kBallot: return "ballot";
        case Meeting::kReduce: return "warp reduction";
        case Meeting::kMatrix: return "matrix instruction";
        case Meeting::kWarpgroup: return "product of a warpgroup";
        case Meeting::kNone: break;
    }
    return "nothing";
}

}  // namespace

constinit thread_local Block* running_block = nullptr;

Block::Block() : threads(new Thread[kMaxThreads]), warps(new Warp[kMaxThreads / 32]) {
    void* memory = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    shared = static_cast<char*>(memory);
}

Block::~Block() { ::munmap(shared, kArenaBytes); }

void Block::prepare(const codegen::SimtRecord& kernel, const codegen::GpuArch& arch,
                    const uint64_t* arguments, const int (&grid)[3], const int (&block)[3],
                    uint32_t dynamic_bytes, const LaunchOptions& options) {
    record = &kernel;
    matrix = arch.matrix;
    args = arguments;
    owner = options.owner;
    peers = options.peers;
    width = kernel.warp_width;
    checked = kernel.checked != 0;
    shuffle_order = options.shuffle_order;
    seed = options.seed;
    overlaps = options.overlaps && checked;
    rows = checked ? options.rows : nullptr;
    wait_here = {};
    constants.clear();
    for (size_t i = 0; overlaps && i < kernel.num_args && i < 64; ++i)
        if (options.constant_args >> i & 1) constants.push_back(allocation_of(arguments[i]));
    random = SplitMix64(seed);
    report = SimtReport{};
    doubtful.reset();
    std::copy(std::begin(grid), std::end(grid), blocks_in);
    std::copy(std::begin(block), std::end(block), threads_in);
    num_threads = static_cast<uint32_t>(block[0] * block[1] * block[2]);
    shared_end = kernel.dynamic_offset + dynamic_bytes;
    stacks.reserve(num_threads, kernel.stack_bytes);
    uint32_t num_warps = (num_threads + width - 1) / width;
    for (uint32_t i = 0; i < num_warps; ++i) {
        Warp& warp = warps[i];
        warp.first = i * width;
        warp.index = i;
        warp.lanes = std::min(width, num_threads - warp.first);
        warp.epoch = 0;
    }
    for (uint32_t i = 0; i < num_threads; ++i) {
        Thread& thread = threads[i];
        thread.fiber = stacks.start(i, fiber_main);
        thread.warp = &warps[i / width];
        thread.index = i;
        thread.lane = i % width;
        thread.place[0] = static_cast<int>(i) % block[0];
        thread.place[1] = static_cast<int>(i) / block[0] % block[1];
        thread.place[2] = static_cast<int>(i) / (block[0] * block[1]);
    }
    warpgroups.resize(arch.warpgroups ? num_threads / kWarpgroupThreads : 0);
    if (shuffle_order) shuffle_permutations();
    if (!checked) return;
    shadow.reset(shared_end, kernel.cell_bytes, width);
    if (!warpgroups.empty()) shadow.watch_fences();
    for (uint32_t i = 0; i < kernel.num_variables; ++i)
        shadow.allow(kernel.variables[i].offset, kernel.variables[i].bytes);
    shadow.allow(kernel.dynamic_offset, dynamic_bytes);
}

void Block::shuffle_permutations() {
    for (std::vector<uint16_t>& order : orders_) {
        order.resize(num_threads);
        std::iota(order.begin(), order.end(), uint16_t{0});
        for (size_t i = num_threads; i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
    }
}

void Block::make_all_ready() {
    if (!shuffle_order) {
        for (uint32_t i = 0; i < num_threads; ++i) make_ready(i);
    } else {
        for (uint16_t i : orders_[random.next() % 8]) make_ready(i);
    }
}

bool Block::run(uint64_t index) {
    running_block = this;
    random = SplitMix64(seed * 0x100000001b3 + index);
    place[0] = static_cast<int>(index % static_cast<uint64_t>(blocks_in[0]));
    place[1] = static_cast<int>(index / static_cast<uint64_t>(blocks_in[0]) %
                                static_cast<uint64_t>(blocks_in[1]));
    place[2] = static_cast<int>(index / static_cast<uint64_t>(blocks_in[0]) /
                                static_cast<uint64_t>(blocks_in[1]));
    head = tail = kQueue * 4;
    exited = barrier_arrived = 0;
    early = overlaps ? num_threads : 0;
    for (uint32_t i = 0; i < num_threads; ++i) {
        Thread& thread = threads[i];
        thread.exited = false;
        thread.early = overlaps;
        thread.meeting = Meeting::kNone;
        thread.turn = 0;
        thread.copy_group = 0;
        thread.copies.clear();
        thread.product_group = 0;
        thread.product_fence = false;
        if (thread.lane == 0) {
            thread.warp->arrived = thread.warp->exited = 0;
            thread.warp->partial.clear();
        }
    }
    for (Warpgroup& group : warpgroups) group.begin_block();
    if (checked) {
        shadow.begin_block();
        order.begin_block(static_cast<uint32_t>(index));
    } else if (shuffle_order) {
        // Stale values of the block before would look like this block's own.
        std::fill_n(reinterpret_cast<uint64_t*>(shared), shared_end / 8, 0x7ff8dead7fc0dead);
    }
    make_all_ready();
    current = &threads[queue[head++ % kQueue]];
    switch_fiber(&main_, &current->fiber);
    running_block = nullptr;
    order.end_block();
    return report.clean();
}

void Block::exit_thread() {
    Thread* self = current;
    self->exited = true;
    self->meeting = Meeting::kNone;
    ++exited;
    Warp& warp = *self->warp;
    ++warp.exited;
    if (barrier_arrived > 0)
        fail(Fault::kDivergentBarrier, barrier_here,
             "thread %u left the kernel while %u threads wait at this barrier", self->index,
             barrier_arrived);
    if (warp.arrived > 0)
        fail(Fault::kDivergentWarp, warp.here,
             "lane %u left the kernel while %u lanes of its warp wait at this %s", self->lane,
             warp.arrived, meeting_name(warp.meeting));
    for (const PartialMeeting& meeting : warp.partial)
        if (meeting.lanes >> self->lane & 1)
            fail(Fault::kInactiveLane, meeting.here, "lane %u, named by this mask, left the kernel",
                 self->lane);
    if (!warpgroups.empty()) check_products_at_exit(*this, *self);
    if (exited == num_threads) {
        if (early > 0) fail_without_wait();
        settle_doubt();
        switch_fiber(&self->fiber, &main_);
    } else {
        yield(self);
    }
}

// At the block's end; threads that did wait have recorded the place.
void Block::fail_without_wait() {
    uint32_t first = 0;
    while (!threads[first].early) ++first;
    current = &threads[first];
    fail(Fault::kNoWait, wait_here,
         "thread %u left the kernel without await_previous_launch(): the launch behind this one "
         "may begin before those in front have ended",
         first);
}

Finding Block::describe(Fault fault, Here here, const char* format, va_list list) const {
    char text[320];
    std::vsnprintf(text, sizeof text, format, list);
    Finding finding;
    finding.fault = fault;
    finding.kernel = record->name;
    finding.file = here.file ? here.file : "";
    finding.line = here.line;
    std::copy(std::begin(place), std::end(place), finding.block.begin());
    std::copy(std::begin(current->place), std::end(current->place), finding.thread.begin());
    finding.detail = text;
    return finding;
}

void Block::doubt(Fault fault, Here here, const char* format, ...) {
    if (doubtful) return;
    va_list list;
    va_start(list, format);
    doubtful = describe(fault, here, format, list);
    va_end(list);
}

// A value that nobody wrote leads anywhere: unless it was a race, the earlier doubt is the cause.
void Block::fail(Fault fault, Here here, const char* format, ...) {
    va_list list;
    va_start(list, format);
    if (!doubtful || fault == Fault::kRace) doubtful = describe(fault, here, format, list);
    va_end(list);
    leave();
}

void Block::leave() {
    report.finding = std::move(doubtful);
    doubtful.reset();
    // The other fibers are abandoned in mid-run: `prepare` starts them afresh.
    switch_fiber(&current->fiber, &main_);
    __builtin_unreachable();
}

void Block::stuck() {
    const Thread* first = nullptr;
    const Thread* other = nullptr;
    for (uint32_t i = 0; i < num_threads; ++i) {
        const Thread& thread = threads[i];
        if (thread.exited) continue;
        if (!first) first = &thread;
        if (!other && (thread.meeting != first->meeting || !(thread.here == first->here)))
            other = &thread;
    }
    current = const_cast<Thread*>(first);
    Fault fault = Fault::kDivergentWarp;
    if (first->meeting == Meeting::kBarrier || (other && other->meeting == Meeting::kBarrier))
        fault = Fault::kDivergentBarrier;
    if (other)
        fail(fault, first->here,
             "no thread can go on: thread %u waits at this %s, thread %u at the %s of line %d",
             first->index, meeting_name(first->meeting), other->index, meeting_name(other->meeting),
             other->here.line);
    fail(fault, first->here,
         "no thread can go on: %u threads left the kernel, the others wait at this %s", exited,
         meeting_name(first->meeting));
}

}  // namespace cleave::runtime::simt
