// SPDX-License-Identifier: Apache-2.0
// Replicas, alike and of other makes, and the users that the plan's figures count. Each user needs
// a row of the block tables and blocks for a whole context, whatever the plan was made for. Each
// replica's machine must carry the plan of the first.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "planner/verify/report.h"
#include "planner/verify/verify.h"
#include "runtime/base/rounding.h"

namespace cleave::planner::verify {
namespace {

// Contexts for which every device has blocks, by the sizes of its slabs' buffers; the users of a
// graph without a cache need none.
int64_t contexts_in_memory(const Plan& plan) {
    int64_t fewest = plan.workload.batch;
    for (const KvSlab& s : plan.kv_slabs) {
        const DType dtype = plan.workload.kv_dtype.value_or(DType::kF32);
        const int64_t scales = dtype_bits(dtype) == 8 ? 2 * dtype_bytes(DType::kF32, 1) : 0;
        const int64_t position =
            product({s.kv_heads.size(), dtype_bytes(dtype, s.head_dim + s.v_head_dim) + scales});
        if (position <= 0) continue;
        const int64_t positions = plan.buffer(s.buffer).size / position;
        const int64_t context = round_up(plan.workload.context, kKvBlock);
        fewest = std::min(fewest, (positions - kKvBlock) / context);  // block 0 is nobody's
    }
    return std::max<int64_t>(0, fewest);
}

// One a stage; more on their way where stages are on several hosts that run; one alone where a
// device comes back; never more than a run keeps.
int64_t groups_at_once(const Plan& plan) {
    std::set<DeviceId> seen;
    std::set<std::string> hosts;
    for (const Stage& stage : plan.stages)
        for (DeviceId d : stage.devices) {
            if (!seen.insert(d).second) return 1;
            if (plan.machine.device(d).kind != DeviceKind::kSim)
                hosts.insert(plan.machine.device(d).host);
        }
    const auto stages = static_cast<int64_t>(plan.stages.size());
    return stages > 1 && hosts.size() > 1 ? kMostGroups : std::min(stages, kMostGroups);
}

void check_users(const Plan& plan, Report& report) {
    const Serving& s = plan.prediction.serving;
    const int64_t held = contexts_in_memory(plan);
    if (ceil_div(s.users, plan.num_alike()) > held)
        report.add("serving-memory",
                   "its figures count {} users on {} replicas, and each has slots and KV for {} "
                   "contexts of {} tokens",
                   s.users, plan.num_alike(), held, plan.workload.context);
    const PlanOptions& o = plan.options;
    if ((o.max_ttft_ns > 0 && s.ttft_ns > o.max_ttft_ns) ||
        (o.max_tpot_ns > 0 && s.tpot_ns > o.max_tpot_ns))
        report.add("serving-limits",
                   "a first token after {} ns and further ones after {}: the limits are {} and {}",
                   s.ttft_ns, s.tpot_ns, o.max_ttft_ns, o.max_tpot_ns);
    if (const int64_t most = groups_at_once(plan);
        s.groups < 1 || s.groups > std::min(most, plan.workload.batch))
        report.add("serving-groups", "{} groups of {} sequences in flight, and {} at most may be",
                   s.groups, plan.workload.batch, most);
    // In one group every step of a device is once in a round.
    std::map<DeviceId, int64_t> work;
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute()) {
            int64_t& ns = work[c->device];
            ns = sum(ns, step.predicted_ns);
        }
    for (const auto& [device, ns] : work)
        if (s.groups == 1 && s.tpot_ns < ns)
            report.add("serving-round", "a round takes {} ns, and the steps of {} alone {}",
                       s.tpot_ns, plan.machine.device(device).name, ns);
}

void check_copy(const Plan& plan, const Machine& copy, size_t number, Report& report) {
    const Machine& first = plan.machine;
    if (copy.devices.size() != first.devices.size())
        return report.add("replica-devices", "replica {} has {} devices, the first has {}", number,
                          copy.devices.size(), first.devices.size());
    for (size_t i = 0; i < copy.devices.size(); ++i) {
        const DeviceInfo &a = first.devices[i], &b = copy.devices[i];
        if (a.kind != b.kind || a.arch != b.arch ||
            a.limits.shared_memory_per_block > b.limits.shared_memory_per_block ||
            a.limits.registers_per_block > b.limits.registers_per_block ||
            a.limits.max_threads_per_block > b.limits.max_threads_per_block ||
            a.limits.warp_width != b.limits.warp_width)
            report.add("replica-devices", "{} cannot do what is planned for {}", b.name, a.name);
        if (i < plan.memory.size() &&
            plan.memory[i].needed() - plan.memory[i].reserved + b.reserved_bytes > b.memory_bytes)
            report.add("replica-memory", "{} needs {} bytes and has {}", b.name,
                       plan.memory[i].needed() - plan.memory[i].reserved + b.reserved_bytes,
                       b.memory_bytes);
    }
    for (const Link& l : first.links) {
        const auto same = std::ranges::find_if(
            copy.links, [&](const Link& m) { return m.from == l.from && m.to == l.to; });
        if (same == copy.links.end() || same->kind != l.kind ||
            same->peer_access != l.peer_access || same->bandwidth < l.bandwidth ||
            same->latency_ns > l.latency_ns)
            report.add("replica-links", "{} and {} are not joined as {} and {} are",
                       copy.device(l.from).name, copy.device(l.to).name, first.device(l.from).name,
                       first.device(l.to).name);
    }
}

// Whether the replicas of both serve the same requests, in any order, with the same answers.
bool serves_the_same(const Plan& plan, const Plan& other) {
    const Workload &a = plan.workload, &b = other.workload;
    return plan.graph_digest == other.graph_digest && a.context == b.context &&
           a.prompt_tokens == b.prompt_tokens && a.all_logits == b.all_logits &&
           a.dtype == b.dtype && a.kv_dtype == b.kv_dtype &&
           a.activation_dtype == b.activation_dtype && a.compute == b.compute;
}

}  // namespace

void check_serving(const Plan& plan, Report& report) {
    if (plan.prediction.serving.users > 0) check_users(plan, report);
    std::set<std::string> names;
    for (const DeviceInfo& d : plan.machine.devices) names.insert(d.name);
    const auto take = [&](const Machine& machine) {
        for (const DeviceInfo& d : machine.devices)
            if (!names.insert(d.name).second)
                report.add("replica-devices", "{} is in two replicas", d.name);
    };
    for (size_t i = 0; i < plan.copies.size(); ++i) {
        check_copy(plan, plan.copies[i], i + 1, report);
        take(plan.copies[i]);
    }
    for (const Plan& other : plan.others) {
        const std::string first =
            other.machine.devices.empty() ? "" : other.machine.devices[0].name;
        if (!other.others.empty() || !serves_the_same(plan, other))
            report.add("replica-requests",
                       "the replica on {} does not serve what the one on {} serves", first,
                       plan.machine.devices.empty() ? "" : plan.machine.devices[0].name);
        if ((other.prediction.serving.users > 0) != (plan.prediction.serving.users > 0))
            report.add("replica-requests", "the replica on {} has {} users", first,
                       other.prediction.serving.users);
        take(other.machine);
        for (const Machine& copy : other.copies) take(copy);
        if (!other.others.empty()) continue;  // such a plan is unsound, however deep they are
        for (const Violation& violation : find_violations(other))
            report.add(violation.rule, "on {}: {}", first, violation.message);
    }
}

}  // namespace cleave::planner::verify
