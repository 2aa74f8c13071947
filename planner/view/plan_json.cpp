// SPDX-License-Identifier: Apache-2.0
// The JSON that `cleave plan --json` prints; its schema is tools/schema/plan.schema.json.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "planner/machine/fabric.h"
#include "planner/plan/kv_room.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/planner.h"
#include "planner/view/json_steps.h"
#include "planner/view/plan_text.h"

namespace cleave::planner {
namespace {

using Json = nlohmann::ordered_json;

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

class Writer {
public:
    Writer(const Plan& plan, Speller spell) : plan_(plan), spell_(spell) {}

    Json run() {
        Json json;
        json["model"] = plan_.graph.name;
        json["objective"] = row_of(plan_.options.objective).name;
        json["workload"] = workload();
        json["kv_pool"] = kv_pool();
        json["devices"] = devices();
        json["stages"] = stages();
        json["links"] = links();
        json["steps"] = nullptr;  // plan_to_json puts them here
        json["predicted"] = {{"prefill_ms", ms(plan_.prediction.prefill_ns)},
                             {"decode_ms_per_token", ms(plan_.prediction.decode_ns_per_token)},
                             {"tokens_per_second", tokens_per_second(plan_)}};
        if (served_users(plan_) > 0) json["predicted"].update(serving());
        if (const int64_t micros = price_micros_per_hour(plan_); micros > 0) {
            json["predicted"]["price_per_hour"] = static_cast<double>(micros) / 1e6;
            json["predicted"]["cost_per_million_tokens"] = cost_per_million_tokens(plan_);
        }
        if (const PassPair& shared = plan_.prediction.one_pcie_link; shared.decode_ns > 0)
            json["predicted"]["behind_one_pcie_link"] = {
                {"prefill_ms", ms(shared.prefill_ns)},
                {"decode_ms_per_token", ms(shared.decode_ns)}};
        json["predicted"]["basis"] = Json::parse(basis_json(plan_, spell_));
        if (plan_.num_replicas() > 1) json["replicas"] = replicas();
        for (const Plan& other : plan_.others) {
            json["others"].push_back(Writer(other, spell_).run());
            json["others"].back().erase("steps");
        }
        if (const Fabric* fabric = find_fabric(plan_.machine.fabric);
            fabric && nodes_used(plan_) > 1)
            json["network"] = {{"fabric", fabric->name},
                               {"nodes", nodes_used(plan_)},
                               {"through_host", fabric->through_host},
                               {"run", false}};
        // What plans are scored by, and the least that any plan can score.
        json["objective_ms"] = ms(plan_.prediction.objective_ns);
        json["lower_bound_ms"] = ms(plan_.prediction.lower_bound_ns);
        json["gap"] = gap(plan_);
        json["pins"] = Json::array();
        for (const Pin& pin : plan_.options.pins)
            json["pins"].push_back({{"what", pin.what}, {"device", pin.device}});
        json["why"] = why();
        return json;
    }

private:
    const std::string& name(DeviceId id) const { return plan_.machine.device(id).name; }

    template <class Ids>
    Json names(const Ids& ids) const {
        Json list = Json::array();
        for (DeviceId id : ids) list.push_back(name(id));
        return list;
    }

    Json workload() const {
        const Workload& w = plan_.workload;
        Json json{{"batch", w.batch},
                  {"prompt_tokens", w.prompt_tokens},
                  {"context", w.context},
                  {"prefill_chunk", w.prefill_chunk},
                  {"all_logits", w.all_logits}};
        if (w.kv_tokens == Workload::kAllThatIsLeft)
            json["kv_tokens"] = "auto";
        else
            json["kv_tokens"] = w.kv_tokens;
        json["dtype"] = dtype_name(w.dtype.value_or(weights_dtype(plan_)));
        json["kv_dtype"] = dtype_name(w.kv_dtype.value_or(DType::kF32));
        json["activation_dtype"] = dtype_name(w.activation_dtype);
        json["compute"] = compute_mode_name(w.compute.value_or(ComputeMode::kExact));
        if (decodes_by_widths(plan_)) json["decode_widths"] = decode_widths(w);
        return json;
    }

    Json serving() const {
        const Serving& s = plan_.prediction.serving;
        const auto users = static_cast<double>(served_users(plan_));
        Json json{{"tokens_per_second_per_user", tokens_per_second(plan_) / users},
                  {"replicas", plan_.num_replicas()},
                  {"groups_in_flight", s.groups},
                  {"concurrency", served_users(plan_)},
                  {"ttft_ms", ms(range_of_makes(plan_, &Serving::ttft_ns).second)},
                  {"tpot_ms", ms(range_of_makes(plan_, &Serving::tpot_ns).second)}};
        if (const std::optional<KvBound> bound = kv_bound(plan_)) {
            int64_t tokens = 0;
            for (const Plan* make : makes_of(plan_))
                tokens += make->num_alike() * kv_tokens(make->kv_pool.num_blocks);
            json["kv_tokens"] = tokens;
            json["kv_bound_device"] = name(bound->device);
        }
        return json;
    }

    // The devices of each replica; of those alike in the order of the first one's.
    Json replicas() const {
        Json list = Json::array();
        for (int64_t r = 0; r < plan_.num_replicas(); ++r)
            list.push_back(device_names(replica_machine(plan_, r)));
        return list;
    }
    static Json device_names(const Machine& machine) {
        Json list = Json::array();
        for (const DeviceInfo& d : machine.devices) list.push_back(d.name);
        return list;
    }

    // What the plan serves; null without a KV cache.
    Json kv_pool() const {
        const std::optional<KvBound> bound = kv_bound(plan_);
        if (!bound) return nullptr;
        return {{"tokens", kv_tokens(plan_.kv_pool.num_blocks)},
                {"block_tokens", kKvBlock},
                {"num_blocks", plan_.kv_pool.num_blocks},
                {"sequences", whole_sequences(plan_)},
                {"bound_by", name(bound->device)},
                {"bound_tokens", kv_tokens(bound->num_blocks)}};
    }

    Json devices() const {
        Json list = Json::array();
        for (const DeviceMemory& m : plan_.memory) {
            const DeviceInfo& d = plan_.machine.device(m.device);
            Json stages = Json::array();
            for (size_t i = 0; i < plan_.stages.size(); ++i) {
                const auto& members = plan_.stages[i].devices;
                if (std::find(members.begin(), members.end(), m.device) != members.end())
                    stages.push_back(i);
            }
            list.push_back({{"name", d.name},
                            {"kind", device_kind_name(d.kind)},
                            {"arch", d.arch},
                            {"host", d.host},
                            {"memory_bytes", m.capacity},
                            {"stages", stages},
                            {"weights_bytes", m.weights},
                            {"kv_bytes", m.kv},
                            {"activation_bytes", m.activations},
                            {"staging_bytes", m.staging},
                            {"scratch_bytes", m.scratch},
                            {"reserved_bytes", m.reserved},
                            {"free_bytes", m.free()}});
            if (m.collectives > 0) list.back()["collectives_bytes"] = m.collectives;
        }
        return list;
    }

    Json stages() const {
        Json list = Json::array();
        for (size_t i = 0; i < plan_.stages.size(); ++i) {
            const Stage& s = plan_.stages[i];
            list.push_back({{"index", i},
                            {"devices", names(s.devices)},
                            {"first_op", plan_.graph.op(s.first_op).name},
                            {"last_op", plan_.graph.op(s.last_op).name},
                            {"first_layer", s.first_layer},
                            {"last_layer", s.last_layer}});
        }
        return list;
    }

    // Every link of the machine, and every pair that the plan uses without one (staged by the
    // hosts).
    Json links() const {
        LinkTraffic traffic = link_traffic(plan_, false);
        const double batch = static_cast<double>(plan_.workload.batch);
        Json list = Json::array();
        for (const Link& l : plan_.machine.links) {
            auto found = traffic.find({l.from, l.to});
            double bytes =
                found == traffic.end() ? 0.0 : static_cast<double>(found->second) / batch;
            list.push_back({{"from", name(l.from)},
                            {"to", name(l.to)},
                            {"kind", link_kind_name(l.kind)},
                            {"gb_per_s", static_cast<double>(l.bandwidth) / 1e9},
                            {"latency_us", us(l.latency_ns)},
                            {"bytes_per_token", bytes}});
            if (found != traffic.end()) traffic.erase(found);
        }
        for (auto& [pair, bytes] : traffic)
            list.push_back({{"from", name(pair.first)},
                            {"to", name(pair.second)},
                            {"kind", "host_staged"},
                            {"gb_per_s", nullptr},
                            {"latency_us", nullptr},
                            {"bytes_per_token", static_cast<double>(bytes) / batch}});
        return list;
    }

    Json why() const {
        const Why& w = plan_.why;
        Json runners = Json::array();
        for (const RunnerUp& r : w.runners_up)
            runners.push_back(
                {{"shape", r.shape}, {"objective_ms", ms(r.objective_ns)}, {"why_not", r.why_not}});
        Json metis{{"used", plan_.options.use_metis}, {"note", w.metis}};
        // Only what was scored has a score.
        if (w.metis_cost_ns > 0) metis["objective_ms"] = ms(w.metis_cost_ns);
        if (w.topological_cost_ns > 0)
            metis["topological_objective_ms"] = ms(w.topological_cost_ns);
        return {{"binding", w.binding},
                {"heads", head_split(plan_)},
                {"runners_up", runners},
                {"cuts", w.cuts},
                {"metis", metis}};
    }

    const Plan& plan_;
    Speller spell_;
};

}  // namespace

std::string plan_to_json(const Plan& plan, Speller spell) {
    // Names come from files: what is not UTF-8 in them is replaced, not refused.
    std::string json =
        Writer(plan, spell).run().dump(2, ' ', false, Json::error_handler_t::replace);
    // A line break within a string is escaped: this is the key.
    constexpr std::string_view kKey = "\n  \"steps\": ", kPlaceholder = "null";
    size_t at = json.find(kKey) + kKey.size();
    std::string rest = json.substr(at + kPlaceholder.size());
    json.resize(at);
    append_json_steps(plan, json);
    json += rest;
    json += '\n';
    return json;
}

std::string does_not_fit_to_json(const DoesNotFit& error) {
    Json json{{"error", "does not fit"}, {"devices", Json::array()}, {"fixes", error.fixes()}};
    for (const Deficit& d : error.devices())
        json["devices"].push_back({{"name", d.device},
                                   {"needed_bytes", d.needed_bytes},
                                   {"capacity_bytes", d.capacity_bytes},
                                   {"deficit_bytes", d.deficit_bytes}});
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cleave::planner
