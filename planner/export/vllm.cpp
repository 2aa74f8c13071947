// SPDX-License-Identifier: Apache-2.0
// `--format vllm`: the environment and flags of `vllm serve`. Layers per stage are
// VLLM_PP_LAYER_PARTITION, which has a number for each pipeline rank that add up to the model's
// layers (get_pp_indices in vllm/distributed/utils.py); the first rank has the embedding, the last
// the final norm and lm_head. Rank p * T + t is tensor rank t of stage p (initialize_model_parallel
// in vllm/distributed/parallel_state.py), and takes the device of that place in
// CUDA_VISIBLE_DEVICES. Heads, KV heads and MLP are divided evenly (docs.vllm.ai, "Parallelism and
// scaling"), and so is the vocabulary, once it is padded to a multiple of 64
// (VocabParallelEmbedding in vllm/model_executor/layers). Replicas are data-parallel engines: each
// takes the next visible devices (get_device_indices in vllm/v1/engine/utils.py). Read in vLLM
// 0.33.0; tests/support/other_tools.py runs its get_pp_indices.
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/export/formats.h"
#include "planner/export/layers.h"
#include "planner/plan/kv_room.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr const char* kVllm = "vllm";

std::string_view torch_name(DType dtype) {
    return dtype == DType::kF16 ? "float16" : dtype == DType::kBF16 ? "bfloat16" : "float32";
}

// VocabParallelEmbedding asserts it.
void vocabulary_divides(const Plan& plan) {
    const int64_t padded = (plan.graph.config.vocab_size + 63) / 64 * 64;
    const auto width = static_cast<int64_t>(plan.stages[0].devices.size());
    if (padded % width != 0)
        throw UserError(
            "vllm: the vocabulary of {}, padded to {}, is not {} equal parts, and vllm takes no "
            "others; choose a $tensor_parallel that divides it",
            plan.graph.config.vocab_size, padded, width);
}

std::vector<std::string> notes(const Plan& plan, DType weights) {
    std::vector<std::string> notes{
        "vLLM reads a Hugging Face checkpoint of the model, not this plan's ONNX file: give its "
        "folder or name to serve.sh.",
        "vLLM pads the vocabulary to a multiple of 64 before it divides it; the plan does not.",
        "Which collective algorithm runs, and when, is vLLM's choice."};
    if (has_whole_contexts(plan))
        notes.emplace_back(
            "vLLM sizes its KV cache by --gpu-memory-utilization, not by the plan: it takes what "
            "is left.");
    const std::optional<DType> kv = plan.workload.kv_dtype;
    if (kv && has_kv_scales(*kv))
        notes.emplace_back(
            "vLLM's Triton backend computes attention over keys and values with a scale for each "
            "head and position; how it rounds them is its own.");
    else if (kv && *kv != weights)
        notes.push_back(fmt::format(
            "The plan keeps keys and values in {}; vLLM keeps them in the model's type, {}.", *kv,
            weights));
    return notes;
}

// A pool that was asked for. vLLM's block 0 is nobody's, too.
std::string pool_flags(const Plan& plan) {
    if (has_whole_contexts(plan)) return "";
    return fmt::format(" --block-size {} --num-gpu-blocks-override {}", kKvBlock,
                       plan.kv_pool.num_blocks);
}

// Types of 8 bits have a scale for each head and position there, too.
std::string kv_flags(const Plan& plan) {
    const DType kv = plan.workload.kv_dtype.value_or(DType::kF32);
    if (!has_kv_scales(kv)) return "";
    return fmt::format(" --kv-cache-dtype {}_per_token_head", kv == DType::kInt8 ? "int8" : "fp8");
}

}  // namespace

ExportResult export_vllm(const Plan& plan) {
    if (!plan.others.empty())
        throw UserError(
            "vllm: the plan's {} replicas are not alike, and one vllm serve has those that are; "
            "plan for the devices of each make by themselves",
            plan.num_replicas());
    const std::vector<int> layers = whole_layers_per_stage(plan, kVllm);
    const std::vector<DeviceId> devices = devices_in_stage_order(plan, kVllm);
    const VendorFacts& vendor = only_gpus(plan, devices, kVllm);
    vocabulary_divides(plan);
    equal_shards(plan, kVllm);
    const DType weights = dense_weights(plan, kVllm);
    std::vector<int> visible;
    for (DeviceId d : devices) visible.push_back(plan.machine.device(d).index);
    std::string copies;
    for (const Machine& copy : plan.copies)
        for (DeviceId d : devices) {
            if (copy.device(d).host != plan.machine.devices[0].host)
                throw UserError(
                    "vllm: {} is on another host than {}, and one serve.sh starts the replicas of "
                    "one; plan for a host's devices and run it on each",
                    copy.device(d).name, plan.machine.devices[0].name);
            visible.push_back(copy.device(d).index);
        }
    if (!plan.copies.empty()) copies = fmt::format(" --data-parallel-size {}", plan.num_replicas());
    std::string script = fmt::format(
        "#!/bin/sh\n"
        "# {} stages of {} devices{}. usage: sh serve.sh MODEL [FLAG...]\n"
        "set -eu\n"
        "model=$1\nshift\n"
        "export {}={}\n"
        "export VLLM_PP_LAYER_PARTITION={}\n"
        "exec vllm serve \"$model\" --tensor-parallel-size {} --pipeline-parallel-size {}{} "
        "--dtype "
        "{} "
        "--max-model-len {} --max-num-seqs {} --max-num-batched-tokens {}{}{} \"$@\"\n",
        plan.stages.size(), plan.stages[0].devices.size(),
        plan.copies.empty() ? "" : fmt::format(", {} replicas", plan.num_replicas()),
        vendor.visible_variable, fmt::join(visible, ","), fmt::join(layers, ","),
        plan.stages[0].devices.size(), plan.stages.size(), copies, torch_name(weights),
        plan.workload.context, plan.workload.batch, plan.workload.max_tokens(), pool_flags(plan),
        kv_flags(plan));
    return {.files = {{"serve.sh", std::move(script)}},
            .commands = {{"sh", "serve.sh", "MODEL"}},
            .not_expressed = notes(plan, weights)};
}

}  // namespace cleave::planner
