// SPDX-License-Identifier: Apache-2.0
// The state of a fake: what its calls have in common, how it is emptied, and the functions by which
// a test steers it.
#include <chrono>
#include <sstream>

#include "runtime/simt/memory.h"
#include "tests/runtime_fakes/fake_gpu.h"

namespace cleave::fake {

const char* hang_of_process() { return std::getenv("CLEAVE_FAKE_HANG"); }

State& state() {
    static State all;
    static const bool made [[maybe_unused]] = [] {
        if (const char* kernel = hang_of_process()) {
            all.trip = kernel;
            all.trip_after = 1;
            all.trip_hangs = true;
        }
        // Of a command: "cuDeviceTotalMem_v2 2 999", as of fake_fail.
        if (const char* failure = std::getenv("CLEAVE_FAKE_FAIL")) {
            std::istringstream words(failure);
            words >> all.failing >> all.fail_after >> all.fail_code;
        }
        return true;
    }();
    return all;
}

// The usual end of a process waits for its cards' work.
struct End {
    ~End() {
        if (!hang_of_process()) return;
        for (Stream* stream : state().streams)
            while (stream->hangs) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
} end;

int64_t State::used(int device) const {
    int64_t sum = taken + libraries[static_cast<size_t>(device)];
    for (const auto& [address, block] : blocks)
        if (block.device == device) sum += block.bytes;
    return sum;
}

const Block* State::holds(uintptr_t address, int64_t bytes, int device) const {
    auto at = blocks.upper_bound(address);
    if (at == blocks.begin()) return nullptr;
    --at;
    const bool inside = static_cast<int64_t>(address - at->first) + bytes <= at->second.bytes;
    return inside && at->second.device == device ? &at->second : nullptr;
}

bool State::is_pinned(uintptr_t address, int64_t bytes) const {
    auto at = pinned.upper_bound(address);
    if (at == pinned.begin()) return false;
    --at;
    return static_cast<int64_t>(address - at->first) + bytes <= at->second;
}

Call::Call(const std::string& name, const std::string& detail) : lock(state().mutex) {
    State& s = state();
    calling = this;
    s.log.push_back(detail.empty() ? name : name + " " + detail);
    ++s.calls[name];
    if (s.failing == name && --s.fail_after == 0) {
        s.failing.clear();
        code = s.fail_code;
    } else {
        code = s.fault_of(current_device);
    }
    if (s.blocking != name || current_device < 0) return;
    ++s.waiting;
    lock.unlock();
    while (s.hanging[static_cast<size_t>(current_device)] > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
    --s.waiting;
}

namespace {

void drop_what_no_device_owns(State& s) {
    for (const auto& [address, bytes] : s.pinned)
        runtime::simt::free_slots(reinterpret_cast<void*>(address));
    for (Event* event : s.events) delete event;
    for (Graph* graph : s.graphs) delete graph;
    for (GraphExec* exec : s.execs) delete exec;
    s.pinned.clear();
    s.events.clear();
    s.graphs.clear();
    s.execs.clear();
}

}  // namespace

void drop_device(int device) {
    State& s = state();
    for (auto at = s.blocks.begin(); at != s.blocks.end();) {
        if (at->second.device == device)
            runtime::simt::free_slots(reinterpret_cast<void*>(at->first));
        at = at->second.device == device ? s.blocks.erase(at) : std::next(at);
    }
    for (auto at = s.pools.begin(); at != s.pools.end();) {
        Pool* pool = *at;
        at = pool->device == device ? s.pools.erase(at) : std::next(at);
        if (pool->device == device) delete pool;
    }
    // Of no device in particular: what a test holds after a fault is one device's.
    drop_what_no_device_owns(s);
    for (auto at = s.modules.begin(); at != s.modules.end();) {
        Module* module = *at;
        at = module->device == device ? s.modules.erase(at) : std::next(at);
        if (module->device == device) delete module;
    }
}

void reset() {
    State& s = state();
    s.released = true;
    while (s.waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (Stream* stream : s.streams) delete stream;  // joins its thread, which may look at the rest
    const std::lock_guard lock(s.mutex);
    for (const auto& [address, block] : s.blocks)
        runtime::simt::free_slots(reinterpret_cast<void*>(address));
    drop_what_no_device_owns(s);
    for (Module* module : s.modules) delete module;
    for (Function* function : s.functions) delete function;
    for (Pool* pool : s.pools) delete pool;
    s.log.clear();
    s.calls.clear();
    s.failing.clear();
    s.finding.clear();
    s.trip.clear();
    s.trip_stream = -1;
    s.blocking.clear();
    s.loads_wait = true;
    s.most_threads = 1024;
    s.sticky = 0;
    for (auto& fault : s.faults) fault = 0;
    for (auto& launched : s.launched) launched = false;
    s.live = s.released = s.one_at_a_time = s.nameless = s.alike = false;
    s.graphics = s.integrated = false;
    s.timer_khz = 100'000;
    s.lag_us = 0;
    s.room = 0;
    s.late = -1;
    s.seen_late_us = 0;
    s.blocks.clear();
    s.streams.clear();
    s.modules.clear();
    s.functions.clear();
    s.contexts.clear();
    s.peers.clear();
    s.pools.clear();
    s.pool_peers.clear();
    s.visible = 3;
    s.taken = 0;
    s.libraries = {};
    s.compute_mode = 0;
    s.parted = false;
}

int alive() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    size_t count = s.blocks.size() + s.pinned.size() + s.streams.size() + s.events.size() +
                   s.graphs.size() + s.execs.size() + s.modules.size() + s.pools.size();
    for (const auto& [device, contexts] : s.contexts) count += static_cast<size_t>(contexts);
    for (const int64_t bytes : s.libraries) count += bytes != 0;
    return static_cast<int>(count);
}

}  // namespace cleave::fake

using namespace cleave::fake;

extern "C" {

void fake_reset() { reset(); }
void fake_fail(const char* call, int nth, int code) {
    const std::lock_guard lock(state().mutex);
    state().failing = call;
    state().fail_after = nth;
    state().fail_code = code;
}
void fake_break(int code) { state().sticky = code; }
void fake_show(int count) { state().visible = count; }
void fake_take(int64_t bytes) { state().taken = bytes; }
void fake_version(int version) { state().version = version; }
void fake_compute_mode(int mode) { state().compute_mode = mode; }
void fake_parts(int parted) { state().parted = parted != 0; }
void fake_timer(int khz) { state().timer_khz = khz; }
void fake_graphics(int graphics) { state().graphics = graphics != 0; }
void fake_integrated(int integrated) { state().integrated = integrated != 0; }
void fake_nameless(int nameless) { state().nameless = nameless != 0; }
void fake_alike(int alike) { state().alike = alike != 0; }
void fake_live(int64_t lag_us) {
    state().live = true;
    state().lag_us = lag_us;
}
void fake_room(int work) { state().room = static_cast<uint64_t>(work); }
void fake_late(int stream, int64_t microseconds) {
    state().late_us = microseconds;
    state().late = stream;
}
void fake_seen_late(int64_t microseconds) { state().seen_late_us = microseconds; }
void fake_one_at_a_time() { state().one_at_a_time = true; }
void fake_trip(const char* kernel, int nth, int hangs) {
    const std::lock_guard lock(state().mutex);
    state().trip = kernel;
    state().trip_after = nth;
    state().trip_hangs = hangs != 0;
}
void fake_trip_on(int stream) {
    const std::lock_guard lock(state().mutex);
    state().trip_stream = stream;
}
void fake_release() { state().released = true; }
void fake_block(const char* call) {
    const std::lock_guard lock(state().mutex);
    state().blocking = call;
}
void fake_load_beside_work() { state().loads_wait = false; }
void fake_most_threads(int threads) { state().most_threads = threads; }
int fake_current_device() { return current_device; }
int fake_alive() { return alive(); }
int fake_calls(const char* call) {
    const std::lock_guard lock(state().mutex);
    return state().calls[call];
}
const char* fake_log() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    s.text.clear();
    for (const std::string& line : s.log) s.text += line + "\n";
    return s.text.c_str();
}
const char* fake_finding() { return state().finding.c_str(); }
const char* fake_queues() { return state().queues.c_str(); }

}  // extern "C"
