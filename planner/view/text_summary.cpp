// SPDX-License-Identifier: Apache-2.0
#include "planner/view/text_summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "importer/weights/formats.h"
#include "planner/analysis/storage.h"
#include "planner/ask/room.h"
#include "planner/machine/catalogue.h"
#include "planner/machine/device_names.h"
#include "planner/machine/fabric.h"
#include "planner/plan/foreign_op.h"
#include "planner/plan/kv_room.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "planner/view/text_devices.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {
namespace {

using Lines = std::vector<Line>;

std::string names_text(const Machine& machine) {
    std::vector<std::string> names;
    for (const DeviceInfo& device : machine.devices) names.push_back(device.name);
    return folded_names(names);
}

// "bf16", "int8 in groups of 32", or both.
std::string rounded_types(const Plan& plan) {
    std::set<DType> types;
    for (const importer::Op& op : plan.graph.ops)
        if (op.kind == importer::OpKind::kLinear)
            if (const auto type =
                    activation_rounding(plan.graph.weight(op.weights[0]), plan.workload))
                types.insert(*type);
    std::vector<std::string> names;
    for (DType type : types)
        names.push_back(type == DType::kInt8
                            ? fmt::format("{} in groups of {}", type, kRoundingGroup)
                            : fmt::format("{}", type));
    return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, " and "));
}

std::string rate_text(double rate) {
    return rate >= 100 ? fmt::format("{:.0f}", rate) : fmt::format("{:.1f}", rate);
}

const std::string& name_of(const Plan& plan, DeviceId id) { return plan.machine.device(id).name; }

std::string model_text(const Plan& plan) {
    const importer::ModelConfig& c = plan.graph.config;
    const std::string size = bytes_text(weights_bytes(plan.graph, plan.workload));
    if (c.num_layers == 0 || c.hidden_size == 0)
        return fmt::format("{} operators{}, {} of weights", plan.graph.ops.size(),
                           c.num_layers == 0 ? "" : fmt::format(" in {} layers", c.num_layers),
                           size);
    return fmt::format("{} layers, hidden {}, {} heads ({} KV), MLP {}, vocabulary {}, {} {}",
                       c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads,
                       c.intermediate_size, c.vocab_size, size, weights_dtype(plan));
}

// What numbers are kept in on devices, and what crosses between them.
std::string types_text(const Plan& plan) {
    const Workload& w = plan.workload;
    // Weights of foreign operators are bytes.
    if (std::ranges::any_of(plan.graph.ops,
                            [](const importer::Op& op) { return foreign_op(op).has_value(); }))
        return "those of the graph's operators";
    std::string text = fmt::format("weights {}", weights_dtype(plan));
    if (importer::find_quantized_type(weights_dtype(plan))) text += " with scales";
    if (!plan.kv_slabs.empty())
        text += fmt::format(", KV cache {}{}", w.kv_dtype.value_or(DType::kF32),
                            has_kv_scales(w.kv_dtype.value_or(DType::kF32)) ? " with scales" : "");
    text += fmt::format(", activations {}", w.activation_dtype);
    return plan.machine.devices.size() > 1 ? text + ", also between devices" : text;
}

std::string percent_text(int64_t part, int64_t whole) {
    const double percent = 100 * static_cast<double>(part) / static_cast<double>(whole);
    return percent < 1 ? "under 1" : fmt::format("{:.0f}", percent);
}

// What the plan's own placement has room for before a device is full.
std::string room_line(const Plan& plan) {
    const Room room = room_of(plan);
    if (!room.has_kv()) return "";
    const Workload& w = plan.workload;
    const char* of = plan.num_replicas() == 1 ? ""
                     : plan.others.empty()    ? "in each replica "
                                              : "in a replica as the first ";
    if (!room.whole_contexts)
        return fmt::format("{}for {} tokens of KV cache in place of {}, then {} is full", of,
                           room.kv_tokens, room.kv_tokens_now, name_of(plan, room.kv_bound));
    const int64_t more = room.max_sequences - w.batch;
    std::string text =
        fmt::format("{}for {}{} of {} tokens", of,
                    more > 0 ? count_text(more, "more sequence") : "no more sequence",
                    more > 0 ? fmt::format(" ({} in all)", room.max_sequences) : "", w.context);
    if (room.sequences_bound.valid())
        text += fmt::format(", then {} is full", name_of(plan, room.sequences_bound));
    if (room.positions_end)
        return text + fmt::format("; for contexts of {}, where the model ends", room.positions);
    text += fmt::format("; for {} of {}",
                        w.batch == 1 ? "a context" : fmt::format("{} contexts", w.batch),
                        room.max_context);
    if (room.context_bound.valid())
        text += fmt::format(", then {} is full", name_of(plan, room.context_bound));
    return text;
}

// "12.3 ms"; of replicas of several makes from the least to the most: "12.3 ms to 22.1 ms".
std::string range_text(const Plan& plan, int64_t Serving::* time) {
    const auto [least, most] = range_of_makes(plan, time);
    return least == most ? time_text(least)
                         : fmt::format("{} to {}", time_text(least), time_text(most));
}

std::string speed_line(const Plan& plan) {
    const Prediction& p = plan.prediction;
    const double rate = tokens_per_second(plan);
    if (p.serving.users > 0)
        return fmt::format("{} tokens/s, {} a user, who has a token every {}", rate_text(rate),
                           rate_text(rate / static_cast<double>(served_users(plan))),
                           range_text(plan, &Serving::tpot_ns));
    const int64_t batch = plan.workload.batch;
    return fmt::format(
        "{} tokens/s: a decode pass, {}, takes {}", rate_text(rate),
        batch == 1 ? "one token" : fmt::format("a token of each of {} sequences", batch),
        time_text(p.decode_ns_per_token));
}

std::string first_token_text(const Plan& plan) {
    const Workload& w = plan.workload;
    const Serving& s = plan.prediction.serving;
    if (s.users > 0) return fmt::format("after {}", range_text(plan, &Serving::ttft_ns));
    return fmt::format("after {}, when {} of {} tokens {} read",
                       time_text(plan.prediction.prefill_ns),
                       w.batch == 1 ? "a prompt" : fmt::format("{} prompts", w.batch),
                       w.prompt_tokens, w.batch == 1 ? "is" : "are");
}

// "1.23 a million tokens: 8 devices cost 20 an hour"; empty without prices.
std::string cost_line(const Plan& plan) {
    const double hour = static_cast<double>(price_micros_per_hour(plan)) / 1e6;
    if (hour == 0) return "";
    const auto count = std::ssize(used_device_names(plan));
    return fmt::format("{:.3g} a million tokens: {} {} {:.4g} an hour",
                       cost_per_million_tokens(plan), count_text(count, "device"),
                       count == 1 ? "costs" : "cost", hour);
}

// "a; unused: b; c" as lines of their own.
void add_binding(const std::string& binding, Lines& lines) {
    constexpr std::string_view kUnused = "unused: ";
    size_t at = 0;
    while (at < binding.size()) {
        size_t end = std::min(binding.find("; ", at), binding.size());
        std::string part = binding.substr(at, end - at);
        if (part.starts_with(kUnused))
            lines.push_back({"unused", part.substr(kUnused.size())});
        else
            lines.push_back({at == 0 ? "limit" : "", part});
        at = end + 2;
    }
}

// How many devices share the layers that a pin names with its own.
std::string pin_text(const Plan& plan, const Pin& pin) {
    std::string text = fmt::format("{}={}", pin.what, pin.device);
    size_t most = 0;
    for (const Stage& stage : plan.stages)
        for (const DeviceId d : stage.devices)
            if (name_of(plan, d) == pin.device) most = std::max(most, stage.devices.size() - 1);
    if (most > 0)
        text += fmt::format(" (shared with {} of its stage; more pipeline stages keep them apart)",
                            count_text(static_cast<int64_t>(most), "other device"));
    return text;
}

std::string kv_text(const Plan& plan, const KvBound& bound) {
    const Workload& w = plan.workload;
    const int64_t tokens = kv_tokens(plan.kv_pool.num_blocks);
    const int64_t most = kv_tokens(bound.num_blocks);
    return fmt::format(
        "{} tokens, {} of {}; {}", tokens, count_text(whole_sequences(plan), "sequence"), w.context,
        most > tokens ? fmt::format("{} would bound it at {}", name_of(plan, bound.device), most)
                      : fmt::format("bound by {}", name_of(plan, bound.device)));
}

// What joins the nodes, where the plan or a shape beside it is on several.
void add_network(const Plan& plan, Lines& lines) {
    std::set<std::string> hosts;
    for (const Plan* make : makes_of(plan))
        for (int64_t replica = 0; replica < make->num_alike(); ++replica)
            for (const DeviceInfo& d : replica_machine(*make, replica).devices)
                hosts.insert(d.host);
    const Grounds grounds = grounds_of(plan);
    if (grounds.nodes > 1)
        lines.push_back({"network", network_text(grounds)});
    else if (hosts.size() > 1 && !plan.why.runners_up.empty())
        lines.push_back({"network", network_text(network_name(plan.machine), 1, 1)});
}

// Hosts that have more of a model than the catalogue's servers, whose cards' own links then join
// all of them.
void add_large_hosts(const Plan& plan, Lines& lines) {
    std::map<std::pair<std::string, std::string>, int> counts;  // by host and model
    for (const Plan* make : makes_of(plan))
        for (int64_t replica = 0; replica < make->num_alike(); ++replica)
            for (const DeviceInfo& d : replica_machine(*make, replica).devices)
                if (d.kind == DeviceKind::kSim) ++counts[{d.host, d.model}];
    std::vector<std::string> large;
    for (const auto& [where, count] : counts) {
        const CatalogueModel* model = find_model(where.second);
        if (!model || count <= model->per_node) continue;
        large.push_back(fmt::format("{} has {} {}, where a server of the catalogue has {}",
                                    where.first, count, where.second, model->per_node));
    }
    if (large.empty()) return;
    const std::string more =
        large.size() > 1 ? fmt::format(" ({} more, too)", large.size() - 1) : "";
    lines.push_back({"large host",
                     fmt::format("{}{}: the links within one join them all", large.front(), more)});
}

// How far figures over PCIe depend on what nobody said.
void add_pcie(const Plan& plan, Lines& lines) {
    const PassPair& shared = plan.prediction.one_pcie_link;
    if (shared.decode_ns == 0) return;
    lines.push_back(
        {"PCIe", fmt::format("each card's link is taken for its own; behind one link a node: "
                             "prefill {}, a decode pass {}",
                             time_text(shared.prefill_ns), time_text(shared.decode_ns))});
}

// Who is served at once, where, and what one batch alone takes.
void add_serving(const Plan& plan, Lines& lines) {
    const Prediction& p = plan.prediction;
    const Serving& s = p.serving;
    if (s.users == 0) return;
    const int64_t batch = plan.workload.batch;
    std::string text = count_text(served_users(plan), "user");
    if (plan.num_replicas() > 1) text += fmt::format(" on {} replicas", plan.num_replicas());
    if (s.groups > 1)
        text += fmt::format("{} in {} passes in flight of {} sequences",
                            plan.num_replicas() == 1 ? ""
                            : plan.others.empty()    ? ", each"
                                                     : ", the first",
                            s.groups, ceil_div(batch, s.groups));
    if (const std::optional<KvBound> bound = kv_bound(plan); bound && plan.options.most_users) {
        const int64_t held =
            kv_tokens(bound->num_blocks) / kv_tokens(1 + plan.workload.blocks_per_slot());
        const PlanOptions& o = plan.options;
        const bool at_limit = (o.max_tpot_ns > 0 && s.tpot_ns > o.max_tpot_ns / 10 * 9) ||
                              (o.max_ttft_ns > 0 && s.ttft_ns > o.max_ttft_ns / 10 * 9);
        const std::string room =
            held <= batch ? fmt::format("{} has KV for no more", name_of(plan, bound->device))
                          : fmt::format("{} has KV for {}{}", name_of(plan, bound->device), held,
                                        plan.num_replicas() > 1 ? " a replica" : "");
        const bool full = held <= batch + batch / 32;
        text += fmt::format("; {}{}",
                            full       ? ""
                            : at_limit ? "more would not keep the limits, "
                                       : "more would not be faster, ",
                            room);
    }
    lines.push_back({"serves", text});
    lines.push_back({"a batch", fmt::format("{} at once: prefill {}, then a decode pass {}",
                                            count_text(batch, "sequence"), time_text(p.prefill_ns),
                                            time_text(p.decode_ns_per_token))});
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, plan.copies.size()); ++i)
        lines.push_back({i == 0 ? "replicas" : "", names_text(plan.copies[i])});
    if (plan.copies.size() > kShown)
        lines.push_back({"", fmt::format("and {} more, the last on {}", plan.copies.size() - kShown,
                                         names_text(plan.copies.back()))});
    for (const Plan& other : plan.others) {
        const Serving& of_other = other.prediction.serving;
        lines.push_back(
            {"another make",
             fmt::format("{}{} on {}: {}, {} tokens/s, a token every {}, the first after {}",
                         other.copies.empty() ? "" : fmt::format("{} of ", other.num_alike()),
                         shape_text(other), folded_names(all_device_names(other)),
                         count_text(of_other.users, "user"), rate_text(tokens_per_second(other)),
                         time_text(of_other.tpot_ns), time_text(of_other.ttft_ns))});
    }
}

// Of text that lists many things, the first and the last.
std::string shortened(const std::string& text) {
    constexpr size_t kMost = 100, kBegin = 55, kEnd = 35;
    if (text.size() <= kMost) return text;
    const size_t begin = text.rfind(", ", kBegin), end = text.find(", ", text.size() - kEnd);
    if (begin == std::string::npos || end == std::string::npos) return text;
    return text.substr(0, begin) + ", ..." + text.substr(end);
}

}  // namespace

std::string shape_text(const Plan& plan) {
    std::vector<size_t> shards;  // of stages whose devices were in none before
    std::set<DeviceId> seen;
    for (const Stage& s : plan.stages) {
        bool returns = std::any_of(s.devices.begin(), s.devices.end(),
                                   [&](DeviceId d) { return seen.count(d) > 0; });
        if (!returns) shards.push_back(s.devices.size());
        seen.insert(s.devices.begin(), s.devices.end());
    }
    std::string virtual_stages = shards.size() < plan.stages.size()
                                     ? fmt::format(" in {} virtual stages", plan.stages.size())
                                     : "";
    const bool equal =
        std::all_of(shards.begin(), shards.end(), [&](size_t n) { return n == shards[0]; });
    if (equal)
        return fmt::format("tp {} x pp {}{}", shards.empty() ? 0 : shards[0], shards.size(),
                           virtual_stages);
    return "tp " + folded_counts(shards, " + ") +
           (virtual_stages.empty() ? fmt::format(" in {} stages", shards.size()) : virtual_stages);
}

std::string title_text(const Plan& plan) {
    std::string shape;
    for (const Plan* make : makes_of(plan)) {
        if (!shape.empty()) shape += " and ";
        if (make->num_alike() > 1) shape += fmt::format("{} replicas of ", make->num_alike());
        shape += shape_text(*make);
    }
    return fmt::format("{} on {}, {}", plan.graph.name,
                       count_text(std::ssize(all_device_names(plan)), "device"), shape);
}

std::vector<Line> answer_lines(const Plan& plan) {
    Lines lines;
    const Fullest most = fullest(plan);
    if (most.capacity > 0)
        lines.push_back(
            {"fits",
             fmt::format("yes: {} of {} ({} %) on the fullest {}, {}", bytes_text(most.needed),
                         bytes_text(most.capacity), percent_text(most.needed, most.capacity),
                         most.count == 1 ? "device" : "devices", most.devices)});
    if (plan.prediction.decode_ns_per_token > 0) {
        lines.push_back({"speed", speed_line(plan)});
        lines.push_back({"first token", first_token_text(plan)});
        add_pcie(plan, lines);
        if (const std::string cost = cost_line(plan); !cost.empty())
            lines.push_back({"cost", cost});
    }
    add_binding(plan.why.binding, lines);
    if (const std::string room = room_line(plan); !room.empty()) lines.push_back({"room", room});
    return lines;
}

std::vector<Line> request_lines(const Plan& plan) {
    const Workload& w = plan.workload;
    Lines lines{{"model", model_text(plan)}, {"types", types_text(plan)}};
    lines.push_back(
        {"workload", fmt::format("batch {}, prompt {}, context {}, prefill in chunks of {}; for {}",
                                 w.batch, w.prompt_tokens, w.context, w.prefill_chunk,
                                 row_of(plan.options.objective).name)});
    if (const std::optional<KvBound> bound = kv_bound(plan))
        lines.push_back({"KV pool", kv_text(plan, *bound)});
    std::vector<std::string> pins;
    for (const Pin& pin : plan.options.pins) pins.push_back(pin_text(plan, pin));
    if (!pins.empty()) lines.push_back({"pinned", fmt::format("{}", fmt::join(pins, ", "))});
    if (std::string heads = head_split(plan); !heads.empty()) lines.push_back({"heads", heads});
    add_network(plan, lines);
    add_large_hosts(plan, lines);
    add_serving(plan, lines);
    return lines;
}

namespace {

// What the objective's time is of.
std::string objective_text(const Plan& plan) {
    const Prediction& p = plan.prediction;
    const ObjectiveRow& row = row_of(plan.options.objective);
    if (row.serves) return std::string(row.figure);
    return fmt::format("a decode pass, and its part of {} of prefill that {} passes follow",
                       time_text(p.prefill_ns),
                       plan.workload.context - plan.workload.prompt_tokens);
}

}  // namespace

std::vector<Line> why_lines(const Plan& plan, Speller spell, size_t shapes, size_t cuts) {
    const Why& w = plan.why;
    const Prediction& p = plan.prediction;
    Lines lines;
    for (size_t i = 0; i < std::min(shapes, w.runners_up.size()); ++i) {
        const RunnerUp& r = w.runners_up[i];
        lines.push_back(
            {i ? "" : "instead",
             fmt::format("{}: {}{}", shortened(r.shape),
                         r.objective_ns > 0 ? time_text(r.objective_ns) + "; " : "", r.why_not)});
    }
    for (size_t i = 0; i < std::min(cuts, w.cuts.size()); ++i)
        lines.push_back({i ? "" : "cuts", w.cuts[i]});
    if (w.cuts.size() > cuts)
        lines.push_back({"", fmt::format("and {} more", w.cuts.size() - cuts)});
    if (p.lower_bound_ns > 0)
        lines.push_back(
            {"objective",
             fmt::format(
                 "{}{}: {}; {}", time_text(p.objective_ns),
                 row_of(plan.options.objective).serves ? "" : " a token", objective_text(plan),
                 gap(plan) > 1
                     ? fmt::format("no plan can take less than {}, a bound far off: {}",
                                   time_text(p.lower_bound_ns),
                                   row_of(plan.options.objective).bound)
                     : fmt::format("no plan can take less than {}, this one is within {:.1f} %",
                                   time_text(p.lower_bound_ns), 100 * gap(plan)))});
    const std::vector<std::string> basis = basis_lines(plan, spell);
    for (size_t i = 0; i < basis.size(); ++i) lines.push_back({i == 0 ? "rests on" : "", basis[i]});
    return lines;
}

std::vector<Line> machinery_lines(const Plan& plan) {
    Lines lines;
    if (plan.workload.compute == ComputeMode::kFast)
        lines.push_back({"compute", fmt::format("fast: products round their activations, to {}",
                                                rounded_types(plan))});
    if (decodes_by_widths(plan))
        lines.push_back({"decode", fmt::format("on GPUs by kernels for {} sequences",
                                               fmt::join(decode_widths(plan.workload), ", "))});
    if (tokens_buffer(plan).valid())
        lines.push_back(
            {"tokens", fmt::format("greedy ones are chosen on {}: 4 bytes of each go to "
                                   "the host, not its logits",
                                   name_of(plan, plan.output_device))});
    if (!plan.why.metis.empty()) lines.push_back({"metis", plan.why.metis});
    return lines;
}

}  // namespace cleave::planner
