// SPDX-License-Identifier: Apache-2.0
// A libnccl (and librccl) that records. Operations go onto the streams of the fake drivers and are
// done when somebody waits for those: each rank then waits for the others, as the real kernels do,
// until its communicator is aborted. Communicators take a few polls to open; one that is given a
// card twice is refused with the real library's error. Where a test wants it, ranks take memory of
// their fake card when they are opened and again with their first operation, and fail where it has
// none left. The control functions at the end are how a test steers it. Thread-safe.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/drivers/nccl/symbols.h"
#include "tests/runtime_fakes/work_queue.h"

using namespace cleave::runtime::nccl;

extern "C" ncclResult_t ncclGroupEnd();

namespace {

constexpr ncclResult_t kUnhandledCudaError = 1, kInvalidArgument = 4, kInvalidUsage = 5;

struct Part {
    enum Kind { kAllReduce, kAllGather, kBroadcast, kSend, kRecv } kind;
    const char* source;
    char* destination;
    size_t count;
    ncclDataType_t type;
    int peer;  // or root

    size_t bytes() const { return count * (type == ncclFloat32 ? 4 : type == ncclUint8 ? 1 : 2); }
};

struct Clique;
struct Rank {
    Clique* clique;
    int rank, device;
    uint64_t operations = 0;
    bool aborted = false, finalized = false;
    int polls = 0;     // that still give ncclInProgress
    int64_t held = 0;  // bytes of its card
    bool connected = false;
    ncclResult_t error = ncclSuccess;
};

// Where the ranks of one operation meet.
struct Meeting {
    std::map<int, std::vector<Part>> parts;
    size_t left = 0;
};
struct Message {
    const char* source = nullptr;
    size_t bytes = 0;
    bool taken = false;
};
struct Clique {
    size_t size = 0;
    std::vector<Rank*> ranks;
    std::map<uint64_t, Meeting> meetings;
    std::map<std::pair<int, int>, std::vector<Message*>> messages;  // from, to
};

struct Pending {
    Rank* rank;
    cleave::fake::WorkQueue* stream;
    std::vector<Part> parts;
};

std::mutex mutex;
std::condition_variable changed;
std::vector<std::string> call_log;
std::string log_text, last_error, failing;
std::map<std::string, int> call_counts;
int fail_after = 0, fail_code = 0, opening_polls = 2, late_error = 0, ids = 0;
int (*current_device)() = nullptr;
int (*take_memory)(int device, int64_t bytes) = nullptr;
int64_t bytes_to_open = 0, bytes_to_connect = 0;
std::map<std::string, Clique*> cliques;
std::set<Rank*> ranks;

thread_local int group_depth = 0;
thread_local std::vector<Pending> pending;
thread_local std::vector<Rank*> opening;

ncclResult_t note(const std::string& call, const std::string& detail = "") {
    call_log.push_back(detail.empty() ? call : call + " " + detail);
    ++call_counts[call];
    if (failing != call || --fail_after != 0) return ncclSuccess;
    failing.clear();
    last_error = "as the test asked";
    return fail_code;
}

// What the real library says of cudaMalloc's error.
ncclResult_t take(Rank& rank, int64_t bytes) {
    if (!take_memory || bytes == 0) return ncclSuccess;
    call_log.push_back("takes " + std::to_string(bytes) + " of " + std::to_string(rank.device));
    if (take_memory(rank.device, bytes) != 0) {
        last_error = "Cuda failure 2 'out of memory'";
        return kUnhandledCudaError;
    }
    rank.held += bytes;
    return ncclSuccess;
}

float read(const char* at, size_t i, ncclDataType_t type) {
    uint32_t bits = 0;
    if (type == ncclFloat32)
        std::memcpy(&bits, at + 4 * i, 4);
    else
        std::memcpy(reinterpret_cast<char*>(&bits) + 2, at + 2 * i, 2);
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
void write(char* at, size_t i, ncclDataType_t type, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (type == ncclFloat32)
        std::memcpy(at + 4 * i, &bits, 4);
    else  // cut off, not rounded: the tests' sums are exact
        std::memcpy(at + 2 * i, reinterpret_cast<char*>(&bits) + 2, 2);
}

// What rank `me` finds in its destination, of one part of a collective.
std::vector<char> result(const Meeting& meeting, size_t index, int me) {
    const Part& mine = meeting.parts.at(me)[index];
    std::vector<char> out;
    if (mine.kind == Part::kBroadcast) {
        const char* source = meeting.parts.at(mine.peer)[index].source;
        out.assign(source, source + mine.bytes());
    } else if (mine.kind == Part::kAllGather) {
        for (const auto& [rank, parts] : meeting.parts)
            out.insert(out.end(), parts[index].source, parts[index].source + mine.bytes());
    } else {
        out.resize(mine.bytes());
        for (size_t i = 0; i < mine.count; ++i) {
            float sum = 0;
            for (const auto& [rank, parts] : meeting.parts)
                sum += read(parts[index].source, i, mine.type);
            write(out.data(), i, mine.type, sum);
        }
    }
    return out;
}

// Two meetings: all have come before anything is read, all have read before anything is written.
void run_collective(Rank* rank, uint64_t number, std::vector<Part> parts) {
    std::unique_lock lock(mutex);
    Clique& clique = *rank->clique;
    Meeting& meeting = clique.meetings[number];
    meeting.parts[rank->rank] = parts;
    changed.notify_all();
    changed.wait(lock, [&] { return rank->aborted || meeting.parts.size() == clique.size; });
    if (rank->aborted) return;
    std::vector<std::vector<char>> results;
    for (size_t i = 0; i < parts.size(); ++i) {
        for (const auto& [other, theirs] : meeting.parts)
            if (theirs.size() != parts.size() || theirs[i].kind != parts[i].kind ||
                theirs[i].count != parts[i].count || theirs[i].type != parts[i].type)
                late_error = kInvalidUsage;
        if (late_error) break;
        results.push_back(result(meeting, i, rank->rank));
    }
    ++meeting.left;
    changed.notify_all();
    changed.wait(lock, [&] { return rank->aborted || meeting.left >= clique.size; });
    for (size_t i = 0; i < results.size(); ++i)
        std::memcpy(parts[i].destination, results[i].data(), results[i].size());
}

// Sends are offered, receives taken, and it is over when what was sent is taken too.
void run_messages(Rank* rank, const std::vector<Part>& parts) {
    std::unique_lock lock(mutex);
    Clique& clique = *rank->clique;
    std::vector<Message> sent(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].kind != Part::kSend) continue;
        sent[i] = {parts[i].source, parts[i].bytes(), false};
        clique.messages[{rank->rank, parts[i].peer}].push_back(&sent[i]);
    }
    changed.notify_all();
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].kind != Part::kRecv) continue;
        auto& box = clique.messages[{parts[i].peer, rank->rank}];
        changed.wait(lock, [&] { return rank->aborted || !box.empty(); });
        if (rank->aborted) return;
        Message* message = box.front();
        box.erase(box.begin());
        if (message->bytes == parts[i].bytes())
            std::memcpy(parts[i].destination, message->source, message->bytes);
        else
            late_error = kInvalidUsage;
        message->taken = true;
        changed.notify_all();
    }
    for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].kind == Part::kSend)
            changed.wait(lock, [&] { return rank->aborted || sent[i].taken; });
}

// Whether a rank of the clique has not come yet, maybe from another process. A thread of the
// library's own opens a rank: its failure comes later, and the others go on waiting for it.
bool lacks_ranks(const Clique& clique) {
    return clique.ranks.size() < clique.size ||
           std::any_of(
               clique.ranks.begin(), clique.ranks.end(),
               [](const Rank* rank) { return rank->error != ncclSuccess; });
}

ncclResult_t submit(const char* call, ncclComm_t communicator, cudaStream_t stream, Part part) {
    std::unique_lock lock(mutex);
    auto* rank = reinterpret_cast<Rank*>(communicator);
    if (ranks.count(rank) == 0) return kInvalidArgument;
    const std::string detail = std::to_string(rank->rank) + " of " +
                               std::to_string(rank->clique->size) + ", " +
                               std::to_string(part.count);
    if (const ncclResult_t code = note(call, detail)) return code;
    if (rank->aborted || rank->polls > 0 || lacks_ranks(*rank->clique) || !stream ||
        current_device() != rank->device)
        return kInvalidUsage;
    auto* on = reinterpret_cast<cleave::fake::WorkQueue*>(stream);
    auto at = std::find_if(pending.begin(), pending.end(),
                           [&](const Pending& p) { return p.rank == rank && p.stream == on; });
    if (at == pending.end()) at = pending.insert(pending.end(), {rank, on, {}});
    at->parts.push_back(part);
    lock.unlock();
    if (group_depth > 0) return ncclSuccess;
    ++group_depth;
    return ncclGroupEnd();
}

ncclResult_t open_ranks() {
    for (Rank* rank : opening) {
        const Clique& clique = *rank->clique;
        rank->polls = opening_polls;
        for (const Rank* other : clique.ranks)
            if (other != rank && other->device == rank->device) {
                last_error = "Duplicate GPU detected : rank " + std::to_string(rank->rank) +
                             " and rank " + std::to_string(other->rank) + " both on device " +
                             std::to_string(rank->device);
                return kInvalidUsage;
            }
    }
    return ncclInProgress;
}

ncclResult_t leave(ncclComm_t communicator) {
    auto* rank = reinterpret_cast<Rank*>(communicator);
    if (ranks.erase(rank) == 0) return kInvalidArgument;
    rank->aborted = true;  // the object stays: what is on streams still asks it
    if (rank->held) take_memory(rank->device, -rank->held);
    rank->held = 0;
    changed.notify_all();
    return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    const std::lock_guard lock(mutex);
    *version = 22809;
    return note("ncclGetVersion");
}
const char* ncclGetErrorString(ncclResult_t code) {
    return code == kInvalidUsage ? "invalid usage" : "unhandled cuda error";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::lock_guard lock(mutex);
    std::snprintf(id->internal, sizeof id->internal, "clique %d", ++ids);
    return note("ncclGetUniqueId");
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    const std::lock_guard lock(mutex);
    if (const ncclResult_t code = note("ncclCommInitRankConfig", std::to_string(rank))) return code;
    if (config->magic != 0xcafebeef || config->size < sizeof(ncclConfig_t) ||
        config->blocking != 0 || group_depth == 0 || !current_device)
        return kInvalidArgument;
    Clique*& clique = cliques[id.internal];
    if (!clique) clique = new Clique;
    clique->size = static_cast<size_t>(size);
    auto* made = new Rank{clique, rank, current_device()};
    made->error = take(*made, bytes_to_open);
    clique->ranks.push_back(made);
    ranks.insert(made);
    opening.push_back(made);
    *communicator = reinterpret_cast<ncclComm_t>(made);
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
    const std::lock_guard lock(mutex);
    auto* rank = reinterpret_cast<Rank*>(communicator);
    if (ranks.count(rank) == 0) return kInvalidArgument;
    const bool waits = lacks_ranks(*rank->clique) || rank->polls-- > 0;
    *error = late_error    ? late_error
             : rank->error ? rank->error
             : waits       ? ncclInProgress
                           : ncclSuccess;
    return note("ncclCommGetAsyncError");
}
ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
    const std::lock_guard lock(mutex);
    auto* rank = reinterpret_cast<Rank*>(communicator);
    if (ranks.count(rank) == 0) return kInvalidArgument;
    if (const ncclResult_t code = note("ncclCommFinalize")) return code;
    rank->finalized = true;
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    const std::lock_guard lock(mutex);
    if (const ncclResult_t code = note("ncclCommDestroy")) return code;
    auto* rank = reinterpret_cast<Rank*>(communicator);
    if (ranks.count(rank) == 0 || !rank->finalized) return kInvalidArgument;
    return leave(communicator);
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    const std::lock_guard lock(mutex);
    note("ncclCommAbort");
    return leave(communicator);
}
ncclResult_t ncclGroupStart() {
    const std::lock_guard lock(mutex);
    if (const ncclResult_t code = note("ncclGroupStart")) return code;
    ++group_depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    const std::lock_guard lock(mutex);
    if (group_depth == 0) return kInvalidUsage;
    if (--group_depth > 0) return ncclSuccess;
    std::vector<Pending> submitted;
    submitted.swap(pending);
    ncclResult_t code = note("ncclGroupEnd");
    if (code == ncclSuccess && !opening.empty()) code = open_ranks();
    opening.clear();
    if (code != ncclSuccess) return code;
    for (Pending& p : submitted)
        if (!std::exchange(p.rank->connected, true))
            if (const ncclResult_t lacking = take(*p.rank, bytes_to_connect)) return lacking;
    for (Pending& p : submitted) {
        const bool messages = p.parts[0].kind == Part::kSend || p.parts[0].kind == Part::kRecv;
        const uint64_t number = messages ? 0 : p.rank->operations++;
        p.stream->submit([p, messages, number] {
            messages ? run_messages(p.rank, p.parts) : run_collective(p.rank, number, p.parts);
        });
    }
    return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* source, void* destination, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
    if (operation != ncclSum || (type != ncclFloat32 && type != ncclBfloat16))
        return kInvalidArgument;
    return submit("ncclAllReduce", communicator, stream,
                  {Part::kAllReduce, static_cast<const char*>(source),
                   static_cast<char*>(destination), count, type, 0});
}
ncclResult_t ncclAllGather(const void* source, void* destination, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
    return submit("ncclAllGather", communicator, stream,
                  {Part::kAllGather, static_cast<const char*>(source),
                   static_cast<char*>(destination), count, type, 0});
}
ncclResult_t ncclBroadcast(const void* source, void* destination, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
    return submit("ncclBroadcast", communicator, stream,
                  {Part::kBroadcast, static_cast<const char*>(source),
                   static_cast<char*>(destination), count, type, root});
}
ncclResult_t ncclSend(const void* source, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
    return submit("ncclSend", communicator, stream,
                  {Part::kSend, static_cast<const char*>(source), nullptr, count, type, peer});
}
ncclResult_t ncclRecv(void* destination, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
    return submit("ncclRecv", communicator, stream,
                  {Part::kRecv, nullptr, static_cast<char*>(destination), count, type, peer});
}

// ---- For tests
// ------------------------------------------------------------------------------------

// Forgets everything. `device`: the calling thread's current device.
void fake_reset(int (*device)()) {
    const std::lock_guard lock(mutex);
    current_device = device;
    take_memory = nullptr;
    call_log.clear();
    call_counts.clear();
    failing.clear();
    last_error.clear();
    opening_polls = 2;
    late_error = 0;
    ranks.clear();
    cliques.clear();
    pending.clear();
    opening.clear();
    group_depth = 0;
}
void fake_fail(const char* call, int nth, int code) {
    const std::lock_guard lock(mutex);
    failing = call;
    fail_after = nth;
    fail_code = code;
}
// The library finds out later that an operation failed.
void fake_late_error(int code) {
    const std::lock_guard lock(mutex);
    late_error = code;
}
// Polls until a communicator is open.
void fake_opening(int polls) {
    const std::lock_guard lock(mutex);
    opening_polls = polls;
}
// What a rank takes of its card when it is opened, and with its first operation.
void fake_memory(int (*take_on)(int device, int64_t bytes), int64_t to_open, int64_t to_connect) {
    const std::lock_guard lock(mutex);
    take_memory = take_on;
    bytes_to_open = to_open;
    bytes_to_connect = to_connect;
}
int fake_alive() {
    const std::lock_guard lock(mutex);
    return static_cast<int>(ranks.size());
}
int fake_calls(const char* call) {
    const std::lock_guard lock(mutex);
    return call_counts[call];
}
const char* fake_log() {
    const std::lock_guard lock(mutex);
    log_text.clear();
    for (const std::string& line : call_log) log_text += line + "\n";
    return log_text.c_str();
}

}  // extern "C"
