// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/foreign_op.h"

#include <algorithm>

namespace cleave::planner {
namespace {

constexpr const char* kAttribute = "cleave.foreign";
constexpr size_t kNumbers = 5;

}  // namespace

void set_foreign_op(importer::TensorAttrs& attrs, const ForeignOp& op) {
    attrs.attributes.push_back({kAttribute,
                                {static_cast<int64_t>(op.split), op.split_units, op.flops_per_token,
                                 op.bytes, op.bytes_per_token},
                                {}});
}

std::optional<ForeignOp> foreign_op(const importer::Op& op) {
    if (op.kind != importer::OpKind::kTensor) return std::nullopt;
    for (const importer::TensorAttribute& a : op.as<importer::TensorAttrs>().attributes) {
        if (a.name != kAttribute) continue;
        const std::vector<int64_t>& n = a.integers;
        // A plan file may hold anything: what is no foreign operator is one that nothing is known
        // of.
        if (n.size() != kNumbers || n[0] < 0 ||
            n[0] > static_cast<int64_t>(ForeignSplit::kElementwise) || op.outputs.size() != 1 ||
            *std::min_element(n.begin() + 2, n.end()) < 0 || n[1] < 1)
            return std::nullopt;
        const auto split = static_cast<ForeignSplit>(n[0]);
        const bool reads = split == ForeignSplit::kByInput || split == ForeignSplit::kElementwise;
        if (reads && op.inputs.empty()) return std::nullopt;
        return ForeignOp{static_cast<ForeignSplit>(n[0]), n[1], n[2], n[3], n[4]};
    }
    return std::nullopt;
}

bool stays_on_one_device(const importer::Op& op) {
    if (!keeps_onnx_form(op)) return false;
    const std::optional<ForeignOp> foreign = foreign_op(op);
    return !foreign || foreign->split == ForeignSplit::kOnce;
}

}  // namespace cleave::planner
