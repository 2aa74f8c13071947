// SPDX-License-Identifier: Apache-2.0
// The passes of an asynchronous device (runtime/device/async_device.h). Steps go on its stream in
// plan order; the host waits only for communications through its own memory. Decode is captured
// once for each shape of pass, of which there are few (runtime/execute/decode_width.h), in runs
// between such communications, and replayed. A trace of steps has a mark of the stream before and
// behind each step, a trace of passes before and behind each pass. One worker uses it; not
// thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/async_device.h"
#include "runtime/exchange/rendezvous.h"
#include "runtime/execute/device_steps.h"
#include "runtime/execute/overlap_report.h"
#include "runtime/execute/pass.h"
#include "runtime/execute/trace.h"
#include "runtime/load/arenas.h"

namespace cleave::runtime {

struct StreamOptions {
    bool record_trace = false;
    bool record_passes = false;  // instead of steps
    bool step_by_step = false;   // waits after each step, so that a fault has its name
    bool graphs = true;          // decode is captured and replayed
    bool overlap = true;  // launches begin before those before them have ended, where they can
};

// Where devices whose kernels wait for one another meet once each has captured a shape and brought
// its graphs onto the card. Bringing may wait for everything that runs on the card, and a replay
// waits for its peers.
class CaptureMeeting {
public:
    CaptureMeeting(RunControl& control, const std::vector<std::string>& devices)
        : meeting_(control, "capturing decode", devices, devices) {}
    void meet(size_t member, uint64_t round) {
        meeting_.post(member, round, nullptr);
        meeting_.await_posted(member, round);
    }

private:
    Rendezvous meeting_;
};

class StreamPasses {
public:
    // `device` has a stream; its waits end from now on when the run is stopped, when the user
    // interrupts, and when nothing in the session has moved for the watchdog's time.
    StreamPasses(const planner::Plan& plan, const Arenas& arenas, Device& device,
                 planner::DeviceId id, RunControl& control, const StreamOptions& options);
    ~StreamPasses();
    // This device is that member of a meeting; called before the first pass.
    void meet_at(CaptureMeeting& meeting, size_t member) {
        meeting_ = &meeting;
        member_ = member;
    }
    StreamPasses(const StreamPasses&) = delete;
    StreamPasses& operator=(const StreamPasses&) = delete;

    // Puts a pass on the stream, with its choice of tokens behind it, where they are wanted and the
    // device makes it. Returns the bytes that came from other devices. `origin` is where the
    // trace's time begins.
    int64_t run(DevicePhase& phase, const Pass& pass, StagingLane& lane,
                std::vector<TraceEvent>& trace, int64_t origin_ns);

    // Waits until the device has done all, or `more` says that it gets another pass.
    void await_end(const std::function<bool()>& more);

    // The first pass that no wait has seen done.
    Ticket first_unfinished();

    // Of the passes since the last time, with StreamOptions::record_passes; waits for the device.
    void trace_passes(std::vector<TraceEvent>& trace, int64_t origin_ns);

    // Adds this device.
    void add_overlap(OverlapReport& all) const;

    // Ends in a DeviceError that says at which steps the device was.
    [[noreturn]] void rethrow(const DeviceError& error);
    // Those steps; empty before the first.
    std::string place();

private:
    struct Run {
        size_t begin = 0, end = 0;  // of the phase's steps
        bool captured = false;
    };
    struct Capture {
        int number = 0;
        int64_t bytes = 0;  // that its communications bring
    };
    struct Place {
        bool is_prefill = true;
        const DeviceStep* step = nullptr;
        int32_t pass = 0;
    };

    void upload_batch(const Batch& batch);
    int64_t take_steps(DevicePhase& phase, const PassShape& shape, size_t begin, size_t end,
                       StagingLane& lane);
    int64_t decode(DevicePhase& phase, const PassShape& shape, bool greedily, StagingLane& lane);
    Capture capture(DevicePhase& phase, const PassShape& shape, const Run& run, StagingLane& lane);
    void forget_captures();
    std::vector<Capture> capture_all(DevicePhase& phase, const PassShape& shape,
                                     const std::vector<Run>& runs, StagingLane& lane);
    const std::vector<Run>& runs_of(const DevicePhase& phase, bool greedily);
    void go_to(const DeviceStep& step);
    void see_points();
    void check_wait();
    std::string label(const Place& place) const;
    std::string where() const;

    const planner::Plan& plan_;
    const Arenas& arenas_;
    Device& device_;
    DeviceStream& stream_;
    planner::DeviceId id_;
    RunControl& control_;
    StreamOptions options_;
    std::string no_overlap_;   // why launches do not overlap; empty: they do
    bool one_upload_ = false;  // the batch's arrays lie side by side
    std::array<std::vector<Run>, 2>
        runs_;  // of decode, captured and not: without and with the choice of tokens
    // By shape: of each such run; nothing before the second pass of a shape.
    std::map<std::array<int64_t, 4>, std::optional<std::vector<Capture>>> captures_;
    CaptureMeeting* meeting_ = nullptr;
    size_t member_ = 0;
    uint64_t meetings_ = 0;
    uint64_t prefills_ = 0;
    std::vector<TraceEvent> marked_;  // passes between two marks each, their times not yet known
    Place oldest_, newest_;           // steps that no wait has seen done
    uint64_t seen_waits_ = 0;
    // Of the stream when the newest step began; and those asked for since the last that was seen
    // passed, each with its step.
    uint64_t seen_points_ = 0;
    std::deque<std::pair<uint64_t, Place>> points_;
    const std::function<bool()>* more_ = nullptr;  // during await_end
    uint64_t seen_progress_ = 0;
    std::chrono::steady_clock::time_point moved_;
};

}  // namespace cleave::runtime
