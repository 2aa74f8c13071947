// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <utility>

#include "codegen/generate.h"
#include "planner/plan/plan_queries.h"
#include "runtime/cards/open_devices.h"
#include "runtime/device/bounded_waits.h"
#include "runtime/execute/executor.h"
#include "runtime/hosts/clock_offset.h"
#include "runtime/load/arenas.h"
#include "runtime/load/residency.h"
#include "runtime/load/upload.h"
#include "runtime/load/vendor_groups.h"
#include "runtime/session/messages.h"
#include "runtime/session/tensor_io.h"

namespace cleave::runtime {

using namespace planner;

namespace {

// Before memory is taken and weights travel, which may last minutes: a driver that refuses a kernel
// says so now.
void load_kernels(Device& device, const codegen::Program& program,
                  std::vector<codegen::CompiledKernel> objects, const SessionOptions& options) {
    if (options.cancel) options.cancel->throw_if_cancelled();
    const BoundedWaits bounded(device, "loading its kernels", options.watchdog_seconds,
                               options.cancel);
    device.load(std::move(objects));
    for (size_t i = 0; i < program.kernels.size(); ++i)
        device.expect_launch(static_cast<int>(i), program.kernels[i].launch);
}

}  // namespace

struct Session::Impl {
    const Plan& plan;
    std::optional<Drivers> own_drivers;
    Drivers& drivers;
    const DeviceRanks ranks;
    HostJob* const job;  // null: the plan is of this machine
    Impl(const Plan& p, const SessionOptions& options)
        : plan(p),
          drivers(options.drivers ? *options.drivers : own_drivers.emplace()),
          ranks(ranks_of_devices(p, options.job)),
          job(ranks.job) {}

    // Members in order of construction: the executor stops its workers before the devices go.
    std::vector<codegen::Program> programs;
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<Arenas> arenas;
    std::unique_ptr<VendorGroups> vendor_groups;
    std::unique_ptr<Executor> executor;
    Loading loading;
    int64_t payload_bytes_before = 0, message_bytes_before = 0;
    std::deque<std::pair<Ticket, PassResults>> asked;  // of rank 0: passes not taken
    mutable std::vector<RankReport>
        reported;  // of rank 0: since the last pass; empty: not asked yet
    mutable Trace trace;

    bool leads() const { return job && job->rank() == 0; }
    int output_rank() const { return ranks.rank(plan.output_device); }

    // Work that any rank may refuse: then all do, with the words of each that did.
    template <class Work>
    void together(Work&& work) {
        if (!job) return work();
        std::string objection;
        try {
            work();
        } catch (const Cancelled&) {
            throw;
        } catch (const Error& error) {
            objection = error.what();
        }
        job->vote(objection);
    }

    void open(const SessionOptions& options) {
        devices = open_devices(plan, drivers,
                               {options.threads, options.poison,
                                std::min(options.settle_seconds, options.watchdog_seconds),
                                options.simt_seed, &ranks});
        check_weights_present(plan);
    }

    void compile(Plan& written, const SessionOptions& options) {
        codegen::CompileOptions compile = options.compile;
        if (compile.cancel == nullptr) compile.cancel = options.cancel;
        compile.drivers = drivers.versions(plan.machine);
        if (job)
            for (const auto& device : devices) compile.devices.push_back(device != nullptr);
        std::vector<codegen::CompiledProgram> compiled = codegen::compile_plan(written, compile);
        for (size_t d = 0; d < devices.size(); ++d) {
            programs.push_back(std::move(compiled[d].program));
            if (devices[d])
                load_kernels(*devices[d], programs[d], std::move(compiled[d].objects), options);
        }
    }

    void allocate(const SessionOptions& options) {
        std::deque<BoundedWaits> bounded;
        for (auto& device : devices)
            if (device)
                bounded.emplace_back(*device, "clearing its memory", options.watchdog_seconds,
                                     options.cancel);
        arenas = std::make_unique<Arenas>(plan, devices);
    }

    // Cards of several hosts wait for one another here: what one refuses ends the run at once.
    void join(const SessionOptions& options) {
        vendor_groups = std::make_unique<VendorGroups>(
            plan, drivers, devices, ranks, *arenas,
            CollectiveOptions{options.watchdog_seconds, options.cancel});
    }

    void load(const SessionOptions& options) {
        const auto before = std::chrono::steady_clock::now();
        loading.bytes =
            upload_weights(plan, *arenas, devices,
                           {options.upload_progress, options.cancel, options.watchdog_seconds,
                            options.threads, options.keep_packed, options.note});
        loading.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    }

    void start(const SessionOptions& options) {
        ExecutorOptions run{options.record_trace,
                            options.record_passes,
                            threads_fit_cores(plan, options.threads),
                            options.step_by_step,
                            options.watchdog_seconds,
                            options.cancel,
                            vendor_groups.get(),
                            job ? &ranks : nullptr,
                            {}};
        if (job && job->rank() != 0)
            run.on_result = [this](const PassResult& result) {
                if (!result.logits.empty() || !result.tokens.empty())
                    job->send(0, Message::kResult, encode(result));
            };
        executor = std::make_unique<Executor>(plan, programs, devices, *arenas, run);
        if (!job) return;
        job->tell_status([this] { return encode_busy(executor->busy_seconds()); });
        payload_bytes_before = job->payload_bytes();
        message_bytes_before = job->message_bytes();
    }

    // Whatever ends a pass ends the run of all ranks, before memory goes that MPI may write to.
    template <class Work>
    auto guarded(Work&& work) {
        if (!job) return work();
        try {
            return work();
        } catch (const Cancelled&) {  // maybe by mpirun, which soon kills it
            job->look_around();
            job->leave(job->why_cancelled(), std::chrono::milliseconds(200));
            if (const std::string why = job->failure(); !why.empty()) throw HostError(why);
            throw;
        } catch (const std::exception& error) {
            job->leave(error.what());
            throw;
        }
    }

    Ticket submit(Batch batch, PassResults wanted) {
        reported.clear();
        if (leads()) {
            check_batch(batch, plan.workload);
            job->send_others(Message::kPass,
                             encode(SessionMessage{SessionCall::kPass, batch, wanted}));
        }
        const bool expects = leads() && wanted != PassResults::kNone && batch.num_outputs() > 0;
        const Ticket ticket = executor->submit(std::move(batch), wanted);
        if (leads()) asked.emplace_back(ticket, expects ? wanted : PassResults::kNone);
        return ticket;
    }

    PassResult take() {
        PassResult result = executor->take();
        if (!leads()) return result;
        const PassResults wanted = asked.front().second;
        asked.pop_front();
        if (wanted == PassResults::kNone || output_rank() == 0) return result;
        PassResult far = decode_result(job->receive(output_rank(), Message::kResult));
        CLEAVE_CHECK(far.ticket == result.ticket)
            << "the result of pass " << far.ticket << " in the turn of " << result.ticket;
        return far;
    }

    std::vector<PassResult> run(std::span<const Batch> passes, PassResults wanted) {
        if (!job) return executor->run(passes, wanted);
        std::vector<PassResult> results;
        for (const Batch& batch : passes) {
            if (executor->in_flight() == kMostPassesInFlight) results.push_back(take());
            submit(batch, wanted);
        }
        while (executor->in_flight() > 0) results.push_back(take());
        return results;
    }

    RankReport own_report() const {
        RankReport report;
        report.transferred_bytes = executor->transferred_bytes();
        report.loaded_bytes = loading.bytes;
        for (const auto& device : devices)
            if (device)
                report.peak_memory.emplace_back(device->info().name,
                                                device->peak_allocated_bytes());
        report.events = executor->trace().events;
        if (!job) return report;
        report.payload_bytes = job->payload_bytes() - payload_bytes_before;
        report.message_bytes = job->message_bytes() - message_bytes_before;
        return report;
    }

    std::string ask(int rank, SessionCall call) const {
        job->send(rank, Message::kPass, encode(SessionMessage{call, {}, {}}));
        return job->receive(rank, Message::kResult);
    }

    ClockOffset clock_of(int rank) const {
        std::array<ClockReading, 5> readings;
        for (ClockReading& reading : readings) {
            reading.left_ns = executor->now_ns();
            reading.other_ns = decode_time(ask(rank, SessionCall::kTime));
            reading.came_ns = executor->now_ns();
        }
        return clock_offset(readings);
    }

    // By rank.
    const std::vector<RankReport>& reports() const {
        if (leads() && !reported.empty()) return reported;
        reported.clear();
        reported.push_back(own_report());
        for (int r = 1; leads() && r < job->size(); ++r)
            reported.push_back(decode_report(ask(r, SessionCall::kReport)));
        return reported;
    }

    // Of all ranks, by this one's clock.
    void gather_trace() const {
        trace = {{}, executor->trace().passes, {0}};
        const std::vector<RankReport>& all = reports();
        for (size_t r = 0; r < all.size(); ++r) {
            const size_t first = trace.events.size();
            trace.events.insert(trace.events.end(), all[r].events.begin(), all[r].events.end());
            if (r == 0) continue;
            const ClockOffset clock =
                all[r].events.empty() ? ClockOffset() : clock_of(static_cast<int>(r));
            trace.clock_errors_ns.push_back(clock.error_ns);
            for (size_t e = first; e < trace.events.size(); ++e) {
                trace.events[e].start_ns -= clock.ahead_ns;
                trace.events[e].end_ns -= clock.ahead_ns;
            }
        }
        // By device, then time.
        std::stable_sort(trace.events.begin(), trace.events.end(),
                         [](const auto& a, const auto& b) { return a.device < b.device; });
    }
};

Session::Session(Plan& plan, const SessionOptions& options) {
    demand_one_replica(plan, "a session runs");
    check_presence(plan);
    impl_ = std::make_unique<Impl>(plan, options);
    if (impl_->leads()) {
        CLEAVE_CHECK(options.plan_message) << "a plan of several hosts and no message of it";
        impl_->job->send_others(Message::kCommand, options.plan_message(plan));
    }
    impl_->together([&] { impl_->open(options); });
    impl_->together([&] {
        impl_->compile(plan, options);
        impl_->allocate(options);
    });
    impl_->guarded([&] { impl_->join(options); });
    impl_->together([&] { impl_->load(options); });
    impl_->start(options);
}

// Without a word from here the other ranks would wait for passes.
Session::~Session() {
    if (!impl_ || !impl_->job || !impl_->executor) return;
    impl_->job->tell_status(nullptr);
    if (impl_->executor->in_flight() > 0)
        impl_->job->leave("its work was given up");
    else if (impl_->leads())
        impl_->job->send_others(Message::kPass, encode(SessionMessage{}));
}

void Session::follow() {
    impl_->guarded([&] {
        for (;;) {
            const std::string bytes = impl_->job->receive(
                0, Message::kPass, [&] { return impl_->executor->has_failed(); });
            if (bytes.empty()) {
                while (true) impl_->take();  // until it throws what has failed
            }
            SessionMessage message = decode_session_message(bytes);
            if (message.call == SessionCall::kPass) {
                while (in_flight() >= kMostPassesInFlight) impl_->take();
                impl_->submit(std::move(message.batch), message.wanted);
                continue;
            }
            while (in_flight() > 0) impl_->take();
            if (message.call == SessionCall::kEnd) return;
            impl_->job->send(0, Message::kResult,
                             message.call == SessionCall::kTime
                                 ? encode_time(impl_->executor->now_ns())
                                 : encode(impl_->own_report()));
        }
    });
}

Session::Loading Session::loading() const {
    Loading all = impl_->loading;
    if (!impl_->leads()) return all;
    all.bytes = 0;
    for (const RankReport& report : impl_->reports()) all.bytes += report.loaded_bytes;
    return all;
}

Ticket Session::submit(Batch batch, PassResults wanted) {
    check_takes_batches(impl_->plan);
    return impl_->guarded([&] { return impl_->submit(std::move(batch), wanted); });
}

PassResult Session::take() {
    return impl_->guarded([&] { return impl_->take(); });
}

int64_t Session::in_flight() const { return impl_->executor->in_flight(); }

std::vector<std::vector<float>> Session::run(std::span<const Batch> passes) {
    check_takes_batches(impl_->plan);
    std::vector<std::vector<float>> logits;
    for (PassResult& result :
         impl_->guarded([&] { return impl_->run(passes, PassResults::kLogits); }))
        logits.push_back(std::move(result.logits));
    return logits;
}

std::vector<std::vector<int32_t>> Session::run_greedy(std::span<const Batch> passes) {
    check_takes_batches(impl_->plan);
    std::vector<std::vector<int32_t>> tokens;
    for (PassResult& result :
         impl_->guarded([&] { return impl_->run(passes, PassResults::kTokens); }))
        tokens.push_back(std::move(result.tokens));
    return tokens;
}

std::vector<Tensor> Session::run_tensors(std::span<const Tensor> inputs) {
    if (impl_->job)
        throw UserError("a graph over tensors runs on the devices of one host; {} are on several",
                        impl_->plan.machine.name);
    std::vector<Tensor> outputs = tensor_outputs(impl_->plan);
    impl_->executor->run_tensors(match_tensor_inputs(impl_->plan, inputs), outputs);
    return outputs;
}

const Trace& Session::trace() const {
    if (!impl_->leads()) return impl_->executor->trace();
    impl_->gather_trace();
    return impl_->trace;
}

int64_t Session::now_ns() const { return impl_->executor->now_ns(); }

Session::Network Session::network() const {
    Network all;
    if (!impl_->job) return all;
    for (const RankReport& report : impl_->reports()) {
        all.payload_bytes += report.payload_bytes;
        all.message_bytes += report.message_bytes;
    }
    return all;
}

OverlapReport Session::overlap() const { return impl_->executor->overlap(); }
std::vector<std::optional<double>> Session::busy_seconds() const {
    std::vector<std::optional<double>> seconds = impl_->executor->busy_seconds();
    for (int r = 1; impl_->leads() && r < impl_->job->size(); ++r)
        decode_busy(impl_->job->status(r), impl_->plan.machine.devices.size(), seconds);
    return seconds;
}

int64_t Session::transferred_bytes() const {
    if (!impl_->leads()) return impl_->executor->transferred_bytes();
    int64_t bytes = 0;
    for (const RankReport& report : impl_->reports()) bytes += report.transferred_bytes;
    return bytes;
}

std::map<std::string, int64_t> Session::peak_memory_bytes() const {
    std::map<std::string, int64_t> peaks;
    for (const RankReport& report : impl_->reports())
        peaks.insert(report.peak_memory.begin(), report.peak_memory.end());
    return peaks;
}

const std::vector<LibraryMemory>& Session::library_memory() const {
    return impl_->vendor_groups->memory();
}

}  // namespace cleave::runtime
