// SPDX-License-Identifier: Apache-2.0
#include "planner/view/plan_text.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "planner/analysis/storage.h"
#include "planner/build/communicator_memory.h"
#include "planner/machine/fabric.h"
#include "planner/plan/kv_room.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/text_steps.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {
namespace {

std::string range(int64_t first, int64_t last) {
    if (last < first) return "-";
    return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

std::string names_text(const Machine& machine) {
    const std::string& first = machine.devices.front().name;
    return machine.devices.size() == 1
               ? first
               : fmt::format("{} .. {} ({})", first, machine.devices.back().name,
                             machine.devices.size());
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

class Summary {
public:
    Summary(const Plan& plan, const TextOptions& options) : plan_(plan), options_(options) {}

    std::string run() {
        title();
        devices();
        section(fmt::format("Decode: one token of every sequence, {} tokens behind it",
                            plan_.workload.decode_past()));
        out_ += steps_text(plan_, false, options_.all_steps, options_.width);
        if (options_.all_steps) {
            section(
                fmt::format("Prefill: {} tokens in one pass", pass_point(plan_, true).num_tokens));
            out_ += steps_text(plan_, true, true, options_.width);
        }
        links();
        why();
        return out_;
    }

private:
    void section(const std::string& name) {
        out_ += "\n" + (options_.color ? "\x1b[1m" + name + "\x1b[0m" : name) + "\n";
    }
    void entry(const std::string& label, const std::string& text) {
        out_ += fmt::format("  {:<10}{}\n", label, wrapped(text, 12, options_.width));
    }
    const std::string& name(DeviceId id) const { return plan_.machine.device(id).name; }

    std::string shape() const;
    std::string stage_layers(size_t stage) const;
    std::string model() const;
    void title();
    void network();
    void serving();
    void devices();
    std::vector<std::string> device_row(const DeviceMemory& m) const;
    std::string heads(DeviceId device) const;
    void links();
    void why();

    const Plan& plan_;
    const TextOptions& options_;
    std::string out_;
};

// "2 stages x 2 shards (tp 2 x pp 2)", or the shards of each stage where they differ.
std::string Summary::shape() const {
    std::vector<size_t> shards;  // of stages whose devices were in none before
    std::set<DeviceId> seen;
    for (const Stage& s : plan_.stages) {
        bool returns = std::any_of(s.devices.begin(), s.devices.end(),
                                   [&](DeviceId d) { return seen.count(d) > 0; });
        if (!returns) shards.push_back(s.devices.size());
        seen.insert(s.devices.begin(), s.devices.end());
    }
    std::string virtual_stages = shards.size() < plan_.stages.size()
                                     ? fmt::format(" in {} virtual stages", plan_.stages.size())
                                     : "";
    const bool equal =
        std::all_of(shards.begin(), shards.end(), [&](size_t n) { return n == shards[0]; });
    if (equal)
        return fmt::format("tp {} x pp {}{}", shards.empty() ? 0 : shards[0], shards.size(),
                           virtual_stages);
    std::string text;
    for (size_t n : shards) text += fmt::format("{}{}", text.empty() ? "tp " : " + ", n);
    return text +
           (virtual_stages.empty() ? fmt::format(" in {} stages", shards.size()) : virtual_stages);
}

// "0-15", or, of layers that it shares with its neighbours, "part of 16 + 17-31".
std::string Summary::stage_layers(size_t stage) const {
    const auto& stages = plan_.stages;
    int first = stages[stage].first_layer, last = stages[stage].last_layer;
    if (last < first) return "-";
    const auto has = [&](size_t s, int layer) {
        return stages[s].first_layer <= layer && layer <= stages[s].last_layer;
    };
    std::vector<std::string> parts;
    if (stage > 0 && has(stage - 1, first)) parts.push_back(fmt::format("part of {}", first++));
    const bool shared = first <= last && stage + 1 < stages.size() && has(stage + 1, last);
    if (shared) --last;
    if (first <= last) parts.push_back(range(first, last));
    if (shared) parts.push_back(fmt::format("part of {}", last + 1));
    return fmt::format("{}", fmt::join(parts, " + "));
}

std::string Summary::model() const {
    const importer::ModelConfig& c = plan_.graph.config;
    const DType dtype = weights_dtype(plan_);
    int64_t bytes = 0;
    for (const importer::Weight& w : plan_.graph.weights)
        bytes += dtype_bytes(dtype, w.num_elements());
    if (c.num_layers == 0)
        return fmt::format("{} operators, {} of weights", plan_.graph.ops.size(),
                           bytes_text(bytes));
    return fmt::format("{} layers, hidden {}, {} heads ({} KV), MLP {}, vocabulary {}, {} {}",
                       c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads,
                       c.intermediate_size, c.vocab_size, bytes_text(bytes), dtype);
}

void Summary::title() {
    const Workload& w = plan_.workload;
    const Prediction& p = plan_.prediction;
    std::string title = fmt::format(
        "{} on {}, {}", plan_.graph.name,
        count_text(plan_.num_replicas() * static_cast<int64_t>(plan_.machine.devices.size()),
                   "device"),
        plan_.copies.empty() ? shape()
                             : fmt::format("{} replicas of {}", plan_.num_replicas(), shape()));
    out_ += options_.color ? "\x1b[1m" + title + "\x1b[0m\n" : title + "\n";
    entry("model", model());
    entry("workload",
          fmt::format("batch {}, prompt {}, context {}, prefill in chunks of {}; for {}", w.batch,
                      w.prompt_tokens, w.context, w.prefill_chunk,
                      row_of(plan_.options.objective).name));
    if (const std::optional<KvBound> bound = kv_bound(plan_)) {
        const int64_t tokens = kv_tokens(plan_.kv_pool.num_blocks);
        const int64_t most = kv_tokens(bound->num_blocks);
        entry("KV pool",
              fmt::format("{} tokens{}, {} of {}; {}", tokens,
                          has_kv_scales(w.kv_dtype.value_or(DType::kF32))
                              ? fmt::format(" in {} with scales", *w.kv_dtype)
                              : "",
                          count_text(whole_sequences(plan_), "sequence"), w.context,
                          most > tokens
                              ? fmt::format("{} would bound it at {}", name(bound->device), most)
                              : fmt::format("bound by {}", name(bound->device))));
    }
    if (w.compute == ComputeMode::kFast)
        entry("compute",
              fmt::format("fast: products round their activations, to {}", rounded_types(plan_)));
    if (decodes_by_widths(plan_))
        entry("decode", fmt::format("on GPUs by kernels for {} sequences",
                                    fmt::join(decode_widths(plan_.workload), ", ")));
    std::string pins;
    for (const Pin& pin : plan_.options.pins)
        pins += fmt::format("{}{}={}", pins.empty() ? "" : ", ", pin.what, pin.device);
    if (!pins.empty()) entry("pinned", pins);
    if (std::string heads = head_split(plan_); !heads.empty()) entry("heads", heads);
    entry("predicted",
          p.serving.users > 0
              ? fmt::format(
                    "{} tokens/s, {} a user; first token after {}, then one in {}",
                    rate_text(tokens_per_second(plan_)),
                    rate_text(tokens_per_second(plan_) / static_cast<double>(p.serving.users)),
                    time_text(p.serving.ttft_ns), time_text(p.serving.tpot_ns))
              : fmt::format("prefill {}, decode {} a token, {} tokens/s", time_text(p.prefill_ns),
                            time_text(p.decode_ns_per_token), rate_text(tokens_per_second(plan_))));
    const std::vector<std::string> basis = basis_lines(plan_, options_.spell);
    for (size_t i = 0; i < basis.size(); ++i) entry(i == 0 ? "rests on" : "", basis[i]);
    network();
    serving();
    if (tokens_buffer(plan_).valid())
        entry("tokens", fmt::format("greedy ones are chosen on {}: 4 bytes of each go to the host, "
                                    "not its logits",
                                    name(plan_.output_device)));
    if (p.lower_bound_ns > 0)
        entry("objective",
              fmt::format(
                  "{} a token: {}; no plan can take less than {}, this one is within {:.1f} %",
                  time_text(p.objective_ns), row_of(plan_.options.objective).figure,
                  time_text(p.lower_bound_ns), 100 * gap(plan_)));
}

// What figures across nodes rest on.
void Summary::network() {
    const Fabric* fabric = find_fabric(plan_.machine.fabric);
    const int64_t nodes = nodes_used(plan_);
    if (!fabric || nodes < 2) return;
    entry("network", fmt::format("{} ({}{}) joins {} nodes: times over it are modelled, not run",
                                 fabric->name, fabric->words,
                                 fabric->through_host ? ", through the hosts' memory" : "", nodes));
}

// Who is served at once, where, and what one batch alone takes.
void Summary::serving() {
    const Prediction& p = plan_.prediction;
    const Serving& s = p.serving;
    if (s.users == 0) return;
    const int64_t batch = plan_.workload.batch;
    std::string text = count_text(s.users, "user");
    if (!plan_.copies.empty()) text += fmt::format(" on {} replicas", plan_.num_replicas());
    if (s.groups > 1)
        text +=
            fmt::format("{} in {} passes in flight of {} sequences",
                        plan_.copies.empty() ? "" : ", each", s.groups, ceil_div(batch, s.groups));
    if (const std::optional<KvBound> bound = kv_bound(plan_); bound && plan_.options.most_users) {
        const int64_t held =
            kv_tokens(bound->num_blocks) / kv_tokens(1 + plan_.workload.blocks_per_slot());
        const PlanOptions& o = plan_.options;
        const bool at_limit = (o.max_tpot_ns > 0 && s.tpot_ns > o.max_tpot_ns / 10 * 9) ||
                              (o.max_ttft_ns > 0 && s.ttft_ns > o.max_ttft_ns / 10 * 9);
        text += held <= batch + batch / 32
                    ? fmt::format("; {} has KV for no more", name(bound->device))
                    : fmt::format("; more would {}, {} has KV for {} a replica",
                                  at_limit ? "not keep the limits" : "not be faster",
                                  name(bound->device), held);
    }
    entry("serves", text);
    entry("a batch",
          fmt::format("{} at once: prefill {}, decode {} a token", count_text(batch, "sequence"),
                      time_text(p.prefill_ns), time_text(p.decode_ns_per_token)));
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, plan_.copies.size()); ++i)
        entry(i == 0 ? "replicas" : "", names_text(plan_.copies[i]));
    if (plan_.copies.size() > kShown)
        entry("", fmt::format("and {} more, the last on {}", plan_.copies.size() - kShown,
                              names_text(plan_.copies.back())));
}

// The query heads whose attention runs there, of the first layer that has it.
std::string Summary::heads(DeviceId device) const {
    for (const Step& s : plan_.decode.steps)
        if (const Compute* c = s.compute();
            c && c->device == device && c->kernel == KernelKind::kAttention)
            return range(c->heads.begin, c->heads.end - 1);
    return "-";
}

std::vector<std::string> Summary::device_row(const DeviceMemory& m) const {
    std::string stages, layers;
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
        const Stage& s = plan_.stages[i];
        if (std::find(s.devices.begin(), s.devices.end(), m.device) == s.devices.end()) continue;
        stages += (stages.empty() ? "" : ",") + std::to_string(i);
        layers += (layers.empty() ? "" : ",") + stage_layers(i);
    }
    const auto& busy = plan_.prediction.decode_busy_ns;
    const double whole = static_cast<double>(plan_.prediction.decode_ns_per_token);
    std::string time, share;
    if (m.device.index() < busy.size() && whole > 0) {
        time = time_text(busy[m.device.index()]);
        share = fmt::format("{:.0f} %", 100 * static_cast<double>(busy[m.device.index()]) / whole);
    }
    return {name(m.device),
            stages.empty() ? "-" : stages,
            layers.empty() ? "-" : layers,
            heads(m.device),
            bytes_text(m.weights),
            bytes_text(m.kv),
            bytes_text(m.activations + m.staging + m.scratch + m.collectives),
            bytes_text(m.free()),
            time,
            share};
}

void Summary::devices() {
    section("Devices");
    TextTable table("<>>>>>>>>>", "  ");
    table.row(
        {"", "stage", "layers", "heads", "weights", "KV", "working", "free", "a token", "busy"});
    // Of many devices, those in a row that differ in name and heads alone are one line.
    constexpr size_t kMany = 16;
    for (size_t i = 0; i < plan_.memory.size(); ++i) {
        std::vector<std::string> row = device_row(plan_.memory[i]);
        size_t last = i;
        while (plan_.memory.size() > kMany && last + 1 < plan_.memory.size()) {
            std::vector<std::string> next = device_row(plan_.memory[last + 1]);
            if (next[1] != row[1] || next[4] != row[4] || next[5] != row[5]) break;
            ++last;
        }
        if (last > i) {
            row[0] =
                fmt::format("{} .. {} ({})", row[0], name(plan_.memory[last].device), last - i + 1);
            std::string end = heads(plan_.memory[last].device);
            row[3] = row[3].substr(0, row[3].find('-')) + "-" + end.substr(end.find('-') + 1);
            i = last;
        }
        table.row(row);
    }
    std::map<std::pair<std::string, int64_t>, std::string> libraries;
    for (const DeviceMemory& m : plan_.memory) {
        if (m.collectives == 0) continue;
        std::string& devices =
            libraries[{library_name(plan_.machine.device(m.device)), m.collectives}];
        devices += (devices.empty() ? "" : ", ") + name(m.device);
    }
    for (const auto& [library, devices] : libraries)
        table.line(fmt::format("of it {}'s own: {} of {}", library.first,
                               bytes_text(library.second), devices));
    out_ += table.text(options_.width);
}

void Summary::links() {
    LinkTraffic traffic = link_traffic(plan_, false);
    const int64_t batch = plan_.workload.batch;
    int64_t total = 0, transfers = 0, collectives = 0;
    for (auto& [pair, bytes] : traffic) total += bytes;
    for (const Step& s : plan_.decode.steps) {
        transfers += s.transfer() != nullptr;
        collectives += s.collective() != nullptr;
    }
    if (traffic.empty()) return;
    section(fmt::format("Links: a token moves {} between devices, in {} and {}",
                        bytes_text(total / batch), count_text(transfers, "transfer"),
                        count_text(collectives, "collective")));
    std::vector<std::pair<int64_t, std::pair<DeviceId, DeviceId>>> used;
    for (auto& [pair, bytes] : traffic) used.push_back({-bytes, pair});
    std::sort(used.begin(), used.end());
    constexpr size_t kShown = 6;
    TextTable table("<>>><", "  ");
    for (size_t i = 0; i < std::min(kShown, used.size()); ++i) {
        auto [from, to] = used[i].second;
        const Link* link = plan_.machine.link(from, to);
        table.row({fmt::format("{} -> {}", name(from), name(to)),
                   fmt::format("{} a token", bytes_text(-used[i].first / batch)),
                   link ? bytes_text(link->bandwidth) + "/s" : "",
                   link ? time_text(link->latency_ns) : "",
                   link ? std::string(link_kind_name(link->kind)) : "staged by the hosts"});
    }
    if (used.size() > kShown)
        table.line(fmt::format("and {} more, none busier", used.size() - kShown));
    out_ += table.text(options_.width);
}

void Summary::why() {
    const Why& w = plan_.why;
    if (w.binding.empty() && w.cuts.empty() && w.runners_up.empty() && w.metis.empty()) return;
    section("Why");
    if (!w.binding.empty()) entry("limit", w.binding);
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, w.cuts.size()); ++i) entry(i ? "" : "cuts", w.cuts[i]);
    if (w.cuts.size() > kShown) entry("", fmt::format("and {} more", w.cuts.size() - kShown));
    for (size_t i = 0; i < std::min(kShown, w.runners_up.size()); ++i) {
        const RunnerUp& r = w.runners_up[i];
        entry(i ? "" : "instead",
              fmt::format("{}: {}{}", r.shape,
                          r.objective_ns > 0 ? time_text(r.objective_ns) + "; " : "", r.why_not));
    }
    if (!w.metis.empty()) entry("metis", w.metis);
}

}  // namespace

std::string plan_to_text(const Plan& plan, const TextOptions& options) {
    return Summary(plan, options).run();
}

}  // namespace cleave::planner
