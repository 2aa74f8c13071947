// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/page_data.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/ask/room.h"
#include "planner/plan/plan_queries.h"
#include "tools/inspect/inspection_tree.h"

namespace cleave::tools {

using namespace planner;

namespace {

using Json = nlohmann::ordered_json;

// Names by place, each once.
class Names {
public:
    int64_t place(const std::string& name) {
        auto [found, fresh] = places_.try_emplace(name, static_cast<int64_t>(places_.size()));
        if (fresh) names_.push_back(name);
        return found->second;
    }
    Json json() const { return names_; }

private:
    std::map<std::string, int64_t> places_;
    Json names_ = Json::array();
};

int64_t begin_of(const Range& range) { return range.empty() ? 0 : range.begin; }
int64_t end_of(const Range& range) { return range.empty() ? 0 : range.end; }

// Of decode: which columns of each value are where; and by step the values that it reads, null
// where it reads none. A prompt's pass places them alike.
Json values_json(const Plan& plan) {
    const Phase& phase = plan.decode;
    Names names;
    Json rows = Json::array();
    for (const PlacedValue& v : phase.values) {
        const bool whole = v.box.empty() || v.box.back().end == kWhole;
        rows.push_back({{"value", names.place(plan.graph.value(v.value).name)},
                        {"device", static_cast<int64_t>(v.device.index())},
                        {"begin", whole ? 0 : begin_of(v.box.back())},
                        {"end", whole ? -1 : end_of(v.box.back())},
                        {"partial", v.partial ? 1 : 0},
                        {"bytes", v.buffer.valid() ? plan.buffer(v.buffer).size : int64_t{0}}});
    }
    Json reads = Json::array();
    for (const Step& step : phase.steps) {
        std::vector<PlacedId> ids;
        if (step.compute()) ids = step.compute()->inputs;
        if (step.collective()) ids = step.collective()->epilogue_inputs;
        Json read;
        for (PlacedId id : ids) {
            if (!id.valid()) continue;
            const int64_t place =
                names.place(plan.graph.value(phase.values[id.index()].value).name);
            if (read.is_null() || std::find(read.begin(), read.end(), place) == read.end())
                read.push_back(place);
        }
        reads.push_back(std::move(read));
    }
    return {{"names", names.json()}, {"rows", packed_rows(rows)}, {"reads", packed_list(reads)}};
}

// By step, the weights that it reads, by their places in `names`; null where it reads none.
Json weight_reads(const Plan& plan, bool is_prefill, const std::vector<std::string>& buffers,
                  Names& names) {
    Json reads = Json::array();
    for (const Step& step : plan.phase(is_prefill).steps) {
        const std::vector<WeightShardId> none;
        const std::vector<WeightShardId>& shards = step.compute()      ? step.compute()->weights
                                                   : step.collective() ? step.collective()->weights
                                                                       : none;
        Json read;
        for (WeightShardId id : shards) {
            if (!id.valid()) continue;
            const int64_t place = names.place(buffers[plan.weights[id.index()].buffer.index()]);
            if (read.is_null() || std::find(read.begin(), read.end(), place) == read.end())
                read.push_back(place);
        }
        reads.push_back(std::move(read));
    }
    return packed_list(reads);
}

// Of constants: which rows and columns of each weight are on which device, and which steps read
// it. An exporter's names say neither its layer nor its operator.
Json weights_json(const Plan& plan) {
    const std::vector<std::string> buffers = buffer_names(plan);
    Names names, dtypes;
    std::map<WeightId, int> layer_of;  // of the first operator that has it
    for (const importer::Op& op : plan.graph.ops)
        for (WeightId w : op.weights) layer_of.try_emplace(w, op.layer);
    Json layers = Json::array();
    // Shards of one weight together: neighbours differ little, and rows pack by runs.
    std::vector<std::pair<int64_t, const WeightShard*>> shards;
    for (const WeightShard& w : plan.weights) {
        shards.emplace_back(names.place(buffers[w.buffer.index()]), &w);
        if (shards.back().first == std::ssize(layers)) layers.push_back(layer_of.at(w.weight));
    }
    std::stable_sort(shards.begin(), shards.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Json rows = Json::array();
    for (const auto& [place, shard] : shards) {
        const WeightShard& w = *shard;
        rows.push_back({{"weight", place},
                        {"device", static_cast<int64_t>(w.device.index())},
                        {"row_begin", begin_of(w.rows)},
                        {"row_end", end_of(w.rows)},
                        {"column_begin", begin_of(w.columns)},
                        {"column_end", end_of(w.columns)},
                        {"bytes", plan.buffer(w.buffer).size},
                        {"dtype", dtypes.place(std::string(dtype_name(w.dtype)))}});
    }
    Json reads;
    for (bool is_prefill : {false, true})
        reads[is_prefill ? "prefill" : "decode"] = weight_reads(plan, is_prefill, buffers, names);
    return {{"names", names.json()},
            {"rows", packed_rows(rows)},
            {"dtypes", dtypes.json()},
            {"layers", packed_list(layers)},
            {"reads", std::move(reads)}};
}

Json links_json(const Plan& plan, bool is_prefill) {
    Json rows = Json::array();
    for (const auto& [pair, bytes] : link_traffic(plan, is_prefill))
        rows.push_back({{"from", static_cast<int64_t>(pair.first.index())},
                        {"to", static_cast<int64_t>(pair.second.index())},
                        {"bytes", bytes}});
    return packed_rows(rows);
}

// A kernel's text is long, and most of it is in others, too: each paragraph once, a text as places
// of its paragraphs.
Json texts_json(const Inspection& inspection) {
    Json list = Json::array();
    Names paragraphs;
    for (const KernelText& text : inspection.texts) {
        const Tile& t = text.tile;
        const std::string tile =
            t.rows > 0 || t.tokens > 0
                ? fmt::format("{} rows x {} tokens x {} deep{}{}", t.rows, t.tokens, t.depth,
                              t.splits > 1 ? fmt::format(", context in {} parts", t.splits) : "",
                              t.stages > 0 ? fmt::format(", {} stages", t.stages) : "")
                : "";
        Json places = Json::array();
        for (size_t at = 0; at <= text.source.size();) {
            const size_t end = std::min(text.source.find("\n\n", at), text.source.size());
            places.push_back(paragraphs.place(text.source.substr(at, end - at)));
            at = end + 2;
        }
        list.push_back({{"name", text.name},
                        {"arch", text.arch},
                        {"tile", tile},
                        {"source", packed_list(places)}});
    }
    return {{"paragraphs", paragraphs.json()}, {"kernels", list}};
}

// Bytes of a block of 16 tokens on each device.
Json kv_block_bytes(const Plan& plan) {
    Json list = Json::array();
    for (const DeviceMemory& m : plan.memory)
        list.push_back(plan.kv_pool.num_blocks > 0 ? m.kv / plan.kv_pool.num_blocks : 0);
    return list;
}

// How far this placement reaches; null without a KV cache. A device is null where no memory ends
// it.
Json room_json(const Plan& plan) {
    const Room room = room_of(plan);
    if (!room.has_kv()) return nullptr;
    const auto name = [&](DeviceId id) {
        return id.valid() ? Json(plan.machine.device(id).name) : Json();
    };
    return {{"kv_tokens", room.kv_tokens},         {"kv_bound", name(room.kv_bound)},
            {"max_sequences", room.max_sequences}, {"sequences_bound", name(room.sequences_bound)},
            {"max_context", room.max_context},     {"context_bound", name(room.context_bound)},
            {"positions", room.positions}};
}

}  // namespace

Json page_data(const Inspection& inspection) {
    const Plan& plan = *inspection.plan;
    Json machine = Json::array();
    for (const DeviceInfo& d : plan.machine.devices)
        machine.push_back({{"model", d.model}, {"memory_bandwidth", d.memory_bandwidth}});
    Json step_texts, links;
    for (bool is_prefill : {false, true}) {
        const char* phase = is_prefill ? "prefill" : "decode";
        step_texts[phase] = packed_list(inspection.step_texts[is_prefill]);
        links[phase] = links_json(plan, is_prefill);
    }
    return {{"config",
             {{"num_layers", plan.graph.config.num_layers},
              {"max_positions", plan.graph.config.max_positions}}},
            {"machine", machine},
            {"kv_block_bytes", kv_block_bytes(plan)},
            {"links", links},
            {"room", room_json(plan)},
            {"values", values_json(plan)},
            {"weights", weights_json(plan)},
            {"step_kernels", step_texts},
            {"texts", texts_json(inspection)}};
}

}  // namespace cleave::tools
