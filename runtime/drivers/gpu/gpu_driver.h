// SPDX-License-Identifier: Apache-2.0
// What the runtime needs of a GPU vendor's driver library, which is opened at run time: its
// devices, and for each a context with one stream. cuda/ and hip/ implement it from hand-declared
// symbol tables; gpu_device.h makes a Device of it.
//
// Errors: every call that fails throws a DeviceError with the vendor's call, its error's name and
// text, and the device. Threads: a GpuDriver may be used from any thread; a GpuContext by one
// thread at a time, not always the same one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/machine/machine.h"
#include "runtime/base/supports.h"
#include "runtime/device/device.h"
#include "runtime/device/vendor_error.h"
#include "runtime/drivers/gpu/abandoned.h"
#include "runtime/drivers/gpu/pinned_memory.h"

namespace cleave::runtime {

// What the driver says of a device.
struct GpuFacts {
    std::string name;  // "NVIDIA H100 80GB HBM3"
    std::string
        uuid;  // "GPU-1c2d...", as the vendor's tools print it; empty where the driver has none
    std::string pci;   // "0000:3b:00.0"
    std::string arch;  // "sm_90a", "gfx90a"
    int64_t memory_bytes = 0;
    int64_t memory_bandwidth = 0;  // bytes/s, from its clock and bus width; 0: unknown
    int64_t clock_hz = 0;
    int64_t timer_hz = 0;  // of the clock that kernels read and take for one of 100 MHz; 0: it is
    planner::DeviceLimits limits;
};

// A loaded code object and a kernel in it, as the driver names them.
using GpuModule = void*;
using GpuFunction = void*;
using GpuEvent = void*;
using GpuGraph = void*;  // instantiated

// A code object that the driver cannot read: its compiler is newer than the driver, or it is for
// another architecture.
class RefusedObject : public VendorError {
public:
    using VendorError::VendorError;
};

class GpuContext {
public:
    virtual ~GpuContext() = default;

    // Nothing when the device has not enough left. From a pool of the context's own where the
    // driver has pools, so that nothing stays on the device when the context goes.
    virtual std::optional<DeviceAddress> allocate(int64_t bytes) = 0;
    virtual void free(DeviceAddress address) = 0;
    virtual int64_t free_bytes() = 0;
    // As `allocate`: memory through which devices may signal while kernels run.
    virtual std::optional<DeviceAddress> allocate_exchange(int64_t bytes) {
        return allocate(bytes);
    }

    // From now on kernels of this context, and of the vendor's other libraries, reach memory of
    // `peer`, a context of the same driver on another card. Calling it again is harmless.
    virtual void enable_peer_access(GpuContext& peer) = 0;

    // Pinned memory of the host, for all contexts of the driver: copies to and from it are
    // asynchronous. Null when there is none left.
    virtual std::byte* allocate_pinned(int64_t bytes) = 0;
    virtual void free_pinned(std::byte* memory) = 0;

    // On the stream, in call order. Memory of the host must stay until the copy is done.
    virtual void fill(DeviceAddress address, int64_t bytes, uint8_t value) = 0;
    virtual void copy_out(DeviceAddress source, std::byte* destination, const Rectangle& r) = 0;
    virtual void copy_in(const std::byte* source, DeviceAddress destination,
                         const Rectangle& r) = 0;
    virtual void copy_within(DeviceAddress source, DeviceAddress destination,
                             const Rectangle& r) = 0;
    virtual void launch(GpuFunction function, const std::array<unsigned, 3>& grid,
                        const std::array<unsigned, 3>& block, unsigned shared_bytes, void** args,
                        bool waits_itself) = 0;
    // Switches overlapping launches on or off; else why this driver or card has none.
    // A launch may begin before the launch before it has ended when both kernels wait by themselves
    // (codegen::Launch::overlaps) and nothing else was asked of the context between the two.
    // A kernel that waits for other devices (a peer's kernel, a collective) overlaps with nothing.
    // So no waiting block takes a place on the card that the blocks it waits for still need.
    virtual Supports overlap_launches(bool) {
        return {false, "launches of this vendor's driver begin when those before them have ended"};
    }
    virtual uint64_t overlapped_launches() const { return 0; }
    // Whether all of it is done. Never blocks.
    virtual bool is_idle() = 0;

    // Points of the stream; `timed` ones can be subtracted.
    virtual GpuEvent make_event(bool timed) = 0;
    virtual void destroy_event(GpuEvent event) = 0;
    virtual void record(GpuEvent event) = 0;
    virtual bool has_passed(GpuEvent event) = 0;
    virtual double elapsed_ms(GpuEvent from, GpuEvent to) = 0;

    // What this thread puts on the stream between the two calls is kept, and done by each `replay`.
    // Other threads' work is not captured.
    virtual void begin_capture() = 0;
    virtual GpuGraph end_capture() = 0;
    virtual void abandon_capture() noexcept = 0;
    virtual void bring(GpuGraph graph) = 0;  // onto the device, so that no replay has to
    virtual void replay(GpuGraph graph) = 0;
    virtual void destroy_graph(GpuGraph graph) = 0;

    // For a vendor's other libraries: makes this the calling thread's context; the stream as the
    // vendor names it.
    virtual void make_current() = 0;
    virtual void* native_stream() = 0;

    virtual GpuModule load(std::span<const std::byte> object) = 0;  // or RefusedObject
    virtual void unload(GpuModule module) = 0;
    // Brings the kernel onto the device. It may wait for everything that runs there.
    virtual GpuFunction function(GpuModule module, const std::string& name) = 0;
    // Threads of a block at most, by the kernel's registers and static memory.
    virtual int64_t most_threads(GpuFunction function) = 0;
    // From now on a launch of it may ask for this much dynamic shared memory.
    virtual void allow_shared(GpuFunction, int64_t /*bytes*/) {}
};

class GpuDriver {
public:
    virtual ~GpuDriver() = default;

    virtual planner::DeviceKind kind() const = 0;
    virtual const std::string& library() const = 0;  // the file that was opened
    virtual std::string version() const = 0;         // "13.0"
    virtual int count() const = 0;                   // of visible devices
    virtual GpuFacts facts(int ordinal) const = 0;
    // Whether one device's kernels and copies reach the other's memory directly.
    virtual bool has_peer_access(int from, int to) const = 0;
    // `name` is the device's in messages.
    virtual std::unique_ptr<GpuContext> open(int ordinal, const std::string& name) = 0;

    // Contexts of it whose work does not end.
    LeftAlone& left_alone() { return left_alone_; }
    // The host's memory that copies of its devices may use.
    PinnedMemory& pinned() { return pinned_; }

private:
    LeftAlone left_alone_;
    PinnedMemory pinned_;
};

// A driver with one device at least, or why there is none: every name tried, the symbol that is
// missing, the driver's error.
struct FoundDriver {
    std::shared_ptr<GpuDriver> driver;
    std::string reason;
};

// For cleaning up after a fault: the driver gives everything back with the context, so a call that
// fails then loses nothing.
template <class Act>
void try_to(Act act) noexcept {
    try {
        act();
    } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): see above
    }
}

// In small letters, as PCI addresses and UUIDs are compared.
std::string lower_case(std::string text);

// Both devices of a mapping, for messages of what fails in it.
std::string peers_text(const std::string& from, const std::string& to);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; `text` may be null.
std::string vendor_error(const char* name, const char* text, int code);

}  // namespace cleave::runtime
