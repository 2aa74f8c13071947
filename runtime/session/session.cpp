// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/session.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "codegen/generate.h"
#include "planner/plan/plan_queries.h"
#include "runtime/cards/open_devices.h"
#include "runtime/device/bounded_waits.h"
#include "runtime/execute/executor.h"
#include "runtime/load/arenas.h"
#include "runtime/load/residency.h"
#include "runtime/load/upload.h"
#include "runtime/load/vendor_groups.h"
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
    Impl(const Plan& p, Drivers* given)
        : plan(p), drivers(given ? *given : own_drivers.emplace()) {}

    // Members in order of construction: the executor stops its workers before the devices go.
    std::vector<codegen::Program> programs;
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<Arenas> arenas;
    std::unique_ptr<VendorGroups> vendor_groups;
    std::unique_ptr<Executor> executor;
    Loading loading;
};

Session::Session(Plan& plan, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(plan, options.drivers)) {
    demand_one_replica(plan, "a session runs");
    check_presence(plan);
    impl_->devices = open_devices(plan, impl_->drivers,
                                  {options.threads, options.poison,
                                   std::min(10, options.watchdog_seconds), options.simt_seed});
    check_weights_present(plan);
    codegen::CompileOptions compile = options.compile;
    if (compile.cancel == nullptr) compile.cancel = options.cancel;
    compile.drivers = impl_->drivers.versions(plan.machine);
    std::vector<codegen::CompiledProgram> compiled = codegen::compile_plan(plan, compile);
    for (size_t d = 0; d < impl_->devices.size(); ++d) {
        impl_->programs.push_back(std::move(compiled[d].program));
        load_kernels(*impl_->devices[d], impl_->programs[d], std::move(compiled[d].objects),
                     options);
    }
    {
        std::deque<BoundedWaits> bounded;
        for (auto& device : impl_->devices)
            bounded.emplace_back(*device, "clearing its memory", options.watchdog_seconds,
                                 options.cancel);
        impl_->arenas = std::make_unique<Arenas>(plan, impl_->devices);
    }
    impl_->vendor_groups =
        std::make_unique<VendorGroups>(plan, impl_->drivers, impl_->devices, *impl_->arenas,
                                       CollectiveOptions{options.watchdog_seconds, options.cancel});
    const auto before = std::chrono::steady_clock::now();
    impl_->loading.bytes = upload_weights(
        plan, *impl_->arenas, impl_->devices,
        {options.upload_progress, options.cancel, options.watchdog_seconds, options.threads});
    impl_->loading.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    ExecutorOptions run{options.record_trace,
                        options.record_passes,
                        threads_fit_cores(plan, options.threads),
                        options.step_by_step,
                        options.watchdog_seconds,
                        options.cancel,
                        impl_->vendor_groups.get()};
    impl_->executor =
        std::make_unique<Executor>(plan, impl_->programs, impl_->devices, *impl_->arenas, run);
}

Session::~Session() = default;

Session::Loading Session::loading() const { return impl_->loading; }

Ticket Session::submit(Batch batch, PassResults wanted) {
    check_takes_batches(impl_->plan);
    return impl_->executor->submit(std::move(batch), wanted);
}

PassResult Session::take() { return impl_->executor->take(); }

int64_t Session::in_flight() const { return impl_->executor->in_flight(); }

std::vector<std::vector<float>> Session::run(std::span<const Batch> passes) {
    check_takes_batches(impl_->plan);
    std::vector<std::vector<float>> logits;
    for (PassResult& result : impl_->executor->run(passes, PassResults::kLogits))
        logits.push_back(std::move(result.logits));
    return logits;
}

std::vector<std::vector<int32_t>> Session::run_greedy(std::span<const Batch> passes) {
    check_takes_batches(impl_->plan);
    std::vector<std::vector<int32_t>> tokens;
    for (PassResult& result : impl_->executor->run(passes, PassResults::kTokens))
        tokens.push_back(std::move(result.tokens));
    return tokens;
}

std::vector<Tensor> Session::run_tensors(std::span<const Tensor> inputs) {
    std::vector<Tensor> outputs = tensor_outputs(impl_->plan);
    impl_->executor->run_tensors(match_tensor_inputs(impl_->plan, inputs), outputs);
    return outputs;
}

const Trace& Session::trace() const { return impl_->executor->trace(); }

OverlapReport Session::overlap() const { return impl_->executor->overlap(); }
std::vector<std::optional<double>> Session::busy_seconds() const {
    return impl_->executor->busy_seconds();
}

int64_t Session::transferred_bytes() const { return impl_->executor->transferred_bytes(); }

std::map<std::string, int64_t> Session::peak_memory_bytes() const {
    std::map<std::string, int64_t> peaks;
    for (const auto& device : impl_->devices)
        peaks[device->info().name] = device->peak_allocated_bytes();
    return peaks;
}

const std::vector<LibraryMemory>& Session::library_memory() const {
    return impl_->vendor_groups->memory();
}

}  // namespace cleave::runtime
