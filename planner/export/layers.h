// SPDX-License-Identifier: Apache-2.0
// What the exporters for serving tools ask of a plan: which stage has which layers, whose devices
// they are, whether its shards are equal. UserErrors name the tool, what its form cannot say, and a
// plan that it could.
#pragma once

#include <string>
#include <vector>

#include "planner/machine/vendor.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// A CPU, or the vendor of a GPU, to other tools: `sim:` devices are what their architecture says,
// and what imitates a GPU is neither.
bool is_cpu(const DeviceInfo& device);
const VendorFacts* gpu_vendor(const DeviceInfo& device);  // null: no GPU
bool is_gpu_of(const DeviceInfo& device, Vendor vendor);

// Stages of a decoder layer's two halves.
struct LayerStages {
    int attention = -1, mlp = -1;
};
// By layer. UserError when the graph is no Llama.
std::vector<LayerStages> stages_of_layers(const Plan& plan, const std::string& tool);

// Layers of each stage. UserError when a layer is cut in two, or a stage has none.
std::vector<int> whole_layers_per_stage(const Plan& plan, const std::string& tool);

// Devices of the plan in stage order, each once. UserError for a device with several stages, and
// for devices of several machines.
std::vector<DeviceId> devices_in_stage_order(const Plan& plan, const std::string& tool);

// UserError unless all devices are GPUs of one vendor, which it returns.
const VendorFacts& only_gpus(const Plan& plan, const std::vector<DeviceId>& devices,
                             const std::string& tool);

// UserError unless every stage has as many devices as the first, which it returns.
int same_width(const Plan& plan, const std::string& tool);

// UserError unless the devices of each stage have equal parts of heads and of the MLP.
void equal_shards(const Plan& plan, const std::string& tool);

// UserError for weights that are narrower on devices than 16 bits: these tools take such from their
// own checkpoints.
DType dense_weights(const Plan& plan, const std::string& tool);

// 'text' for a POSIX shell, whatever is in it.
std::string shell_quoted(const std::string& text);

}  // namespace cleave::planner
