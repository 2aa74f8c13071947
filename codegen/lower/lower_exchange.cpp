// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/lower_exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "codegen/kernel/mailbox.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

using planner::Collective;
using planner::CollectiveOp;
using planner::DeviceId;
using planner::PlacedId;
using planner::PlacedValue;

class ExchangeLowering {
public:
    ExchangeLowering(const planner::Plan& plan, bool is_prefill, planner::StepId step,
                     DeviceId device, DType activations)
        : plan_(plan),
          phase_(plan.phase(is_prefill)),
          is_prefill_(is_prefill),
          id_(step),
          step_(phase_.steps[step.index()]),
          device_(device),
          activations_(activations),
          cut_(planner::peer_cut(plan, phase_, is_prefill, step_)),
          devices_(static_cast<int64_t>(plan.machine.devices.size())) {}

    std::vector<LoweredExchange> run() {
        if (const planner::Transfer* t = step_.transfer()) {
            if (placed(t->source).device == device_)
                send(t->source, {placed(t->destination).device});
            if (placed(t->destination).device == device_) receive({t->source}, t->destination);
            return std::move(made_);
        }
        const Collective& c = *step_.collective();
        const auto member = std::find(c.group.begin(), c.group.end(), device_) - c.group.begin();
        if (c.op == CollectiveOp::kAllGather) {
            for (PlacedId id : c.contributions)
                if (placed(id).device == device_) send(id, c.group);
            if (member < std::ssize(c.group))
                receive(c.contributions, c.outputs[static_cast<size_t>(member)]);
        } else if (member < std::ssize(c.group)) {
            all_reduce(c, static_cast<size_t>(member));
        }
        return std::move(made_);
    }

private:
    const PlacedValue& placed(PlacedId id) const { return phase_.values[id.index()]; }
    planner::PeerPayload payload(PlacedId id) const {
        return planner::peer_payload(plan_, phase_, is_prefill_, id);
    }
    DeviceId device_of(PlacedId id) const { return placed(id).device; }
    std::vector<DeviceId> devices_of(const std::vector<PlacedId>& ids) const {
        std::vector<DeviceId> devices;
        for (PlacedId id : ids) devices.push_back(device_of(id));
        return devices;
    }

    void each(std::vector<Arg>& args, PeerField field, const std::vector<DeviceId>& devices,
              const char* name) const {
        for (size_t i = 0; i < devices.size(); ++i)
            args.push_back(peer_arg(field, devices[i], fmt::format("{}[{}]", name, i)));
    }

    void push(const PeerSpec& spec, std::vector<Arg> args) {
        args.push_back(
            batch_arg(cut_.per_output ? BatchField::kNumOutputs : BatchField::kNumTokens, "rows"));
        args.push_back(peer_arg(PeerField::kMailbox, device_, "mailbox"));
        args.push_back(peer_arg(PeerField::kLimit, device_, "limit"));
        args.push_back(immediate_arg(peer_tag(is_prefill_, id_), "tag"));
        made_.push_back({spec, std::move(args)});
    }

    void send(PlacedId source, const std::vector<DeviceId>& receivers) {
        std::vector<Arg> args{value_arg(source, "source"),
                              peer_arg(PeerField::kArea, device_, "area"),
                              peer_arg(PeerField::kSignals, device_, "own")};
        each(args, PeerField::kHere, receivers, "here");
        each(args, PeerField::kThere, receivers, "there");
        push(PeerSendSpec{cut_, devices_, payload(source).row_bytes,
                          planner::peer_slice(plan_, device_),
                          static_cast<int64_t>(receivers.size())},
             std::move(args));
    }

    void receive(const std::vector<PlacedId>& sources, PlacedId destination) {
        PeerReceiveSpec spec{cut_, devices_, {}, payload(destination).row_bytes};
        const importer::Range whole = placed(destination).box.back();
        const int64_t width = payload(destination).row_bytes /
                              (whole.end == planner::kWhole
                                   ? plan_.graph.value(placed(destination).value).shape.back().value
                                   : whole.size());
        for (PlacedId id : sources) {
            const int64_t first = placed(id).box.back().begin - whole.begin;
            spec.sources.push_back(
                {payload(id).row_bytes, first * width, planner::peer_slice(plan_, device_of(id))});
        }
        std::vector<Arg> args;
        each(args, PeerField::kArea, devices_of(sources), "area");
        each(args, PeerField::kHere, devices_of(sources), "here");
        each(args, PeerField::kThere, devices_of(sources), "there");
        args.push_back(value_arg(destination, "out"));
        push(spec, std::move(args));
    }

    void all_reduce(const Collective& c, size_t member) {
        const std::vector<DeviceId> sources = devices_of(c.contributions);
        const auto place = std::find(sources.begin(), sources.end(), device_) - sources.begin();
        const bool contributes = place < std::ssize(sources);
        PeerAllReduceSpec spec;
        spec.cut = cut_;
        spec.devices = devices_;
        spec.out = payload(c.contributions[0]).row_bytes / dtype_bytes(activations_, 1);
        for (DeviceId d : sources) spec.slices.push_back(planner::peer_slice(plan_, d));
        spec.own_slice = contributes ? planner::peer_slice(plan_, device_) : 0;
        spec.members = static_cast<int64_t>(c.group.size());
        spec.residual = !c.epilogue_inputs.empty();
        if (!c.weights.empty()) {
            const auto& attrs = plan_.graph.op(c.epilogue.back()).as<importer::RmsNormAttrs>();
            spec.norm = NormSpec{plan_.weights[c.weights[member].index()].dtype, attrs.epsilon,
                                 attrs.weight_offset};
        }
        spec.two_phase = c.two_phase;
        std::vector<Arg> args{
            contributes ? value_arg(c.contributions[static_cast<size_t>(place)], "partial")
                        : immediate_arg(0, "partial"),
            contributes ? peer_arg(PeerField::kArea, device_, "own_area")
                        : immediate_arg(0, "own_area"),
            peer_arg(PeerField::kSignals, device_, "own")};
        each(args, PeerField::kArea, sources, "area");
        each(args, PeerField::kHere, sources, "source_here");
        each(args, PeerField::kThere, sources, "source_there");
        each(args, PeerField::kHere, c.group, "here");
        each(args, PeerField::kThere, c.group, "there");
        args.push_back(immediate_arg(contributes ? place : -1, "place"));
        if (spec.residual) args.push_back(value_arg(c.epilogue_inputs[member], "residual"));
        args.push_back(value_arg(c.outputs[member], "out"));
        if (spec.norm) {
            args.push_back(weight_arg(c.weights[member], "norm"));
            args.push_back(value_arg(c.outputs[c.group.size() + member], "normed"));
        }
        push(spec, std::move(args));
    }

    const planner::Plan& plan_;
    const planner::Phase& phase_;
    bool is_prefill_;
    planner::StepId id_;
    const planner::Step& step_;
    DeviceId device_;
    DType activations_;
    planner::PeerCut cut_;
    int64_t devices_;
    std::vector<LoweredExchange> made_;
};

}  // namespace

std::optional<LoweredExchange> lower_meeting(const planner::Plan& plan, DeviceId device) {
    const std::vector<DeviceId> others = planner::peers_of(plan, device);
    if (others.empty()) return std::nullopt;
    PeerMeetSpec spec{planner::peer_channels(plan.machine, device),
                      static_cast<int64_t>(plan.machine.devices.size()),
                      static_cast<int64_t>(others.size())};
    // Each pair has as many channels as both have.
    for (DeviceId other : others)
        spec.channels = std::min(spec.channels, planner::peer_channels(plan.machine, other));
    LoweredExchange made{spec, {}};
    for (size_t i = 0; i < others.size(); ++i)
        made.args.push_back(peer_arg(PeerField::kHere, others[i], fmt::format("here[{}]", i)));
    for (size_t i = 0; i < others.size(); ++i)
        made.args.push_back(peer_arg(PeerField::kThere, others[i], fmt::format("there[{}]", i)));
    made.args.push_back(peer_arg(PeerField::kMailbox, device, "mailbox"));
    made.args.push_back(peer_arg(PeerField::kMeetingLimit, device, "limit"));
    made.args.push_back(immediate_arg(kMailMeeting, "tag"));
    return made;
}

std::vector<LoweredExchange> lower_exchange(const planner::Plan& plan, bool is_prefill,
                                            planner::StepId step, DeviceId device,
                                            DType activations) {
    return ExchangeLowering(plan, is_prefill, step, device, activations).run();
}

}  // namespace cleave::codegen
