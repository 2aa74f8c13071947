// SPDX-License-Identifier: Apache-2.0
// What a device has beside runtime/device/device.h when it does its work later than it is asked to,
// as GPUs do: waits that can be ended, captured sequences of launches, points in time, pinned
// memory of the host.
//
// Threads and order as for the Device that it belongs to.
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

    // Called again and again while the host waits for the device; what it throws ends the wait, the
    // work goes on. Empty: none.
    virtual void set_wait_check(std::function<void()> check) = 0;
    // Of the calls that may wait inside the driver, such as for memory or to load a kernel, how
    // many have ended.
    virtual uint64_t ended_calls() const = 0;
    // How often a wait has seen all work done: what was asked for before it has not failed.
    virtual uint64_t synchronizations() const = 0;
    // Fences, and ends of copies for which the host waits, asked for so far; and the last of them
    // that a wait has seen passed: what was asked for before it has not failed either.
    virtual uint64_t points() const = 0;
    virtual uint64_t passed_points() const = 0;
    // After an error, before memory that the device may still use is freed: waits for the work that
    // is left, for a bounded time. A device that does not end in it is left alone from then on: its
    // memory goes with the process.
    virtual void settle() noexcept = 0;

    // Launches between the two are kept instead of done; `replay` does them all at once, with the
    // arguments that they had. Nothing else may be asked of the device between, but
    // `abandon_capture` ends it after an error.
    virtual void begin_capture() = 0;
    virtual int end_capture() = 0;  // the capture's number
    virtual void abandon_capture() noexcept = 0;
    // Brings a capture onto the device, where the driver can without running it.
    virtual void bring(int capture) = 0;
    virtual void replay(int capture) = 0;
    virtual void drop_captures() = 0;

    // A mark in the stream; `take_marks` waits for the marks made since the last time, and gives
    // when the device came to each, in nanoseconds of the steady clock.
    virtual void mark() = 0;
    // So many marks in a row need nothing more of the driver. Before anything runs: to make an
    // event may wait for kernels.
    virtual void reserve_marks(size_t count) = 0;
    virtual std::vector<int64_t> take_marks() = 0;

    // Fence `i` of the device's few: `await_fence` returns when the stream has passed it. From
    // kPassFences on they are the passes', those before a communication's.
    static constexpr int kPassFences = 8, kFences = kPassFences + 2;
    virtual void place_fence(int i) = 0;
    virtual void await_fence(int i) = 0;

    // A rectangle from one place of this device's memory to another that it does not overlap, on
    // the stream.
    virtual void copy_within(DeviceAddress source, DeviceAddress destination,
                             const Rectangle& rectangle) = 0;

    // From now on (or no more) launches of kernels that wait themselves (codegen::Launch::overlaps)
    // may begin before those before them have ended, in rows with nothing else between
    // (runtime/drivers/gpu/gpu_driver.h); else why this device's cannot.
    virtual Supports overlap_launches(bool wanted) = 0;
    virtual uint64_t overlapped_launches() const = 0;  // so far, captured ones once

    // What the driver has left of the device's memory, for all programs.
    virtual int64_t free_bytes() = 0;

    // For the vendor's other libraries, which put work on the stream, too: the calling thread's
    // context becomes this device's.
    virtual void make_current() = 0;
    virtual void* native_stream() = 0;  // CUstream or hipStream_t

    // Pinned memory to write an upload's source into, so that `upload` from any part of it need not
    // copy it first. Valid until the next call, an upload from elsewhere, or a sum
    // (Device::reduce).
    virtual std::span<std::byte> upload_space(int64_t bytes) = 0;
    // Pinned memory that stays as long as the device; zero at first.
    virtual std::span<std::byte> pinned_memory(int64_t bytes) = 0;
};

}  // namespace cleave::runtime
