// SPDX-License-Identifier: Apache-2.0
// The codec of what a plan was made for: machine, workload, options.
#include "planner/file/plan_codec.h"

#include <algorithm>

namespace cleave::planner::codec {

namespace {

void put(const DeviceInfo& d, pb::Device* out) {
    out->set_name(d.name);
    out->set_kind(static_cast<uint32_t>(d.kind));
    out->set_arch(d.arch);
    out->set_model(d.model);
    out->set_host(d.host);
    out->set_identity(d.identity);
    out->set_pci(d.pci);
    out->set_collectives(d.collectives);
    out->set_collectives_bytes(d.collectives_bytes);
    out->set_index(d.index);
    out->set_memory_bytes(d.memory_bytes);
    out->set_reserved_bytes(d.reserved_bytes);
    out->set_memory_bandwidth(d.memory_bandwidth);
    out->set_memory_domain(d.memory_domain);
    out->set_flops_f32(d.flops_f32);
    out->set_flops_f16(d.flops_f16);
    out->set_flops_f8(d.flops_f8);
    out->set_flops_int8(d.flops_int8);
    out->set_launch_overhead_ns(d.launch_overhead_ns);
    auto* limits = out->mutable_limits();
    limits->set_shared_memory_per_block(d.limits.shared_memory_per_block);
    limits->set_registers_per_block(d.limits.registers_per_block);
    limits->set_max_threads_per_block(d.limits.max_threads_per_block);
    limits->set_warp_width(d.limits.warp_width);
    limits->set_num_compute_units(d.limits.num_compute_units);
    for (int64_t blocks : d.limits.max_grid) limits->add_max_grid(blocks);
    auto* measured = out->mutable_measured();
    measured->set_bandwidth(d.measured.bandwidth);
    measured->set_bandwidth_alone(d.measured.bandwidth_alone);
    measured->set_widening(d.measured.widening);
    measured->set_cache_bytes(d.measured.cache_bytes);
    measured->set_cache_bandwidth(d.measured.cache_bandwidth);
    measured->set_flops_f32(d.measured.flops_f32);
    measured->set_flops_narrow(d.measured.flops_narrow);
    measured->set_attention_bandwidth(d.measured.attention_bandwidth);
    measured->set_attention_flops(d.measured.attention_flops);
    measured->set_launch_ns(d.measured.launch_ns);
    measured->set_launch_alone_ns(d.measured.launch_alone_ns);
}
void take(const pb::Device& in, DeviceInfo& d) {
    d.name = in.name();
    codec::take(in.kind(), kDeviceKinds.back(), d.kind);
    d.arch = in.arch();
    d.model = in.model();
    d.host = in.host();
    d.identity = in.identity();
    d.pci = in.pci();
    d.collectives = in.collectives();
    d.collectives_bytes = in.collectives_bytes();
    d.index = in.index();
    d.memory_bytes = in.memory_bytes();
    d.reserved_bytes = in.reserved_bytes();
    d.memory_bandwidth = in.memory_bandwidth();
    d.memory_domain = in.memory_domain();
    d.flops_f32 = in.flops_f32();
    d.flops_f16 = in.flops_f16();
    d.flops_f8 = in.flops_f8();
    d.flops_int8 = in.flops_int8();
    d.launch_overhead_ns = in.launch_overhead_ns();
    const auto& l = in.limits();
    d.limits = {l.shared_memory_per_block(), l.registers_per_block(),
                l.max_threads_per_block(),   l.warp_width(),
                l.num_compute_units(),       d.limits.max_grid};
    // A plan of before there were such limits has the usual ones.
    if (l.max_grid_size() == 3)
        std::copy(l.max_grid().begin(), l.max_grid().end(), d.limits.max_grid.begin());
    const auto& m = in.measured();
    d.measured = {m.bandwidth(),    m.bandwidth_alone(),     m.widening(),
                  m.cache_bytes(),  m.cache_bandwidth(),     m.flops_f32(),
                  m.flops_narrow(), m.attention_bandwidth(), m.attention_flops(),
                  m.launch_ns(),    m.launch_alone_ns()};
}

void put(const Link& l, pb::Link* out) {
    out->set_from(l.from.value);
    out->set_to(l.to.value);
    out->set_kind(static_cast<uint32_t>(l.kind));
    out->set_bandwidth(l.bandwidth);
    out->set_latency_ns(l.latency_ns);
    out->set_domain(l.domain);
    out->set_exchange_bandwidth(l.exchange_bandwidth);
    out->set_exchange_latency_ns(l.exchange_latency_ns);
    out->set_peer_access(l.peer_access);
}
void take(const pb::Link& in, Link& l) {
    l.from = DeviceId(in.from());
    l.to = DeviceId(in.to());
    codec::take(in.kind(), kLinkKinds.back(), l.kind);
    l.bandwidth = in.bandwidth();
    l.latency_ns = in.latency_ns();
    l.domain = in.domain();
    l.exchange_bandwidth = in.exchange_bandwidth();
    l.exchange_latency_ns = in.exchange_latency_ns();
    l.peer_access = in.peer_access();
}

void put(const BandwidthDomain& d, pb::BandwidthDomain* out) {
    out->set_name(d.name);
    out->set_bandwidth(d.bandwidth);
}
void take(const pb::BandwidthDomain& in, BandwidthDomain& d) { d = {in.name(), in.bandwidth()}; }

void put(const Pin& p, pb::Pin* out) {
    out->set_what(p.what);
    out->set_device(p.device);
}
void take(const pb::Pin& in, Pin& p) { p = {in.what(), in.device()}; }

}  // namespace

void put(const Machine& m, pb::Machine* out) {
    out->set_name(m.name);
    for (const auto& item : m.devices) put(item, out->add_devices());
    for (const auto& item : m.links) put(item, out->add_links());
    for (const auto& item : m.domains) put(item, out->add_domains());
}
void take(const pb::Machine& in, Machine& m) {
    m.name = in.name();
    for (const auto& item : in.devices()) take(item, m.devices.emplace_back());
    for (const auto& item : in.links()) take(item, m.links.emplace_back());
    for (const auto& item : in.domains()) take(item, m.domains.emplace_back());
}

void put(const Workload& w, pb::Workload* out) {
    out->set_batch(w.batch);
    out->set_prompt_tokens(w.prompt_tokens);
    out->set_context(w.context);
    out->set_kv_tokens(w.kv_tokens);
    out->set_prefill_chunk(w.prefill_chunk);
    out->set_all_logits(w.all_logits);
    if (w.dtype) out->set_dtype(static_cast<uint32_t>(*w.dtype));
    if (w.kv_dtype) out->set_kv_dtype(static_cast<uint32_t>(*w.kv_dtype));
    out->set_activation_dtype(static_cast<uint32_t>(w.activation_dtype));
}
void take(const pb::Workload& in, Workload& w) {
    w.batch = in.batch();
    w.prompt_tokens = in.prompt_tokens();
    w.context = in.context();
    w.kv_tokens = in.kv_tokens();
    w.prefill_chunk = in.prefill_chunk();
    w.all_logits = in.all_logits();
    if (in.has_dtype()) take(in.dtype(), w.dtype.emplace());
    if (in.has_kv_dtype()) take(in.kv_dtype(), w.kv_dtype.emplace());
    take(in.activation_dtype(), w.activation_dtype);
}

void put(const PlanOptions& o, pb::PlanOptions* out) {
    out->set_tensor_parallel(o.tensor_parallel);
    out->set_pipeline_stages(o.pipeline_stages);
    out->set_objective(static_cast<uint32_t>(o.objective));
    out->set_use_metis(o.use_metis);
    out->set_seed(o.seed);
    for (const auto& item : o.pins) put(item, out->add_pins());
}
void take(const pb::PlanOptions& in, PlanOptions& o) {
    o.tensor_parallel = in.tensor_parallel();
    o.pipeline_stages = in.pipeline_stages();
    take(in.objective(), static_cast<Objective>(kObjectives.size() - 1), o.objective);
    o.use_metis = in.use_metis();
    o.seed = in.seed();
    for (const auto& item : in.pins()) take(item, o.pins.emplace_back());
}

}  // namespace cleave::planner::codec
