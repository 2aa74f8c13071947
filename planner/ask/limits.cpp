// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/limits.h"

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>

#include <fmt/ranges.h>

#include "planner/ask/at_once.h"
#include "planner/ask/what_if.h"
#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

Further further(const Figures& now, const Case& asked, const Change& change) {
    Further f{.change = change_text(change), .then = {}, .refusal = {}};
    try {
        const Outcome outcome = outcome_of(changed(asked, change));
        f.refusal = outcome.refusal;
        if (!outcome.plan) return f;
        f.then = figures_of(*outcome.plan);
        f.slower = static_cast<double>(f.then->objective_ns) /
                       static_cast<double>(std::max<int64_t>(1, now.objective_ns)) -
                   1;
    } catch (const UserError& error) {
        f.refusal = error.what();
    }
    return f;
}

// Twice the rates; its memory stays.
void hasten(DeviceInfo& d) {
    for (int64_t* rate :
         {&d.memory_bandwidth, &d.flops_f32, &d.flops_f16, &d.flops_f8, &d.flops_int8,
          &d.measured.bandwidth, &d.measured.bandwidth_alone, &d.measured.widening,
          &d.measured.cache_bandwidth, &d.measured.flops_f32, &d.measured.flops_narrow,
          &d.measured.attention_bandwidth, &d.measured.attention_flops})
        *rate *= 2;
    d.memory_domain = -1;
}

// Of many devices a search takes seconds: narrower types are then planned on those that the plan
// uses.
Case narrower_case(const Plan& plan) {
    constexpr size_t kMany = 32;
    Case asked = replica_case(plan);
    if (plan.machine.devices.size() > kMany)
        asked.machine = part_of(plan.machine, used_devices(plan));
    return asked;
}

// One of each kind that the plan uses; none where they are too many kinds, or too few devices.
std::vector<Faster> kinds_of_devices(const Plan& plan) {
    constexpr size_t kMostKinds = 4;
    std::vector<Faster> found;
    std::vector<DeviceId> examples;
    const auto facts = [&](DeviceId id) {
        const DeviceInfo& d = plan.machine.device(id);
        return std::tuple(d.kind, d.model, d.arch, d.memory_bytes, d.memory_bandwidth, d.flops_f16);
    };
    for (DeviceId id : used_devices(plan)) {
        const auto same = std::ranges::find_if(
            examples, [&](DeviceId other) { return facts(other) == facts(id); });
        if (same != examples.end()) {
            ++found[static_cast<size_t>(same - examples.begin())].alike;
            continue;
        }
        examples.push_back(id);
        found.push_back({.device = plan.machine.device(id).name, .alike = 1});
    }
    if (examples.size() > kMostKinds || used_devices(plan).size() < 2) return {};
    return found;
}

void hasten_one(const Plan& plan, Faster& one) {
    Case asked = replica_case(plan);
    keep_shape(plan, asked.options);
    hasten(asked.machine.devices[find_device(asked.machine, one.device).index()]);
    const Outcome outcome = outcome_of(asked);
    if (!outcome.plan) return;
    one.objective_ns = outcome.plan->prediction.objective_ns;
    one.grounds = grounds_of(*outcome.plan);
    one.gain = 1 - static_cast<double>(one.objective_ns) /
                       static_cast<double>(std::max<int64_t>(1, plan.prediction.objective_ns));
}

// What is planned beside the plan: one device more like `more`, narrower weights, a narrower cache.
std::vector<std::pair<Case, Change>> changes(const Plan& plan, const std::string& more) {
    std::vector<std::pair<Case, Change>> all;
    if (!more.empty()) all.push_back({replica_case(plan), {.add = {more}, .remove = {}}});
    const int bits = dtype_bits(weights_dtype(plan));
    const Case narrower = narrower_case(plan);
    for (DType dtype : {DType::kInt8, DType::kInt4})
        if (dtype_bits(dtype) < bits)
            all.push_back({narrower, {.add = {}, .remove = {}, .dtype = dtype}});
    if (dtype_bits(plan.workload.kv_dtype.value_or(DType::kF32)) > 8)
        all.push_back({narrower, {.add = {}, .remove = {}, .kv_dtype = DType::kInt8}});
    return all;
}

std::string bound_text(const Plan& plan, DeviceId bound) {
    return bound.valid() ? fmt::format("{} is full", plan.machine.device(bound).name)
                         : "no memory ends it";
}

std::vector<std::string> room_sentences(const Plan& plan, const Figures& f) {
    const Room& r = f.room;
    const Workload& w = plan.workload;
    const int64_t left = std::max<int64_t>(0, r.kv_tokens - r.kv_tokens_now) * f.replicas;
    return {fmt::format("The batch may grow from {} to {} at a context of {}; then {}.",
                        w.batch * f.replicas, r.max_sequences * f.replicas, w.context,
                        bound_text(plan, r.sequences_bound)),
            fmt::format(
                "The context may grow from {} to {} at a batch of {}; then {}{}.", w.context,
                r.max_context, w.batch * f.replicas, bound_text(plan, r.context_bound),
                r.positions_end ? fmt::format(", but the model's positions end at {}", r.positions)
                                : ""),
            fmt::format(
                "KV tokens: the pool has {} and may have {}, so {} are left, {} of {}; then {}.",
                r.kv_tokens_now * f.replicas, r.kv_tokens * f.replicas, left,
                count_text(left / (w.blocks_per_slot() * kKvBlock), "sequence"), w.context,
                bound_text(plan, r.kv_bound))};
}

std::string further_sentence(const Further& f, const Figures& now) {
    if (!f.then) return fmt::format("With {}: not possible, {}.", f.change, f.refusal);
    const std::string on = f.then->devices == now.devices
                               ? ""
                               : fmt::format(", on {} instead of {}",
                                             count_text(f.then->devices, "device"), now.devices);
    return fmt::format("With {}{}: a batch of {}, a context of {}, {} a token instead of {}.",
                       f.change, on, f.then->room.max_sequences * now.replicas,
                       f.then->room.max_context, time_text(f.then->objective_ns),
                       time_text(now.objective_ns));
}

// The devices that are as full as the one that ends the batch, to a hundredth of their memory.
std::vector<std::string> full_devices(const Plan& plan, const Room& room) {
    std::vector<std::string> full;
    if (!room.sequences_bound.valid()) return full;
    const auto memory = memory_at(plan, room.max_sequences, plan.workload.context);
    const int64_t least = memory[room.sequences_bound.index()].free();
    for (const DeviceMemory& m : memory)
        if (m.capacity > 0 && m.free() <= least + m.capacity / 100)
            full.push_back(plan.machine.device(m.device).name);
    return full;
}

std::string faster_sentence(const LimitsAnswer& a) {
    if (a.faster.empty()) return "";
    const Faster& first = a.faster.front();
    std::string text =
        a.faster.size() == 1
            ? fmt::format(
                  "Replace none alone for speed: the {} are alike, and one of them twice as "
                  "fast takes {:.1f} % off a token.",
                  count_text(first.alike, "device"), 100 * first.gain)
            : fmt::format(
                  "Replace {} first for speed: twice as fast it takes {:.1f} % off a token.",
                  first.device, 100 * first.gain);
    if (a.full.size() == 1) text += fmt::format(" For room replace {}, full first.", a.full[0]);
    if (a.full.size() > 1)
        text += fmt::format(" For room replace {}: they are full together.", folded_names(a.full));
    return text;
}

}  // namespace

std::string next_device(const Machine& machine, DeviceId like) {
    const DeviceInfo& device = machine.device(like);
    if (is_on_cores(device.kind) || device.kind == DeviceKind::kNull) return "";
    const size_t open = device.name.find('['), close = device.name.find(']');
    if (open == std::string::npos || close == std::string::npos) return "";
    int most = 0;
    for (const DeviceInfo& d : machine.devices)
        if (d.name.starts_with(device.name.substr(0, open + 1))) most = std::max(most, d.index);
    return fmt::format("{}{}{}", device.name.substr(0, open + 1), most + 1,
                       device.name.substr(close));
}

LimitsAnswer limits(const Plan& plan) {
    if (!plan.others.empty())
        throw UserError(
            "the plan's {} replicas are not alike, and each has limits of its own; ask for the "
            "devices of each by themselves, or give $replicas 1",
            plan.num_replicas());
    LimitsAnswer a;
    a.now = figures_of(plan);
    const Room& room = a.now.room;
    if (!room.has_kv()) {
        a.answer = fmt::format("{} keeps no keys and values, so nothing grows with sequences.",
                               plan.graph.name);
        a.sentences = {a.answer};
        return a;
    }
    const DeviceId bound = room.sequences_bound.valid() ? room.sequences_bound : room.kv_bound;
    const std::string more = next_device(plan.machine, bound);
    if (more.empty())
        a.no_device = fmt::format(
            "{} shares this host's memory with others like it: more of them "
            "hold no more",
            plan.machine.device(bound).name);
    const std::vector<std::pair<Case, Change>> asked = changes(plan, more);
    a.further.resize(asked.size());
    a.faster = kinds_of_devices(plan);
    at_once(a.further.size() + a.faster.size(), [&](size_t i) {
        if (i < asked.size())
            a.further[i] = further(a.now, asked[i].first, asked[i].second);
        else
            hasten_one(plan, a.faster[i - asked.size()]);
    });
    std::ranges::stable_sort(a.faster, std::greater<>(), &Faster::gain);
    a.full = full_devices(plan, room);
    a.sentences = room_sentences(plan, a.now);
    for (const Further& f : a.further) a.sentences.push_back(further_sentence(f, a.now));
    if (!a.no_device.empty()) a.sentences.push_back(a.no_device + ".");
    if (const std::string faster = faster_sentence(a); !faster.empty())
        a.sentences.push_back(faster);
    a.answer = fmt::format("{}", fmt::join(a.sentences, " "));
    return a;
}

}  // namespace cleave::planner
