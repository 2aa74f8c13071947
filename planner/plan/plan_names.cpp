// SPDX-License-Identifier: Apache-2.0
// The names that enumerations of planner/plan/plan.h have in every printout and file.
#include <array>

#include "planner/machine/vendor.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

std::string_view kernel_kind_name(KernelKind kind) {
    static constexpr std::array<std::string_view, 15> kNames{
        "embedding",     "norm_qkv_rope_append",
        "attention",     "linear",
        "norm_gate_up",  "norm_linear",
        "rms_norm",      "rope",
        "kv_append",     "gated_activation",
        "add",           "scale",
        "select_tokens", "opaque",
        "tensor"};
    return kNames.at(static_cast<size_t>(kind));
}

std::string_view arena_name(Arena arena) {
    static constexpr std::array<std::string_view, 5> kNames{"weights", "kv", "activations",
                                                            "staging", "scratch"};
    return kNames.at(static_cast<size_t>(arena));
}

std::string_view buffer_role_name(BufferRole role) {
    static constexpr std::array<std::string_view, 16> kNames{"constant",
                                                             "kv",
                                                             "activations",
                                                             "input",
                                                             "scratch",
                                                             "batch.token_ids",
                                                             "batch.positions",
                                                             "batch.slots",
                                                             "batch.sequence_starts",
                                                             "batch.output_rows",
                                                             "batch.blocks",
                                                             "staging.exchange",
                                                             "staging.peers",
                                                             "staging.signals",
                                                             "staging.tokens",
                                                             "staging.arrivals"};
    return kNames.at(static_cast<size_t>(role));
}

std::string_view collective_op_name(CollectiveOp op) {
    return op == CollectiveOp::kAllReduce ? "all_reduce" : "all_gather";
}

std::string_view sum_form_name(SumForm form) {
    static constexpr std::array<std::string_view, 5> kNames{"one_shot", "two_phase", "ring", "tree",
                                                            "hierarchical"};
    return kNames.at(static_cast<size_t>(form));
}

std::string_view compute_mode_name(ComputeMode mode) {
    return mode == ComputeMode::kFast ? "fast" : "exact";
}

std::string_view path_name(Path path) {
    static constexpr std::array<std::string_view, 3> kNames{"staged", "peer", "vendor"};
    return kNames.at(static_cast<size_t>(path));
}

}  // namespace cleave::planner
