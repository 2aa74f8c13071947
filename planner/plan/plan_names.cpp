// SPDX-License-Identifier: Apache-2.0
// The names that enumerations of planner/plan/plan.h have in every printout and file.
#include <array>

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

std::string_view route_name(Route route) {
    static constexpr std::array<std::string_view, 4> kNames{"same_memory", "peer", "host_staged",
                                                            "network"};
    return kNames.at(static_cast<size_t>(route));
}

std::string_view collective_op_name(CollectiveOp op) {
    return op == CollectiveOp::kAllReduce ? "all_reduce" : "all_gather";
}

std::string_view collective_implementation_name(CollectiveImplementation implementation) {
    static constexpr std::array<std::string_view, 4> kNames{"one_shot", "two_phase", "ring",
                                                            "vendor"};
    return kNames.at(static_cast<size_t>(implementation));
}

std::string_view transport_name(Transport transport) {
    static constexpr std::array<std::string_view, 3> kNames{"staged", "peer", "vendor"};
    return kNames.at(static_cast<size_t>(transport));
}

}  // namespace cleave::planner
