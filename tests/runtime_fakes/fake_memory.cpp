// SPDX-License-Identifier: Apache-2.0
// Memory, copies, code objects and launches of the fakes. Device and pinned memory lie in runtime/simt's slots, so that a
// checked kernel which leaves its device's allocations is found.
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <sstream>

#include "runtime/simt/memory.h"
#include "runtime/simt/simt.h"
#include "tests/runtime_fakes/fake_gpu.h"

namespace cleave::fake {

namespace {

constexpr uint32_t kPinnedOwner = 1000;
constexpr size_t kMostPitch = 2'147'483'647;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH of all cards
uint32_t owner_of(int device) { return static_cast<uint32_t>(device) + 1; }
uint32_t pool_owner_of(int device) { return owner_of(device) + 100; }

// A device, and those that were given access to its memory.
std::set<int> reached_by(int device) {
    std::set<int> devices{device};
    for (const auto* peers : {&state().peers, &state().pool_peers})
        for (const auto& [from, to] : *peers)
            if (to == device) devices.insert(from);
    return devices;
}

void break_down(int device, const std::string& finding) {
    const std::lock_guard lock(state().mutex);
    if (state().fault_of(device)) return;
    state().faults[static_cast<size_t>(device)] = kIllegalAddress;
    state().finding = finding;
}

// Bytes of an object file: the end of what its section headers name.
size_t object_size(const void* image) {
    const auto* header = static_cast<const Elf64_Ehdr*>(image);
    const auto* bytes = static_cast<const std::byte*>(image);
    size_t end = header->e_shoff + size_t{header->e_shnum} * header->e_shentsize;
    for (size_t i = 0; i < header->e_shnum; ++i) {
        Elf64_Shdr section;
        std::memcpy(&section, bytes + header->e_shoff + i * header->e_shentsize, sizeof section);
        if (section.sh_type != SHT_NOBITS)
            end = std::max<size_t>(end, section.sh_offset + section.sh_size);
    }
    return end;
}

// A command whose kernels of that name never end, and whose user then presses Ctrl-C.
const char* hang_of_process() { return std::getenv("CLEAVE_FAKE_HANG"); }

// Whether the test wants this run of a kernel to go wrong; then it has.
bool goes_wrong(const std::string& name) {
    bool hangs = false;
    {
        const std::lock_guard lock(state().mutex);
        if (state().trip.empty() || !name.starts_with(state().trip)) return false;
        if (state().trip_stream >= 0 && state().trip_stream != running_stream->number())
            return false;
        if (--state().trip_after != 0) return false;
        hangs = state().trip_hangs;
    }
    if (!hangs) {
        break_down(running_stream->device, "the kernel that the test chose");
    } else {
        {
            const std::lock_guard lock(state().mutex);
            ++state().calls["hangs"];
        }
        running_stream->hangs = true;
        ++state().hanging[static_cast<size_t>(running_stream->device)];
        if (hang_of_process()) ::kill(::getpid(), SIGINT);
        while (!state().released && !running_stream->is_closing())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        running_stream->hangs = false;
        --state().hanging[static_cast<size_t>(running_stream->device)];
    }
    return true;
}

// The fakes' own kernels: "add_words" of address, value, count; any other name does nothing.
void run_own(const std::string& name, const std::vector<uint64_t>& args) {
    if (name != "add_words") return;
    auto* words = reinterpret_cast<uint64_t*>(args[0]);
    for (uint64_t i = 0; i < args[2]; ++i) words[i] += args[1];
}

// What a destroyed pool holds ends with the last block of it.
void drop_if_empty(Pool* pool) {
    State& s = state();
    for (const auto& [address, block] : s.blocks)
        if (block.pool == pool) return;
    s.pools.erase(pool);
    delete pool;
}

}  // namespace

struct Program {
    Program(const codegen::CompiledKernel& kernel, const codegen::GpuArch& arch)
        : simt(kernel, arch) {}
    runtime::simt::SimtProgram simt;
};

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
    int64_t sum = taken;
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

int allocate(uintptr_t* address, size_t bytes, const Card& card, Pool* pool) {
    State& s = state();
    if (s.used(current_device) + static_cast<int64_t>(bytes) > card.memory) return kOutOfMemory;
    void* memory = runtime::simt::allocate_slots(
        bytes, pool ? pool_owner_of(current_device) : owner_of(current_device));
    if (!memory) return kOutOfMemory;
    *address = reinterpret_cast<uintptr_t>(memory);
    s.blocks[*address] = {current_device, static_cast<int64_t>(bytes), pool};
    return 0;
}

int make_pool(Pool** pool, int device) {
    *pool = new Pool{device};
    state().pools.insert(*pool);
    return 0;
}

Pool* find_pool(const void* handle) {
    auto* pool = static_cast<Pool*>(const_cast<void*>(handle));
    return state().pools.count(pool) && !pool->destroyed ? pool : nullptr;
}

int destroy_pool(void* handle) {
    Pool* pool = find_pool(handle);
    if (!pool) return kInvalidValue;
    pool->destroyed = true;
    drop_if_empty(pool);
    return 0;
}

int open_pool(void* handle, int to) {
    Pool* pool = find_pool(handle);
    if (!pool || to == pool->device) return kInvalidValue;
    state().pool_peers.insert({to, pool->device});
    return 0;
}

int free_block(Call& call, uintptr_t address, bool waits) {
    auto found = state().blocks.find(address);
    if (found == state().blocks.end() || found->second.device != current_device)
        return kInvalidValue;
    Pool* pool = found->second.pool;
    if (waits || !pool) settle(call, reached_by(current_device));
    state().blocks.erase(address);
    if (pool && pool->destroyed) drop_if_empty(pool);
    runtime::simt::free_slots(reinterpret_cast<void*>(address));
    return 0;
}

int allocate_pinned(void** memory, size_t bytes) {
    *memory = runtime::simt::allocate_slots(bytes, kPinnedOwner);
    if (!*memory) return kOutOfMemory;
    state().pinned[reinterpret_cast<uintptr_t>(*memory)] = static_cast<int64_t>(bytes);
    return 0;
}

int free_pinned(Call& call, void* memory) {
    if (state().pinned.count(reinterpret_cast<uintptr_t>(memory)) == 0) return kInvalidValue;
    settle(call, {0, 1, 2});  // every device's kernels see it
    state().pinned.erase(reinterpret_cast<uintptr_t>(memory));
    runtime::simt::free_slots(memory);
    return 0;
}

int fill(uintptr_t address, int value, size_t bytes, void* stream) {
    Stream* s = find_stream(stream);
    if (!s || !state().holds(address, static_cast<int64_t>(bytes), s->device)) return kInvalidValue;
    s->submit([=] { std::memset(reinterpret_cast<void*>(address), value, bytes); });
    return 0;
}

int copy(const Copy& c, void* stream) {
    Stream* s = find_stream(stream);
    if (!s || c.from_pitch < c.width || c.to_pitch < c.width || c.height == 0 ||
        std::max(c.from_pitch, c.to_pitch) > kMostPitch)
        return kInvalidValue;
    const auto span = [&](size_t pitch) {
        return static_cast<int64_t>(pitch * (c.height - 1) + c.width);
    };
    const bool to_is = state().holds(c.to, span(c.to_pitch), s->device);
    const bool from_is = state().holds(c.from, span(c.from_pitch), s->device);
    if (c.within ? !to_is || !from_is : c.to_device ? !to_is : !from_is) return kInvalidValue;
    const bool pinned = c.within      ? true
                        : c.to_device ? state().is_pinned(c.from, span(c.from_pitch))
                                      : state().is_pinned(c.to, span(c.to_pitch));
    // Of pageable memory no copy is asynchronous, nor can one be captured.
    if (!pinned) {
        ++state().calls["pageable copy"];
        if (s->capture) {
            s->capture->invalid = true;
            return kCaptureUnsupported;
        }
    }
    state().calls[c.within      ? "bytes within"
                  : c.to_device ? "bytes in"
                                : "bytes out"] += static_cast<int>(c.width * c.height);
    s->submit([c] {
        for (size_t row = 0; row < c.height; ++row)
            std::memcpy(reinterpret_cast<void*>(c.to + row * c.to_pitch),
                        reinterpret_cast<const void*>(c.from + row * c.from_pitch), c.width);
    });
    return 0;
}

int load_module(Module** module, const void* image) {
    if (!image) return kInvalidValue;
    auto made = std::make_unique<Module>();
    made->device = current_device;
    if (std::memcmp(image, ELFMAG, SELFMAG) == 0) {
        if (static_cast<const Elf64_Ehdr*>(image)->e_machine != EM_X86_64) return kNoBinary;
        const auto* bytes = static_cast<const std::byte*>(image);
        made->object.assign(bytes, bytes + object_size(image));
    } else {
        made->image = static_cast<const char*>(image);
    }
    *module = made.get();
    state().modules.insert(made.release());
    return 0;
}

int unload_module(Call& call, void* handle) {
    auto* module = static_cast<Module*>(handle);
    if (state().modules.count(module) == 0) return kInvalidValue;
    settle(call, {module->device});
    state().modules.erase(module);
    for (Function* function : state().functions)
        if (function->module == module) function->program.reset();
    delete module;
    return 0;
}

// To load a kernel may wait for all that runs (CUDA Programming Guide, "Lazy Loading").
int find_function(Call& call, Function** function, void* handle, const char* name, const Card& card,
                  int most_shared) {
    auto* module = static_cast<Module*>(handle);
    if (state().modules.count(module) == 0) return kInvalidValue;
    if (state().loads_wait)
        if (const int code = wait_for_device(call, module->device); code) return code;
    auto made = std::make_unique<Function>(Function{module, name, most_shared, nullptr});
    if (module->object.empty()) {
        if (module->image != name) return kNotFound;
    } else {
        codegen::CompiledKernel kernel;
        kernel.name = name;
        kernel.object = module->object;
        try {
            made->program = std::make_shared<Program>(kernel, codegen::gpu_arch(card.arch));
        } catch (const std::exception& error) {
            state().finding = error.what();
            return kNotFound;
        }
    }
    *function = made.get();
    state().functions.push_back(made.release());
    return 0;
}

// Of both vendors the first attribute is how many threads a block may have.
int find_attribute(int* value, int attribute, Function* function) {
    if (attribute != 0 || state().modules.count(function->module) == 0) return kInvalidValue;
    *value = state().most_threads;
    return 0;
}

// Arguments are read at once, as the drivers do.
int launch(Function* function, const Shape& shape, void* stream, void** arguments) {
    Stream* s = find_stream(stream);
    const auto& [grid, block, shared] = shape;
    const bool empty = !grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2];
    // A block's third axis has 64 threads at most (CUDA C++ Programming Guide, technical specifications).
    if (!s || empty || block[0] * block[1] * block[2] > 1024 || block[2] > 64 ||
        static_cast<int>(shared) > function->most_shared || function->module->device != s->device)
        return kInvalidValue;
    state().launched[static_cast<size_t>(s->device)] = true;
    const std::shared_ptr<Program> program = function->program;
    const size_t count = program                         ? program->simt.record().num_args
                         : function->name == "add_words" ? 3
                                                         : 0;
    std::vector<uint64_t> args;
    for (size_t i = 0; i < count; ++i) args.push_back(*static_cast<uint64_t*>(arguments[i]));
    if (!program) {
        s->submit([name = function->name, args] {
            if (!goes_wrong(name)) run_own(name, args);
        });
        s->last_launch = function->name;
        return 0;
    }
    s->submit([program, args, shape, device = s->device, name = function->name] {
        if (goes_wrong(name)) return;
        runtime::simt::LaunchOptions options;
        options.owner = owner_of(device);
        std::vector<uint32_t> peers{kPinnedOwner, pool_owner_of(device)};
        {
            const std::lock_guard lock(state().mutex);
            for (const auto& [from, to] : state().peers)
                if (from == device) peers.push_back(owner_of(to));
            for (const auto& [from, to] : state().pool_peers)
                if (from == device) peers.push_back(pool_owner_of(to));
        }
        options.peers = peers;
        try {
            thread_local runtime::simt::Engine engine(1);
            const auto report =
                engine.launch(program->simt, args, {shape.grid[0], shape.grid[1], shape.grid[2]},
                              {static_cast<int>(shape.block[0]), static_cast<int>(shape.block[1]),
                               static_cast<int>(shape.block[2])},
                              shape.shared_bytes, options);
            if (!report.clean()) break_down(device, report.finding->text());
        } catch (const std::exception& error) {
            break_down(device, error.what());
        }
    });
    s->last_launch = function->name;
    return 0;
}

std::string launched_last(void* stream) {
    const Stream* s = find_stream(stream);
    return s && !s->last_launch.empty() ? s->last_launch : "nothing";
}

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
    for (const auto& [address, bytes] : s.pinned)
        runtime::simt::free_slots(reinterpret_cast<void*>(address));
    s.pinned.clear();
    // Of no device in particular: what a test holds after a fault is one device's.
    for (Event* event : s.events) delete event;
    for (Graph* graph : s.graphs) delete graph;
    for (GraphExec* exec : s.execs) delete exec;
    s.events.clear();
    s.graphs.clear();
    s.execs.clear();
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
    for (const auto& [address, bytes] : s.pinned)
        runtime::simt::free_slots(reinterpret_cast<void*>(address));
    for (Event* event : s.events) delete event;
    for (Graph* graph : s.graphs) delete graph;
    for (GraphExec* exec : s.execs) delete exec;
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
    s.blocks.clear();
    s.pinned.clear();
    s.streams.clear();
    s.events.clear();
    s.graphs.clear();
    s.execs.clear();
    s.modules.clear();
    s.functions.clear();
    s.contexts.clear();
    s.peers.clear();
    s.pools.clear();
    s.pool_peers.clear();
    s.visible = 3;
    s.taken = 0;
    s.compute_mode = 0;
    s.parted = false;
}

int alive() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    size_t count = s.blocks.size() + s.pinned.size() + s.streams.size() + s.events.size() +
                   s.graphs.size() + s.execs.size() + s.modules.size() + s.pools.size();
    for (const auto& [device, contexts] : s.contexts) count += static_cast<size_t>(contexts);
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
