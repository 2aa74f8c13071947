// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/why.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"

namespace cleave::planner {
namespace {

std::string range_text(std::string_view noun, Range r) {
    return r.size() == 1 ? fmt::format("{} {}", noun, r.begin)
                         : fmt::format("{} {}-{}", noun, r.begin, r.end - 1);
}

std::string name(const Plan& plan, DeviceId device) { return plan.machine.device(device).name; }

void set_share(std::string noun, Range range, Holding& h) {
    h.share = range_text(noun, range);
    h.noun = std::move(noun);
    h.range = range;
}

void set_share(const importer::Weight& w, const WeightShard& s, Holding& h) {
    const int64_t rows = w.shape.empty() ? 1 : w.shape[0];
    const int64_t columns = w.shape.size() > 1 ? w.shape[1] : 1;
    if (s.rows.size() < rows)
        set_share("rows", s.rows, h);
    else if (w.shape.size() > 1 && s.columns.size() < columns)
        set_share("columns", s.columns, h);
    else
        h.share = "whole";
}

// What each device has of the operators, by its decode steps.
std::vector<Holding> holdings_of(const Plan& plan, const std::vector<OpId>& ops) {
    const std::set<OpId> wanted(ops.begin(), ops.end());
    std::map<DeviceId, Holding> by_device;
    std::map<DeviceId, std::set<WeightShardId>> weights;
    std::map<DeviceId, std::set<KvSlabId>> slabs;
    const auto holding = [&](DeviceId device) -> Holding& {
        Holding& h = by_device[device];
        h.device = device;
        return h;
    };
    for (const Step& step : plan.decode.steps) {
        const Compute* c = step.compute();
        if (!c || std::ranges::none_of(c->ops, [&](OpId id) { return wanted.contains(id); }))
            continue;
        Holding& h = holding(c->device);
        h.compute_ns += step.predicted_ns;
        if (c->kernel == KernelKind::kAttention && !c->heads.empty())
            set_share("heads", c->heads, h);
        for (WeightShardId id : c->weights) {
            const WeightShard& s = plan.weights[id.index()];
            const bool own = std::ranges::any_of(ops, [&](OpId op) {
                return std::ranges::count(plan.graph.op(op).weights, s.weight) > 0;
            });
            if (own) weights[c->device].insert(id);
        }
        if (c->kv.valid()) slabs[c->device].insert(c->kv);
    }
    std::vector<Holding> holdings;
    for (auto& [device, h] : by_device) {
        for (WeightShardId id : weights[device]) {
            const WeightShard& s = plan.weights[id.index()];
            h.weight_bytes += plan.buffer(s.buffer).size;
            if (h.share.empty() && s.columns.size() > 0 &&
                plan.graph.weight(s.weight).shape.size() > 1)
                set_share(plan.graph.weight(s.weight), s, h);
        }
        for (KvSlabId id : slabs[device])
            h.kv_bytes += plan.buffer(plan.kv_slabs[id.index()].buffer).size;
        if (h.share.empty()) h.share = "whole";
        holdings.push_back(std::move(h));
    }
    return holdings;
}

std::vector<DeviceId> devices_of(const std::vector<Holding>& holdings) {
    std::vector<DeviceId> devices;
    for (const Holding& h : holdings) devices.push_back(h.device);
    return devices;
}

std::vector<int> stages_of(const Plan& plan, const std::vector<OpId>& ops) {
    std::vector<int> stages;
    for (size_t s = 0; s < plan.stages.size(); ++s)
        if (std::ranges::any_of(ops, [&](OpId id) {
                return plan.stages[s].first_op <= id && id <= plan.stages[s].last_op;
            }))
            stages.push_back(static_cast<int>(s));
    return stages;
}

std::string layers_of(const Stage& stage) {
    if (stage.last_layer < stage.first_layer) return "";
    return stage.first_layer == stage.last_layer
               ? std::to_string(stage.first_layer)
               : fmt::format("{}-{}", stage.first_layer, stage.last_layer);
}

Place place_of(const Plan& plan, const Case& asked, const std::string& what,
               const std::string& change) {
    Place place{.change = change};
    const Outcome outcome = outcome_of(asked);
    place.refusal = outcome.refusal;
    place.lacks_memory = outcome.lacks_memory;
    if (!outcome.plan) return place;
    place.shape = shape_of(*outcome.plan);
    if (const What part = find_part(*outcome.plan, what); !part.ops.empty())
        place.where =
            folded_names(outcome.plan->machine, devices_of(holdings_of(*outcome.plan, part.ops)));
    place.objective_ns = outcome.plan->prediction.objective_ns;
    place.decode_ns = outcome.plan->prediction.decode_ns_per_token;
    place.grounds = grounds_of(*outcome.plan);
    place.slower = static_cast<double>(place.objective_ns) /
                       static_cast<double>(std::max<int64_t>(1, plan.prediction.objective_ns)) -
                   1;
    return place;
}

// The user's pins that hold operators of the part.
std::vector<size_t> pins_on(const Plan& plan, const std::vector<OpId>& ops) {
    std::vector<size_t> found;
    for (size_t i = 0; i < plan.options.pins.size(); ++i) {
        const What pinned = find_part(plan, plan.options.pins[i].what);
        if (std::ranges::any_of(ops,
                                [&](OpId id) { return std::ranges::count(pinned.ops, id) > 0; }))
            found.push_back(i);
    }
    return found;
}

// By what each costs; refused ones last.
void sort_places(std::vector<Place>& places) {
    std::ranges::stable_sort(
        places, {}, [](const Place& p) { return std::pair(!p.refusal.empty(), p.objective_ns); });
}

// Pins that keep each stage where it is by the end that lies farthest from the part, so that a
// place of it in an earlier or a later stage is not this plan with alike devices exchanged.
void keep_stages(const Plan& plan, const std::vector<OpId>& ops, bool earlier,
                 std::vector<Pin>& pins) {
    const auto is_free = [&](int layer) {
        const std::vector<OpId> held = find_part(plan, fmt::format("layers.{}", layer)).ops;
        return pins_on(plan, held).empty() && std::ranges::count(ops, held.front()) == 0;
    };
    for (const Stage& stage : plan.stages) {
        if (stage.last_layer < stage.first_layer) continue;
        const bool behind = ops.back() < stage.first_op;
        const bool own = !behind && ops.front() <= stage.last_op;
        const int far = behind || (own && earlier) ? stage.last_layer : stage.first_layer;
        if (is_free(far))
            pins.push_back({fmt::format("layers.{}", far), name(plan, stage.devices[0])});
    }
}

std::vector<Place> places_of_part(const Plan& plan, const What& what,
                                  const std::vector<int>& stages) {
    std::vector<Place> places;
    const std::vector<size_t> pins = pins_on(plan, what.ops);
    Case base = replica_case(plan);
    for (size_t i = pins.size(); i-- > 0;)
        base.options.pins.erase(base.options.pins.begin() + static_cast<std::ptrdiff_t>(pins[i]));
    if (!pins.empty())
        places.push_back(
            place_of(plan, base, what.text,
                     fmt::format("without the pin {}={}", plan.options.pins[pins[0]].what,
                                 plan.options.pins[pins[0]].device)));
    const auto pin_to = [&](Case asked, DeviceId device) {
        asked.options.pins.push_back({what.pin, name(plan, device)});
        places.push_back(
            place_of(plan, asked, what.text, fmt::format("on {}", name(plan, device))));
    };
    const auto in_stage = [&](int stage) {
        Case asked = base;
        keep_shape(plan, asked.options);
        keep_stages(plan, what.ops, stage < stages.front(), asked.options.pins);
        pin_to(asked, plan.stages[static_cast<size_t>(stage)].devices[0]);
    };
    if (plan.stages.size() > 1 && !stages.empty()) {
        if (stages.front() > 0) in_stage(stages.front() - 1);
        if (stages.back() + 1 < std::ssize(plan.stages)) in_stage(stages.back() + 1);
    } else if (plan.stages.front().devices.size() > 1) {
        Case asked = base;
        asked.options.tensor_parallel = 0;
        asked.options.pipeline_stages = 2;
        places.push_back(place_of(plan, asked, what.text, "in two stages"));
    } else if (plan.machine.devices.size() > 1) {
        for (size_t d = 0; d < plan.machine.devices.size(); ++d)
            if (DeviceId(d) != plan.stages.front().devices[0]) {
                pin_to(base, DeviceId(d));
                break;
            }
    }
    sort_places(places);
    return places;
}

std::string place_text(const Plan& plan, const Place& p) {
    if (!p.refusal.empty()) return fmt::format("{}: none, {}", p.change, p.refusal);
    return fmt::format(
        "{}{} ({}) {} a token instead of {}, {}", p.change,
        p.where.empty() || p.change == "on " + p.where ? "" : fmt::format(", it is on {}", p.where),
        p.shape, time_text(p.objective_ns), time_text(plan.prediction.objective_ns),
        slower_text(p.slower));
}

void answer_part(const Plan& plan, WhyAnswer& a) {
    a.holdings = holdings_of(plan, a.what.ops);
    a.stages = stages_of(plan, a.what.ops);
    a.places = places_of_part(plan, a.what, a.stages);
    const std::vector<size_t> pins = pins_on(plan, a.what.ops);
    const bool any =
        std::ranges::any_of(a.places, [](const Place& p) { return p.refusal.empty(); });
    a.because = !pins.empty()                                         ? "pin"
                : a.places.empty()                                    ? "only place"
                : any                                                 ? "speed"
                : std::ranges::any_of(a.places, &Place::lacks_memory) ? "memory"
                                                                      : "rule";
    int64_t weights = 0, kv = 0;
    for (const Holding& h : a.holdings) {
        weights += h.weight_bytes;
        kv += h.kv_bytes;
    }
    std::string stages;
    for (int s : a.stages) {
        const std::string layers = layers_of(plan.stages[static_cast<size_t>(s)]);
        stages += fmt::format("{}stage {} of {}{}", stages.empty() ? "" : ", ", s,
                              plan.stages.size(), layers.empty() ? "" : ", layers " + layers);
    }
    a.answer = fmt::format("{} is on {} ({}){}: {} of weights{}.", a.what.text,
                           folded_names(plan.machine, devices_of(a.holdings)), stages,
                           a.holdings.size() > 1 ? ", which share it" : "", bytes_text(weights),
                           kv > 0 ? fmt::format(" and {} of KV", bytes_text(kv)) : "");
    if (!pins.empty())
        a.answer += fmt::format(" You pinned it: {}={}.", plan.options.pins[pins[0]].what,
                                plan.options.pins[pins[0]].device);
    if (a.because == "only place") a.answer += " There is one device, so there is no other place.";
    if (a.because == "memory")
        a.answer += " It is there because of memory: the next places lack it.";
    if (a.because == "rule") a.answer += " It is there because a rule forbids the next places.";
    if (a.because == "speed") a.answer += " It is there for speed.";
    if (!a.places.empty())
        a.answer += fmt::format(" Next best place: {}.", place_text(plan, a.places.front()));
}

void add_traffic(const Plan& plan, WhyAnswer& a) {
    for (const LinkLoad& load : link_loads(plan)) {
        if (load.from == a.what.device) a.device.sent += load.bytes;
        if (load.to == a.what.device) a.device.received += load.bytes;
    }
}

void answer_device(const Plan& plan, WhyAnswer& a) {
    const DeviceId device = a.what.device;
    DeviceFacts& f = a.device;
    f.memory = plan.memory[device.index()];
    f.time = device_times(plan)[device.index()];
    for (size_t s = 0; s < plan.stages.size(); ++s)
        if (std::ranges::count(plan.stages[s].devices, device) > 0) {
            f.stages.push_back(static_cast<int>(s));
            const std::string layers = layers_of(plan.stages[s]);
            if (!layers.empty()) f.layers += (f.layers.empty() ? "" : ", ") + layers;
        }
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute();
            c && c->device == device && f.heads.empty() && c->kernel == KernelKind::kAttention)
            f.heads = range_text("", c->heads).substr(1);
    add_traffic(plan, a);
    a.stages = f.stages;
    if (plan.machine.devices.size() > 1) {
        Case asked = replica_case(plan);
        asked.options.tensor_parallel = asked.options.pipeline_stages = 0;
        asked.machine = without_devices(plan.machine, name(plan, device));
        a.places.push_back(place_of(plan, asked, "", fmt::format("without {}", a.what.text)));
    }
    const auto whole =
        static_cast<double>(std::max<int64_t>(1, plan.prediction.decode_ns_per_token));
    if (f.stages.empty()) {
        a.because = "speed";
        a.answer = fmt::format("{} has nothing; unused: {}.", a.what.text, unused_text(plan));
    } else {
        a.because = "speed";
        a.answer = fmt::format(
            "{} has {}{} (stage {} of {}): {} of weights and {} of KV, {} of {} free; in a decode "
            "pass of {:.3g} ms it computes for {:.0f} %, exchanges for {:.0f} % and waits for "
            "{:.0f} %.",
            a.what.text, f.layers.empty() ? "no layers" : "layers " + f.layers,
            f.heads.empty() ? "" : fmt::format(", heads {} of each", f.heads),
            fmt::join(f.stages, ", "), plan.stages.size(), bytes_text(f.memory.weights),
            bytes_text(f.memory.kv), bytes_text(f.memory.free()), bytes_text(f.memory.capacity),
            whole / 1e6, 100 * static_cast<double>(f.time.compute_ns) / whole,
            100 * static_cast<double>(f.time.exchange_ns) / whole,
            100 * static_cast<double>(f.time.waiting_ns) / whole);
    }
    if (!a.places.empty()) {
        if (a.places.front().lacks_memory) a.because = "memory";
        a.answer += fmt::format(" Next best: {}.", place_text(plan, a.places.front()));
    }
}

void answer_weight(const Plan& plan, WhyAnswer& a) {
    const importer::Weight& weight = plan.graph.weight(a.what.weight);
    int64_t bytes = 0;
    for (const WeightShard& s : plan.weights)
        if (s.weight == a.what.weight) {
            const int64_t size = plan.buffer(s.buffer).size;
            bytes += size;
            a.holdings.push_back(
                {.device = s.device, .share = {}, .noun = {}, .weight_bytes = size});
            set_share(weight, s, a.holdings.back());
        }
    std::vector<OpId> readers;
    for (size_t i = 0; i < plan.graph.ops.size(); ++i)
        if (std::ranges::count(plan.graph.ops[i].weights, a.what.weight) > 0)
            readers.emplace_back(i);
    a.stages = stages_of(plan, readers);
    a.because = "its operator";
    a.answer = fmt::format("{} ({}) is on {}, {} in all: where {} is, which reads it.", a.what.text,
                           fmt::join(weight.shape, " x "),
                           folded_names(plan.machine, devices_of(a.holdings)), bytes_text(bytes),
                           readers.empty() ? "nothing" : plan.graph.op(readers[0]).name);
}

void answer_buffer(const Plan& plan, WhyAnswer& a) {
    int64_t bytes = 0;
    for (BufferId id : a.what.buffers) {
        const Buffer& b = plan.buffer(id);
        bytes += b.size;
        a.holdings.push_back({.device = b.device,
                              .share = fmt::format("{} at {}", arena_name(b.arena()), b.offset),
                              .noun = {},
                              .weight_bytes = b.size});
    }
    a.because = "its steps";
    a.answer = fmt::format("{} is {} on {}, {} in all.", a.what.text,
                           count_text(std::ssize(a.what.buffers), "buffer"),
                           folded_names(plan.machine, devices_of(a.holdings)), bytes_text(bytes));
}

void answer_token(const Plan& plan, WhyAnswer& a) {
    a.decode = time_parts(plan, false);
    a.prefill = time_parts(plan, true);
    a.work = time_by_work(plan, false);
    a.times = device_times(plan);
    const auto whole = static_cast<double>(std::max<int64_t>(1, a.decode.whole()));
    const auto share = [&](int64_t ns) { return 100 * static_cast<double>(ns) / whole; };
    std::vector<std::string> most;
    for (size_t i = 0; i < std::min<size_t>(3, a.work.size()); ++i)
        most.push_back(fmt::format("{} {:.0f} %", a.work[i].work, share(a.work[i].ns)));
    a.because = "the critical path";
    a.answer = fmt::format(
        "A decode pass takes {:.3g} ms: {:.0f} % is computing, {:.0f} % sums and gathers, {:.0f} % "
        "transfers between stages{}. Most of it: {}. It is limited by {}.",
        whole / 1e6, share(a.decode.compute_ns), share(a.decode.collective_ns),
        share(a.decode.transfer_ns),
        a.decode.sharing_ns > 0
            ? fmt::format(", {:.0f} % sharing a memory or a link", share(a.decode.sharing_ns))
            : "",
        fmt::join(most, ", "), plan.why.binding);
}

void answer_links(const Plan& plan, WhyAnswer& a) {
    a.links = link_loads(plan);
    a.because = "the plan's exchanges";
    if (a.links.empty()) {
        a.answer = "No byte crosses a link: the plan's devices exchange nothing.";
        return;
    }
    const LinkLoad& busiest = a.links.front();
    const auto alike = std::ranges::count_if(a.links, [&](const LinkLoad& l) {
        return l.bytes == busiest.bytes && l.bandwidth == busiest.bandwidth;
    });
    const auto whole =
        static_cast<double>(std::max<int64_t>(1, plan.prediction.decode_ns_per_token));
    a.answer = fmt::format("The busiest link is {} -> {}{}: {} in a decode pass{}.",
                           name(plan, busiest.from), name(plan, busiest.to),
                           alike > 1 ? fmt::format(" ({} others carry as much)", alike - 1) : "",
                           bytes_text(busiest.bytes),
                           busiest.bandwidth > 0
                               ? fmt::format(", which take {:.3g} % of it at {}/s",
                                             100 * static_cast<double>(busiest.ns) / whole,
                                             bytes_text(busiest.bandwidth))
                               : ", through the hosts");
}

}  // namespace

WhyAnswer why(const Plan& plan, const std::string& text) {
    WhyAnswer a;
    a.what = parse_what(plan, text);
    a.grounds = grounds_of(plan);
    switch (a.what.kind) {
        case WhatKind::kPart: answer_part(plan, a); break;
        case WhatKind::kDevice: answer_device(plan, a); break;
        case WhatKind::kWeight: answer_weight(plan, a); break;
        case WhatKind::kBuffer: answer_buffer(plan, a); break;
        case WhatKind::kToken: answer_token(plan, a); break;
        case WhatKind::kLinks: answer_links(plan, a); break;
    }
    return a;
}

}  // namespace cleave::planner
