// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/diff.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/ranges.h>

#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"

namespace cleave::planner {
namespace {

class Asked {
public:
    Asked(const Plan& a, const Plan& b) : a_(a), b_(b) {}

    std::vector<Difference> run() {
        workload();
        options();
        devices();
        links();
        return std::move(found_);
    }

private:
    void add(const std::string& what, const std::string& a, const std::string& b) {
        if (a != b) found_.push_back({what, a, b});
    }
    void add(const std::string& what, int64_t a, int64_t b) {
        add(what, std::to_string(a), std::to_string(b));
    }

    void workload() {
        const Workload &a = a_.workload, &b = b_.workload;
        add("batch", a.batch, b.batch);
        add("prompt", a.prompt_tokens, b.prompt_tokens);
        add("context", a.context, b.context);
        add("prefill chunk", a.prefill_chunk, b.prefill_chunk);
        add("dtype", std::string(dtype_name(weights_dtype(a_))),
            std::string(dtype_name(weights_dtype(b_))));
        add("KV dtype", std::string(dtype_name(a.kv_dtype.value_or(DType::kF32))),
            std::string(dtype_name(b.kv_dtype.value_or(DType::kF32))));
        add("activation dtype", std::string(dtype_name(a.activation_dtype)),
            std::string(dtype_name(b.activation_dtype)));
        const auto pool = [](const Workload& w) {
            return w.kv_tokens == Workload::kAllThatIsLeft ? std::string("all that is left")
                   : w.kv_tokens == 0                      ? std::string("batch x context")
                                                           : std::to_string(w.kv_tokens);
        };
        add("KV tokens", pool(a), pool(b));
        add("compute", std::string(compute_mode_name(a.compute.value_or(ComputeMode::kExact))),
            std::string(compute_mode_name(b.compute.value_or(ComputeMode::kExact))));
        add("users", served_users(a_), served_users(b_));
    }

    void options() {
        const PlanOptions &a = a_.options, &b = b_.options;
        const auto forced = [](int number) {
            return number > 0 ? std::to_string(number) : std::string("free");
        };
        add("objective", std::string(row_of(a.objective).name),
            std::string(row_of(b.objective).name));
        add("tp", forced(a.tensor_parallel), forced(b.tensor_parallel));
        add("pp", forced(a.pipeline_stages), forced(b.pipeline_stages));
        add("replicas", forced(a.replicas), forced(b.replicas));
        add("whole layers", std::string(a.whole_layers ? "yes" : "no"),
            std::string(b.whole_layers ? "yes" : "no"));
        const auto pins = [](const PlanOptions& o) {
            std::string text;
            for (const Pin& p : o.pins)
                text += fmt::format("{}{}={}", text.empty() ? "" : ", ", p.what, p.device);
            return text.empty() ? std::string("none") : text;
        };
        add("pins", pins(a), pins(b));
    }

    static std::map<std::string, const DeviceInfo*> by_name(const Plan& plan) {
        std::map<std::string, const DeviceInfo*> devices;
        for (int64_t r = 0; r < plan.num_replicas(); ++r)
            for (const DeviceInfo& d : replica_machine(plan, r).devices) devices[d.name] = &d;
        return devices;
    }

    void devices() {
        const auto a = by_name(a_), b = by_name(b_);
        const auto facts = [](const DeviceInfo& d) {
            return fmt::format("{} of memory, {}/s", bytes_text(d.memory_bytes),
                               bytes_text(d.memory_bandwidth));
        };
        add("devices", folded_names(all_device_names(a_)), folded_names(all_device_names(b_)));
        for (const std::string& name : all_device_names(a_))
            if (b.contains(name)) add(name, facts(*a.at(name)), facts(*b.at(name)));
    }

    // Rates of each kind, where the plans' machines have it.
    static std::map<std::string, std::set<int64_t>> rates(const Machine& machine) {
        std::map<std::string, std::set<int64_t>> rates;
        for (const Link& l : machine.links)
            rates[std::string(link_kind_name(l.kind))].insert(l.bandwidth);
        return rates;
    }
    void links() {
        const auto a = rates(a_.machine), b = rates(b_.machine);
        const auto text = [](const std::set<int64_t>& rates) {
            std::vector<std::string> texts;
            for (int64_t rate : rates) texts.push_back(bytes_text(rate) + "/s");
            return fmt::format("{}", fmt::join(texts, ", "));
        };
        for (const auto& [kind, of_a] : a)
            if (const auto of_b = b.find(kind); of_b != b.end())
                add("links " + kind, text(of_a), text(of_b->second));
    }

    const Plan &a_, &b_;
    std::vector<Difference> found_;
};

// The devices of each operator, by its name.
std::map<std::string, std::string> homes(const Plan& plan) {
    std::map<std::string, std::string> homes;
    for (const Stage& stage : plan.stages) {
        const std::string devices = folded_names(plan.machine, stage.devices);
        for (size_t i = stage.first_op.index(); i <= stage.last_op.index(); ++i)
            homes[plan.graph.ops[i].name] = devices;
    }
    return homes;
}

const std::string& home_of(const std::map<std::string, std::string>& homes, const std::string& op) {
    static const std::string kNone = "-";
    const auto at = homes.find(op);
    return at == homes.end() ? kNone : at->second;
}

struct LayerHome {
    std::string first, last;  // devices of its first and of its last operator
    bool operator==(const LayerHome&) const = default;
};

std::map<int, LayerHome> layer_homes(const Plan& plan,
                                     const std::map<std::string, std::string>& homes) {
    std::map<int, LayerHome> layers;
    for (const importer::Op& op : plan.graph.ops) {
        if (op.layer < 0 || op.layer >= plan.graph.config.num_layers) continue;
        auto [at, fresh] = layers.try_emplace(op.layer);
        if (fresh) at->second.first = home_of(homes, op.name);
        at->second.last = home_of(homes, op.name);
    }
    return layers;
}

std::string home_text(const LayerHome& home) {
    return home.first == home.last ? home.first
                                   : fmt::format("{}, the rest {}", home.first, home.last);
}

std::vector<Moved> moved_of(const Plan& a, const Plan& b) {
    const auto homes_a = homes(a), homes_b = homes(b);
    const auto layers_a = layer_homes(a, homes_a), layers_b = layer_homes(b, homes_b);
    std::vector<Moved> moved;
    const auto whole_ops = [&](bool behind) {
        for (const importer::Op& op : a.graph.ops) {
            const bool inside = op.layer >= 0 && op.layer < a.graph.config.num_layers;
            if (inside || (op.layer >= 0) != behind || op.weights.empty()) continue;
            const std::string &from = home_of(homes_a, op.name), &to = home_of(homes_b, op.name);
            if (to != from) moved.push_back({op.name, from, to});
        }
    };
    whole_ops(false);
    for (auto at = layers_a.begin(); at != layers_a.end();) {
        const auto other = layers_b.find(at->first);
        if (other == layers_b.end() || other->second == at->second) {
            ++at;
            continue;
        }
        const int first = at->first;
        int last = first;
        auto next = std::next(at);
        for (; next != layers_a.end() && next->second == at->second; ++next, ++last) {
            const auto same = layers_b.find(next->first);
            if (same == layers_b.end() || !(same->second == other->second)) break;
        }
        moved.push_back({first == last ? fmt::format("layer {}", first)
                                       : fmt::format("layers {}-{}", first, last),
                         home_text(at->second), home_text(other->second)});
        at = next;
    }
    whole_ops(true);
    return moved;
}

// By device, of all layers alike: the heads of the first that it has.
std::map<std::string, std::string> heads_of(const Plan& plan) {
    std::map<std::string, std::string> heads;
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute(); c && c->kernel == KernelKind::kAttention)
            heads.try_emplace(plan.machine.device(c->device).name,
                              fmt::format("{}-{}", c->heads.begin, c->heads.end - 1));
    return heads;
}

std::vector<DeviceChange> device_changes(const Plan& a, const Plan& b) {
    std::vector<DeviceChange> changes;
    const auto take = [&](const Plan& plan, DeviceShare DeviceChange::* side) {
        const auto heads = heads_of(plan);
        for (const DeviceMemory& m : plan.memory) {
            const std::string& name = plan.machine.device(m.device).name;
            auto at = std::ranges::find(changes, name, &DeviceChange::device);
            if (at == changes.end()) at = changes.insert(at, DeviceChange{name, {}, {}});
            const auto of_device = heads.find(name);
            (*at).*side = {of_device == heads.end() ? "" : of_device->second,
                           m.weights,
                           m.kv,
                           m.needed(),
                           m.capacity,
                           plan.prediction.decode_busy_ns[m.device.index()]};
        }
    };
    take(a, &DeviceChange::a);
    take(b, &DeviceChange::b);
    std::erase_if(changes, [](const DeviceChange& c) { return c.a == c.b; });
    return changes;
}

std::string answer_of(const PlanDiff& d, const std::string& a, const std::string& b) {
    if (!d.same_model)
        return fmt::format(
            "They are of different models: {} is of {}, {} of {}; only times and memory compare: "
            "{} and {}.",
            a, d.model_a, b, d.model_b, speed_text(d.a), speed_text(d.b));
    if (d.same()) return fmt::format("{} and {} are the same plan.", a, b);
    std::string text =
        fmt::format("{} is {} ({}), {} is {} ({}): {}.", a, d.a.shape, speed_text(d.a), b,
                    d.b.shape, speed_text(d.b), slower_text(d.slower));
    if (const std::string causes = causes_text(d.a, d.b); !causes.empty())
        text += fmt::format(" Of a decode pass: {}.", causes);
    if (!d.asked.empty()) {
        std::vector<std::string> asked;
        for (const Difference& one : d.asked)
            asked.push_back(fmt::format("{} {} -> {}", one.what, one.a, one.b));
        if (asked.size() > 4) {
            const size_t more = asked.size() - 4;
            asked.resize(4);
            asked.push_back(fmt::format("{} more", more));
        }
        text += fmt::format(" Asked differently: {}.", fmt::join(asked, ", "));
    }
    return text;
}

}  // namespace

PlanDiff diff(const Plan& a, const Plan& b, const std::string& name_a, const std::string& name_b) {
    PlanDiff d;
    d.model_a = a.graph.name;
    d.model_b = b.graph.name;
    // Weights quantised as shards are cut make another graph of the same model.
    const auto sizes = [](const Graph& g) {
        const importer::ModelConfig& c = g.config;
        return std::tuple(g.ops.size(), c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads,
                          c.intermediate_size, c.vocab_size);
    };
    d.same_model = a.graph_digest == b.graph_digest ||
                   (a.graph.name == b.graph.name && sizes(a.graph) == sizes(b.graph));
    d.a = figures_of(a);
    d.b = figures_of(b);
    d.prefill_a = time_parts(a, true);
    d.prefill_b = time_parts(b, true);
    d.slower = slower_by(d.a, d.b);
    d.asked = Asked(a, b).run();
    if (d.same_model) d.moved = moved_of(a, b);
    d.devices = device_changes(a, b);
    d.answer = answer_of(d, name_a, name_b);
    return d;
}

}  // namespace cleave::planner
