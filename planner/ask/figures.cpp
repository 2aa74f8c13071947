// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "planner/build/placement.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "planner/search/propose.h"

namespace cleave::planner {
namespace {

using importer::OpKind;

// A step of the critical path, with the time until the next one begins.
struct PathStep {
    const Step* step = nullptr;
    int64_t ns = 0;
};

int64_t end_of(const Step& step) { return step.start_ns + step.predicted_ns; }

// From the last step back: before each, the one that its devices finished last.
std::vector<PathStep> critical_path(const Plan& plan, const Phase& phase, int64_t whole) {
    const size_t devices = plan.machine.devices.size();
    std::vector<int> last(devices, -1);
    std::vector<int> before(phase.steps.size(), -1);
    int final = -1;
    for (size_t i = 0; i < phase.steps.size(); ++i) {
        const std::vector<DeviceId> members = step_devices(phase, phase.steps[i]);
        for (DeviceId d : members) {
            int& previous = last[d.index()];
            int& critical = before[i];
            if (previous >= 0 &&
                (critical < 0 || end_of(phase.steps[previous]) > end_of(phase.steps[critical])))
                critical = previous;
            previous = static_cast<int>(i);
        }
        if (final < 0 || end_of(phase.steps[i]) > end_of(phase.steps[final]))
            final = static_cast<int>(i);
    }
    std::vector<PathStep> path;
    int64_t end = whole;
    for (int i = final; i >= 0; i = before[i]) {
        path.push_back({&phase.steps[i], std::max<int64_t>(0, end - phase.steps[i].start_ns)});
        end = phase.steps[i].start_ns;
    }
    return path;
}

// Of one pass: decode's is predicted; a prefill pass ends with its last step.
int64_t pass_ns(const Plan& plan, bool is_prefill) {
    if (!is_prefill) return plan.prediction.decode_ns_per_token;
    int64_t end = 0;
    for (const Step& step : plan.prefill.steps) end = std::max(end, end_of(step));
    return end;
}

std::vector<PathStep> critical_path(const Plan& plan, bool is_prefill) {
    return critical_path(plan, plan.phase(is_prefill), pass_ns(plan, is_prefill));
}

// "output projection" of what attention made, "down projection" of what an activation did.
std::string linear_name(const Plan& plan, const Compute& c, const std::vector<OpKind>& maker) {
    for (OpId id : c.ops) {
        const importer::Op& op = plan.graph.op(id);
        if (op.kind != OpKind::kLinear || op.inputs.empty()) continue;
        switch (maker[op.inputs[0].index()]) {
            case OpKind::kAttention: return "output projection";
            case OpKind::kGatedActivation: return "down projection";
            default: return "linear";
        }
    }
    return "linear";
}

std::string work_of(const Plan& plan, const Step& step, const std::vector<OpKind>& maker) {
    if (step.transfer()) return "transfers between stages";
    if (const Collective* c = step.collective())
        return c->op == CollectiveOp::kAllReduce ? "all_reduce" : "all_gather";
    const Compute& c = *step.compute();
    switch (c.kernel) {
        case KernelKind::kNormQkvRopeAppend: return "query, key and value projections";
        case KernelKind::kAttention: return "attention";
        case KernelKind::kNormGateUp: return "gate and up projections";
        case KernelKind::kNormLinear: return "lm_head";
        case KernelKind::kLinear: return linear_name(plan, c, maker);
        default: return std::string(kernel_kind_name(c.kernel));
    }
}

// The kind of the operator that makes each value; kOpaque of inputs.
std::vector<OpKind> makers(const importer::Graph& graph) {
    std::vector<OpKind> maker(graph.values.size(), OpKind::kOpaque);
    for (const importer::Op& op : graph.ops)
        for (ValueId v : op.outputs) maker[v.index()] = op.kind;
    return maker;
}

}  // namespace

std::string shape_of(const Plan& plan) {
    std::string shape = plan.stages.empty() ? "nothing" : shape_name(plan.stages);
    if (plan.num_replicas() == 1) return shape;
    std::string text = plan.copies.empty()
                           ? "a replica of " + shape
                           : fmt::format("{} replicas of {}", plan.num_alike(), shape);
    for (const Plan& other : plan.others)
        text += (other.copies.empty() ? " and one of " : " and ") + shape_of(other);
    return text;
}

TimeParts time_parts(const Plan& plan, bool is_prefill) {
    TimeParts parts;
    for (const PathStep& at : critical_path(plan, is_prefill)) {
        const int64_t alone = std::min(at.ns, at.step->predicted_ns);
        (at.step->compute()    ? parts.compute_ns
         : at.step->transfer() ? parts.transfer_ns
                               : parts.collective_ns) += alone;
        parts.sharing_ns += at.ns - alone;
    }
    return parts;
}

std::vector<WorkTime> time_by_work(const Plan& plan, bool is_prefill) {
    const std::vector<OpKind> maker = makers(plan.graph);
    std::map<std::string, WorkTime> by_work;
    for (const PathStep& at : critical_path(plan, is_prefill)) {
        const std::string work = work_of(plan, *at.step, maker);
        WorkTime& time = by_work[work];
        time.work = work;
        time.ns += at.ns;
        ++time.steps;
    }
    std::vector<WorkTime> times;
    for (auto& [work, time] : by_work) times.push_back(std::move(time));
    std::ranges::stable_sort(times, std::greater<>(), &WorkTime::ns);
    return times;
}

std::vector<DeviceTime> device_times(const Plan& plan) {
    std::vector<DeviceTime> times(plan.machine.devices.size());
    for (size_t d = 0; d < times.size(); ++d) times[d].device = DeviceId(d);
    for (const Step& step : plan.decode.steps)
        for (DeviceId d : step_devices(plan.decode, step))
            (step.compute() ? times[d.index()].compute_ns : times[d.index()].exchange_ns) +=
                step.predicted_ns;
    for (DeviceTime& t : times)
        t.waiting_ns = std::max<int64_t>(
            0, plan.prediction.decode_ns_per_token - t.compute_ns - t.exchange_ns);
    return times;
}

std::vector<LinkLoad> link_loads(const Plan& plan) {
    std::vector<LinkLoad> loads;
    for (const auto& [pair, bytes] : link_traffic(plan, false)) {
        LinkLoad load{pair.first, pair.second, bytes};
        if (const Link* link = plan.machine.link(pair.first, pair.second);
            link && link->bandwidth > 0) {
            load.bandwidth = link->bandwidth;
            load.ns = static_cast<int64_t>(static_cast<double>(bytes) * 1e9 /
                                           static_cast<double>(link->bandwidth));
        }
        loads.push_back(load);
    }
    // What is staged has no rate of its own: by bytes behind those.
    std::ranges::stable_sort(loads, [](const LinkLoad& a, const LinkLoad& b) {
        return std::pair(a.ns, a.bytes) > std::pair(b.ns, b.bytes);
    });
    return loads;
}

Figures figures_of(const Plan& plan) {
    Figures f;
    f.shape = shape_of(plan);
    f.replicas = plan.num_replicas();
    const std::vector<DeviceId> used = used_devices(plan);
    f.devices = std::ssize(used_device_names(plan));
    f.given = std::ssize(all_device_names(plan));
    const Prediction& p = plan.prediction;
    f.decode_ns = p.decode_ns_per_token;
    f.prefill_ns = p.prefill_ns;
    f.objective_ns = p.objective_ns;
    f.tokens_per_second = tokens_per_second(plan);
    f.users = served_users(plan);
    f.ttft_ns = range_of_makes(plan, &Serving::ttft_ns).second;
    f.tpot_ns = range_of_makes(plan, &Serving::tpot_ns).second;
    int64_t least = INT64_MAX;
    for (const DeviceMemory& m : plan.memory) {
        f.weights += m.weights;
        f.kv += m.kv;
        if (!std::ranges::binary_search(used, m.device) || m.free() >= least) continue;
        least = m.free();
        f.fullest = plan.machine.device(m.device).name;
        f.needed = m.needed();
        f.capacity = m.capacity;
    }
    const PassPoint point = pass_point(plan, false);
    for (const Step& step : plan.decode.steps) f.link_bytes += step.link_bytes.at(point);
    f.decode = time_parts(plan, false);
    f.price_micros = price_micros_per_hour(plan);
    f.cost_per_million = cost_per_million_tokens(plan);
    f.room = room_of(plan);
    for (const Plan* make : makes_of(plan)) {
        const Room room = make == &plan ? f.room : room_of(*make);
        f.sequences += make->num_alike() * room.max_sequences;
        f.kv_tokens += make->num_alike() * room.kv_tokens;
        f.kv_tokens_now += make->num_alike() * room.kv_tokens_now;
    }
    const auto name = [&](DeviceId id) {
        return id.valid() ? plan.machine.device(id).name : std::string();
    };
    f.sequences_bound = name(f.room.sequences_bound);
    f.context_bound = name(f.room.context_bound);
    f.kv_bound = name(f.room.kv_bound);
    f.grounds = grounds_of(plan);
    return f;
}

double slower_by(const Figures& a, const Figures& b) {
    if (a.users > 0 && b.users > 0 && b.tokens_per_second > 0)
        return a.tokens_per_second / b.tokens_per_second - 1;
    return a.objective_ns > 0
               ? static_cast<double>(b.objective_ns) / static_cast<double>(a.objective_ns) - 1
               : 0;
}

std::string slower_text(double slower) {
    if (std::abs(slower) < 0.0005) return "as fast";
    if (slower >= 2) return fmt::format("{:.3g} times as slow", 1 + slower);
    const double size = std::abs(100 * slower);
    return fmt::format("{} % {}",
                       size >= 10 ? fmt::format("{:.0f}", size) : fmt::format("{:.2g}", size),
                       slower > 0 ? "slower" : "faster");
}

std::string rate_text(const Figures& f) {
    return f.tokens_per_second >= 100 ? fmt::format("{:.0f}", f.tokens_per_second)
                                      : fmt::format("{:.3g}", f.tokens_per_second);
}

std::string speed_text(const Figures& f) {
    return f.users > 0 ? fmt::format("{:.0f} tokens/s", f.tokens_per_second)
                       : fmt::format("{} a token", time_text(f.objective_ns));
}

std::string changed_text(const std::string& before, const std::string& after) {
    return before == after ? after + " as before" : fmt::format("{} instead of {}", after, before);
}

std::string unused_text(const Plan& plan) {
    constexpr std::string_view kUnused = "unused: ";
    const size_t begin = plan.why.binding.find(kUnused);
    if (begin == std::string::npos) return "";
    const size_t from = begin + kUnused.size();
    return plan.why.binding.substr(from, plan.why.binding.find("; ", from) - from);
}

std::string causes_text(const Figures& a, const Figures& b) {
    const std::pair<int64_t, const char*> causes[] = {
        {b.decode.compute_ns - a.decode.compute_ns, "computing"},
        {b.decode.collective_ns - a.decode.collective_ns, "sums and gathers"},
        {b.decode.transfer_ns - a.decode.transfer_ns, "transfers"},
        {b.decode.sharing_ns - a.decode.sharing_ns, "sharing a memory or a link"}};
    std::string text;
    for (const auto& [ns, cause] : causes)
        if (std::abs(ns) >= 1000)
            text += fmt::format("{}{} {:+.3g} ms", text.empty() ? "" : ", ", cause,
                                static_cast<double>(ns) / 1e6);
    return text;
}

}  // namespace cleave::planner
