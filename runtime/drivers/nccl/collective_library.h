// SPDX-License-Identifier: Apache-2.0
// NVIDIA's NCCL and AMD's RCCL, opened at run time: one class for both, as they have the same
// functions. A group of devices, each on a card of its own, becomes a communicator a device; those
// that other processes have join it by its id. Operations are put on the device's stream and
// nothing waits for them on the host.
//
// Errors: DeviceError with the call, the library's error and the device. Communicators do not
// block: what takes the library longer is polled, within a time limit and until the user
// interrupts, and a group that fails is aborted, which ends the kernels of every rank that wait for
// a missing one. Threads: a rank is used by one thread at a time, ranks of a group by different
// ones; `abort` may be called from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/cancel.h"
#include "runtime/base/dtype.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/base/supports.h"
#include "runtime/device/device.h"

namespace cleave::runtime {

// A call of the library failed.
class CollectiveError : public DeviceError {
public:
    CollectiveError(const std::string& call, const std::string& error, const std::string& device,
                    int code)
        : DeviceError(call, error, device), device_(device), code_(code), error_(error) {}
    const std::string& device() const { return device_; }
    // Whether it may be that memory lacked: the library has no error of its own for that. Where a
    // call of the driver or of the system failed, the text of its last error says which ("Cuda
    // failure 2 'out of memory'", "Failed to CUDA calloc").
    bool may_lack_memory() const;

private:
    std::string device_;
    int code_;
    std::string error_;
};

// A device as its driver gives it to the library.
struct CollectiveMember {
    std::string device;                  // in messages
    std::string card;                    // differs from card to card; the library refuses one twice
    std::function<void()> make_current;  // its context becomes the calling thread's
    void* stream = nullptr;              // CUstream or hipStream_t
    int rank = 0;                        // its number in the communicator
};

struct CollectiveOptions {
    int limit_seconds = 60;  // for what the library does outside the streams
    const CancelToken* cancel = nullptr;
};

// One device's communicator. Sizes are the same on every rank; addresses are the device's own.
class CollectiveRank {
public:
    virtual ~CollectiveRank() = default;

    // destination[i] = sum over the ranks of source[i], the same bits on all; both may be one
    // buffer.
    virtual void all_reduce(DeviceAddress source, DeviceAddress destination, int64_t count,
                            DType dtype) = 0;

    // Rank r's `parts[r]` bytes at `source` arrive at offset sum(parts[0..r)) of every
    // rank's destination. Parts may differ and be empty.
    virtual void all_gather(DeviceAddress source, DeviceAddress destination,
                            std::span<const int64_t> parts) = 0;

    // Messages between ranks, all of one operation: no order of them can block. Those of two ranks
    // are matched in order.
    struct Message {
        int peer = 0;
        DeviceAddress address = 0;
        int64_t bytes = 0;
    };
    virtual void exchange(std::span<const Message> sends, std::span<const Message> receives) = 0;

    // DeviceError when the library reports a fault that came up after a call.
    virtual void check() = 0;
};

class CollectiveGroup {
public:
    virtual ~CollectiveGroup() =
        default;  // waits for the library to finish, within the limit; never throws
    virtual int size() const = 0;                // in all processes
    virtual CollectiveRank& rank(int rank) = 0;  // one of this process
    // Every rank's running operation ends undone and its next one throws.
    virtual void abort() noexcept = 0;
};

class CollectiveLibrary {
public:
    virtual ~CollectiveLibrary() = default;
    virtual const std::string& library() const = 0;  // the file that was opened
    virtual std::string version() const = 0;         // "2.28.9"
    // What the members of one communicator know it by. Made where `device` is, which the others
    // reach by the network that NCCL_SOCKET_IFNAME names.
    virtual std::string new_id(const std::string& device) const = 0;
    // `members`, all of this process, join the communicator of `ranks` members with that id; waits
    // for the others, which join it meanwhile. Called by one thread for all of them.
    virtual std::unique_ptr<CollectiveGroup> join(std::span<const CollectiveMember> members,
                                                  int ranks, const std::string& id,
                                                  const CollectiveOptions& options) const = 0;
    // A communicator of this process alone: rank r is members[r].
    std::unique_ptr<CollectiveGroup> connect(std::span<const CollectiveMember> members,
                                             const CollectiveOptions& options) const;
};

// The library, or why there is none: every name tried, the symbol that is missing, its error.
struct FoundCollectives {
    std::shared_ptr<const CollectiveLibrary> library;
    std::string reason;
};
FoundCollectives open_collectives(std::span<const std::string> names);

// "2.28.9", as a library says itself, before it is used; empty: it does not.
std::string collectives_version(const DynamicLibrary& library);

}  // namespace cleave::runtime
