// SPDX-License-Identifier: Apache-2.0
// One device as its driver gives it. A driver implements this interface and passes tests/runtime's
// conformance suite; tests/runtime/support/null_device.h is the skeleton to copy.
//
// Threads: one thread at a time uses a Device (its worker in the executor); different devices are
// independent. Order: launches, copies and fills take effect in call order on the device's single
// stream; `synchronize` returns when all of them have. Memory: addresses are the device's own; only
// its kernels, and those of devices with peer access, use them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel/program.h"
#include "planner/machine/machine.h"
#include "runtime/base/supports.h"

namespace cleave::runtime {

using DeviceAddress = uint64_t;

class DeviceStream;

// A copied rectangle: `rows` runs of `row_bytes`, at these distances in source and destination.
struct Rectangle {
    int64_t rows = 1;
    int64_t row_bytes = 0;
    int64_t source_stride = 0;
    int64_t destination_stride = 0;
};

class Device {
public:
    virtual ~Device() = default;

    virtual const planner::DeviceInfo& info() const = 0;

    // One allocation of `bytes`, aligned to 256, freed by `free` or the destructor. DeviceError
    // with what was asked for when there is not enough. `what` names it in messages.
    virtual DeviceAddress allocate(int64_t bytes, const std::string& what) = 0;
    virtual void free(DeviceAddress address) = 0;
    virtual int64_t allocated_bytes() const = 0;
    virtual int64_t peak_allocated_bytes() const = 0;

    virtual void fill(DeviceAddress address, int64_t bytes, uint8_t value) = 0;
    // The source may be reused on return / the destination is complete on return.
    virtual void upload(DeviceAddress destination, std::span<const std::byte> source) = 0;
    virtual void download(DeviceAddress source, std::span<std::byte> destination) = 0;

    // Compiles nothing: takes the kernels of its program. Kernel i of `launch` is kernels[i].
    virtual void load(std::vector<codegen::CompiledKernel> kernels) = 0;
    // How `kernel` will be launched: a device that cannot says so now, with a DeviceError, and not
    // at the first launch.
    virtual void expect_launch(int /*kernel*/, const codegen::Launch&) {}
    virtual void launch(int kernel, std::span<const uint64_t> args,
                        const std::array<int64_t, 3>& grid, const codegen::Launch& launch) = 0;

    // Copies a rectangle of this device's memory from / to memory of the host, on the stream. The
    // staged transfer that always works is: copy_out on the source, synchronize, copy_in on the
    // destination.
    virtual void copy_out(DeviceAddress source, std::byte* destination,
                          const Rectangle& rectangle) = 0;
    virtual void copy_in(const std::byte* source, DeviceAddress destination,
                         const Rectangle& rectangle) = 0;

    // The host's own view of this memory, or null where only the device reaches it. Staged payloads
    // then leave from host memory instead.
    virtual std::byte* host_view(DeviceAddress) { return nullptr; }

    // destination[i] = f32 sum over sources (host memory, in order) + residual, written as the
    // plan's activation dtype; residual may be 0 (none). The leaf of a staged all-reduce, `count`
    // elements; it has read the sources. `arrive(n)` is called before any of the first n bytes of
    // each source are read, with growing n, and returns when they are there.
    using Arrive = std::function<void(int64_t)>;
    virtual void reduce(std::span<const std::byte* const> sources, DeviceAddress residual,
                        DeviceAddress destination, int64_t count, DType dtype,
                        const Arrive& arrive) = 0;

    virtual void synchronize() = 0;

    // Of an asynchronous device (runtime/device/async_device.h); null: the device has done its work
    // when a call returns.
    virtual DeviceStream* stream() { return nullptr; }

    // Whether kernels of this device can read, write and wait on memory of `other`; else the
    // reason.
    virtual Supports supports_peer_copy(const Device& other) const = 0;
    // From now on they may, in all memory of `other`. Calling it again is harmless. DeviceError
    // when the driver refuses; InternalError where it is not supported.
    virtual void enable_peer_access(Device& other);
    // As `allocate`, of memory in which devices signal to each other while their kernels run.
    virtual DeviceAddress allocate_exchange(int64_t bytes, const std::string& what) {
        return allocate(bytes, what);
    }
    // What `nanoseconds` are by the clock that its kernels read.
    virtual int64_t kernel_nanoseconds(int64_t nanoseconds) const { return nanoseconds; }
    // kMailboxBytes of host memory, zero at first, that the host and this device's kernels see at
    // the same address while kernels run; empty where the device has no such memory. The device's
    // own; any thread may use it.
    static constexpr int64_t kMailboxBytes = 256;
    virtual std::span<std::byte> mailbox() { return {}; }
};

}  // namespace cleave::runtime
