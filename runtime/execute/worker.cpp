// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/worker.h"

#include <algorithm>

#include "runtime/device/vendor_error.h"
#include "runtime/drivers/gpu/driver_switches.h"
#include "runtime/execute/greedy.h"

namespace cleave::runtime {

using namespace planner;

namespace {

// The plan's staging buffer where the host reaches it, else pinned memory, else the lane's own.
StagingLane make_lane(const Arenas& arenas, Device& device, DeviceId id) {
    const ExchangeArea& area = arenas.exchange(id);
    std::byte* memory = area.bytes > 0 ? device.host_view(area.address) : nullptr;
    if (!memory && area.bytes > 0 && device.stream())
        memory = device.stream()->pinned_memory(area.bytes).data();
    const ExchangeArea& far = arenas.arrivals(id);
    std::byte* arrivals = far.bytes > 0 ? device.host_view(far.address) : nullptr;
    return {device.info().name, memory, area.bytes, arrivals, far.bytes};
}

}  // namespace

Worker::Worker(const Plan& plan, const Arenas& arenas, Device& device, DeviceId id,
               RunControl& control, const PeerLinks& peers, const StreamOptions& options,
               Clock::time_point origin)
    : plan_(plan),
      arenas_(arenas),
      device_(device),
      id_(id),
      control_(control),
      peers_(peers),
      lane_(make_lane(arenas, device, id)),
      blocks_(plan, arenas, id),
      shares_card_(devices_on_card(plan, id).size() > 1),
      record_(options.record_trace),
      record_passes_(options.record_passes),
      origin_(origin) {
    if (device.stream())
        passes_ = std::make_unique<StreamPasses>(plan, arenas, device, id, control, options);
}

StreamPasses* Worker::captures_with_peers() {
    const std::vector<DeviceStep>& steps = phase(false).steps;
    const bool any = std::any_of(steps.begin(), steps.end(), [](const DeviceStep& step) {
        return step.communication && step.communication->is_on_stream();
    });
    return any ? passes_.get() : nullptr;
}

void Worker::run(Pass& pass, PassRing& ring) {
    const Counted in_pass(control_.in_pass());
    try {
        const bool gives = id_ == plan_.output_device;
        if (pass.is_meeting) {
            meet();
        } else {
            upload_tensors(pass);
            run_pass(pass);
            if (gives) download_results(pass);
        }
        if (passes_ && !ring.has_more(pass)) {
            if (record_passes_) passes_->trace_passes(events_, origin_ns());
            // An asynchronous device reports its last faults here.
            if (!gives || !pass.wants_results())
                passes_->await_end([&] { return ring.has_more(pass); });
        }
        peers_.check(id_);
        if (gives) ring.give(pass);
    } catch (const VendorError& error) {
        if (!passes_ || shares_card_) throw;
        passes_->rethrow(error);
    }
}

void Worker::meet() {
    if (!meeting) return;
    launch(device_, *meeting, {});
    device_.synchronize();
}

void Worker::upload_tensors(const Pass& pass) {
    if (pass.inputs.empty()) return;
    const Phase& phase = plan_.phase(pass.batch.is_prefill);
    const std::vector<ValueId>& inputs = plan_.graph.inputs;
    for (PlacedId id : phase.inputs) {
        const PlacedValue& placed = phase.values[id.index()];
        if (placed.device != id_) continue;
        auto at = std::find(inputs.begin(), inputs.end(), placed.value) - inputs.begin();
        device_.upload(arenas_.view(phase, id).address, pass.inputs[static_cast<size_t>(at)]);
    }
}

void Worker::run_pass(const Pass& pass) {
    blocks_.prepare(pass.batch, device_);
    if (!passes_) return run_steps(pass);
    received_bytes_ +=
        passes_->run(phase(pass.batch.is_prefill), pass, lane_, events_, origin_ns());
}

// Of a synchronous device: each step is done when its call returns.
void Worker::run_steps(const Pass& pass) {
    const Batch& batch = pass.batch;
    const auto number = static_cast<int32_t>(pass.ticket());
    DevicePhase& phase = this->phase(batch.is_prefill);
    const PassShape shape = shape_of(batch);
    const int64_t begin = record_passes_ ? now() : 0, received = received_bytes_;
    for (const BatchArray& array : arrays_of(batch, arenas_.batch(id_)))
        device_.upload(array.address, array.bytes);
    for (size_t i = 0; i < phase.num_steps(pass.greedily()); ++i) {
        DeviceStep& step = phase.steps[i];
        control_.throw_if_stopped();
        const int64_t start = now();
        int64_t bytes = 0;
        if (step.launch != nullptr) {
            step.take_launches(device_, shape);
            busy_ns_.fetch_add(now() - start, std::memory_order_relaxed);
        } else {
            bytes = step.communication->take_part({id_, device_, lane_}, shape, phase.rounds);
            peers_.check(id_);
        }
        received_bytes_ += bytes;
        if (record_ && step.step.valid())
            events_.push_back(
                {number, batch.is_prefill, step.step, id_, start, now(), bytes, step.path()});
        control_.step_done();
    }
    if (record_passes_)
        events_.push_back({number,
                           batch.is_prefill,
                           StepId(),
                           id_,
                           begin,
                           now(),
                           received_bytes_ - received,
                           {}});
    ++phase.rounds;
}

void Worker::download_results(Pass& pass) {
    if (pass.wanted == PassResults::kLogits) pass.result.logits = logits_of(pass);
    if (pass.wanted == PassResults::kTokens) pass.result.tokens = tokens_of(pass);
    const Phase& phase = plan_.phase(pass.batch.is_prefill);
    for (size_t i = 0; i < pass.outputs.size(); ++i)
        device_.download(arenas_.view(phase, phase.outputs[i]).address, pass.outputs[i].data);
}

std::vector<float> Worker::logits_of(const Pass& pass) {
    const Phase& phase = plan_.phase(pass.batch.is_prefill);
    const PlacedView view = arenas_.view(phase, phase.outputs.front());
    std::vector<float> logits(static_cast<size_t>(pass.num_outputs * view.columns.size()));
    device_.download(view.address, std::as_writable_bytes(std::span(logits)));
    return logits;
}

// As the device chose them, or from its logits.
std::vector<int32_t> Worker::tokens_of(const Pass& pass) {
    std::vector<int32_t> tokens(static_cast<size_t>(pass.num_outputs));
    if (phase(pass.batch.is_prefill).greedy) {
        device_.download(arenas_.tokens(), std::as_writable_bytes(std::span(tokens)));
        return tokens;
    }
    const Phase& phase = plan_.phase(pass.batch.is_prefill);
    const PlacedView view = arenas_.view(phase, phase.outputs.front());
    std::vector<float> logits(static_cast<size_t>(view.columns.size()));
    const auto bytes = std::as_writable_bytes(std::span(logits));
    for (size_t row = 0; row < tokens.size(); ++row) {
        device_.download(view.address + row * bytes.size(), bytes);
        tokens[row] = largest_logit(logits);
    }
    return tokens;
}

int64_t Worker::origin_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(origin_.time_since_epoch()).count();
}

int64_t Worker::now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - origin_).count();
}

}  // namespace cleave::runtime
