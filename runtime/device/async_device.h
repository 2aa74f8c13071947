// SPDX-License-Identifier: Apache-2.0
// What an asynchronous device, such as a GPU, has beside runtime/device/device.h: waits that can be
// ended, captured sequences of launches, points in time, pinned memory of the host.
// Threads and order are those of the Device that it belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/supports.h"
#include "runtime/device/device.h"

namespace cleave::runtime {

class DeviceStream {
public:
    virtual ~DeviceStream() = default;

    // Called again and again while the host waits for the device. What it throws ends the wait; the
    // device's work goes on. Empty: none.
    virtual void set_wait_check(std::function<void()> check) = 0;
    // How many calls that may wait inside the driver (to allocate, to load a kernel) have ended.
    virtual uint64_t ended_calls() const = 0;
    // How often a wait has seen all work done: no work before it has failed.
    virtual uint64_t synchronizations() const = 0;
    // Points of the stream so far: fences, and ends of copies for which the host waits. And the
    // last of them that a wait has seen passed: no work before it has failed.
    virtual uint64_t points() const = 0;
    virtual uint64_t passed_points() const = 0;
    // After an error, before memory that the device may still use is freed: waits a bounded time
    // for the work that is left. A device that does not end in it is abandoned: its memory goes
    // with the process.
    virtual void settle() noexcept = 0;

    // Launches between the two calls are kept instead of done; `replay` does them all, with the
    // arguments that they had. Nothing else may be asked of the device between the two, but
    // `abandon_capture` after an error.
    virtual void begin_capture() = 0;
    virtual int end_capture() = 0;  // the capture's number
    virtual void abandon_capture() noexcept = 0;
    // Brings a capture onto the device, where the driver can without running it.
    virtual void bring(int capture) = 0;
    virtual void replay(int capture) = 0;
    virtual void drop_captures() = 0;

    // A mark in the stream. `take_marks` waits for the marks made since the last call and says when
    // the device reached each, in nanoseconds of the steady clock.
    virtual void mark() = 0;
    // Makes the events of so many marks in a row. Called before anything runs: to make an event may
    // wait for kernels.
    virtual void reserve_marks(size_t count) = 0;
    virtual std::vector<int64_t> take_marks() = 0;

    // Fence `i`: `await_fence` returns when the stream has passed it. Those from kPassFences on are
    // for passes, those before it for communications.
    static constexpr int kPassFences = 8, kFences = kPassFences + 2;
    virtual void place_fence(int i) = 0;
    virtual void await_fence(int i) = 0;

    // Copies a rectangle between two places of this device's memory that do not overlap, on the
    // stream.
    virtual void copy_within(DeviceAddress source, DeviceAddress destination,
                             const Rectangle& rectangle) = 0;

    // Switches overlapping launches on or off (runtime/drivers/gpu/gpu_driver.h has the rule); else
    // why this device has none.
    virtual Supports overlap_launches(bool wanted) = 0;
    virtual uint64_t overlapped_launches() const = 0;  // so far, captured ones once

    // What the driver has left of the device's memory, for all programs.
    virtual int64_t free_bytes() = 0;

    // For the vendor's other libraries, which put work on the stream, too: makes this device's
    // context the calling thread's.
    virtual void make_current() = 0;
    virtual void* native_stream() = 0;  // CUstream or hipStream_t

    // Pinned memory for the source of an upload, so that `upload` from it makes no copy. Valid
    // until the next call, an upload from elsewhere, or a sum (Device::reduce).
    virtual std::span<std::byte> upload_space(int64_t bytes) = 0;
    // Pinned memory that stays as long as the device; zero at first.
    virtual std::span<std::byte> pinned_memory(int64_t bytes) = 0;
};

}  // namespace cleave::runtime
