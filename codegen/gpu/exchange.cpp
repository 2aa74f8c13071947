// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu/exchange.h"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "codegen/text/stub_writer.h"
#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

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

Kernel finish(const StubWriter& w, const std::vector<std::string>& fused, std::string_view call,
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
    CLEAVE_CHECK(!s.norm || (!s.two_phase && s.cut.unit == s.cut.row_bytes))
        << "a norm of rows that lie in several blocks";
    // With a norm, a float of each warp for the row at hand and the one before it.
    CLEAVE_CHECK(target.limits.has_warps()) << target.device << " has no warps";
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

}  // namespace

Kernel make_peer_kernel(const PeerSpec& spec, const GpuTarget& target) {
    return std::visit([&](const auto& s) { return make(s, target); }, spec);
}

}  // namespace cleave::codegen
