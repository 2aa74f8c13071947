// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/drivers/gpu/driver_switches.h"
#include "runtime/drivers/gpu/gpu_driver.h"
#include "runtime/execute/greedy.h"
#include "runtime/execute/stream_passes.h"
#include "runtime/load/residency.h"
#include "runtime/load/vendor_groups.h"

namespace cleave::runtime {

namespace {

using namespace planner;
using Clock = std::chrono::steady_clock;

// What run() asks of the workers.
struct Job {
    std::span<const Batch> passes;
    std::vector<std::vector<float>>* logits = nullptr;
    int32_t first_pass = 0;  // for the trace
    // Of a graph over tensors, in the order of its inputs and outputs.
    std::span<const std::span<const std::byte>> inputs;
    std::span<Tensor> outputs;
    bool meets = false;                                   // nothing but the devices' meeting
    std::vector<std::vector<int32_t>>* tokens = nullptr;  // wanted in place of logits
};

// One device's part: its steps of both phases, and what it records.
class Worker {
public:
    Worker(const Plan& plan, const Arenas& arenas, Device& device, DeviceId id, RunControl& control,
           const PeerLinks& peers, const StreamOptions& options, Clock::time_point origin)
        : plan_(plan),
          arenas_(arenas),
          device_(device),
          id_(id),
          control_(control),
          peers_(peers),
          lane_(make_lane(arenas, device, id)),
          shares_card_(devices_on_card(plan, id).size() > 1),
          record_(options.record_trace),
          record_passes_(options.record_passes),
          origin_(origin) {
        if (device.stream())
            passes_ = std::make_unique<StreamPasses>(plan, arenas, device, id, control, options);
    }

    std::optional<BoundLaunch> meeting;

    // Null of a device that has no stream, or whose captures hold nothing that waits for a peer.
    StreamPasses* captures_with_peers() {
        const std::vector<DeviceStep>& steps = phase(false).steps;
        const bool any = std::any_of(steps.begin(), steps.end(), [](const DeviceStep& step) {
            return step.communication && step.communication->is_on_stream();
        });
        return any ? passes_.get() : nullptr;
    }

    DevicePhase& phase(bool is_prefill) { return phases_[is_prefill ? 0 : 1]; }
    const std::vector<TraceEvent>& events() const { return events_; }
    int64_t received_bytes() const { return received_bytes_; }
    void add_overlap(OverlapReport& all) const {
        if (passes_) passes_->add_overlap(all);
    }

    void run(const Job& job) {
        try {
            if (job.meets)
                meet();
            else
                run_passes(job);
            // Of a device that works later than it is asked to, faults come to light here at last.
            if (passes_ && id_ != plan_.output_device) device_.synchronize();
            peers_.check(id_);
        } catch (const VendorError& error) {
            if (!passes_ || shares_card_) throw;
            passes_->rethrow(error);
        }
    }

    DeviceId id() const { return id_; }
    // The steps that may have failed; empty: none, or not known.
    std::string place() { return passes_ ? passes_->place() : ""; }

private:
    // Before the first pass: kernels of this device and of its peers run at the same time, or it is
    // an error.
    void meet() {
        if (!meeting) return;
        launch(device_, *meeting, {});
        device_.synchronize();
    }

    void run_passes(const Job& job) {
        if (!job.outputs.empty()) return run_tensors(job);
        for (size_t i = 0; i < job.passes.size(); ++i) {
            run_pass(job.passes[i], job.first_pass + static_cast<int32_t>(i), job.tokens);
            if (id_ != plan_.output_device) continue;
            if (job.tokens)
                (*job.tokens)[i] = tokens_of(job.passes[i]);
            else
                download_logits(job.passes[i], (*job.logits)[i]);
        }
        if (passes_ && record_passes_) passes_->trace_passes(events_, origin_ns());
    }

    void run_tensors(const Job& job) {
        const Batch& batch = job.passes.front();
        const Phase& phase = plan_.phase(batch.is_prefill);
        const std::vector<ValueId>& inputs = plan_.graph.inputs;
        for (PlacedId id : phase.inputs) {
            const PlacedValue& placed = phase.values[id.index()];
            if (placed.device != id_) continue;
            auto at = std::find(inputs.begin(), inputs.end(), placed.value) - inputs.begin();
            device_.upload(arenas_.view(phase, id).address, job.inputs[static_cast<size_t>(at)]);
        }
        run_pass(batch, job.first_pass, false);
        if (id_ != plan_.output_device) return;
        for (size_t i = 0; i < phase.outputs.size(); ++i)
            device_.download(arenas_.view(phase, phase.outputs[i]).address, job.outputs[i].data);
    }

    void run_pass(const Batch& batch, int32_t pass, bool greedily) {
        DevicePhase& phase = this->phase(batch.is_prefill);
        if (passes_) {
            received_bytes_ +=
                passes_->run(phase, batch, pass, greedily, lane_, events_, origin_ns());
            return;
        }
        PassShape shape{batch.num_tokens(), batch.num_outputs(), batch.num_sequences()};
        const int64_t begin = record_passes_ ? now() : 0, received = received_bytes_;
        for (const BatchArray& array : arrays_of(batch, arenas_.batch(id_)))
            device_.upload(array.address, array.bytes);
        for (size_t i = 0; i < phase.num_steps(greedily); ++i) {
            DeviceStep& step = phase.steps[i];
            control_.throw_if_stopped();
            int64_t start = record_ ? now() : 0;
            int64_t bytes = 0;
            if (step.launch != nullptr) {
                step.take_launches(device_, shape);
            } else {
                bytes = step.communication->take_part({id_, device_, lane_}, shape, phase.rounds);
                peers_.check(id_);
            }
            received_bytes_ += bytes;
            if (record_ && step.step.valid())
                events_.push_back({pass, batch.is_prefill, step.step, id_, start, now(), bytes,
                                   step.transport()});
            control_.step_done();
        }
        if (record_passes_)
            events_.push_back({pass,
                               batch.is_prefill,
                               StepId(),
                               id_,
                               begin,
                               now(),
                               received_bytes_ - received,
                               {}});
        ++phase.rounds;
    }

    static StagingLane make_lane(const Arenas& arenas, Device& device, DeviceId id) {
        const ExchangeArea& area = arenas.exchange(id);
        std::byte* memory = area.bytes > 0 ? device.host_view(area.address) : nullptr;
        if (!memory && area.bytes > 0 && device.stream())
            memory = device.stream()->pinned_memory(area.bytes).data();
        return {device.info().name, memory, area.bytes};
    }

    void download_logits(const Batch& batch, std::vector<float>& logits) {
        const Phase& phase = plan_.phase(batch.is_prefill);
        PlacedView view = arenas_.view(phase, phase.outputs.front());
        logits.resize(static_cast<size_t>(batch.num_outputs() * view.columns.size()));
        device_.download(view.address, std::as_writable_bytes(std::span(logits)));
    }

    // As the device chose them, or from its logits.
    std::vector<int32_t> tokens_of(const Batch& batch) {
        std::vector<int32_t> tokens(static_cast<size_t>(batch.num_outputs()));
        if (phase(batch.is_prefill).greedy) {
            device_.download(arenas_.tokens(), std::as_writable_bytes(std::span(tokens)));
            return tokens;
        }
        std::vector<float> logits;
        download_logits(batch, logits);
        const size_t vocabulary = tokens.empty() ? 0 : logits.size() / tokens.size();
        for (size_t row = 0; row < tokens.size(); ++row)
            tokens[row] = largest_logit(std::span(logits).subspan(row * vocabulary, vocabulary));
        return tokens;
    }

    int64_t origin_ns() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(origin_.time_since_epoch())
            .count();
    }
    int64_t now() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - origin_).count();
    }

    const Plan& plan_;
    const Arenas& arenas_;
    Device& device_;
    DeviceId id_;
    RunControl& control_;
    const PeerLinks& peers_;
    StagingLane lane_;
    bool shares_card_;  // then Impl tells what the driver said: it may be another's
    bool record_, record_passes_;
    Clock::time_point origin_;
    std::array<DevicePhase, 2> phases_;
    std::unique_ptr<StreamPasses> passes_;  // of a device with a stream
    std::vector<TraceEvent> events_;
    int64_t received_bytes_ = 0;
};

}  // namespace

void check_batch(const Batch& batch, const Workload& workload) {
    size_t tokens = batch.token_ids.size();
    CHECK(batch.positions.size() == tokens && batch.slots.size() == tokens)
        << "arrays of a batch differ in length";
    int64_t most = batch.is_prefill ? workload.max_tokens() : workload.batch;
    CHECK(tokens > 0 && batch.num_tokens() <= most)
        << "a pass of " << tokens << " tokens; at most " << most;
    int64_t most_outputs = batch.is_prefill ? workload.max_outputs() : workload.batch;
    CHECK(batch.num_outputs() <= most_outputs)
        << batch.num_outputs() << " rows of logits wanted; the plan has room for " << most_outputs;
    CHECK(batch.num_sequences() >= 1 && batch.num_sequences() <= workload.batch)
        << batch.num_sequences() << " sequences; the plan has " << workload.batch;
    CHECK(batch.sequence_starts.front() == 0 &&
          batch.sequence_starts.back() == static_cast<int32_t>(tokens))
        << "sequences do not cover the tokens";
    for (size_t i = 0; i < tokens; ++i) {
        CHECK(batch.slots[i] >= 0 && batch.slots[i] < workload.batch) << "slot " << batch.slots[i];
        CHECK(batch.positions[i] >= 0 && batch.positions[i] < workload.context)
            << "position " << batch.positions[i] << " of a context of " << workload.context;
    }
    for (size_t i = 0; i < batch.output_rows.size(); ++i) {
        int32_t row = batch.output_rows[i];
        CHECK(row >= 0 && row < static_cast<int32_t>(tokens) &&
              (i == 0 || batch.output_rows[i - 1] < row))
            << "output row " << row;
    }
}

struct Executor::Impl {
    const Plan& plan;
    RunControl control;
    PeerLinks peers;
    VendorGroups* vendor_groups;
    Clock::time_point origin = Clock::now();
    std::vector<std::unique_ptr<Communication>> communications;
    std::optional<CaptureMeeting> captures;
    std::vector<std::unique_ptr<Worker>> workers;
    mutable Trace trace;
    bool broken = false, step_by_step = false;
    int32_t passes_run = 0;

    // Hand-over of jobs to the worker threads.
    std::mutex mutex;
    std::condition_variable wake_workers, job_done;
    uint64_t generation = 0;
    size_t running = 0;
    bool quit = false;
    const Job* job = nullptr;
    std::exception_ptr error;
    DeviceId failed;  // whose worker met the error
    std::vector<std::thread> threads;

    Impl(const Plan& p, std::span<const std::unique_ptr<Device>> devices,
         const ExecutorOptions& options)
        : plan(p),
          control(options.watchdog_seconds, options.cancel, options.may_spin),
          peers(p, devices, options.watchdog_seconds),
          vendor_groups(options.vendor_groups) {}

    ~Impl() {
        {
            std::lock_guard lock(mutex);
            quit = true;
        }
        wake_workers.notify_all();
        for (std::thread& thread : threads) thread.join();
    }

    void build(std::span<const codegen::Program> programs,
               std::span<const std::unique_ptr<Device>> devices, const Arenas& arenas,
               const StreamOptions& options) {
        step_by_step = options.step_by_step;
        for (size_t d = 0; d < devices.size(); ++d) {
            workers.push_back(std::make_unique<Worker>(plan, arenas, *devices[d], DeviceId(d),
                                                       control, peers, options, origin));
        }
        for (size_t d = 0; d < devices.size(); ++d)
            workers[d]->meeting = bind_meeting(plan, programs[d], arenas, peers);
        for (bool is_prefill : {true, false}) {
            for (size_t d = 0; d < devices.size(); ++d) {
                DevicePhase& phase = workers[d]->phase(is_prefill);
                phase.launches = bind_launches(plan, programs[d], is_prefill, arenas, peers);
                phase.greedy = bind_greedy(plan, programs[d], is_prefill, arenas, peers);
            }
            give_out_steps(is_prefill, arenas);
            for (auto& worker : workers) {
                DevicePhase& phase = worker->phase(is_prefill);
                if (phase.greedy) phase.steps.push_back({StepId(), &*phase.greedy, nullptr});
            }
        }
    }

    void arrange_captures() {
        std::vector<std::string> names;
        for (size_t d = 0; d < workers.size(); ++d)
            if (workers[d]->captures_with_peers()) names.push_back(plan.machine.devices[d].name);
        if (names.empty()) return;
        captures.emplace(control, names);
        size_t member = 0;
        for (auto& worker : workers)
            if (StreamPasses* passes = worker->captures_with_peers())
                passes->meet_at(*captures, member++);
    }

    // Each step to the workers of the devices that take part in it, in plan order.
    void give_out_steps(bool is_prefill, const Arenas& arenas) {
        const Phase& phase = plan.phase(is_prefill);
        std::vector<size_t> next_launch(workers.size(), 0);
        for (size_t s = 0; s < phase.steps.size(); ++s) {
            StepId id(s);
            if (const Compute* compute = phase.steps[s].compute()) {
                DevicePhase& mine = workers[compute->device.index()]->phase(is_prefill);
                size_t& next = next_launch[compute->device.index()];
                CHECK(next < mine.launches.size() && mine.launches[next].step == id)
                    << "the program of " << plan.machine.device(compute->device).name
                    << " has no instruction for " << step_label(plan, is_prefill, id);
                DeviceStep& step = mine.steps.emplace_back();
                step.step = id;
                step.launch = &mine.launches[next++];
                if (next < mine.launches.size() && mine.launches[next].step == id)
                    step.preparation = std::exchange(step.launch, &mine.launches[next++]);
                continue;
            }
            CommunicationContext context{plan, phase, arenas, control,
                                         step_label(plan, is_prefill, id)};
            context.vendor_groups = vendor_groups;
            for (size_t d = 0; d < workers.size(); ++d) {
                std::vector<BoundLaunch>& bound = workers[d]->phase(is_prefill).launches;
                auto& mine = context.launches.emplace_back();
                while (next_launch[d] < bound.size() && bound[next_launch[d]].step == id)
                    mine.push_back(&bound[next_launch[d]++]);
            }
            communications.push_back(make_communication(context, phase.steps[s]));
            for (DeviceId device : communications.back()->participants()) {
                workers[device.index()]
                    ->phase(is_prefill)
                    .steps.push_back({id, nullptr, communications.back().get()});
            }
        }
    }

    void start() {
        // A single device runs on the caller's thread: nobody to wait for, no hand-over to pay.
        if (workers.size() == 1) return;
        for (auto& worker : workers) threads.emplace_back([this, w = worker.get()] { serve(*w); });
    }

    void serve(Worker& worker) {
        uint64_t seen = 0;
        for (;;) {
            const Job* mine = nullptr;
            {
                std::unique_lock lock(mutex);
                wake_workers.wait(lock, [&] { return quit || generation != seen; });
                if (quit) return;
                seen = generation;
                mine = job;
            }
            run_guarded(worker, *mine);
            std::lock_guard lock(mutex);
            if (--running == 0) job_done.notify_all();
        }
    }

    // The first real exception is kept; workers that only stopped because of it add nothing.
    void run_guarded(Worker& worker, const Job& mine) noexcept {
        try {
            worker.run(mine);
        } catch (const Stopped&) {
        } catch (...) {
            {
                std::lock_guard lock(mutex);
                if (!error) {
                    error = std::current_exception();
                    failed = worker.id();
                }
            }
            control.stop();
            peers.stop();
            if (vendor_groups) vendor_groups->abort();
            for (auto& communication : communications) communication->wake();
        }
    }

    void meet() {
        if (std::none_of(workers.begin(), workers.end(), [](auto& w) { return bool(w->meeting); }))
            return;
        Job job;
        job.meets = true;
        run(job);
    }

    void run_passes(Job job) {
        CHECK(!broken) << "this session has failed before; open a new one";
        for (const Batch& batch : job.passes) check_batch(batch, plan.workload);
        job.first_pass = passes_run;
        passes_run += static_cast<int32_t>(job.passes.size());
        run(job);
    }

    // After a fault the driver gives its error to every device of the card, and whose worker asks
    // first is chance: where several share it, a DeviceError with the places of all. No worker runs
    // any more.
    void tell_shared(const VendorError& fault, bool meets) {
        const std::vector<DeviceId> sharing = devices_on_card(plan, failed);
        if (sharing.size() == 1 || meets) return;
        std::string places, names;
        for (DeviceId device : sharing) {
            const std::string& name = plan.machine.device(device).name;
            const std::string place = workers[device.index()]->place();
            if (!place.empty())
                places += fmt::format("{}{} in {}", places.empty() ? "" : " and ", name, place);
            names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
        }
        if (places.empty()) return;
        throw DeviceError(
            fmt::format("one of {}", places),
            fmt::format(
                "{}; the driver tells a fault of one of them to all{}", fault.what(),
                step_by_step ? "" : "; run with $step_by_step to have one step of each named"),
            fmt::format("{}, which share a card", names));
    }

    void run(const Job& next) {
        if (threads.empty()) {
            run_guarded(*workers.front(), next);
        } else {
            std::unique_lock lock(mutex);
            job = &next;
            running = workers.size();
            ++generation;
            wake_workers.notify_all();
            job_done.wait(lock, [&] { return running == 0; });
        }
        if (!error) return;
        broken = true;
        try {
            std::rethrow_exception(std::exchange(error, nullptr));
        } catch (const VendorError& fault) {
            tell_shared(fault, next.meets);
            throw;
        }
    }
};

Executor::Executor(const Plan& plan, std::span<const codegen::Program> programs,
                   std::span<const std::unique_ptr<Device>> devices, const Arenas& arenas,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, devices, options)) {
    CHECK(programs.size() == devices.size() && devices.size() == plan.machine.devices.size())
        << "a program and a device for each of the plan's devices";
    check_presence(plan);
    CHECK(!options.record_trace || !options.record_passes) << "a trace of steps or one of passes";
    impl_->build(programs, devices, arenas,
                 {options.record_trace, options.record_passes, options.step_by_step, wants_graphs(),
                  wants_overlap()});
    impl_->arrange_captures();
    impl_->start();
    impl_->meet();
}

Executor::~Executor() = default;

std::vector<std::vector<float>> Executor::run(std::span<const Batch> passes) {
    std::vector<std::vector<float>> logits(passes.size());
    impl_->run_passes({passes, &logits});
    return logits;
}

std::vector<std::vector<int32_t>> Executor::run_greedy(std::span<const Batch> passes) {
    std::vector<std::vector<int32_t>> tokens(passes.size());
    Job job{passes};
    job.tokens = &tokens;
    impl_->run_passes(job);
    return tokens;
}

void Executor::run_tensors(std::span<const std::span<const std::byte>> inputs,
                           std::span<Tensor> outputs) {
    CHECK(!impl_->broken) << "this session has failed before; open a new one";
    CHECK(inputs.size() == impl_->plan.graph.inputs.size() &&
          outputs.size() == impl_->plan.graph.outputs.size() && !outputs.empty())
        << "tensors for each input and output";
    // One token, so that the batch's arrays are in order; no operator over tensors reads them.
    const Batch pass{{0}, {0}, {0}, {0, 1}, {}, true};
    Job job{{&pass, 1}, nullptr, impl_->passes_run++, inputs, outputs};
    impl_->run(job);
}

const Trace& Executor::trace() const {
    impl_->trace.events.clear();
    for (const auto& worker : impl_->workers) {
        impl_->trace.events.insert(impl_->trace.events.end(), worker->events().begin(),
                                   worker->events().end());
    }
    return impl_->trace;
}

OverlapReport Executor::overlap() const {
    OverlapReport all;
    for (const auto& worker : impl_->workers) worker->add_overlap(all);
    return all;
}

int64_t Executor::transferred_bytes() const {
    int64_t total = 0;
    for (const auto& worker : impl_->workers) total += worker->received_bytes();
    return total;
}

}  // namespace cleave::runtime
