// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/ort/genai.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"

namespace cleave::planner {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A token id, or several, that the files beside the model name; null where none does.
Json token_id(const Plan& plan, const char* key) {
    if (plan.graph.path.empty()) return nullptr;
    const auto is_id = [](const nlohmann::json& id) { return id.is_number_integer(); };
    for (const char* name : {"generation_config.json", "config.json"}) {
        const fs::path path = fs::path(plan.graph.path).parent_path() / name;
        if (!is_there(path)) continue;
        const nlohmann::json json = read_json(path);
        if (!json.is_object() || !json.contains(key) || json[key].is_null()) continue;
        const nlohmann::json& id = json[key];
        if (id.is_array() && id.empty()) continue;
        if (!is_id(id) && !(id.is_array() && std::all_of(id.begin(), id.end(), is_id)))
            throw UserError("{}: {}: expected a token id or a list of them", path.string(), key);
        return id;
    }
    return nullptr;
}

Json stage_json(const Plan& plan, const Segment& segment, const std::string& file) {
    Json inputs = Json::array(), outputs = Json::array();
    for (const DeviceTensor& t : segment.inputs) inputs.push_back(t.name);
    for (const DeviceTensor& t : segment.outputs) outputs.push_back(t.name);
    if (!segment.appends.empty()) {
        inputs.push_back("attention_mask");
        inputs.push_back("position_ids");
    }
    for (KvSlabId slab : segment.appends)
        for (const char* part : {"key", "value"}) {
            const int layer = layer_of(plan, plan.kv_slabs[slab.index()]);
            inputs.push_back(fmt::format("past_key_values.{}.{}", layer, part));
            outputs.push_back(fmt::format("present.{}.{}", layer, part));
        }
    return {{"filename", file}, {"inputs", inputs}, {"outputs", outputs}};
}

}  // namespace

void add_genai_config(const Plan& plan, const Schedule& schedule,
                      const std::vector<std::string>& model_names, ExportResult& result) {
    Json pipeline = Json::array();
    for (const ScheduleItem& item : schedule.order) {
        if (item.exchange >= 0 && schedule.exchanges[static_cast<size_t>(item.exchange)].kind !=
                                      Exchange::Kind::kTransfer) {
            result.not_expressed.emplace_back(
                "No genai_config.json: onnxruntime-genai's decoder pipeline has no collectives, "
                "and "
                "this plan has tensor-parallel stages; $tensor_parallel 1 gives one.");
            return;
        }
        if (item.segment < 0) continue;
        const Segment& s = schedule.segments[static_cast<size_t>(item.segment)];
        pipeline.push_back({{fmt::format("stage{}", s.stage),
                             stage_json(plan, s, model_names[static_cast<size_t>(item.segment)])}});
    }
    const auto& c = plan.graph.config;
    const Json eos = token_id(plan, "eos_token_id"), bos = token_id(plan, "bos_token_id");
    Json model{{"type", "decoder-pipeline"},
               {"vocab_size", c.vocab_size},
               {"context_length", plan.workload.context}};
    if (!eos.is_null()) model["eos_token_id"] = eos;
    if (!bos.is_null()) model["bos_token_id"] = bos.is_array() ? bos[0] : bos;
    model["pad_token_id"] = eos.is_null() ? Json(0) : eos.is_array() ? eos[0] : eos;
    model["decoder"] = {{"head_size", c.head_dim},
                        {"hidden_size", c.hidden_size},
                        {"num_attention_heads", c.num_heads},
                        {"num_hidden_layers", c.num_layers},
                        {"num_key_value_heads", c.num_kv_heads},
                        {"inputs",
                         {{"input_ids", "input_ids"},
                          {"attention_mask", "attention_mask"},
                          {"position_ids", "position_ids"},
                          {"past_key_names", "past_key_values.%d.key"},
                          {"past_value_names", "past_key_values.%d.value"}}},
                        {"outputs",
                         {{"logits", "logits"},
                          {"present_key_names", "present.%d.key"},
                          {"present_value_names", "present.%d.value"}}},
                        {"pipeline", pipeline}};
    const Json config{{"model", model},
                      {"search",
                       {{"do_sample", false},
                        {"max_length", plan.workload.context},
                        {"past_present_share_buffer", false}}}};
    result.files.push_back(
        {"genai_config.json", config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"});
    result.not_expressed.emplace_back(
        "genai_config.json runs every stage with the session's own provider: onnxruntime-genai's "
        "pipeline names no devices; set session_options of a stage to put it on one.");
    if (eos.is_null())
        result.not_expressed.emplace_back(
            "genai_config.json lacks eos_token_id: no config.json beside the model names it.");
}

}  // namespace cleave::planner
