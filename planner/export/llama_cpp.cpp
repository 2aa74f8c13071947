// SPDX-License-Identifier: Apache-2.0
// `--format llama.cpp`: the flags of llama-server (docs/multi-gpu.md and src/llama-model.cpp of
// ggml-org/llama.cpp).
//
// Layer mode: of A = layers + 1 things on GPUs (the last is the output), thing i lies on the first
// device whose share of the running sum of -ts is above i / A, in float. So -ts of whole numbers,
// the last one more for the output, cuts where the plan does; `check_split` repeats that
// arithmetic. The first layers, those beyond -ngl, and the token embedding lie on the CPU. -ot
// moves tensors whose names match to another device: an MLP that the plan cuts from its attention.
// Tensor mode: one stage, each device an equal part.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/export/formats.h"
#include "planner/export/layers.h"
#include "planner/plan/kv_room.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr const char* kLlamaCpp = "llama.cpp";

std::string device_name(const DeviceInfo& device) {
    if (is_cpu(device)) return "CPU";
    if (const VendorFacts* vendor = gpu_vendor(device))
        return fmt::format("{}{}", vendor->platform, device.index);
    throw UserError("llama.cpp: {} is no CPU and no GPU that it drives", device.name);
}

// What llama.cpp makes of -ts: the device of each of the layers on GPUs, and of the output.
std::vector<size_t> split_of(const std::vector<int>& shares, int64_t things) {
    std::vector<float> splits(shares.begin(), shares.end());
    float sum = 0;
    for (float& split : splits) split = sum += split;
    for (float& split : splits) split /= sum;
    std::vector<size_t> devices;
    for (int64_t i = 0; i < things; ++i)
        devices.push_back(static_cast<size_t>(
            std::upper_bound(splits.begin(), splits.end(),
                             static_cast<float>(i) / static_cast<float>(things)) -
            splits.begin()));
    return devices;
}

// -ts takes fewer shares than llama_max_devices(), which is 16.
void check_count(const Plan& plan) {
    constexpr int kMostShares = 15;
    int gpus = 0;
    for (const Stage& stage : plan.stages)
        for (DeviceId d : stage.devices) gpus += is_cpu(plan.machine.device(d)) ? 0 : 1;
    if (gpus > kMostShares)
        throw UserError(
            "llama.cpp: the plan has {} GPUs, and -ts takes at most {}; name fewer in $devices",
            gpus, kMostShares);
}

struct Flags {
    std::vector<std::string> arguments;
    std::vector<std::string> notes;
};

bool on_cpu(const Plan& plan, int stage) {
    return is_cpu(plan.machine.device(plan.stages[static_cast<size_t>(stage)].devices[0]));
}

// Stages of one device: layers in order, the CPU's first.
void layer_mode(const Plan& plan, Flags& flags) {
    const std::vector<LayerStages> layers = stages_of_layers(plan, kLlamaCpp);
    const auto name_of = [&](int stage) {
        return device_name(plan.machine.device(plan.stages[static_cast<size_t>(stage)].devices[0]));
    };
    int64_t cpu_layers = 0;
    std::vector<int> shares;
    std::vector<std::string> names, overrides;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
        const bool cpu = on_cpu(plan, static_cast<int>(s));
        if (cpu && s > 0)
            throw UserError(
                "llama.cpp: stage {} is on the CPU behind others, and llama.cpp has one CPU, whose "
                "layers come first; name the host first in $devices, once",
                s);
        int count = 0;
        for (const LayerStages& layer : layers) count += layer.attention == static_cast<int>(s);
        if (cpu)
            cpu_layers = count;
        else
            shares.push_back(count), names.push_back(name_of(static_cast<int>(s)));
    }
    for (size_t l = 0; l < layers.size(); ++l)
        if (layers[l].mlp != layers[l].attention)
            overrides.push_back(fmt::format("blk\\.{}\\.ffn_.*={}", l, name_of(layers[l].mlp)));
    const auto num_layers = static_cast<int64_t>(layers.size());
    if (shares.empty()) {
        flags.arguments.insert(flags.arguments.end(), {"-dev", "none", "-ngl", "0"});
        return;
    }
    ++shares.back();  // the output
    const int64_t things = num_layers + 1 - cpu_layers;
    const std::vector<size_t> made = split_of(shares, things);
    for (int64_t i = 0; i + 1 < things; ++i) {
        const int wanted = layers[static_cast<size_t>(i + cpu_layers)].attention -
                           static_cast<int>(plan.stages.size() - shares.size());
        CLEAVE_CHECK(made[static_cast<size_t>(i)] == static_cast<size_t>(wanted))
            << "-ts puts layer " << i + cpu_layers << " elsewhere";
    }
    flags.arguments.insert(flags.arguments.end(),
                           {"-dev", fmt::format("{}", fmt::join(names, ",")), "-sm",
                            names.size() > 1 ? "layer" : "none", "-ngl", std::to_string(things)});
    if (names.size() > 1)
        flags.arguments.insert(flags.arguments.end(),
                               {"-ts", fmt::format("{}", fmt::join(shares, ","))});
    if (!overrides.empty())
        flags.arguments.insert(flags.arguments.end(),
                               {"-ot", fmt::format("{}", fmt::join(overrides, ","))});
}

// One stage of several devices.
void tensor_mode(const Plan& plan, const std::vector<DeviceId>& devices, Flags& flags) {
    if (plan.stages.size() > 1)
        throw UserError(
            "llama.cpp: the plan has {} stages and tensor-parallel ones among them, and -sm is "
            "either "
            "layer or tensor for all devices; plan with $tensor_parallel {} $pipeline_stages 1 or "
            "$tensor_parallel 1 $pipeline_stages {}",
            plan.stages.size(), devices.size(), devices.size());
    only_gpus(plan, devices, kLlamaCpp);
    equal_shards(plan, kLlamaCpp);
    std::vector<std::string> names;
    for (DeviceId d : devices) names.push_back(device_name(plan.machine.device(d)));
    const std::vector<int> shares(names.size(), 1);
    flags.arguments.insert(
        flags.arguments.end(),
        {"-dev", fmt::format("{}", fmt::join(names, ",")), "-sm", "tensor", "-ts",
         fmt::format("{}", fmt::join(shares, ",")), "-ngl", "all", "-fa", "on"});
    flags.notes.emplace_back(
        "Tensor mode is experimental in llama.cpp, is not there for every architecture, and cuts "
        "matrices at its own granularity.");
}

// The flags of one server.
Flags server_flags(const Plan& plan) {
    stages_of_layers(plan, kLlamaCpp);
    check_count(plan);
    const std::vector<DeviceId> devices = devices_in_stage_order(plan, kLlamaCpp);
    const bool divided = std::any_of(plan.stages.begin(), plan.stages.end(),
                                     [](const Stage& s) { return s.devices.size() > 1; });
    Flags flags;
    flags.notes = {
        "llama.cpp reads a GGUF file of the model, not this plan's ONNX file; the weights' types "
        "are "
        "that file's.",
        "The token embedding lies on the CPU in llama.cpp, wherever the plan has it."};
    if (divided)
        tensor_mode(plan, devices, flags);
    else
        layer_mode(plan, flags);
    const DType kv_dtype = plan.workload.kv_dtype.value_or(DType::kF16);
    if (has_kv_scales(kv_dtype))
        throw UserError(
            "llama.cpp: the plan keeps keys and values in {} with a scale for each head and "
            "position, and llama.cpp's types of 8 bits have one for 32 elements; give $kv_dtype "
            "f32, f16 or bf16",
            kv_dtype);
    const std::string kv(dtype_name(kv_dtype));
    const bool whole = has_whole_contexts(plan);
    const int64_t cache_tokens =
        whole ? plan.workload.context * plan.workload.batch : kv_tokens(plan.kv_pool.num_blocks);
    const std::vector<std::string> workload{"-fit", "off",
                                            "-c",   std::to_string(cache_tokens),
                                            "-np",  std::to_string(plan.workload.batch),
                                            "-b",   std::to_string(plan.workload.max_tokens()),
                                            "-ub",  std::to_string(plan.workload.max_tokens()),
                                            "-ctk", kv,
                                            "-ctv", kv};
    flags.arguments.insert(flags.arguments.end(), workload.begin(), workload.end());
    // One cache for all sequences, in which any of them may be as long as it.
    if (!whole) {
        flags.arguments.emplace_back("-kvu");
        flags.notes.push_back(fmt::format(
            "The context of {} tokens: with one cache for all sequences llama.cpp has no limit of "
            "its own for each.",
            plan.workload.context));
    }
    return flags;
}

}  // namespace

ExportResult export_llama_cpp(const Plan& plan) {
    Flags flags = server_flags(plan);
    const bool several = plan.num_replicas() > 1;
    for (int64_t r = 1; r < plan.num_replicas(); ++r)
        if (const DeviceInfo& device = replica_machine(plan, r).devices[0];
            device.host != plan.machine.devices[0].host)
            throw UserError(
                "llama.cpp: {} is on another host than {}, and one serve.sh starts the servers of "
                "one; plan for a host's devices and run it on each",
                device.name, plan.machine.devices[0].name);
    std::string script =
        several ? fmt::format(
                      "#!/bin/sh\n# usage: sh serve.sh MODEL.gguf [FLAG...]; {} servers, on the "
                      "ports from 8080\nset -eu\nmodel=$1\nshift\nset -- -m \"$model\" \"$@\"\n",
                      plan.num_replicas())
                : "#!/bin/sh\n# usage: sh serve.sh MODEL.gguf [FLAG...]\nset -eu\nmodel=$1\n"
                  "shift\nexec llama-server -m \"$model\"";
    for (int64_t r = 0; r < plan.num_replicas(); ++r) {
        std::vector<std::string> arguments = flags.arguments;
        if (several) {
            arguments = server_flags(replica_plan(plan, r)).arguments;
            arguments.insert(arguments.end(), {"--port", std::to_string(8080 + r)});
            script += "llama-server";
        }
        for (const std::string& argument : arguments) script += ' ' + shell_quoted(argument);
        script += several ? " \"$@\" &\n" : " \"$@\"\n";
    }
    if (several) {
        script += "wait\n";
        flags.notes.emplace_back(
            "Each server has users of its own: something before them has to share out requests.");
    }
    return {.files = {{"serve.sh", std::move(script)}},
            .commands = {{"sh", "serve.sh", "MODEL.gguf"}},
            .not_expressed = std::move(flags.notes)};
}

}  // namespace cleave::planner
