// SPDX-License-Identifier: Apache-2.0
// `--format ort-collectives`: what ort.h says of export_ort_collectives.
#include <memory>

#include <nlohmann/json.hpp>

#include "planner/export/layers.h"
#include "planner/export/model/notes.h"
#include "planner/export/model/ort/ort.h"
#include "planner/export/model/rank_model.h"
#include "planner/export/model/runners.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOrtRanks = "ort-collectives";

void check_ranks(const Plan& plan) {
    const size_t width = plan.stages[0].devices.size();
    if (plan.stages.size() > 1 || width == 1)
        throw UserError(
            "ort-collectives: the plan has {} stages of {} devices; ONNX Runtime's collectives are "
            "among all processes of a run, so it takes one stage of several devices: plan with "
            "$tensor_parallel {} $pipeline_stages 1, or use $format ort",
            plan.stages.size(), width, plan.machine.devices.size());
    for (DeviceId d : devices_in_stage_order(plan, kOrtRanks))
        if (!is_gpu_of(plan.machine.device(d), Vendor::kNvidia))
            throw UserError(
                "ort-collectives: {} is no NVIDIA GPU, and ONNX Runtime's collectives are NCCL's; "
                "plan for cuda or its sim: models, or use $format ort",
                plan.machine.device(d).name);
}

}  // namespace

ExportResult export_ort_collectives(const Plan& plan) {
    check_exportable(plan);
    check_ranks(plan);
    const Schedule schedule = make_schedule(plan);
    check_collectives(plan, schedule, kOrtRanks);
    auto reader = std::make_shared<importer::WeightReader>(plan.graph);
    ExportResult result;
    Json json{{"model", plan.graph.name},
              {"context", plan.workload.context},
              {"output", schedule.logits.name},
              {"ranks", Json::array()}};
    bool expanded = false;
    const std::vector<DeviceId>& devices = plan.stages[0].devices;
    for (size_t r = 0; r < devices.size(); ++r) {
        const std::string name = fmt::format("rank{}.onnx", r);
        expanded |= add_rank(plan, schedule, 0, devices[r], CollectiveOps::kMicrosoft, name, reader,
                             result);
        json["ranks"].push_back(
            {{"model", name}, {"device", plan.machine.device(devices[r]).index}});
    }
    result.files.push_back(
        {"ranks.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"});
    result.files.push_back({"run_rank.py", std::string(ort_rank_runner())});
    result.commands = {{"mpirun", "-n", std::to_string(devices.size()), "python3", "run_rank.py",
                        "--input-ids", "1,2,3", "--max-new-tokens", "4"}};
    result.not_expressed = {
        kLogitsOfEveryToken,
        "The collectives' kernels are only in an ONNX Runtime that is built with NCCL; the stock "
        "package refuses the models at AllReduce: $format ort is for it.",
        "Logits are gathered on every rank, and which collective algorithm runs is NCCL's choice.",
        "Prompts run in one pass, and a run is of one sequence."};
    add_f32_notes(plan, expanded, result.not_expressed);
    add_pool_note(plan, result.not_expressed);
    return result;
}

}  // namespace cleave::planner
