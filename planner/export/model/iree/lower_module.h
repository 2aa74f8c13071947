// SPDX-License-Identifier: Apache-2.0
// A schedule as one MLIR module for IREE. Every weight, table and KV cache is a global of its
// device; every exchange is transfers to a device and additions there; everything else follows its
// operands.
//
// @forward(ids of each device that embeds: tensor<?xi32>, past: i32) -> logits [tokens, vocab] f32.
// Keys and values are state of the module, [context, KV heads, head_dim]: a call with past = 0
// begins anew. With a batch, another i32 says which of its sequences a call is of, and their keys
// and values follow each other, [batch * context, ...].
#pragma once

#include <string>
#include <vector>

#include "planner/export/model/segments.h"
#include "planner/export/model/tensor_file.h"

namespace cleave::planner {

// The symbol of a device: what its promise and its --iree-hal-target-device name.
std::string iree_device(DeviceId device);

struct IreeModule {
    std::string text;
    std::vector<DeviceId> id_devices;  // of @forward's token ids, an argument each
    int transfers = 0;                 // flow.tensor.transfer operations
};

// `data`: the constants of each device, in the scope of its symbol.
IreeModule lower_module(const Plan& plan, const Schedule& schedule,
                        const std::vector<std::shared_ptr<TensorFile>>& data);

}  // namespace cleave::planner
