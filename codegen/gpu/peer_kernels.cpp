// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu/peer_kernels.h"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "codegen/kernel/mailbox.h"
#include "codegen/lower/lower_step.h"
#include "codegen/text/stub_writer.h"
#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

using planner::Collective;
using planner::CollectiveOp;
using planner::DeviceId;
using planner::PlacedId;
using planner::PlacedValue;

constexpr int64_t kSharedBytes = 16;

// The i-th of some numbers, as a function of Config.
void table(StubWriter& w, std::string_view name, const std::vector<int64_t>& values) {
    std::string chain;
    for (size_t i = 0; i + 1 < values.size(); ++i)
        if (values[i] != values.back()) chain += fmt::format("s == {} ? {} : ", i, values[i]);
    w.line(fmt::format("static DEVICE constexpr i64 {}(int s) {{ return (void)s, {}{}; }}", name,
                       chain, values.back()));
}

// Config and launch that all exchanges have.
Launch write_cut(StubWriter& w, const planner::PeerCut& cut, int64_t devices, int64_t members,
                 int64_t shared_bytes = kSharedBytes) {
    w.constant("kDevices", devices);
    w.constant("kChannels", planner::kPeerChannels);
    w.constant("kThreads", cut.threads);
    w.constant("kUnit", cut.unit);
    w.constant("kMembers", members);
    w.constant("kSharedBytes", shared_bytes);
    Launch launch;
    launch.block = {static_cast<int>(cut.threads), 1, 1};
    launch.shared_bytes = shared_bytes;
    (cut.per_output ? launch.grid[0].per_output : launch.grid[0].per_token) = cut.row_bytes;
    launch.grid[0].constant = 0;
    launch.grid[0].divisor = cut.unit;
    launch.grid[0].most = cut.channels;
    return launch;
}

void write_watch(StubWriter& w) {
    w.arg("i64", "rows");
    w.arg("u32*", "mailbox");
    w.arg("i64", "limit");
    w.arg("i64", "tag");
}

void repeated_arg(StubWriter& w, std::string_view type, std::string_view name, size_t count) {
    for (size_t i = 0; i < count; ++i) w.arg(type, fmt::format("{}[{}]", name, i));
}

// The widest load, at most 16 bytes, that divides all of `lengths`.
int64_t word_of(const std::vector<int64_t>& lengths) {
    int64_t all = 16;
    for (int64_t length : lengths) all = std::gcd(all, length);
    return all;
}

Kernel finish(const StubWriter& w, std::vector<std::string> fused, std::string_view call,
              std::string_view args, const Launch& launch, const GpuTarget& target) {
    return w.finish_gpu(planner::KernelKind::kOpaque, fused, "gpu/peer.cuh", call, args, launch,
                        target.device);
}

Kernel make(const PeerMeetSpec& s, const GpuTarget& target) {
    StubWriter w;
    w.note(fmt::format("shapes: {} channels to {} devices", s.channels, s.members));
    w.note("dtype: signals of 32 bits");
    planner::PeerCut cut;
    cut.threads = std::max<int64_t>(64, target.limits.warp_width);
    cut.unit = 1;
    Launch launch = write_cut(w, cut, s.devices, s.members);
    launch.grid[0] = Extent{s.channels};
    repeated_arg(w, "u32*", "here", static_cast<size_t>(s.members));
    repeated_arg(w, "u32*", "there", static_cast<size_t>(s.members));
    w.arg("u32*", "mailbox");
    w.arg("i64", "limit");
    w.arg("i64", "tag");
    return finish(w, {"meet"}, "peer_meet", "PeerMeetArgs", launch, target);
}

Kernel make(const PeerSendSpec& s, const GpuTarget& target) {
    StubWriter w;
    w.note(fmt::format("shapes: source [rows, {} bytes], to {} devices", s.row_bytes, s.receivers));
    w.note("dtype: any, moved as bytes");
    const Launch launch = write_cut(w, s.cut, s.devices, s.receivers);
    w.constant("kRowBytes", s.row_bytes);
    w.constant("kSlice", s.slice);
    w.constant("kWord", word_of({s.row_bytes}));
    w.arg("const char*", "source");
    w.arg("char*", "area");
    w.arg("u32*", "own");
    repeated_arg(w, "u32*", "here", static_cast<size_t>(s.receivers));
    repeated_arg(w, "u32*", "there", static_cast<size_t>(s.receivers));
    write_watch(w);
    return finish(w, {"send"}, "peer_send", "PeerSendArgs", launch, target);
}

Kernel make(const PeerReceiveSpec& s, const GpuTarget& target) {
    StubWriter w;
    std::vector<int64_t> bytes, offsets, slices, lengths{s.stride};
    for (const PeerReceiveSpec::Source& source : s.sources) {
        bytes.push_back(source.row_bytes);
        offsets.push_back(source.offset);
        slices.push_back(source.slice);
        lengths.insert(lengths.end(), {source.row_bytes, source.offset});
    }
    w.note(fmt::format("shapes: out [rows, {} bytes] of {} devices' [{}]", s.stride,
                       s.sources.size(), fmt::join(bytes, ", ")));
    w.note("dtype: any, moved as bytes");
    const Launch launch = write_cut(w, s.cut, s.devices, static_cast<int64_t>(s.sources.size()));
    w.constant("kSources", static_cast<int64_t>(s.sources.size()));
    w.constant("kStride", s.stride);
    w.constant("kWord", word_of(lengths));
    table(w, "row_bytes", bytes);
    table(w, "offset", offsets);
    table(w, "slice", slices);
    repeated_arg(w, "const char*", "area", s.sources.size());
    repeated_arg(w, "u32*", "here", s.sources.size());
    repeated_arg(w, "u32*", "there", s.sources.size());
    w.arg("char*", "out");
    write_watch(w);
    return finish(w, {"receive"}, "peer_receive", "PeerReceiveArgs", launch, target);
}

Kernel make(const PeerAllReduceSpec& s, const GpuTarget& target) {
    StubWriter w;
    const size_t members = static_cast<size_t>(s.members);
    w.note(fmt::format("shapes: {} partial values [rows, {}] for {} devices{}", s.slices.size(),
                       s.out, s.members, s.two_phase ? ", in two phases" : ""));
    w.note(fmt::format("dtype: values {}, sums f32", target.activations));
    CHECK(!s.norm || (!s.two_phase && s.cut.unit == s.cut.row_bytes))
        << "a norm of rows that lie in several blocks";
    // With a norm, a float of each warp for the row at hand and the one before it.
    CHECK(target.limits.warp_width > 1) << target.device << " has no warps";
    const int64_t words = s.norm ? 2 * (s.cut.threads / target.limits.warp_width) : 0;
    const Launch launch =
        write_cut(w, s.cut, s.devices, s.members, std::max(kSharedBytes, 4 * words));
    const std::string x = element_pointer(target.activations, "activations");
    const std::string out(element_type(target.activations, "activations"));
    w.type("X", out);
    w.constant("kOut", s.out);
    w.constant("kRun", planner::load_width(dtype_bytes(target.activations, 1), s.out));
    w.constant("kSources", static_cast<int64_t>(s.slices.size()));
    w.constant("kOwnSlice", s.own_slice);
    w.constant("kResidual", s.residual);
    w.constant("kTwoPhase", s.two_phase);
    write_norm(w, s.norm, "float");
    table(w, "slice", s.slices);
    w.arg(x, "partial");
    w.arg("char*", "own_area");
    w.arg("u32*", "own");
    repeated_arg(w, "const char*", "area", s.slices.size());
    repeated_arg(w, "u32*", "source_here", s.slices.size());
    repeated_arg(w, "u32*", "source_there", s.slices.size());
    repeated_arg(w, "u32*", "here", members);
    repeated_arg(w, "u32*", "there", members);
    w.arg("i64", "place");
    if (s.residual) w.arg(x, "residual");
    w.arg(out + "*", "out");
    if (s.norm) {
        w.arg(element_pointer(s.norm->weight, "norm"), "norm");
        w.arg(out + "*", "normed");
    }
    write_watch(w);
    std::vector<std::string> fused{"all_reduce"};
    if (s.residual) fused.emplace_back("add");
    if (s.norm) fused.emplace_back("rms_norm");
    return finish(w, fused, "peer_all_reduce", "PeerAllReduceArgs", launch, target);
}

// ---- Steps
// ----------------------------------------------------------------------------------------------

Arg value_arg(PlacedId id, std::string name) {
    Arg arg;
    arg.kind = ArgKind::kValue;
    arg.id = id.value;
    arg.name = std::move(name);
    return arg;
}

Arg weight_arg(planner::WeightShardId id, std::string name) {
    Arg arg;
    arg.kind = ArgKind::kWeight;
    arg.id = id.value;
    arg.name = std::move(name);
    return arg;
}

Arg peer_arg(PeerField field, DeviceId device, std::string name) {
    Arg arg;
    arg.kind = ArgKind::kPeer;
    arg.id = device.value;
    arg.peer = field;
    arg.name = std::move(name);
    return arg;
}

class ExchangeLowering {
public:
    ExchangeLowering(const planner::Plan& plan, bool is_prefill, planner::StepId step,
                     DeviceId device, const GpuTarget& target, KernelTable& kernels)
        : plan_(plan),
          phase_(plan.phase(is_prefill)),
          is_prefill_(is_prefill),
          id_(step),
          step_(phase_.steps[step.index()]),
          device_(device),
          target_(target),
          kernels_(kernels),
          cut_(planner::peer_cut(plan, phase_, is_prefill, step_)),
          devices_(static_cast<int64_t>(plan.machine.devices.size())) {}

    std::vector<Instruction> run() {
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
        Arg rows;
        rows.kind = ArgKind::kBatch;
        rows.field = cut_.per_output ? BatchField::kNumOutputs : BatchField::kNumTokens;
        rows.name = "rows";
        args.push_back(std::move(rows));
        args.push_back(peer_arg(PeerField::kMailbox, device_, "mailbox"));
        args.push_back(peer_arg(PeerField::kLimit, device_, "limit"));
        args.push_back(immediate(peer_tag(is_prefill_, id_), "tag"));
        made_.push_back({id_, kernels_.add(make_peer_kernel(spec, target_)), std::move(args)});
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
        spec.out = payload(c.contributions[0]).row_bytes / dtype_bytes(target_.activations, 1);
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
                        : immediate(0, "partial"),
            contributes ? peer_arg(PeerField::kArea, device_, "own_area")
                        : immediate(0, "own_area"),
            peer_arg(PeerField::kSignals, device_, "own")};
        each(args, PeerField::kArea, sources, "area");
        each(args, PeerField::kHere, sources, "source_here");
        each(args, PeerField::kThere, sources, "source_there");
        each(args, PeerField::kHere, c.group, "here");
        each(args, PeerField::kThere, c.group, "there");
        args.push_back(immediate(contributes ? place : -1, "place"));
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
    const GpuTarget& target_;
    KernelTable& kernels_;
    planner::PeerCut cut_;
    int64_t devices_;
    std::vector<Instruction> made_;
};

}  // namespace

Kernel make_peer_kernel(const PeerSpec& spec, const GpuTarget& target) {
    return std::visit([&](const auto& s) { return make(s, target); }, spec);
}

std::optional<Instruction> lower_meeting(const planner::Plan& plan, DeviceId device,
                                         const GpuTarget& target, KernelTable& kernels) {
    const std::vector<DeviceId> others = planner::peers_of(plan, device);
    if (others.empty()) return std::nullopt;
    PeerMeetSpec spec{planner::peer_channels(plan.machine, device),
                      static_cast<int64_t>(plan.machine.devices.size()),
                      static_cast<int64_t>(others.size())};
    // Each pair has as many channels as both have.
    for (DeviceId other : others)
        spec.channels = std::min(spec.channels, planner::peer_channels(plan.machine, other));
    Instruction made;
    made.kernel = kernels.add(make_peer_kernel(spec, target));
    for (size_t i = 0; i < others.size(); ++i)
        made.args.push_back(peer_arg(PeerField::kHere, others[i], fmt::format("here[{}]", i)));
    for (size_t i = 0; i < others.size(); ++i)
        made.args.push_back(peer_arg(PeerField::kThere, others[i], fmt::format("there[{}]", i)));
    made.args.push_back(peer_arg(PeerField::kMailbox, device, "mailbox"));
    made.args.push_back(peer_arg(PeerField::kMeetingLimit, device, "limit"));
    made.args.push_back(immediate(kMailMeeting, "tag"));
    return made;
}

std::vector<Instruction> lower_exchange(const planner::Plan& plan, bool is_prefill,
                                        planner::StepId step, DeviceId device,
                                        const GpuTarget& target, KernelTable& kernels) {
    return ExchangeLowering(plan, is_prefill, step, device, target, kernels).run();
}

}  // namespace cleave::codegen
