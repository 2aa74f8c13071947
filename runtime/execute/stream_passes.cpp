// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/stream_passes.h"

#include <algorithm>
#include <cstring>

#include "planner/build/assign_memory.h"
#include "planner/plan/plan_queries.h"
#include "runtime/drivers/gpu/driver_switches.h"

namespace cleave::runtime {

namespace {

using namespace planner;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostShapes = 32;     // that are kept captured
constexpr size_t kMarkedPasses = 128;  // in a row, until their times are taken

// Ends await_end.
struct MorePasses {};

// Whether nothing is between the arrays of a batch, as the plan places them: then one copy brings
// them all.
bool are_neighbours(const BatchAddresses& at, const Workload& workload) {
    const auto size = static_cast<DeviceAddress>(sizeof(int32_t));
    const auto tokens = static_cast<DeviceAddress>(workload.max_tokens()) * size;
    std::array<std::pair<DeviceAddress, DeviceAddress>, 5> all{
        {{at.token_ids, tokens},
         {at.positions, tokens},
         {at.slots, tokens},
         {at.sequence_starts, static_cast<DeviceAddress>(workload.batch + 1) * size},
         {at.output_rows, static_cast<DeviceAddress>(workload.max_outputs()) * size}}};
    std::sort(all.begin(), all.end());
    for (size_t i = 1; i < all.size(); ++i) {
        const DeviceAddress end = all[i - 1].first + all[i - 1].second;
        if (all[i].first < end || all[i].first - end >= 256) return false;
    }
    return true;
}

}  // namespace

StreamPasses::StreamPasses(const Plan& plan, const Arenas& arenas, Device& device, DeviceId id,
                           RunControl& control, const StreamOptions& options)
    : plan_(plan),
      arenas_(arenas),
      device_(device),
      stream_(*device.stream()),
      id_(id),
      control_(control),
      options_(options),
      one_upload_(are_neighbours(arenas.batch(id), plan.workload)),
      seen_waits_(stream_.synchronizations()),
      seen_points_(stream_.points()),
      moved_(Clock::now()) {
    stream_.set_wait_check([this] { check_wait(); });
    const bool wanted = options.overlap && may_overlap(plan, id);
    no_overlap_ = stream_.overlap_launches(wanted).reason;
    if (no_overlap_.empty() && !options.overlap)
        no_overlap_ = "CLEAVE_GPU_OVERLAP=0";
    else if (no_overlap_.empty() && !wanted)
        no_overlap_ =
            fmt::format("devices of {}'s card exchange by peer memory", device.info().name);
    // Room for the largest batch now: to allocate pinned memory later may wait for kernels that
    // wait for this device.
    stream_.upload_space(batch_bytes(plan.workload));
    // Of a traced pass: its begin, that of its steps, the end of each and of its choice of tokens.
    if (options.record_trace)
        stream_.reserve_marks(std::max(plan.prefill.steps.size(), plan.decode.steps.size()) + 3);
    if (options.record_passes) stream_.reserve_marks(2 * kMarkedPasses);
}

void StreamPasses::add_overlap(OverlapReport& all) const {
    all.launches += static_cast<int64_t>(stream_.overlapped_launches());
    if (!no_overlap_.empty()) all.reasons[device_.info().name] = no_overlap_;
}

StreamPasses::~StreamPasses() {
    stream_.set_wait_check(nullptr);
    stream_.settle();
}

int64_t StreamPasses::run(DevicePhase& phase, const Pass& pass, StagingLane& lane,
                          std::vector<TraceEvent>& trace, int64_t origin_ns) {
    const Batch& batch = pass.batch;
    const bool greedily = pass.greedily();
    const auto number = static_cast<int32_t>(pass.ticket());
    const size_t end = phase.num_steps(greedily);
    const PassShape shape = shape_of(batch);
    see_points();
    newest_ = {batch.is_prefill, nullptr, number};
    moved_ = Clock::now();
    // The host is two prefills ahead at most, so that a wait is for little and no watchdog takes a
    // long prompt for a hang.
    const int fence = DeviceStream::kPassFences + static_cast<int>(prefills_ % 2);
    if (batch.is_prefill && prefills_ >= 2) stream_.await_fence(fence);
    if (marked_.size() == kMarkedPasses) trace_passes(trace, origin_ns);
    if (options_.record_trace || options_.record_passes) stream_.mark();
    upload_batch(batch);
    int64_t received = 0;
    if (!options_.record_trace) {
        received = batch.is_prefill || options_.step_by_step || !options_.graphs
                       ? take_steps(phase, shape, 0, end, lane)
                       : decode(phase, shape, greedily, lane);
    } else {
        std::vector<int64_t> bytes;
        stream_.mark();
        for (size_t i = 0; i < end; ++i) {
            bytes.push_back(take_steps(phase, shape, i, i + 1, lane));
            stream_.mark();
            received += bytes.back();
        }
        const std::vector<int64_t> times = stream_.take_marks();
        for (size_t i = 0; i < phase.num_steps(false); ++i)
            trace.push_back({number, batch.is_prefill, phase.steps[i].step, id_,
                             times[i + 1] - origin_ns, times[i + 2] - origin_ns, bytes[i],
                             phase.steps[i].path()});
    }
    if (options_.record_passes) {
        stream_.mark();
        marked_.push_back({number, batch.is_prefill, StepId(), id_, 0, 0, received, {}});
    }
    if (batch.is_prefill) {
        stream_.place_fence(fence);
        ++prefills_;
    }
    ++phase.rounds;
    return received;
}

void StreamPasses::trace_passes(std::vector<TraceEvent>& trace, int64_t origin_ns) {
    if (marked_.empty()) return;
    const std::vector<int64_t> times = stream_.take_marks();
    CLEAVE_CHECK(times.size() == 2 * marked_.size())
        << times.size() << " marks of " << marked_.size() << " passes";
    for (size_t i = 0; i < marked_.size(); ++i) {
        marked_[i].start_ns = times[2 * i] - origin_ns;
        marked_[i].end_ns = times[2 * i + 1] - origin_ns;
        trace.push_back(marked_[i]);
    }
    marked_.clear();
}

void StreamPasses::upload_batch(const Batch& batch) {
    const std::array<BatchArray, 5> arrays = arrays_of(batch, arenas_.batch(id_));
    if (!one_upload_) {
        for (const BatchArray& array : arrays) device_.upload(array.address, array.bytes);
        return;
    }
    DeviceAddress begin = arrays[0].address, end = begin;
    for (const BatchArray& array : arrays) {
        begin = std::min(begin, array.address);
        end = std::max(end, array.address + array.bytes.size());
    }
    const std::span<std::byte> space = stream_.upload_space(static_cast<int64_t>(end - begin));
    for (const BatchArray& array : arrays)
        std::copy(array.bytes.begin(), array.bytes.end(),
                  space.begin() + static_cast<ptrdiff_t>(array.address - begin));
    device_.upload(begin, space);
}

int64_t StreamPasses::take_steps(DevicePhase& phase, const PassShape& shape, size_t begin,
                                 size_t end, StagingLane& lane) {
    int64_t received = 0;
    for (size_t i = begin; i < end; ++i) {
        DeviceStep& step = phase.steps[i];
        control_.throw_if_stopped();
        go_to(step);
        if (step.launch)
            step.take_launches(device_, shape);
        else
            received += step.communication->take_part({id_, device_, lane}, shape, phase.rounds);
        if (options_.step_by_step) device_.synchronize();
        control_.step_done();
    }
    return received;
}

// The first pass of a shape loads what its kernels need, the second is captured, later ones are
// replayed.
int64_t StreamPasses::decode(DevicePhase& phase, const PassShape& shape, bool greedily,
                             StagingLane& lane) {
    const std::vector<Run>& runs = runs_of(phase, greedily);
    const std::array<int64_t, 4> key{shape.num_tokens, shape.num_outputs, shape.num_sequences,
                                     greedily};
    const auto [at, fresh] = captures_.try_emplace(key);
    if (fresh) {
        if (captures_.size() > kMostShapes) {
            forget_captures();
            captures_[key];
        }
        return take_steps(phase, shape, 0, phase.num_steps(greedily), lane);
    }
    if (!at->second) at->second = capture_all(phase, shape, runs, lane);
    const std::vector<Capture>& captures = *at->second;
    size_t next = 0;
    int64_t received = 0;
    for (const Run& run : runs) {
        if (!run.captured) {
            received += take_steps(phase, shape, run.begin, run.end, lane);
            continue;
        }
        control_.throw_if_stopped();
        for (size_t i : {run.begin, run.end - 1}) go_to(phase.steps[i]);
        stream_.replay(captures[next].number);
        received += captures[next++].bytes;
        for (size_t i = run.begin; i < run.end; ++i) control_.step_done();
    }
    return received;
}

// What gives a graph back may wait for all that runs on the card, as that of a bring may: with
// peers nothing waits there for anybody from the first meeting to the second. All come here in the
// same pass, as all have the same passes.
void StreamPasses::forget_captures() {
    if (meeting_) {
        device_.synchronize();
        meeting_->meet(member_, meetings_++);
    }
    captures_.clear();
    stream_.drop_captures();
    if (meeting_) meeting_->meet(member_, meetings_++);
}

// All before the first replay, and with peers not before all of them are as far.
std::vector<StreamPasses::Capture> StreamPasses::capture_all(DevicePhase& phase,
                                                             const PassShape& shape,
                                                             const std::vector<Run>& runs,
                                                             StagingLane& lane) {
    std::vector<Capture> captures;
    for (const Run& run : runs)
        if (run.captured) captures.push_back(capture(phase, shape, run, lane));
    if (!meeting_) return captures;
    for (const Capture& capture : captures) stream_.bring(capture.number);
    device_.synchronize();
    meeting_->meet(member_, meetings_++);
    return captures;
}

StreamPasses::Capture StreamPasses::capture(DevicePhase& phase, const PassShape& shape,
                                            const Run& run, StagingLane& lane) {
    stream_.begin_capture();
    try {
        const int64_t bytes = take_steps(phase, shape, run.begin, run.end, lane);
        return {stream_.end_capture(), bytes};
    } catch (...) {
        stream_.abandon_capture();
        throw;
    }
}

// Rows of what only goes on the stream, as long as they can be; one step alone gains nothing.
const std::vector<StreamPasses::Run>& StreamPasses::runs_of(const DevicePhase& phase,
                                                            bool greedily) {
    std::vector<Run>& runs = runs_[greedily ? 1 : 0];
    if (!runs.empty()) return runs;
    for (size_t i = 0; i < phase.num_steps(greedily); ++i) {
        const DeviceStep& step = phase.steps[i];
        const bool on_stream = step.launch || step.communication->is_on_stream();
        if (runs.empty() || runs.back().captured != on_stream) runs.push_back({i, i, on_stream});
        runs.back().end = i + 1;
    }
    for (Run& run : runs) run.captured = run.captured && run.end - run.begin > 1;
    return runs;
}

void StreamPasses::go_to(const DeviceStep& step) {
    see_points();
    newest_.step = &step;
    if (seen_waits_ != stream_.synchronizations() || !oldest_.step) oldest_ = newest_;
    seen_waits_ = stream_.synchronizations();
}

// What may have failed begins with the step that asked for the last point which was seen passed:
// all before it is done.
void StreamPasses::see_points() {
    const uint64_t asked = stream_.points(), passed = stream_.passed_points();
    const bool in_newest = passed > seen_points_;
    if (newest_.step && asked != seen_points_) points_.emplace_back(asked, newest_);
    for (; !points_.empty() && points_.front().first <= passed; points_.pop_front())
        oldest_ = points_.front().second;
    if (newest_.step && in_newest) oldest_ = newest_;
    seen_points_ = asked;
}

void StreamPasses::await_end(const std::function<bool()>& more) {
    more_ = &more;
    try {
        device_.synchronize();
    } catch (const MorePasses&) {  // NOLINT(bugprone-empty-catch)
    } catch (...) {
        more_ = nullptr;
        throw;
    }
    more_ = nullptr;
}

void StreamPasses::check_wait() {
    control_.throw_if_stopped();
    if (more_ && (*more_)()) throw MorePasses();
    const Clock::time_point now = Clock::now();
    if (control_.progress() != seen_progress_) {
        seen_progress_ = control_.progress();
        moved_ = now;
    } else if (now - moved_ > std::chrono::seconds(control_.watchdog_seconds())) {
        throw DeviceError(where(),
                          fmt::format("it does not end, and no device has finished a step for {} s",
                                      control_.watchdog_seconds()),
                          device_.info().name);
    }
}

std::string StreamPasses::label(const Place& place) const {
    const std::string step =
        place.step->step.valid()
            ? step_label(plan_, place.is_prefill, place.step->step)
            : fmt::format("the choice of {}'s tokens", place.is_prefill ? "prefill" : "decode");
    return place.step->launch
               ? fmt::format("{} (kernel {})", step, *place.step->launch->kernel_name)
               : step;
}

std::string StreamPasses::where() const {
    if (!newest_.step || !oldest_.step) return fmt::format("pass {}", newest_.pass);
    if (oldest_.step == newest_.step && oldest_.pass == newest_.pass) return label(newest_);
    return fmt::format("a step from {} of pass {} to {} of pass {}", label(oldest_), oldest_.pass,
                       label(newest_), newest_.pass);
}

Ticket StreamPasses::first_unfinished() {
    see_points();
    return oldest_.step ? oldest_.pass : newest_.pass;
}

std::string StreamPasses::place() {
    see_points();
    return newest_.step ? where() : "";
}

void StreamPasses::rethrow(const DeviceError& error) {
    see_points();
    const bool exact =
        options_.step_by_step || (oldest_.step == newest_.step && oldest_.pass == newest_.pass);
    throw DeviceError(
        where(),
        fmt::format("{}{}", error.what(),
                    exact ? "" : "; run with $step_by_step to have the step that fails named"),
        device_.info().name);
}

}  // namespace cleave::runtime
