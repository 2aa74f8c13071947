// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/ort/ort.h"

#include <algorithm>
#include <memory>

#include <nlohmann/json.hpp>

#include "planner/export/model/notes.h"
#include "planner/export/model/ort/genai.h"
#include "planner/export/model/ort/lower_segment.h"
#include "planner/export/model/runners.h"
#include "planner/export/model/segments.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using Json = nlohmann::ordered_json;

// "stage1.onnx"; "stage1.rank0.part02.onnx" where a stage has several models.
std::vector<std::string> model_names(const Plan& plan, const Schedule& schedule) {
    std::vector<int> parts(schedule.segments.size(), -1);
    std::map<std::pair<int, DeviceId>, int> count;
    std::map<int, int> in_stage;
    for (const ScheduleItem& item : schedule.order) {
        if (item.segment < 0) continue;
        const Segment& s = schedule.segments[static_cast<size_t>(item.segment)];
        parts[static_cast<size_t>(item.segment)] = count[{s.stage, s.device}]++;
        ++in_stage[s.stage];
    }
    std::vector<std::string> names(schedule.segments.size());
    for (size_t i = 0; i < names.size(); ++i) {
        if (parts[i] < 0) continue;
        const Segment& s = schedule.segments[i];
        const auto& devices = plan.stages[static_cast<size_t>(s.stage)].devices;
        const auto rank = std::find(devices.begin(), devices.end(), s.device) - devices.begin();
        names[i] = in_stage[s.stage] == 1
                       ? fmt::format("stage{}.onnx", s.stage)
                       : fmt::format("stage{}.rank{}.part{:03}.onnx", s.stage, rank, parts[i]);
    }
    return names;
}

const char* exchange_name(Exchange::Kind kind) {
    switch (kind) {
        case Exchange::Kind::kTransfer: return "transfer";
        case Exchange::Kind::kAllReduce: return "all_reduce";
        case Exchange::Kind::kAllGather: return "all_gather";
    }
    return "";
}

Json exchange_json(const Exchange& e) {
    Json json{
        {"exchange", exchange_name(e.kind)}, {"stage", e.stage},    {"from", Json::array()},
        {"sources", Json::array()},          {"to", Json::array()}, {"result", e.result.name}};
    for (DeviceId d : e.from) json["from"].push_back(d.index());
    for (const DeviceTensor& t : e.sources) json["sources"].push_back(t.name);
    for (DeviceId d : e.to) json["to"].push_back(d.index());
    return json;
}

std::string pipeline_json(const Plan& plan, const Schedule& schedule,
                          const std::vector<std::string>& names) {
    Json json{{"model", plan.graph.name},
              {"vocab_size", plan.graph.config.vocab_size},
              {"context", plan.workload.context},
              {"devices", Json::array()},
              {"steps", Json::array()},
              {"output", {{"device", plan.output_device.index()}, {"name", schedule.logits.name}}}};
    for (const DeviceInfo& d : plan.machine.devices)
        json["devices"].push_back(
            {{"name", d.name}, {"kind", device_kind_name(d.kind)}, {"index", d.index}});
    for (const ScheduleItem& item : schedule.order) {
        if (item.exchange >= 0) {
            json["steps"].push_back(
                exchange_json(schedule.exchanges[static_cast<size_t>(item.exchange)]));
            continue;
        }
        const Segment& s = schedule.segments[static_cast<size_t>(item.segment)];
        json["steps"].push_back({{"run", names[static_cast<size_t>(item.segment)]},
                                 {"device", s.device.index()},
                                 {"stage", s.stage}});
    }
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> notes(const Plan& plan, bool expanded) {
    std::vector<std::string> notes{
        kLogitsOfEveryToken,
        "Prompts run in one pass: ONNX Runtime has no chunks, so memory for activations grows with "
        "the prompt.",
        "The implementation of collectives (ring, two-phase) and the tiles of kernels are ONNX "
        "Runtime's own."};
    add_f32_notes(plan, expanded, notes);
    add_pool_note(plan, notes);
    if (plan.workload.kv_dtype == DType::kBF16)
        notes.emplace_back("Keys and values are kept in f32: numpy has no bf16.");
    return notes;
}

}  // namespace

ExportResult export_ort(const Plan& plan) {
    check_exportable(plan);
    const Schedule schedule = make_schedule(plan);
    auto reader = std::make_shared<importer::WeightReader>(plan.graph);
    std::vector<std::shared_ptr<TensorFile>> data;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d)
        data.push_back(std::make_shared<TensorFile>(plan, reader));

    ExportResult result;
    const std::vector<std::string> names = model_names(plan, schedule);
    bool expanded = false;
    for (const ScheduleItem& item : schedule.order) {
        if (item.segment < 0) continue;
        const Segment& segment = schedule.segments[static_cast<size_t>(item.segment)];
        TensorFile& file = *data[segment.device.index()];
        const onnx::ModelProto model =
            lower_segment(plan, segment, file, data_file_name(segment.device));
        ExportFile out{names[static_cast<size_t>(item.segment)], {}};
        CLEAVE_CHECK(model.SerializeToString(&out.contents)) << out.name << " does not serialise";
        result.files.push_back(std::move(out));
        expanded = expanded || file.expanded();
    }
    for (size_t d = 0; d < data.size(); ++d) {
        if (data[d]->tensors().empty()) continue;
        result.files.push_back({data_file_name(DeviceId(d)),
                                {},
                                [file = data[d]](std::ostream& out) { file->write(out); }});
    }
    result.files.push_back({"pipeline.json", pipeline_json(plan, schedule, names)});
    result.files.push_back({"run.py", std::string(ort_runner())});
    result.not_expressed = notes(plan, expanded);
    add_genai_config(plan, schedule, names, result);
    result.commands = {{"python3", "run.py", "--input-ids", "1,2,3", "--max-new-tokens", "4"}};
    return result;
}

}  // namespace cleave::planner
