// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/plan/foreign_op.h"
#include "tests/planner/support/mutations.h"
#include "tests/planner/support/tensor_graph.h"

namespace cleave::test {

namespace {

// Of an all-reduced Linear with a bias: one more contributor adds it, or none does.
bool repeat_bias(Plan& plan, bool twice) {
    std::vector<Compute*> parts;
    for (Step& step : plan.decode.steps)
        if (Compute* c = std::get_if<Compute>(&step.action);
            c && c->kernel == KernelKind::kLinear && (parts.empty() || parts[0]->ops == c->ops))
            parts.push_back(c);
    if (parts.size() < 2 || parts[0]->weights.size() != 2) return false;
    if (!twice) return parts[0]->weights.pop_back(), true;
    WeightShard bias = plan.weights[parts[0]->weights[1].index()];
    bias.device = parts[1]->device;
    parts[1]->weights.push_back(WeightShardId(plan.weights.size()));
    plan.weights.push_back(bias);
    return true;
}

}  // namespace

std::vector<Mutation> step_mutations() {
    return {
        {"a transfer is deleted", "operand-not-ready",
         [](Plan& p) { return erase_step(p.decode, nth_step<Transfer>(p.decode)); }},
        {"a transfer is made twice", "transfer-twice",
         [](Plan& p) { return repeat_step(p.decode, nth_step<Transfer>(p.decode)); }},
        {"a compute step is deleted", "op-incomplete",
         [](Plan& p) {
             return p.stages[0].devices.size() > 1 &&
                    erase_step(p.prefill, kernel_step(p.prefill, KernelKind::kNormGateUp));
         }},
        {"the embedding is deleted", "op-missing",
         [](Plan& p) {
             return p.stages[0].devices.size() == 1 &&
                    erase_step(p.prefill, kernel_step(p.prefill, KernelKind::kEmbedding));
         }},
        {"a compute step is made twice", "computed-once",
         [](Plan& p) {
             return repeat_step(p.prefill, kernel_step(p.prefill, KernelKind::kNormGateUp));
         }},
        {"a collective is deleted", "partial-unreduced",
         [](Plan& p) { return erase_step(p.decode, nth_step<Collective>(p.decode)); }},
        {"a collective is made twice", "collective-twice",
         [](Plan& p) { return repeat_step(p.decode, nth_step<Collective>(p.decode)); }},
        {"two steps are swapped", "operand-not-ready",
         [](Plan& p) {
             size_t i = kernel_step(p.decode, KernelKind::kNormGateUp);
             std::rotate(p.decode.steps.begin() + static_cast<std::ptrdiff_t>(i),
                         p.decode.steps.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                         p.decode.steps.end());
             return true;
         }},
        {"attention comes before its keys", "kv-append",
         [](Plan& p) {
             size_t i = kernel_step(p.decode, KernelKind::kAttention),
                    j = kernel_step(p.decode, KernelKind::kNormQkvRopeAppend);
             std::swap(p.decode.steps[i], p.decode.steps[j]);
             return true;
         }},
    };
}

std::vector<Mutation> operand_mutations() {
    return {
        {"an operand is another device's", "operand-device",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             Compute* other = find_kernel(p.decode, KernelKind::kAttention, 1);
             if (other->device == c->device || other->ops != c->ops) return false;
             c->inputs = other->inputs;
             return true;
         }},
        {"an operand is left out", "operand-missing",
         [](Plan& p) {
             find_kernel(p.decode, KernelKind::kNormGateUp)->inputs.clear();
             return true;
         }},
        {"two operands change places", "operand-order",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kLinear);
             if (c->inputs.size() != 2) return false;
             std::swap(c->inputs[0], c->inputs[1]);
             return true;
         }},
        {"an operand nobody reads", "operand-unused",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             c->inputs.push_back(c->outputs[0]);
             return true;
         }},
        {"a box is a column short", "output-box",
         [](Plan& p) {
             --value_of(p.decode, find_kernel(p.decode, KernelKind::kNormGateUp)->outputs[0])
                   .box[1]
                   .end;
             return true;
         }},
        {"a box cuts a head in two", "operand-sharding",
         [](Plan& p) {
             ++value_of(p.decode, find_kernel(p.decode, KernelKind::kAttention)->inputs[0])
                   .box[1]
                   .begin;
             return true;
         }},
        {"a box splits the tokens", "value-box",
         [](Plan& p) {
             value_of(p.decode, find_kernel(p.decode, KernelKind::kAttention)->outputs[0])
                 .box[0] = {0, 1};
             return true;
         }},
    };
}

std::vector<Mutation> result_mutations() {
    return {
        {"a result is stored on another device", "output-device",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormGateUp);
             if (p.machine.devices.size() == 1) return false;
             c->device = other_than(p, c->device);
             return true;
         }},
        {"a result is stored as another value", "output-value",
         [](Plan& p) {
             value_of(p.decode, find_kernel(p.decode, KernelKind::kNormGateUp)->outputs[0]).value =
                 value_of(p.decode, find_kernel(p.decode, KernelKind::kAttention)->outputs[0])
                     .value;
             return true;
         }},
        {"a summand is called the value", "partial-sum",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce);
             if (!c) return false;
             value_of(p.decode, c->contributions[0]).partial = false;
             return true;
         }},
        {"a summand is read as the value", "partial-read",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce);
             if (!c) return false;
             find_kernel(p.decode, KernelKind::kNormQkvRopeAppend)->inputs = {c->contributions[0]};
             return true;
         }},
        {"a step says other heads", "heads",
         [](Plan& p) {
             ++find_kernel(p.decode, KernelKind::kAttention)->heads.end;
             return true;
         }},
        {"a step has another kernel's operators", "kernel",
         [](Plan& p) {
             find_kernel(p.decode, KernelKind::kNormGateUp)->kernel = KernelKind::kLinear;
             return true;
         }},
        {"operators of a step change places", "op-order",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormGateUp);
             std::swap(c->ops[1], c->ops[2]);
             return true;
         }},
        {"a device repeats the work of another", "computed-once",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormGateUp);
             Compute* other = find_kernel(p.decode, KernelKind::kNormGateUp, 1);
             if (other->ops != c->ops) return false;
             for (size_t i = 1; i < 3; ++i) matrix_of(p, *other, i).rows = matrix_of(p, *c, i).rows;
             return true;
         }},
    };
}

std::vector<Mutation> weight_mutations() {
    return {
        {"a projection has other rows", "output-box",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormQkvRopeAppend);
             WeightShard& w = matrix_of(p, *c, 1);
             const int64_t head = p.kv_slabs[c->kv.index()].head_dim;
             w.rows = w.rows.size() > head ? Range{w.rows.begin + head, w.rows.end}
                                           : Range{w.rows.begin + head, w.rows.end + head};
             return true;
         }},
        {"a row-split projection has other columns", "operand-sharding",
         [](Plan& p) {
             WeightShard& w = matrix_of(p, *find_kernel(p.decode, KernelKind::kLinear), 0);
             if (w.columns.begin != 0 || w.columns.end == p.graph.weight(w.weight).shape[1])
                 return false;
             ++w.columns.end;
             return true;
         }},
        {"a product of integers sums over some columns alone", "operand-sharding",
         [](Plan& p) {
             const WeightShard& w = matrix_of(p, *find_kernel(p.decode, KernelKind::kLinear), 0);
             importer::Weight& matrix = p.graph.weights[w.weight.index()];
             if (w.columns.size() == matrix.shape[1]) return false;
             matrix.quantization.dynamic_activations = true;
             return true;
         }},
        {"a step lacks a weight", "weight-missing",
         [](Plan& p) {
             find_kernel(p.decode, KernelKind::kNormGateUp)->weights.pop_back();
             return true;
         }},
        {"a step's weights change places", "weight-order",
         [](Plan& p) {
             auto& weights = find_kernel(p.decode, KernelKind::kNormGateUp)->weights;
             std::swap(weights[1], weights[2]);
             return true;
         }},
        {"a shard reaches beyond its weight", "weight-box",
         [](Plan& p) {
             WeightShard& w = p.weights.back();
             w.rows.end = p.graph.weight(w.weight).shape[0] + 1;
             return true;
         }},
        {"a norm has a part of its weight", "weight-box",
         [](Plan& p) {
             --matrix_of(p, *find_kernel(p.decode, KernelKind::kNormGateUp), 0).rows.end;
             return true;
         }},
        {"a weight is read on another device", "weight-device",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormGateUp);
             WeightShard& w = matrix_of(p, *c, 1);
             if (p.machine.devices.size() == 1) return false;
             w.device = other_than(p, w.device);
             p.buffers[w.buffer.index()].device = w.device;
             return true;
         }},
    };
}

std::vector<Mutation> weight_list_mutations() {
    return {
        {"a weight is narrower on one device", "weight-dtype",
         [](Plan& p) {
             for (size_t i = 1; i < p.weights.size(); ++i)
                 if (p.weights[i].weight == p.weights[0].weight) {
                     p.weights[i].dtype =
                         p.weights[i].dtype == DType::kF16 ? DType::kBF16 : DType::kF16;
                     return true;
                 }
             return false;
         }},
        {"a weight that no step uses", "weight-unused",
         [](Plan& p) {
             WeightShard w = matrix_of(p, *find_kernel(p.decode, KernelKind::kNormGateUp), 1);
             --w.rows.end;
             p.weights.push_back(w);
             return true;
         }},
        {"a weight lies on a device twice", "weight-duplicate",
         [](Plan& p) {
             p.weights.push_back(p.weights[0]);
             return true;
         }},
        {"the bias of a split sum is added twice", "collective-bias",
         [](Plan& p) { return repeat_bias(p, true); }},
        {"the bias of a split sum is never added", "collective-bias",
         [](Plan& p) { return repeat_bias(p, false); }},
        {"a step lacks its rope table", "rope-missing",
         [](Plan& p) {
             find_kernel(p.decode, KernelKind::kNormQkvRopeAppend)->rope_tables.clear();
             return true;
         }},
        {"a rope table lies on a device twice", "rope-duplicate",
         [](Plan& p) {
             p.rope_tables.push_back(p.rope_tables[0]);
             return true;
         }},
        {"a rope table that no step uses", "rope-unused",
         [](Plan& p) {
             p.rope_tables.push_back(p.rope_tables[0]);
             return true;
         }},
        {"a rope table is shorter than the context", "rope-positions",
         [](Plan& p) {
             p.graph.rope_tables[0].max_positions = p.workload.context - 1;
             return true;
         }},
    };
}

std::vector<Mutation> tensor_mutations() {
    return {
        {"an operator over tensors has a part of its initializer", "weight-box",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kTensor);
             if (c) --matrix_of(p, *c, 0).rows.end;
             return c != nullptr;
         }},
        {"an initializer over tensors changes its type", "weight-dtype",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kTensor);
             if (c) matrix_of(p, *c, 0).dtype = DType::kInt16;
             return c != nullptr;
         }},
        {"an operand over tensors has another shape than its value", "graph",
         [](Plan& p) {
             for (importer::Op& op : p.graph.ops) {
                 if (op.kind != importer::OpKind::kTensor) continue;
                 std::get<importer::TensorAttrs>(op.attrs).operands[0].shape = {8, 2};
                 return true;
             }
             return false;
         }},
    };
}

namespace {

// The first launch of four operators: a product, and three elementwise ones behind it.
Compute* find_chain(Phase& phase) {
    const size_t i =
        nth_step<Compute>(phase, 0, [](const Compute& c) { return c.ops.size() == 4; });
    return i < phase.steps.size() ? &std::get<Compute>(phase.steps[i].action) : nullptr;
}

// Numbers of one of its operators.
std::vector<int64_t>& numbers_in_chain(Plan& p, size_t n, const char* name) {
    return TensorGraph::numbers_of(p.graph.ops[find_chain(p.decode)->ops[n].index()], name);
}

importer::TensorAttrs& attrs_in_chain(Plan& p, size_t n) {
    return std::get<importer::TensorAttrs>(p.graph.ops[find_chain(p.decode)->ops[n].index()].attrs);
}

}  // namespace

std::vector<Mutation> tensor_chain_mutations() {
    return {
        {"a chain over tensors lacks an operator in its middle", "kernel",
         [](Plan& p) {
             auto& ops = find_chain(p.decode)->ops;
             ops.erase(ops.begin() + 2);
             return true;
         }},
        {"a chain over tensors lacks its last operator", "output-value",
         [](Plan& p) {
             find_chain(p.decode)->ops.pop_back();
             return true;
         }},
        {"a chain over tensors begins behind its product", "operand-missing",
         [](Plan& p) {
             auto& ops = find_chain(p.decode)->ops;
             ops.erase(ops.begin());
             return true;
         }},
        {"operators of a chain over tensors change places", "op-order",
         [](Plan& p) {
             auto& ops = find_chain(p.decode)->ops;
             std::swap(ops[1], ops[2]);
             return true;
         }},
        {"two launches over tensors become one", "kernel",
         [](Plan& p) {
             Compute* chain = find_chain(p.decode);
             Compute* next = find_kernel(p.decode, KernelKind::kTensor, 1);
             chain->ops.insert(chain->ops.end(), next->ops.begin(), next->ops.end());
             chain->outputs = next->outputs;
             return true;
         }},
        {"a value inside a chain over tensors is given out beside its result", "output-value",
         [](Plan& p) {
             Compute* chain = find_chain(p.decode);
             PlacedValue inner = value_of(p.decode, chain->outputs[0]);
             inner.value = p.graph.op(chain->ops[1]).outputs[0];
             p.decode.values.push_back(inner);
             chain->outputs.push_back(PlacedId(p.decode.values.size() - 1));
             return true;
         }},
    };
}

std::vector<Mutation> tensor_chain_operand_mutations() {
    return {
        {"an operator of a chain over tensors repeats what it reads", "kernel",
         [](Plan& p) {
             numbers_in_chain(p, 2, "strides0") = {0, 1};
             return true;
         }},
        {"an operator of a chain over tensors reads from further on", "kernel",
         [](Plan& p) {
             numbers_in_chain(p, 2, "offset0") = {1};
             return true;
         }},
        {"an operator of a chain over tensors leaves its other operand", "kernel",
         [](Plan& p) {
             numbers_in_chain(p, 1, "offset1") = {1};
             return true;
         }},
        {"rows in a chain over tensors end inside each other", "kernel",
         [](Plan& p) {
             numbers_in_chain(p, 2, "dims") = {20, 12};  // not {24, 10}
             numbers_in_chain(p, 2, "strides0") = {12, 1};
             return true;
         }},
        {"the kernel of a chain over tensors makes its elements in another order", "kernel",
         [](Plan& p) {
             attrs_in_chain(p, 0).op_type = "RotaryEmbedding";
             return true;
         }},
        {"an operator of a chain over tensors is another compiler's", "kernel",
         [](Plan& p) {
             set_foreign_op(attrs_in_chain(p, 2), {});
             return true;
         }},
        {"an operator of a chain over tensors is not computed element by element", "kernel",
         [](Plan& p) {
             attrs_in_chain(p, 2).attributes.clear();
             return true;
         }},
        {"the graph gives out what stands inside a chain over tensors", "output-whole",
         [](Plan& p) {
             const importer::Op& op = p.graph.op(find_chain(p.decode)->ops[1]);
             p.graph.outputs.push_back(op.outputs[0]);
             return true;
         }},
    };
}

std::vector<Mutation> narrow_tile_mutations() {
    return {
        {"a width of decode has no tile", "narrow-tiles",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormGateUp);
             if (c->narrow.empty()) return false;
             c->narrow.pop_back();
             return true;
         }},
        {"a tile of decode is for as many tokens as the batch", "narrow-tiles",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             if (c->narrow.empty()) return false;
             c->narrow.back().tokens = p.workload.batch;
             return true;
         }},
        {"single tokens of a prompt's pass have no launch", "narrow-tiles",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kAttention);
             if (c->narrow.empty()) return false;
             c->narrow.clear();
             return true;
         }},
        {"single tokens of a prompt's pass attend as many together do", "narrow-tiles",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kAttention);
             if (c->narrow.empty()) return false;
             c->narrow[0].tile = c->tile;
             return true;
         }},
        {"a tile for one token has more threads than its device allows", "tile-limits",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kLinear);
             if (c->narrow.empty()) return false;
             const DeviceLimits& limits = p.machine.device(c->device).limits;
             c->narrow[0].tile.threads = limits.max_threads_per_block * 2;
             return true;
         }},
        {"partial results of one token's keys are larger than the scratch", "scratch-size",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             if (c->narrow.empty()) return false;
             c->narrow[0].tile.splits = 1 << 14;
             return true;
         }},
        {"a host's thread has less scratch than its tile takes", "scratch-size",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kNormGateUp);
             if (p.machine.device(c->device).limits.has_warps()) return false;
             c->tile.shared_bytes = 64;
             return true;
         }},
    };
}

std::vector<Mutation> tile_mutations() {
    return {
        {"a host's tile has more tokens than its scratch holds", "scratch-size",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kLinear);
             c->tile.tokens *= 64;
             return !p.machine.device(c->device).limits.has_warps();
         }},
        {"a host's tile has no rows", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kLinear);
             c->tile.rows = 0;
             return !p.machine.device(c->device).limits.has_warps();
         }},
        {"a block's threads are no whole warps", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kLinear);
             c->tile.threads = p.machine.device(c->device).limits.warp_width / 2;
             return p.machine.device(c->device).limits.has_warps();
         }},
        {"a token's product on a GPU divides its rows by nothing", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kLinear);
             c->tile.rows = 0;
             return p.machine.device(c->device).limits.has_warps();
         }},
        {"a host's launch has a tile for few tokens", "narrow-tiles",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kLinear);
             c->narrow.push_back({1, c->tile});
             return !p.machine.device(c->device).limits.has_warps();
         }},
    };
}

}  // namespace cleave::test
