// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/executor.h"

#include <algorithm>
#include <optional>

#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"
#include "runtime/device/vendor_error.h"
#include "runtime/drivers/gpu/driver_switches.h"
#include "runtime/execute/decode_width.h"
#include "runtime/execute/worker.h"
#include "runtime/load/vendor_groups.h"

namespace cleave::runtime {

using namespace planner;

struct Executor::Impl {
    const Plan& plan;
    RunControl control;
    PeerLinks peers;
    VendorGroups* vendor_groups;
    bool step_by_step;
    bool fills_decode = false;  // up to a width, as decode is captured
    const DeviceRanks* ranks;
    std::function<void(const PassResult&)> on_result;
    int64_t window;  // positions that a token sees; 0: all
    Worker::Clock::time_point origin = Worker::Clock::now();
    std::vector<std::unique_ptr<Communication>> communications;
    std::optional<CaptureMeeting> captures;
    std::vector<std::unique_ptr<Worker>> workers;  // by device; null of other ranks
    std::vector<Worker*> here;                     // the others: the ring's members
    bool traces;
    std::vector<TracePass> passes;  // of the trace
    mutable Trace trace;
    std::optional<PassRing> ring;  // last: its threads end before what they use

    Impl(const Plan& p, std::span<const std::unique_ptr<Device>> devices,
         const ExecutorOptions& options)
        : plan(p),
          control(options.watchdog_seconds, options.cancel, options.may_spin),
          peers(p, devices, options.watchdog_seconds),
          vendor_groups(options.vendor_groups),
          step_by_step(options.step_by_step),
          ranks(options.ranks),
          on_result(options.on_result),
          window(longest_window(p.graph)),
          traces(options.record_trace || options.record_passes) {
        if (!ranks) return;
        control.watch(ranks->job->progress_of_others());
        ranks->job->count_progress(&control.own_progress());
        // A card takes nothing from a thread that looks for its next pass.
        int hosts = 0, cards = 0;
        for (const std::unique_ptr<Device>& device : devices)
            if (device) ++(device->stream() ? cards : hosts);
        ranks->job->watch_passes(&control.in_pass(), cards > 0 ? 0 : hosts);
    }
    ~Impl() {
        if (!ranks) return;
        ranks->job->count_progress(nullptr);
        ranks->job->watch_passes(nullptr, 0);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void build(std::span<const codegen::Program> programs,
               std::span<const std::unique_ptr<Device>> devices, const Arenas& arenas,
               const StreamOptions& options) {
        for (size_t d = 0; d < devices.size(); ++d) {
            workers.push_back(devices[d]
                                  ? std::make_unique<Worker>(plan, arenas, *devices[d], DeviceId(d),
                                                             control, peers, options, origin)
                                  : nullptr);
            if (devices[d]) here.push_back(workers.back().get());
        }
        for (Worker* worker : here)
            worker->meeting = bind_meeting(plan, programs[worker->id().index()], arenas, peers);
        for (bool is_prefill : {true, false}) {
            for (Worker* worker : here) {
                const size_t d = worker->id().index();
                DevicePhase& phase = worker->phase(is_prefill);
                phase.launches = bind_launches(plan, programs[d], is_prefill, arenas, peers);
                phase.greedy = bind_greedy(plan, programs[d], is_prefill, arenas, peers);
            }
            give_out_steps(is_prefill, arenas);
            for (Worker* worker : here) {
                DevicePhase& phase = worker->phase(is_prefill);
                if (phase.greedy) phase.steps.push_back({StepId(), &*phase.greedy, nullptr});
            }
        }
    }

    // All devices have the same rows, so that one that captures decides for all.
    void choose_widths(std::span<const std::unique_ptr<Device>> devices,
                       const StreamOptions& options) {
        bool captures = false;
        for (size_t d = 0; d < devices.size(); ++d)
            captures |= devices[d] ? devices[d]->stream() != nullptr
                                   : is_card(plan.machine.devices[d].kind);
        fills_decode = captures && options.graphs && !options.step_by_step &&
                       !options.record_trace && rows_are_independent(plan);
    }

    void arrange_captures() {
        std::vector<std::string> names;
        for (Worker* worker : here)
            if (worker->captures_with_peers())
                names.push_back(plan.machine.device(worker->id()).name);
        if (names.empty()) return;
        captures.emplace(control, names);
        size_t member = 0;
        for (Worker* worker : here)
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
                if (!workers[compute->device.index()]) continue;
                DevicePhase& mine = workers[compute->device.index()]->phase(is_prefill);
                size_t& next = next_launch[compute->device.index()];
                CLEAVE_CHECK(next < mine.launches.size() && mine.launches[next].step == id)
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
            const std::vector<DeviceId> devices = step_devices(phase, phase.steps[s]);
            if (std::none_of(devices.begin(), devices.end(),
                             [&](DeviceId device) { return !!workers[device.index()]; }))
                continue;
            context.vendor_groups = vendor_groups;
            context.ranks = ranks;
            for (size_t d = 0; d < workers.size(); ++d) {
                auto& mine = context.launches.emplace_back();
                if (!workers[d]) continue;
                std::vector<BoundLaunch>& bound = workers[d]->phase(is_prefill).launches;
                while (next_launch[d] < bound.size() && bound[next_launch[d]].step == id)
                    mine.push_back(&bound[next_launch[d]++]);
            }
            communications.push_back(make_communication(context, phase.steps[s]));
            for (DeviceId device : communications.back()->participants()) {
                if (!workers[device.index()]) continue;
                workers[device.index()]
                    ->phase(is_prefill)
                    .steps.push_back({id, nullptr, communications.back().get()});
            }
        }
    }

    bool take_part(PassRing& ring, size_t member, Pass& pass) noexcept {
        Worker& worker = *here[member];
        try {
            worker.run(pass, ring);
            if (ranks) ranks->job->pass_ended();
            if (on_result && worker.id() == plan.output_device && !pass.is_meeting)
                on_result(pass.result);
            return true;
        } catch (const Stopped&) {  // NOLINT(bugprone-empty-catch)
        } catch (...) {
            ring.fail(member, pass, worker.first_unfinished(pass));
        }
        return false;
    }

    void stop() {
        control.stop();
        peers.stop();
        if (vendor_groups) vendor_groups->abort();
        for (auto& communication : communications) communication->wake();
    }

    // The meeting has a ticket before those of passes.
    void start() {
        const bool meets = std::any_of(here.begin(), here.end(),
                                       [](auto& worker) { return bool(worker->meeting); });
        ring.emplace(here.size(), meets ? -1 : 0,
                     PassRing::Work{[this](PassRing& ring, size_t member, Pass& pass) {
                                        return take_part(ring, member, pass);
                                    },
                                    [this] { stop(); }});
        if (!meets) return;
        Pass meeting;
        meeting.is_meeting = true;
        ring->submit(std::move(meeting));
        ring->take();
    }

    // After a fault the driver gives its error to every device of the card, and which worker asks
    // first is chance. Where several share the card this throws a DeviceError with the places of
    // all of them. No worker runs any more.
    void rethrow_for_card(const VendorError& fault) {
        const std::vector<DeviceId> sharing =
            devices_on_card(plan, here[ring->failed_member()]->id());
        if (sharing.size() == 1) return;
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

    PassResult take() {
        try {
            return ring->take();
        } catch (const VendorError& fault) {
            rethrow_for_card(fault);
            throw;
        }
    }

    // Passes one after the other: one device does them on the caller's thread, but for a NUMA node,
    // which keeps its threads.
    void run(Pass pass) {
        const bool by_caller =
            here.size() == 1 && !plan.machine.device(here[0]->id()).is_numa_node();
        ring->submit(std::move(pass), by_caller);
    }

    // Of the next pass to be submitted.
    Pass pass_of(Batch batch, PassResults wanted) {
        if (traces) passes.push_back(size_of_pass(static_cast<int32_t>(passes.size()), batch));
        Pass pass;
        pass.num_outputs = batch.num_outputs();
        if (fills_decode) fill_decode(batch, plan);
        pass.batch = std::move(batch);
        pass.wanted = wanted;
        return pass;
    }

    void check(const Batch& batch) const {
        check_batch(batch, plan.workload);
        if (!plan.kv_slabs.empty())
            check_blocks(batch, plan.workload, plan.kv_pool.num_blocks, window);
    }
};

Executor::Executor(const Plan& plan, std::span<const codegen::Program> programs,
                   std::span<const std::unique_ptr<Device>> devices, const Arenas& arenas,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, devices, options)) {
    CLEAVE_CHECK(programs.size() == devices.size() && devices.size() == plan.machine.devices.size())
        << "a program and a device for each of the plan's devices";
    CLEAVE_CHECK(!options.record_trace || !options.record_passes)
        << "a trace of steps or one of passes";
    const StreamOptions streams{options.record_trace, options.record_passes, options.step_by_step,
                                wants_graphs(), wants_overlap()};
    impl_->build(programs, devices, arenas, streams);
    impl_->choose_widths(devices, streams);
    impl_->arrange_captures();
    impl_->start();
}

Executor::~Executor() = default;

Ticket Executor::submit(Batch batch, PassResults wanted) {
    impl_->check(batch);
    return impl_->ring->submit(impl_->pass_of(std::move(batch), wanted));
}

PassResult Executor::take() { return impl_->take(); }

int64_t Executor::in_flight() const { return impl_->ring->in_flight(); }

bool Executor::has_failed() const { return impl_->ring->has_failed(); }

std::vector<PassResult> Executor::run(std::span<const Batch> passes, PassResults wanted) {
    for (const Batch& batch : passes) impl_->check(batch);
    CLEAVE_CHECK(in_flight() == 0) << in_flight() << " passes are in flight";
    std::vector<PassResult> results;
    for (const Batch& batch : passes) {
        if (in_flight() == kMostPassesInFlight) results.push_back(take());
        impl_->run(impl_->pass_of(batch, wanted));
    }
    while (in_flight() > 0) results.push_back(take());
    return results;
}

void Executor::run_tensors(std::span<const std::span<const std::byte>> inputs,
                           std::span<Tensor> outputs) {
    CLEAVE_CHECK(inputs.size() == impl_->plan.graph.inputs.size() &&
                 outputs.size() == impl_->plan.graph.outputs.size() && !outputs.empty())
        << "tensors for each input and output";
    // One token, so that the batch's arrays are in order; no operator over tensors reads them.
    impl_->run({{{0}, {0}, {0}, {0, 1}, {}, true}, PassResults::kNone, inputs, outputs});
    take();
}

const Trace& Executor::trace() const {
    CLEAVE_CHECK(in_flight() == 0) << "a trace while passes are in flight";
    impl_->trace.events.clear();
    for (const Worker* worker : impl_->here) {
        impl_->trace.events.insert(impl_->trace.events.end(), worker->events().begin(),
                                   worker->events().end());
    }
    impl_->trace.passes = impl_->passes;
    return impl_->trace;
}

OverlapReport Executor::overlap() const {
    OverlapReport all;
    for (const Worker* worker : impl_->here) worker->add_overlap(all);
    return all;
}

std::vector<std::optional<double>> Executor::busy_seconds() const {
    std::vector<std::optional<double>> seconds;
    for (const Worker* worker : impl_->here) {
        seconds.resize(std::max(seconds.size(), worker->id().index() + 1));
        seconds[worker->id().index()] = worker->busy_seconds();
    }
    return seconds;
}

int64_t Executor::now_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Worker::Clock::now() -
                                                                impl_->origin)
        .count();
}

int64_t Executor::transferred_bytes() const {
    int64_t total = 0;
    for (const Worker* worker : impl_->here) total += worker->received_bytes();
    return total;
}

}  // namespace cleave::runtime
