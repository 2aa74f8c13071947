// SPDX-License-Identifier: Apache-2.0
// Points of a GPU's stream: those asked for, those that a wait has seen passed. And never more
// operations under way than a driver takes: where a stream holds about a thousand, the next launch
// waits inside the driver, where nobody could end it, and with it other threads' launches on the
// same context. A wait in between keeps it below half of that. Used by the device's thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "runtime/drivers/gpu/gpu_driver.h"
#include "runtime/drivers/gpu/gpu_waits.h"

namespace cleave::runtime {

class StreamPoints {
public:
    // Both outlive it.
    StreamPoints(GpuContext& context, const GpuWaits& waits) : context_(context), waits_(waits) {}
    StreamPoints(const StreamPoints&) = delete;
    StreamPoints& operator=(const StreamPoints&) = delete;

    // At most so many operations are under way.
    static constexpr uint64_t kMostPending = 384;

    // Before each operation on the stream outside a capture, a replay being one: its launches come
    // to the card together. Where too many are under way it waits for the earlier of them.
    void before_operation();

    // Makes its own events, before anything runs: to make one may wait for kernels that wait for
    // this device.
    void make_fences();

    void record(GpuEvent event);
    void await(GpuEvent event);
    // A wait has seen all of the stream done.
    void saw_all_done() { passed_operations_ = operations_; }

    uint64_t asked() const { return asked_; }
    uint64_t passed() const { return passed_; }

    // Gives its events back; the owner calls it while its context lives.
    void release() noexcept;

private:
    static constexpr uint64_t kFenceEvery = kMostPending / 3 - 1;  // and itself
    struct Point {
        uint64_t number = 0, operations = 0;  // asked for until then
    };

    GpuContext& context_;
    const GpuWaits& waits_;
    std::map<GpuEvent, Point> point_of_;  // as it was recorded last
    uint64_t asked_ = 0, passed_ = 0;
    uint64_t operations_ = 0, passed_operations_ = 0, fenced_operations_ = 0;
    std::array<GpuEvent, 2> fences_{};  // in turn
    size_t next_fence_ = 0;
};

}  // namespace cleave::runtime
