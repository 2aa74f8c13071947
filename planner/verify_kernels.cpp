// SPDX-License-Identifier: Apache-2.0
// Which operators, in which order, each kind of kernel computes, and the grid that its tile makes of them.
#include <algorithm>
#include <array>
#include <string_view>

#include "planner/verify_walk.h"

namespace cleave::planner::verify {
namespace {

using importer::OpKind;

// One letter an operator.
char letter(OpKind kind) {
    static constexpr std::string_view kLetters = "ENLRKTGASMOX";
    return kLetters[static_cast<size_t>(kind)];
}

// Letters in order; those in brackets may be absent, all or none. A star: a chain of elementwise operators.
constexpr std::array<std::string_view, 15> kPatterns{"E",       "[N]LLL[NN][RR]K",
                                                     "T",       "L*",
                                                     "[N]LLG*", "[M][N]L*",
                                                     "N*",      "R*",
                                                     "K",       "G*",
                                                     "A*",      "S*",
                                                     "M*",      "O",
                                                     "X"};

// Whether the last `count` operators are elementwise and each reads the one before it, and of the launch nothing else.
bool is_chain(const Graph& graph, const std::vector<OpId>& ops, size_t count) {
    for (size_t i = ops.size() - count; i < ops.size(); ++i) {
        const importer::Op& op = graph.op(ops[i]);
        if (op.kind != OpKind::kAdd && op.kind != OpKind::kScale &&
            op.kind != OpKind::kGatedActivation)
            return false;
        bool reads = false;
        for (ValueId v : op.inputs)
            for (size_t j = 0; j < i; ++j)
                for (ValueId made : graph.op(ops[j]).outputs) {
                    if (made != v) continue;
                    if (j + 1 != i) return false;
                    reads = true;
                }
        if (!reads) return false;
    }
    return true;
}

// No pattern needs a second try: what a bracket opens with never stands right after it. `tail`: operators left for a star.
bool matches(std::string_view pattern, std::string_view text, size_t& tail) {
    tail = 0;
    while (!pattern.empty()) {
        if (pattern == "*") {
            tail = text.size();
            return true;
        }
        const bool optional = pattern[0] == '[';
        std::string_view part =
            optional ? pattern.substr(1, pattern.find(']') - 1) : pattern.substr(0, 1);
        pattern.remove_prefix(optional ? part.size() + 2 : 1);
        if (text.substr(0, part.size()) == part)
            text.remove_prefix(part.size());
        else if (!optional)
            return false;
    }
    return text.empty();
}

// Rows of all matrices of a launch: its output features, gate and up apart.
int64_t matrix_rows(const Plan& plan, const Compute& c) {
    int64_t rows = 0;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() == 2) rows += shard.rows.size();
    }
    return c.kernel == KernelKind::kNormGateUp ? rows / 2 : rows;
}

}  // namespace

std::array<int64_t, 3> least_grid(const Plan& plan, bool is_prefill, const Compute& c) {
    const Workload& w = plan.workload;
    const bool selects = std::any_of(c.ops.begin(), c.ops.end(), [&](OpId id) {
        return plan.graph.op(id).kind == OpKind::kSelectTokens;
    });
    const int64_t tokens = !is_prefill ? w.batch : selects ? w.max_outputs() : w.max_tokens();
    const auto parts = [](int64_t whole, int64_t part) {
        return part > 0 ? (whole + part - 1) / part : whole;
    };
    switch (c.kernel) {
        case KernelKind::kAttention:
            // Many tokens in a block have a head each; one token has blocks for its KV heads, and for parts of the keys.
            if (c.tile.tokens > 1) return {parts(tokens, c.tile.tokens), c.heads.size(), 1};
            return {tokens, 1, c.tile.splits};
        case KernelKind::kLinear:
        case KernelKind::kNormLinear:
        case KernelKind::kNormGateUp:
        case KernelKind::kNormQkvRopeAppend:
            return {parts(matrix_rows(plan, c), c.tile.rows), parts(tokens, c.tile.tokens), 1};
        default: return {tokens, 1, 1};
    }
}

int64_t least_scratch(const Plan& plan, bool is_prefill, const Compute& c) {
    if (!is_prefill) return 0;
    const bool selects = std::any_of(c.ops.begin(), c.ops.end(), [&](OpId id) {
        return plan.graph.op(id).kind == OpKind::kSelectTokens;
    });
    int64_t columns = 0;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() == 2)
            columns = std::max(columns, shard.columns.size());
    }
    return 2 * columns * (selects ? plan.workload.max_outputs() : plan.workload.max_tokens());
}

bool kernel_fits(const Graph& graph, const Compute& compute) {
    if (compute.kernel == KernelKind::kTensor) return tensors_fit(graph, compute);
    std::string letters;
    for (OpId id : compute.ops) letters += letter(graph.op(id).kind);
    size_t tail = 0;
    return matches(kPatterns[static_cast<size_t>(compute.kernel)], letters, tail) &&
           is_chain(graph, compute.ops, tail);
}

}  // namespace cleave::planner::verify
