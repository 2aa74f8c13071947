// SPDX-License-Identifier: Apache-2.0
// `--format accelerate`: a device_map of Hugging Face accelerate and transformers
// (huggingface.co/docs/accelerate, "Big model inference"): module names, each with a GPU's number
// or "cpu". Every parameter lies under exactly one name. What is on "cpu" beside GPUs is offloaded
// (dispatch_model: its main device is a GPU, and hooks bring the weights there as they are needed):
// it runs on a GPU, which is no plan's meaning, so such plans are refused. Read in
// accelerate 1.15.0.

#include <nlohmann/json.hpp>

#include "planner/export/formats.h"
#include "planner/export/layers.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTool = "accelerate";

constexpr const char* kLoader = R"(# SPDX-License-Identifier: Apache-2.0
"""usage: python load.py MODEL: loads a Hugging Face checkpoint where the plan puts its modules."""
import json, pathlib, sys
import torch
from transformers import AutoModelForCausalLM

device_map = json.loads((pathlib.Path(__file__).parent / "device_map.json").read_text())
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], device_map=device_map, dtype=torch.DTYPE)
print(model.hf_device_map)
)";

Json place(const Plan& plan, int stage) {
    const DeviceInfo& device =
        plan.machine.device(plan.stages[static_cast<size_t>(stage)].devices[0]);
    if (is_cpu(device)) return "cpu";
    return device.index;
}

int stage_with(const Plan& plan, const char* op_name, int otherwise) {
    for (size_t s = 0; s < plan.stages.size(); ++s)
        for (size_t i = plan.stages[s].first_op.index(); i <= plan.stages[s].last_op.index(); ++i)
            if (plan.graph.ops[i].name == op_name) return static_cast<int>(s);
    return otherwise;
}

}  // namespace

ExportResult export_accelerate(const Plan& plan) {
    for (const Stage& stage : plan.stages)
        if (stage.devices.size() > 1)
            throw UserError(
                "accelerate: the plan divides layers among {} devices, and a device_map places "
                "whole "
                "modules; plan with $tensor_parallel 1 $pipeline_stages {}",
                stage.devices.size(), plan.machine.devices.size());
    whole_layers_per_stage(plan, kTool);
    const std::vector<DeviceId> devices = devices_in_stage_order(plan, kTool);
    if (devices.size() > 1) only_gpus(plan, devices, kTool);
    const DeviceInfo& first = plan.machine.device(devices[0]);
    if (!is_cpu(first) && !gpu_vendor(first))
        throw UserError("accelerate: {} is no device of PyTorch", first.name);
    const DType weights = dense_weights(plan, kTool);
    const std::vector<LayerStages> layers = stages_of_layers(plan, kTool);
    const int last = static_cast<int>(plan.stages.size()) - 1;
    const int embedding = stage_with(plan, "embedding", 0),
              head = stage_with(plan, "lm_head", last);
    if (plan.graph.config.tied_embeddings && embedding != head)
        throw UserError(
            "accelerate: the embedding and lm_head are one parameter of this model, which lies "
            "once in "
            "a device_map, and the plan puts them on stages {} and {}; plan with $pipeline_stages "
            "1, or untie "
            "them",
            embedding, head);
    Json map;
    map["model.embed_tokens"] = place(plan, embedding);
    map["model.rotary_emb"] = place(plan, layers.front().attention);
    for (size_t l = 0; l < layers.size(); ++l)
        map[fmt::format("model.layers.{}", l)] = place(plan, layers[l].attention);
    map["model.norm"] = place(plan, stage_with(plan, "final_norm", last));
    map["lm_head"] = place(plan, head);
    std::string loader = kLoader;
    loader.replace(loader.find("DTYPE"), 5,
                   weights == DType::kF16    ? "float16"
                   : weights == DType::kBF16 ? "bfloat16"
                                             : "float32");
    std::vector<std::string> notes{
        "Module names are those of transformers' LlamaForCausalLM and of the models built like "
        "it; the checkpoint is a Hugging Face one, not this plan's ONNX file.",
        "Batch, context, prefill chunks and the KV cache's type are the caller's of generate().",
        "Stages run one after the other: accelerate has no pipeline."};
    if (embedding != head)  // dispatch_model: retie_parameters
        notes.emplace_back(
            "lm_head and the embedding are two parameters on two devices here; a checkpoint with "
            "tie_word_embeddings makes them one, which accelerate keeps on one device: load it "
            "with tie_word_embeddings=False, or plan with $pipeline_stages 1.");
    return {.files = {{"device_map.json", map.dump(2) + "\n"}, {"load.py", std::move(loader)}},
            .commands = {{"python3", "load.py", "MODEL"}},
            .not_expressed = std::move(notes)};
}

}  // namespace cleave::planner
