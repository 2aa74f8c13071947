// SPDX-License-Identifier: Apache-2.0
#include "planner/export/layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

int stage_of(const Plan& plan, OpId op) {
    for (size_t s = 0; s < plan.stages.size(); ++s)
        if (plan.stages[s].first_op <= op && op <= plan.stages[s].last_op)
            return static_cast<int>(s);
    return -1;
}

bool is_mlp(const importer::Op& op) { return op.kind == importer::OpKind::kGatedActivation; }

}  // namespace

bool is_cpu(const DeviceInfo& device) {
    return device.kind == DeviceKind::kHost ||
           (device.kind == DeviceKind::kSim && !gpu_vendor(device));
}

const VendorFacts* gpu_vendor(const DeviceInfo& device) {
    return device.kind == DeviceKind::kSim || is_card(device.kind) ? vendor_of(device) : nullptr;
}

bool is_gpu_of(const DeviceInfo& device, Vendor vendor) {
    const VendorFacts* facts = gpu_vendor(device);
    return facts && facts->vendor == vendor;
}

std::vector<LayerStages> stages_of_layers(const Plan& plan, const std::string& tool) {
    const auto num_layers = static_cast<size_t>(plan.graph.config.num_layers);
    std::vector<LayerStages> layers(num_layers);
    for (size_t i = 0; i < plan.graph.ops.size(); ++i) {
        const importer::Op& op = plan.graph.ops[i];
        if (op.layer < 0 || op.layer >= static_cast<int>(num_layers)) continue;
        LayerStages& layer = layers[static_cast<size_t>(op.layer)];
        if (op.kind == importer::OpKind::kAttention) layer.attention = stage_of(plan, OpId(i));
        if (is_mlp(op)) layer.mlp = stage_of(plan, OpId(i));
    }
    const bool whole = std::all_of(layers.begin(), layers.end(), [](const LayerStages& layer) {
        return layer.attention >= 0 && layer.mlp >= 0;
    });
    if (num_layers == 0 || !whole)
        throw UserError(
            "{}: {} is no Llama of decoder layers, and {} places nothing else; $format json, dot "
            "or text has any plan",
            tool, plan.graph.name, tool);
    return layers;
}

std::vector<int> whole_layers_per_stage(const Plan& plan, const std::string& tool) {
    std::vector<int> count(plan.stages.size(), 0);
    const std::vector<LayerStages> layers = stages_of_layers(plan, tool);
    for (size_t l = 0; l < layers.size(); ++l) {
        if (layers[l].attention != layers[l].mlp)
            throw UserError(
                "{}: the plan cuts layer {} in two, attention on stage {} and MLP on stage {}, and "
                "{} places whole layers; plan with $whole_layers, or pin that layer to one device: "
                "$pins layers.{}={}",
                tool, l, layers[l].attention, layers[l].mlp, tool, l,
                plan.machine
                    .device(plan.stages[static_cast<size_t>(layers[l].attention)].devices[0])
                    .name);
        ++count[static_cast<size_t>(layers[l].attention)];
    }
    for (size_t s = 0; s < count.size(); ++s)
        if (count[s] == 0)
            throw UserError(
                "{}: stage {} has no decoder layer, and {} gives each stage some; plan "
                "with fewer stages: $pipeline_stages {}",
                tool, s, tool, plan.stages.size() - 1);
    return count;
}

namespace {

// UserError where two GPUs of a host, of whatever replicas, have one number.
void distinct_numbers(const Plan& plan, const std::string& tool) {
    const std::set<std::string> used = used_device_names(plan);
    std::map<std::tuple<const VendorFacts*, std::string, int>, std::string> taken;
    for (int64_t r = 0; r < plan.num_replicas(); ++r)
        for (const DeviceInfo& device : replica_machine(plan, r).devices) {
            if (is_cpu(device) || !used.count(device.name)) continue;
            const auto at =
                taken.try_emplace({gpu_vendor(device), device.host, device.index}, device.name)
                    .first;
            if (at->second != device.name)
                throw UserError(
                    "{}: {} and {} are both number {}, and {} knows GPUs by their number; give "
                    "each the one that it has, as in sim:rtx4090[0],sim:h100[1]",
                    tool, at->second, device.name, device.index, tool);
        }
}

}  // namespace

std::vector<DeviceId> devices_in_stage_order(const Plan& plan, const std::string& tool) {
    distinct_numbers(plan, tool);
    std::vector<DeviceId> devices;
    std::set<std::string> hosts;
    for (const Stage& stage : plan.stages)
        for (DeviceId d : stage.devices) {
            const DeviceInfo& device = plan.machine.device(d);
            if (std::find(devices.begin(), devices.end(), d) != devices.end())
                throw UserError(
                    "{}: {} has several stages, and {} gives each device one; plan without virtual "
                    "stages: $objective latency, or $pipeline_stages {}",
                    tool, device.name, tool, plan.machine.devices.size());
            devices.push_back(d);
            hosts.insert(device.host);
        }
    if (hosts.size() > 1)
        throw UserError(
            "{}: the devices belong to {} machines, and these flags are of one; plan for the "
            "devices "
            "of one machine",
            tool, hosts.size());
    return devices;
}

const VendorFacts& only_gpus(const Plan& plan, const std::vector<DeviceId>& devices,
                             const std::string& tool) {
    const DeviceInfo& first = plan.machine.device(devices[0]);
    for (DeviceId d : devices) {
        const DeviceInfo& device = plan.machine.device(d);
        const VendorFacts* vendor = gpu_vendor(device);
        if (!vendor)
            throw UserError("{}: {} is no GPU; plan for cuda, hip, or their sim: models", tool,
                            device.name);
        if (vendor != gpu_vendor(first))
            throw UserError("{}: {} and {} are of two vendors, and one build of {} drives one",
                            tool, first.name, device.name, tool);
    }
    return *gpu_vendor(first);
}

int same_width(const Plan& plan, const std::string& tool) {
    const size_t width = plan.stages[0].devices.size();
    for (size_t s = 1; s < plan.stages.size(); ++s)
        if (plan.stages[s].devices.size() != width)
            throw UserError(
                "{}: stage 0 has {} devices and stage {} has {}, and {} divides all stages alike; "
                "force a shape: $tensor_parallel T $pipeline_stages P",
                tool, width, s, plan.stages[s].devices.size(), tool);
    return static_cast<int>(width);
}

void equal_shards(const Plan& plan, const std::string& tool) {
    const int width = same_width(plan, tool);
    if (width == 1) return;
    const int64_t heads = plan.graph.config.num_heads;
    for (const Step& step : plan.decode.steps) {
        const Compute* c = step.compute();
        if (!c) continue;
        if (c->kernel == KernelKind::kAttention) {
            if (c->heads.size() * width != heads)
                throw UserError(
                    "{}: {} has {} of {} query heads, and {} gives each of {} devices the same; "
                    "choose a $tensor_parallel that divides the heads, on equal devices",
                    tool, plan.machine.device(c->device).name, c->heads.size(), heads, tool, width);
        }
        for (OpId id : c->ops) {
            const importer::Op& op = plan.graph.op(id);
            if (!is_mlp(op)) continue;
            for (PlacedId out : c->outputs) {
                const Range columns = plan.decode.values[out.index()].box.back();
                const int64_t all = plan.graph.config.intermediate_size;
                if (columns.size() * width != all)
                    throw UserError(
                        "{}: {} has {} of {} MLP columns, and {} gives each of {} devices the "
                        "same; "
                        "choose a $tensor_parallel that divides them, on equal devices",
                        tool, plan.machine.device(c->device).name, columns.size(), all, tool,
                        width);
            }
        }
    }
    const int64_t kv_heads = plan.graph.config.num_kv_heads;
    if (kv_heads % width != 0 && width % kv_heads != 0)
        throw UserError(
            "{}: {} KV heads on {} devices: neither divides the other; choose another "
            "$tensor_parallel",
            tool, kv_heads, width);
}

DType dense_weights(const Plan& plan, const std::string& tool) {
    const DType dtype = weights_dtype(plan);
    if (dtype_bits(dtype) < 16 ||
        (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16))
        throw UserError(
            "{}: the plan's weights are {}, and {} takes quantised weights from a checkpoint in "
            "its "
            "own format, whose sizes differ; plan with $dtype f16 or bf16",
            tool, dtype, tool);
    return dtype;
}

std::string shell_quoted(const std::string& text) {
    std::string out = "'";
    for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

}  // namespace cleave::planner
