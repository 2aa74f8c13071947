// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/tensorrt/tensorrt.h"

#include <memory>

#include <nlohmann/json.hpp>

#include "planner/export/layers.h"
#include "planner/export/model/notes.h"
#include "planner/export/model/rank_model.h"
#include "planner/export/model/segments.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTool = "tensorrt";
constexpr int kLeastArch =
    80;  // "Requires Ampere (SM 80) or later", TensorRT 11, Multi-Device Inference

void check_devices(const Plan& plan) {
    const std::vector<DeviceId> devices = devices_in_stage_order(plan, kTool);
    for (DeviceId d : devices) {
        const DeviceInfo& device = plan.machine.device(d);
        const int arch = device.arch.starts_with("sm_") ? std::atoi(device.arch.c_str() + 3) : 0;
        if (!is_gpu_of(device, Vendor::kNvidia))
            throw UserError("tensorrt: {} is no NVIDIA GPU; plan for cuda, or its sim: models",
                            device.name);
        if (arch < kLeastArch)
            throw UserError("tensorrt: {} is {}, and DistCollective needs sm_{} or newer",
                            device.name, device.arch, kLeastArch);
    }
}

std::string rank_name(int stage, size_t rank) {
    return fmt::format("stage{}.rank{}.onnx", stage, rank);
}

std::string pipeline_json(const Plan& plan, const Schedule& schedule) {
    Json json{{"model", plan.graph.name},
              {"context", plan.workload.context},
              {"stages", Json::array()},
              {"transfers", Json::array()},
              {"output", schedule.logits.name}};
    for (size_t s = 0; s < plan.stages.size(); ++s) {
        Json stage{{"devices", Json::array()}, {"ranks", Json::array()}};
        for (size_t r = 0; r < plan.stages[s].devices.size(); ++r) {
            stage["devices"].push_back(plan.machine.device(plan.stages[s].devices[r]).index);
            stage["ranks"].push_back(rank_name(static_cast<int>(s), r));
        }
        json["stages"].push_back(std::move(stage));
    }
    for (const Exchange& e : schedule.exchanges)
        if (e.kind == Exchange::Kind::kTransfer)
            json["transfers"].push_back({{"from", plan.machine.device(e.from[0]).index},
                                         {"to", plan.machine.device(e.to[0]).index},
                                         {"value", e.sources[0].name},
                                         {"input", e.result.name}});
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

ExportResult export_tensorrt(const Plan& plan) {
    check_exportable(plan);
    check_devices(plan);
    const Schedule schedule = make_schedule(plan);
    check_collectives(plan, schedule, kTool);
    auto reader = std::make_shared<importer::WeightReader>(plan.graph);
    ExportResult result;
    bool expanded = false;
    for (size_t s = 0; s < plan.stages.size(); ++s)
        for (size_t r = 0; r < plan.stages[s].devices.size(); ++r) {
            const DeviceId device = plan.stages[s].devices[r];
            const std::string name = rank_name(static_cast<int>(s), r);
            expanded |= add_rank(plan, schedule, static_cast<int>(s), device,
                                 CollectiveOps::kTensorRt, name, reader, result);
            result.commands.push_back({"trtexec", "--onnx=" + name,
                                       fmt::format("--saveEngine=stage{}.rank{}.engine", s, r)});
        }
    result.files.push_back({"pipeline.json", pipeline_json(plan, schedule)});
    result.not_expressed = {
        "Transfers between stages: each stage is engines of its own, with one communicator (NCCL) "
        "for "
        "its ranks; pipeline.json names what the caller copies from stage to stage.",
        "Logits are computed for every token of a pass, and gathered on every rank of the last "
        "stage.",
        "Arithmetic is f32 in the models; lower precision is a choice of the engine's builder.",
        "Which collective algorithm runs is NCCL's choice."};
    if (expanded) result.not_expressed.emplace_back(kWeightsExpanded);
    return result;
}

}  // namespace cleave::planner
