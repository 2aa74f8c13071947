// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/nccl/collective_library.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/drivers/gpu/gpu_driver.h"
#include "runtime/drivers/nccl/symbols.h"

namespace cleave::runtime {

namespace {

using namespace nccl;
using Clock = std::chrono::steady_clock;

struct NcclFunctions {
    // Never closed: threads that the library has started run on after an error.
    explicit NcclFunctions(DynamicLibrary opened) : library(kept_open(std::move(opened))) {}

    // The first symbol that is missing, or null.
    const char* resolve() {
#define CLEAVE_RESOLVE(name, parameters)                                      \
    call.name = reinterpret_cast<decltype(call.name)>(library.symbol(#name)); \
    if (!call.name) return #name;
        CLEAVE_NCCL_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
        call.ncclGetErrorString = library.function<const char*(ncclResult_t)>("ncclGetErrorString");
        call.ncclGetLastError = library.function<const char*(ncclComm_t)>("ncclGetLastError");
        if (!call.ncclGetErrorString) return "ncclGetErrorString";
        return call.ncclGetLastError ? nullptr : "ncclGetLastError";
    }

    [[noreturn]] void fail(const char* function, ncclResult_t code, ncclComm_t of,
                           const std::string& device) const {
        const char* text = call.ncclGetErrorString(code);
        const char* last = call.ncclGetLastError(of);
        const std::string what = text ? text : fmt::format("error {}", code);
        throw CollectiveError(function, last && *last ? fmt::format("{} ({})", what, last) : what,
                              device, code);
    }

    DynamicLibrary& library;
    nccl::Functions call;
};

ncclDataType_t type_of(DType dtype) {
    if (dtype == DType::kF16) return ncclFloat16;
    if (dtype == DType::kBF16) return ncclBfloat16;
    CLEAVE_CHECK(dtype == DType::kF32) << "a vendor's sum of " << dtype_name(dtype);
    return ncclFloat32;
}

const void* readable(DeviceAddress address) { return reinterpret_cast<const void*>(address); }
void* writable(DeviceAddress address) { return reinterpret_cast<void*>(address); }

#define CLEAVE_NCCL(function, ...) settle(lib_->call.function(__VA_ARGS__), #function)

class NcclRank final : public CollectiveRank {
public:
    NcclRank(std::shared_ptr<const NcclFunctions> lib, const CollectiveMember& member,
             const CollectiveOptions& options, int ranks)
        : lib_(std::move(lib)), member_(member), options_(options), ranks_(ranks) {}

    void all_reduce(DeviceAddress source, DeviceAddress destination, int64_t count,
                    DType dtype) override {
        if (count <= 0) return;
        const std::lock_guard lock(mutex_);
        enter();
        CLEAVE_NCCL(ncclAllReduce, readable(source), writable(destination),
                    static_cast<size_t>(count), type_of(dtype), ncclSum, communicator_, stream());
    }

    void all_gather(DeviceAddress source, DeviceAddress destination,
                    std::span<const int64_t> parts) override {
        CLEAVE_CHECK(static_cast<int>(parts.size()) == ranks_) << "parts of a gather";
        const std::lock_guard lock(mutex_);
        enter();
        if (std::all_of(parts.begin(), parts.end(), [&](int64_t n) { return n == parts[0]; })) {
            if (parts[0] > 0)
                CLEAVE_NCCL(ncclAllGather, readable(source), writable(destination),
                            static_cast<size_t>(parts[0]), ncclUint8, communicator_, stream());
            return;
        }
        // Unequal parts: a broadcast from each, all of one operation (NCCL user guide, "Group
        // Calls").
        in_group([&] {
            DeviceAddress at = destination;
            for (int root = 0; root < ranks_; ++root) {
                const int64_t bytes = parts[static_cast<size_t>(root)];
                if (bytes > 0)
                    submit("ncclBroadcast",
                           lib_->call.ncclBroadcast(readable(source), writable(at),
                                                    static_cast<size_t>(bytes), ncclUint8, root,
                                                    communicator_, stream()));
                at += static_cast<DeviceAddress>(bytes);
            }
        });
    }

    void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
        const std::lock_guard lock(mutex_);
        enter();
        in_group([&] {
            for (const Message& m : sends)
                if (m.bytes > 0)
                    submit("ncclSend",
                           lib_->call.ncclSend(readable(m.address), static_cast<size_t>(m.bytes),
                                               ncclUint8, m.peer, communicator_, stream()));
            for (const Message& m : receives)
                if (m.bytes > 0)
                    submit("ncclRecv",
                           lib_->call.ncclRecv(writable(m.address), static_cast<size_t>(m.bytes),
                                               ncclUint8, m.peer, communicator_, stream()));
        });
    }

    void check() override {
        const std::lock_guard lock(mutex_);
        enter();
        ncclResult_t error = ncclSuccess;
        if (const ncclResult_t code = lib_->call.ncclCommGetAsyncError(communicator_, &error))
            lib_->fail("ncclCommGetAsyncError", code, communicator_, member_.device);
        if (error != ncclSuccess && error != ncclInProgress)
            lib_->fail("an earlier collective", error, communicator_, member_.device);
    }

    void abort() noexcept {
        aborted_ = true;  // a call that is polled ends
        const std::lock_guard lock(mutex_);
        if (!communicator_) return;
        try {
            member_.make_current();
        } catch (...) {  // NOLINT(bugprone-empty-catch)
            // After a fault of the card; the library still has memory of the host to give back.
        }
        lib_->call.ncclCommAbort(std::exchange(communicator_, nullptr));
    }

    const CollectiveMember& member() const { return member_; }
    ncclComm_t& communicator() { return communicator_; }
    const NcclFunctions& library() const { return *lib_; }

    // A call that has not finished is polled until it has.
    void settle(ncclResult_t code, const char* function) {
        const Clock::time_point end = limit();
        while (code == ncclInProgress) {
            wait_a_little(end, function);
            code = poll();
        }
        if (code != ncclSuccess) lib_->fail(function, code, communicator_, member_.device);
    }

    ncclResult_t poll() {
        ncclResult_t code = ncclSuccess;
        if (const ncclResult_t failed = lib_->call.ncclCommGetAsyncError(communicator_, &code))
            lib_->fail("ncclCommGetAsyncError", failed, communicator_, member_.device);
        return code;
    }

    // Throws where there is nothing to wait for any more.
    void wait_a_little(Clock::time_point limit, const char* function) {
        if (options_.cancel) options_.cancel->throw_if_cancelled();
        throw_if_aborted();
        if (Clock::now() > limit)
            throw DeviceError(function,
                              fmt::format("not done after {} seconds; a device of the group "
                                          "may be hung",
                                          options_.limit_seconds),
                              member_.device);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }

    Clock::time_point limit() const {
        return Clock::now() + std::chrono::seconds(options_.limit_seconds);
    }

private:
    void throw_if_aborted() const {
        if (aborted_)
            throw DeviceError("a collective", "its group was aborted after a failure",
                              member_.device);
    }
    void enter() {
        throw_if_aborted();
        member_.make_current();
    }
    cudaStream_t stream() const { return static_cast<cudaStream_t>(member_.stream); }

    // Within a group a call only notes what is to be done.
    void submit(const char* function, ncclResult_t code) {
        if (code != ncclSuccess && code != ncclInProgress)
            lib_->fail(function, code, communicator_, member_.device);
    }
    // A group that was started is ended, also after an error: the library counts them by thread.
    template <class Calls>
    void in_group(Calls&& calls) {
        CLEAVE_NCCL(ncclGroupStart);
        try {
            calls();
        } catch (...) {
            lib_->call.ncclGroupEnd();
            throw;
        }
        CLEAVE_NCCL(ncclGroupEnd);
    }

    std::shared_ptr<const NcclFunctions> lib_;
    CollectiveMember member_;
    CollectiveOptions options_;
    int ranks_;
    std::mutex mutex_;  // an abort waits for the call in hand, which waits for no device
    ncclComm_t communicator_ = nullptr;
    std::atomic<bool> aborted_{false};
};

#undef CLEAVE_NCCL

class NcclGroup final : public CollectiveGroup {
public:
    NcclGroup(std::shared_ptr<const NcclFunctions> lib, std::span<const CollectiveMember> members,
              int ranks, const std::string& id, const CollectiveOptions& options)
        : lib_(std::move(lib)), size_(ranks) {
        for (const CollectiveMember& member : members)
            ranks_.push_back(std::make_unique<NcclRank>(lib_, member, options, ranks));
        try {
            open(id);
        } catch (...) {
            abort();
            throw;
        }
    }

    ~NcclGroup() override {
        if (aborted_) return;
        try {
            close();
        } catch (...) {
            abort();
        }
    }
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    int size() const override { return size_; }
    CollectiveRank& rank(int rank) override {
        const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& mine) {
            return mine->member().rank == rank;
        });
        CLEAVE_CHECK(found != ranks_.end()) << "rank " << rank << " of another process";
        return **found;
    }
    void abort() noexcept override {
        aborted_ = true;
        for (auto& rank : ranks_) rank->abort();
    }

private:
    // One thread opens the communicators of all ranks that this process has, as a group: each waits
    // for all others (NCCL user guide, "Management Of Multiple GPUs From One Thread").
    void open(const std::string& bytes) {
        ncclUniqueId id{};
        CLEAVE_CHECK(bytes.size() == sizeof id) << "an id of " << bytes.size() << " bytes";
        std::memcpy(&id, bytes.data(), sizeof id);
        together(
            [&](NcclRank& rank) {
                ncclConfig_t config;
                return lib_->call.ncclCommInitRankConfig(&rank.communicator(), size(), id,
                                                         rank.member().rank, &config);
            },
            "ncclCommInitRankConfig");
    }

    // What the ranks still do is finished first, together; then each gives back its own.
    void close() {
        together([&](NcclRank& rank) { return lib_->call.ncclCommFinalize(rank.communicator()); },
                 "ncclCommFinalize");
        for (auto& rank : ranks_) {
            rank->member().make_current();
            const ncclComm_t communicator = std::exchange(rank->communicator(), nullptr);
            if (const ncclResult_t code = lib_->call.ncclCommDestroy(communicator))
                lib_->fail("ncclCommDestroy", code, nullptr, rank->member().device);
        }
    }

    template <class Call>
    void together(Call&& call, const char* function) {
        const std::string& first = ranks_.front()->member().device;
        if (const ncclResult_t code = lib_->call.ncclGroupStart())
            lib_->fail("ncclGroupStart", code, nullptr, first);
        std::exception_ptr failure;
        for (auto& rank : ranks_) {
            try {
                rank->member().make_current();
                const ncclResult_t code = call(*rank);
                if (code != ncclSuccess && code != ncclInProgress)
                    lib_->fail(function, code, nullptr, rank->member().device);
            } catch (...) {
                failure = std::current_exception();
                break;
            }
        }
        const ncclResult_t ended = lib_->call.ncclGroupEnd();
        if (failure) std::rethrow_exception(failure);
        if (ended != ncclSuccess && ended != ncclInProgress)
            lib_->fail(fmt::format("ncclGroupEnd of {}", function).c_str(), ended, nullptr, first);
        if (ended == ncclInProgress) settle_all(function);
    }

    // In turn: where one fails, such as for lack of its card's memory, the others may wait for it
    // for ever.
    void settle_all(const char* function) {
        const Clock::time_point end = ranks_.front()->limit();
        for (bool all_done = false; !all_done;) {
            NcclRank* waiting = nullptr;
            for (auto& rank : ranks_) {
                const ncclResult_t code = rank->poll();
                if (code == ncclInProgress)
                    waiting = rank.get();
                else if (code != ncclSuccess)
                    lib_->fail(function, code, rank->communicator(), rank->member().device);
            }
            if (waiting) waiting->wait_a_little(end, function);
            all_done = !waiting;
        }
    }

    std::shared_ptr<const NcclFunctions> lib_;
    int size_;
    std::vector<std::unique_ptr<NcclRank>> ranks_;  // of this process
    std::atomic<bool> aborted_{false};
};

class NcclLibrary final : public CollectiveLibrary {
public:
    explicit NcclLibrary(std::shared_ptr<const NcclFunctions> lib) : lib_(std::move(lib)) {
        int version = 0;
        if (const ncclResult_t code = lib_->call.ncclGetVersion(&version))
            lib_->fail("ncclGetVersion", code, nullptr, lib_->library.name());
        version_ = fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
    }

    const std::string& library() const override { return lib_->library.name(); }
    std::string version() const override { return version_; }

    std::string new_id(const std::string& device) const override {
        ncclUniqueId id{};
        if (const ncclResult_t code = lib_->call.ncclGetUniqueId(&id))
            lib_->fail("ncclGetUniqueId", code, nullptr, device);
        return {id.internal, sizeof id.internal};
    }

    std::unique_ptr<CollectiveGroup> join(std::span<const CollectiveMember> members, int ranks,
                                          const std::string& id,
                                          const CollectiveOptions& options) const override {
        CLEAVE_CHECK(!members.empty()) << "a group of no devices";
        std::map<std::string, std::string> cards;
        for (const CollectiveMember& member : members) {
            const auto [other, fresh] = cards.try_emplace(member.card, member.device);
            if (!fresh)
                throw UserError(
                    "{} and {} are on one card, which {} refuses; make the plan anew on this "
                    "machine, which then gives them another way to exchange values",
                    other->second, member.device, lib_->library.name());
        }
        return std::make_unique<NcclGroup>(lib_, members, ranks, id, options);
    }

private:
    std::shared_ptr<const NcclFunctions> lib_;
    std::string version_;
};

}  // namespace

std::unique_ptr<CollectiveGroup> CollectiveLibrary::connect(
    std::span<const CollectiveMember> members, const CollectiveOptions& options) const {
    CLEAVE_CHECK(!members.empty()) << "a group of no devices";
    std::vector<CollectiveMember> numbered(members.begin(), members.end());
    for (size_t r = 0; r < numbered.size(); ++r) numbered[r].rank = static_cast<int>(r);
    return join(numbered, static_cast<int>(numbered.size()), new_id(numbered[0].device), options);
}

// Major * 10000 + minor * 100 + patch, from 2.9 on.
std::string collectives_version(const DynamicLibrary& library) {
    auto* get = library.function<int(int*)>("ncclGetVersion");
    int v = 0;
    return get && get(&v) == 0 ? fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100) : "";
}

FoundCollectives open_collectives(std::span<const std::string> names) {
    std::string why;
    std::optional<DynamicLibrary> opened = DynamicLibrary::open_first(names, &why);
    if (!opened) return {nullptr, why};
    auto lib = std::make_shared<NcclFunctions>(std::move(*opened));
    if (const char* missing = lib->resolve())
        return {nullptr,
                fmt::format("{} lacks {}: NCCL 2.14 or RCCL of ROCm 5.7 or newer is needed",
                            lib->library.name(), missing)};
    try {
        return {std::make_shared<NcclLibrary>(lib), ""};
    } catch (const DeviceError& error) {
        return {nullptr, error.what()};
    }
}

bool CollectiveError::may_lack_memory() const {
    if (code_ != nccl::ncclUnhandledCudaError && code_ != nccl::ncclSystemError) return false;
    const std::string text = lower_case(error_);
    return text.find("memory") != std::string::npos || text.find("alloc") != std::string::npos;
}

}  // namespace cleave::runtime
