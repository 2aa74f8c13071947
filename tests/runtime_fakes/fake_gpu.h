// SPDX-License-Identifier: Apache-2.0
// What the recording fakes of libcuda and libamdhip64 share: three cards whose memory is this
// machine's, streams with a thread each, events, captured graphs, kernels that compute (GPU source
// compiled for the CPU's imitation, runtime/simt), and a count of everything that is alive. Each
// fake is a shared library of its own, with its own state; the control functions at the end are how
// a test steers it.
//
// A stream does nothing until somebody waits for it or asks whether it is done: work that nobody
// waits for is never done, and host memory is read when it is. `fake_live` lets streams run on
// their own, as real ones do. Legality follows the vendors' documents where a program can break it:
// see `Call` and the functions that use it.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime_fakes/work_queue.h"

namespace cleave::fake {

// The same numbers in both vendors' lists.
inline constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101,
                     kInvalidContext = 201, kNoBinary = 209, kInvalidHandle = 400, kNotFound = 500,
                     kNotReady = 600, kIllegalAddress = 700, kCaptureUnsupported = 900,
                     kCaptureInvalidated = 901, kCaptureUnmatched = 903, kCaptureWrongThread = 908;

// Owners of slots of memory, for runtime/simt.
inline constexpr uint32_t kPinnedOwner = 1000;
inline uint32_t owner_of(int device) { return static_cast<uint32_t>(device) + 1; }
inline uint32_t pool_owner_of(int device) { return owner_of(device) + 100; }

struct Card {
    const char* name;
    const char* pci;
    unsigned char uuid;  // its bytes count up from here
    int64_t memory;
    const char* arch;
};

// When a stream came to a point: shared by the event and the stream's queue.
struct Mark {
    struct Stream* stream = nullptr;
    uint64_t ticket = 0;  // of the stream's work
    int64_t time_ns = 0;
};

struct Event {
    bool timing = true;
    std::shared_ptr<Mark> mark;  // null: never recorded
    int device = 0;
};

// Work of a stream between the begin and the end of a capture; its thread's other calls are
// watched.
struct Capture {
    std::vector<Work> nodes;
    bool invalid = false;
    std::thread::id thread;
};

struct Graph {
    std::vector<Work> nodes;
};
struct GraphExec {
    std::vector<Work> nodes;
};

// One thread that does the queue's work in order, as far as it is allowed to.
struct Stream final : WorkQueue {
    explicit Stream(int of_device);
    ~Stream() override;
    void close();  // ends what waits for it
    uint64_t submit(Work work) override;
    void allow(uint64_t ticket);
    bool is_done(uint64_t ticket);
    void wait(uint64_t ticket);
    // Waits for all that was submitted; false where a kernel that never ends is in the way.
    bool settles();
    uint64_t last();
    bool is_closing() const { return quit_; }
    int number() const { return number_; }

    int device;
    std::unique_ptr<Capture> capture;
    std::atomic<bool> hangs{false};  // in a kernel that never ends
    int waiters = 0;                 // calls that wait for it, by the state's mutex
    std::string last_launch;  // of what was submitted or captured last; empty: something else

private:
    void serve();
    void await_room();
    const int number_;  // how many its card had when it was made
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    uint64_t submitted_ = 0, done_ = 0, allowed_ = 0;
    std::atomic<bool> quit_{false};
    bool waited_in_vain_ = false;
    std::thread thread_;
};

struct Module {
    int device = 0;
    std::string image;              // a text: the name of one of the fakes' own kernels
    std::vector<std::byte> object;  // or an object for runtime/simt
};

struct Program;  // a loaded object
struct Function {
    Module* module;
    std::string name;
    int most_shared = 48 * 1024;
    std::shared_ptr<Program> program;  // null for the fakes' own kernels
};

struct Pool {
    int device;
    bool destroyed = false;  // it goes with its last block
};

struct Block {
    int device;
    int64_t bytes;
    Pool* pool = nullptr;
};

struct State {
    std::recursive_mutex mutex;
    std::vector<std::string> log;
    std::string text;  // of the log, for who reads it
    std::map<std::string, int> calls;
    std::string failing;
    int fail_after = 0, fail_code = 0;
    std::atomic<int> sticky{0};                // every call gives it
    std::array<std::atomic<int>, 4> faults{};  // by device: after a fault every call there gives it
    std::string finding;                       // what runtime/simt reported of a kernel's fault
    std::string queues;  // the value of the variable for hardware queues at the first call
    std::atomic<bool> live{false};              // streams run on their own
    std::atomic<int64_t> lag_us{0};             // before each piece of work
    std::atomic<bool> one_at_a_time{false};     // a card has room for one kernel
    std::array<std::mutex, 4> cards;            // by device, held by that kernel
    std::array<std::atomic<int>, 4> hanging{};  // kernels that never end, by device
    std::atomic<bool> released{false};          // kernels that hang go on
    std::string trip;                           // the kernels whose name begins so
    int trip_after = 0;                         // of their runs from now on: that one goes wrong
    bool trip_hangs = false;
    int trip_stream = -1;                         // of the stream with this number only; -1: of any
    std::array<std::atomic<bool>, 4> launched{};  // by device: kernels may run there from now on
    std::atomic<uint64_t> room{0};         // of a stream for work that is not done; 0: without end
    std::array<std::mutex, 4> submitting;  // by device: held by who waits for room there
    std::atomic<int> late{-1};             // the number of each card's stream whose work comes late
    std::atomic<int64_t> late_us{0};
    int64_t seen_late_us = 0;            // after it is done, the next event that is asked for
    std::string blocking;                // a call that waits for kernels that never end
    std::atomic<int> waiting{0};         // calls that wait for the work of a card
    std::atomic<bool> loads_wait{true};  // those that load a kernel do
    int most_threads = 1024;             // of a block of any kernel
    std::map<uintptr_t, Block> blocks;
    std::map<uintptr_t, int64_t> pinned;
    std::set<Stream*> streams;
    std::set<Event*> events;
    std::set<Graph*> graphs;
    std::set<GraphExec*> execs;
    std::set<Module*> modules;
    std::vector<Function*> functions;
    std::set<Pool*> pools;
    std::map<int, int> contexts;               // retained, by device
    std::set<std::pair<int, int>> peers;       // who may reach whom
    std::set<std::pair<int, int>> pool_peers;  // whose pools, which the former does not open
    int visible = 3;
    int version = 13000;  // of libcuda
    int compute_mode = 0;
    bool parted = false;                   // cards are parts of cards (MIG)
    int timer_khz = 100'000;               // of the clock that AMD's kernels read
    bool graphics = false;                 // AMD's cards are such
    bool integrated = false;               // the last of AMD's is a processor's own
    bool nameless = false, alike = false;  // of AMD's: without a UUID, with those of the first card
    int64_t taken = 0;                     // by other programs, of each card
    std::array<int64_t, 4> libraries{};    // by the vendor's other libraries, by device

    int fault_of(int device) const {
        return sticky ? sticky.load() : device < 0 ? 0 : faults[static_cast<size_t>(device)].load();
    }
    int64_t used(int device) const;
    // The block that holds [address, address + bytes) of a device, or null.
    const Block* holds(uintptr_t address, int64_t bytes, int device) const;
    bool is_pinned(uintptr_t address, int64_t bytes) const;
};
State& state();
inline thread_local int current_device = -1;
inline thread_local Stream* running_stream = nullptr;  // whose thread this is
inline thread_local struct Call* calling = nullptr;    // this thread's call that is under way

// A call of the library: holds the state, is counted and noted. `code` is the error that the test
// asked for or the sticky one; 0 otherwise.
struct Call {
    explicit Call(const std::string& name, const std::string& detail = "");
    ~Call() { calling = nullptr; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // Of calls that no thread may make while it captures a stream (CUDA Driver API,
    // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL): it ends the capture.
    Call& unsafe();
    std::unique_lock<std::recursive_mutex> lock;
    int code = 0;
};

// Of a command whose kernels of that name never end, and whose user then presses Ctrl-C.
const char* hang_of_process();

Stream* find_stream(const void* handle);
Event* find_event(const void* handle);

// Each gives an error code of both vendors. Those that wait let go of the call's lock meanwhile.
int make_stream(Stream** stream);
int destroy_stream(Call& call, void* handle);
int wait_for_stream(Call& call, void* handle);
int query_stream(void* handle);
// What a call that gives something of a device back does first: it waits for the devices whose
// kernels may reach it. Where one of their kernels never ends the real call never does; here it is
// counted as "waits for ever" after a while.
void settle(Call& call, const std::set<int>& devices);
// What a call does first that may wait for all that runs on a device: as long as that lasts.
int wait_for_device(Call& call, int device);
// No document promises that it does not wait: once kernels may run on the device it is counted as
// "event beside kernels".
int make_event(Event** event, bool timing);
int destroy_event(void* handle);
int record_event(void* event, void* stream);
int query_event(Call& call, void* event);
int elapsed(float* ms, void* from, void* to);
int begin_capture(void* stream, int mode);
int end_capture(const Call& call, void* stream, Graph** graph);  // also of a call that fails
int instantiate(GraphExec** exec, void* graph);
int launch_graph(void* exec, void* stream);
int destroy_graph(void* graph);
int destroy_exec(Call& call, void* exec);  // may wait for the card

int allocate(uintptr_t* address, size_t bytes, const Card& card, Pool* pool = nullptr);
// Memory of a pool is its device's; other devices' kernels reach it when the pool says so.
int make_pool(Pool** pool, int device);
Pool* find_pool(const void* handle);
int destroy_pool(void* handle);
int open_pool(void* handle, int to);
// `waits`: for those that may use it, also of a pool's memory.
// For another library of the vendor's; what is below zero is given back.
int take_for_library(int device, int64_t bytes, const Card& card);
int free_block(Call& call, uintptr_t address, bool waits = true);
int allocate_pinned(void** memory, size_t bytes);
int free_pinned(Call& call, void* memory);

int fill(uintptr_t address, int value, size_t bytes, void* stream);
struct Copy {
    uintptr_t from, to;
    size_t from_pitch, to_pitch, width, height;
    bool to_device, within = false;
};
int copy(const Copy& copy, void* stream);

int load_module(Module** module, const void* image);
int unload_module(Call& call, void* handle);
int find_function(Call& call, Function** function, void* module, const char* name, const Card& card,
                  int most_shared);
int find_attribute(int* value, int attribute, Function* function);
struct Shape {
    unsigned grid[3], block[3], shared_bytes;
};
int launch(Function* function, const Shape& shape, void* stream, void** arguments);
// What a launch that may begin before the one before it has ended has before it on the stream, or
// in the capture: a kernel's name, or "nothing".
std::string launched_last(void* stream);

// After a fault a device's objects go with its context.
void drop_device(int device);
// Forgets everything, leaks included.
void reset();
int alive();

}  // namespace cleave::fake

// The control functions of each fake.
extern "C" {
void fake_reset();
// The nth call of `call` from now on fails with `code`.
void fake_fail(const char* call, int nth, int code);
// Every call fails from now on, as after a kernel's fault.
void fake_break(int code);
void fake_show(int count);
void fake_take(int64_t bytes);
// As a vendor's other library takes memory of a card, or gives it back: an error's number, or 0.
int fake_take_on(int device, int64_t bytes);
void fake_version(int version);
// Of NVIDIA's cards: their compute mode; whether they are parts of cards.
void fake_compute_mode(int mode);
void fake_parts(int parted);
// Of AMD's cards: they have no UUID; all have the UUID and the place of the first, as parts of a
// card have.
void fake_timer(int khz);
void fake_graphics(int graphics);
void fake_integrated(int integrated);
void fake_nameless(int nameless);
void fake_alike(int alike);
// Streams run on their own, each piece of work after this many microseconds.
void fake_live(int64_t lag_us);
// The next event that is done when it is asked for is told so this many microseconds later.
void fake_seen_late(int64_t microseconds);
// A card does one piece of work at a time, for all its streams.
void fake_one_at_a_time();
// A stream has room for this much pending work. A call that adds more waits until there is room,
// and so does any other thread that gives work to a stream of that card.
// Behind a kernel that never ends it is counted as "waits for ever" after a while, and goes on.
void fake_room(int work);
// Of each card's streams the one with that number, in the order they were made, is asked for each
// piece of work so late.
void fake_late(int stream, int64_t microseconds);
// The nth run from now on of a kernel whose name begins with `kernel` faults, or hangs.
void fake_trip(const char* kernel, int nth, int hangs);
// Of kernels on the stream with that number only.
void fake_trip_on(int stream);
// Kernels that hang end.
void fake_release();
// The calls of that name wait inside for as long as a kernel hangs on the calling thread's card.
void fake_block(const char* call);
// To load a kernel waits for nothing that runs.
void fake_load_beside_work();
// A block of any kernel has so many threads at most.
void fake_most_threads(int threads);
// What is alive: allocations, pinned blocks, streams, events, graphs, modules, contexts.
int fake_current_device();  // of the calling thread
int fake_alive();
int fake_calls(const char* call);
const char* fake_log();
const char* fake_finding();
const char* fake_queues();
}
