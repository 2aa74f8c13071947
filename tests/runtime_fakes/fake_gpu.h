// SPDX-License-Identifier: Apache-2.0
// What the recording fakes of libcuda and libamdhip64 share: three cards whose memory is the host's, streams that do nothing
// until somebody waits for them (work that nobody waited for is never done, and host memory is read when it is), and a count of
// everything that is alive. Each fake is a shared library of its own, with its own state; the control functions at the end are
// how a test steers it. Not thread-safe beyond what the drivers under test do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace cleave::fake {

struct Card {
    const char* name;
    const char* pci;
    unsigned char uuid;  // its bytes count up from here
    int64_t memory;
};

struct Stream {
    int device = 0;
    std::vector<std::function<void()>> queue;
};

struct Module {
    int device = 0;
    std::string image;
};

struct Function {
    Module* module;
    std::string name;
    int most_shared = 48 * 1024;
};

struct Block {
    int device;
    int64_t bytes;
};

struct State {
    std::mutex mutex;
    std::vector<std::string> log;
    std::string text;  // of the log, for who reads it
    std::map<std::string, int> calls;
    std::string failing;
    int fail_after = 0, fail_code = 0;
    int sticky = 0;  // after a fault every call gives it
    std::map<uintptr_t, Block> blocks;
    std::set<void*> pinned;
    std::set<Stream*> streams;
    std::set<Module*> modules;
    std::vector<Function*> functions;
    std::map<int, int> contexts;          // retained, by device
    std::set<std::pair<int, int>> peers;  // who may reach whom
    int visible = 3;
    int64_t taken = 0;  // by other programs, of each card

    int64_t used(int device) const {
        int64_t sum = taken;
        for (const auto& [address, block] : blocks)
            if (block.device == device) sum += block.bytes;
        return sum;
    }
    // The block that holds [address, address + bytes) of a device, or null.
    const Block* holds(uintptr_t address, int64_t bytes, int device) const {
        auto at = blocks.upper_bound(address);
        if (at == blocks.begin()) return nullptr;
        --at;
        const bool inside = static_cast<int64_t>(address - at->first) + bytes <= at->second.bytes;
        return inside && at->second.device == device ? &at->second : nullptr;
    }
};

inline State& state() {
    static State all;
    return all;
}

inline thread_local int current_device = -1;

// Counts the call, notes it, and gives the error that the test asked for; 0 otherwise.
inline int enter(const std::string& call, const std::string& detail = "") {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    s.log.push_back(detail.empty() ? call : call + " " + detail);
    ++s.calls[call];
    if (s.failing == call && --s.fail_after == 0) {
        s.failing.clear();
        return s.fail_code;
    }
    return s.sticky;
}

// A copied rectangle, with its host side read or written when the stream gets there.
struct Copy {
    uintptr_t from, to;
    size_t from_pitch, to_pitch, width, height;
};
inline void run(const Copy& c) {
    for (size_t row = 0; row < c.height; ++row)
        std::memcpy(reinterpret_cast<void*>(c.to + row * c.to_pitch),
                    reinterpret_cast<const void*>(c.from + row * c.from_pitch), c.width);
}

// What the fakes' kernels do: `words` of count, value, address; nothing else.
inline void run_kernel(const std::string& name, const std::vector<uint64_t>& args) {
    if (name != "add_words") return;
    auto* words = reinterpret_cast<uint64_t*>(args[0]);
    for (uint64_t i = 0; i < args[2]; ++i) words[i] += args[1];
}

inline void finish(Stream& stream) {
    std::vector<std::function<void()>> queue;
    queue.swap(stream.queue);
    for (const auto& work : queue) work();
}

}  // namespace cleave::fake

// ---- For tests ------------------------------------------------------------------------------------

extern "C" {

// Forgets everything, leaks included.
inline void fake_reset_state() {
    using namespace cleave::fake;
    State& s = state();
    const std::lock_guard lock(s.mutex);
    for (const auto& [address, block] : s.blocks) std::free(reinterpret_cast<void*>(address));
    for (void* memory : s.pinned) std::free(memory);
    for (Stream* stream : s.streams) delete stream;
    for (Module* module : s.modules) delete module;
    for (Function* function : s.functions) delete function;
    s.log.clear();
    s.calls.clear();
    s.failing.clear();
    s.sticky = 0;
    s.blocks.clear();
    s.pinned.clear();
    s.streams.clear();
    s.modules.clear();
    s.functions.clear();
    s.contexts.clear();
    s.peers.clear();
    s.visible = 3;
    s.taken = 0;
}

}  // extern "C"

// The same functions in each fake: definitions with external names.
#define CLEAVE_FAKE_CONTROLS                                                           \
    extern "C" {                                                                       \
    void fake_reset() { fake_reset_state(); }                                          \
    /* The nth call of `call` from now on fails with `code`. */                        \
    void fake_fail(const char* call, int nth, int code) {                              \
        auto& s = cleave::fake::state();                                               \
        s.failing = call;                                                              \
        s.fail_after = nth;                                                            \
        s.fail_code = code;                                                            \
    }                                                                                  \
    /* From the next wait on every call fails: a kernel fault. */                      \
    void fake_break(int code) { cleave::fake::state().sticky = code; }                 \
    void fake_show(int count) { cleave::fake::state().visible = count; }               \
    void fake_take(int64_t bytes) { cleave::fake::state().taken = bytes; }             \
    /* What is alive: allocations, pinned blocks, streams, modules, contexts. */       \
    int fake_alive() {                                                                 \
        auto& s = cleave::fake::state();                                               \
        int contexts = 0;                                                              \
        for (const auto& [device, count] : s.contexts) contexts += count;              \
        return static_cast<int>(s.blocks.size() + s.pinned.size() + s.streams.size() + \
                                s.modules.size()) +                                    \
               contexts;                                                               \
    }                                                                                  \
    int fake_calls(const char* call) { return cleave::fake::state().calls[call]; }     \
    const char* fake_log() {                                                           \
        auto& s = cleave::fake::state();                                               \
        s.text.clear();                                                                \
        for (const std::string& line : s.log) s.text += line + "\n";                   \
        return s.text.c_str();                                                         \
    }                                                                                  \
    }
