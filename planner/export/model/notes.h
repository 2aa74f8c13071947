// SPDX-License-Identifier: Apache-2.0
// What several exporters say of the same things: ExportResult::not_expressed.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/plan/kv_room.h"

namespace cleave::planner {

inline constexpr const char* kLogitsOfEveryToken =
    "Logits are computed for every token of a pass; the plan computes those of the last unless "
    "asked.";
inline constexpr const char* kWeightsExpanded =
    "Quantised weights are expanded to f32: same results, several times the memory.";

// Of exports whose caller keeps keys and values, a tensor for each layer.
inline void add_pool_note(const Plan& plan, std::vector<std::string>& notes) {
    if (!has_whole_contexts(plan))
        notes.push_back(
            fmt::format("The KV pool of {} tokens: keys and values are as long as the sequences.",
                        kv_tokens(plan.kv_pool.num_blocks)));
}

// Of exports that compute in f32 whatever the plan stores; `expanded`: some weight was quantised.
inline void add_f32_notes(const Plan& plan, bool expanded, std::vector<std::string>& notes) {
    if (plan.workload.activation_dtype != DType::kF32)
        notes.push_back("Activations are f32; the plan's devices hold them as " +
                        std::string(dtype_name(plan.workload.activation_dtype)) + ".");
    if (expanded) notes.emplace_back(kWeightsExpanded);
}

}  // namespace cleave::planner
