// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/support/mutations.h"

namespace cleave::test {

std::vector<Mutation> cache_mutations() {
    return {
        {"keys are not appended", "kv-append",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormQkvRopeAppend);
             c->ops.pop_back();
             return true;
         }},
        {"attention reads another layer's cache", "kv-slab",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             for (size_t i = 0; i < p.kv_slabs.size(); ++i)
                 if (p.kv_slabs[i].device == c->device && KvSlabId(i) != c->kv) {
                     c->kv = KvSlabId(i);
                     return true;
                 }
             return false;
         }},
        {"attention reads another device's cache", "kv-slab",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             Compute* other = find_kernel(p.decode, KernelKind::kAttention, 1);
             if (other->device == c->device) return false;
             c->kv = other->kv;
             return true;
         }},
        {"a cache has a head less than its queries need", "kv-slab",
         [](Plan& p) {
             --p.kv_slabs[0].kv_heads.end;
             return true;
         }},
        {"a cache is too small for the context", "buffer-size",
         [](Plan& p) {
             p.buffers[p.kv_slabs[0].buffer.index()].size -= 4;
             return true;
         }},
        {"decode has another cache than prefill", "kv-append",
         [](Plan& p) {
             KvSlab s = p.kv_slabs[0];
             Buffer b = p.buffer(s.buffer);
             b.offset = p.memory[s.device.index()].kv;
             s.buffer = BufferId(p.buffers.size());
             p.buffers.push_back(b);
             p.kv_slabs.push_back(s);
             for (Step& step : p.decode.steps)
                 if (Compute* c = std::get_if<Compute>(&step.action); c && c->kv == KvSlabId(0))
                     c->kv = KvSlabId(p.kv_slabs.size() - 1);
             return true;
         }},
    };
}

std::vector<Mutation> contribution_mutations() {
    return {
        {"a contribution is dropped", "collective-missing",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c) return false;
             c->contributions.pop_back();
             return true;
         }},
        {"a contribution is counted twice", "collective-twice",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c) return false;
             c->contributions.push_back(c->contributions[0]);
             return true;
         }},
        {"a contribution is a column short", "collective-box",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c || c->contributions.size() < 2) return false;
             --value_of(p.decode, c->contributions[1]).box[1].end;
             return true;
         }},
        {"a contribution is another operator's", "collective-value",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             Collective* first = find_collective(p.decode, CollectiveOp::kAllReduce);
             if (!c || c->contributions.size() < 2) return false;
             c->contributions[1] = first->contributions[1];
             return true;
         }},
        {"a gather goes in two phases", "exchange-path",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllGather);
             return c && (c->two_phase = true);
         }},
        {"a transfer goes by a library of collectives", "exchange-path",
         [](Plan& p) {
             Transfer* t = find_transfer(p.decode);
             if (t) t->path = Path::kVendor;
             return t != nullptr;
         }},
        {"a part of the logits is not gathered", "collective-missing",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllGather);
             if (!c) return false;
             c->contributions.erase(c->contributions.begin());
             return true;
         }},
        {"a part of the logits is gathered twice", "collective-twice",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllGather);
             if (!c) return false;
             c->contributions.push_back(c->contributions[0]);
             return true;
         }},
    };
}

std::vector<Mutation> group_mutations() {
    return {
        {"a group names a member twice", "collective-group",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c) return false;
             c->group[1] = c->group[0];
             return true;
         }},
        {"a member is left out of its group", "operand-not-ready",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c) return false;
             c->group.pop_back();
             c->outputs.pop_back();
             c->epilogue_inputs.pop_back();
             return true;
         }},
        {"a sum is stored without its residual", "output-value",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c) return false;
             c->epilogue.clear();
             c->epilogue_inputs.clear();
             return true;
         }},
        {"a residual is missing", "collective-epilogue",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c) return false;
             c->epilogue_inputs.clear();
             return true;
         }},
        {"a residual is another device's", "operand-device",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce, true);
             if (!c) return false;
             std::swap(c->epilogue_inputs[0], c->epilogue_inputs[1]);
             return true;
         }},
    };
}

std::vector<Mutation> transfer_mutations() {
    return {
        {"a plan that cuts a layer is to have whole ones", "whole-layers",
         [](Plan& p) {
             p.options.whole_layers = true;
             for (size_t s = 1; s < p.stages.size(); ++s)
                 if (p.stages[s - 1].first_layer <= p.stages[s - 1].last_layer &&
                     p.stages[s].first_layer == p.stages[s - 1].last_layer)
                     return true;
             return false;
         }},
        {"a transfer ends where it starts", "transfer-device",
         [](Plan& p) {
             Transfer* t = find_transfer(p.decode);
             if (!t) return false;
             value_of(p.decode, t->destination).device = value_of(p.decode, t->source).device;
             return true;
         }},
        {"a transfer changes the value", "transfer-value",
         [](Plan& p) {
             Transfer* t = find_transfer(p.decode);
             if (!t) return false;
             value_of(p.decode, t->destination).value = p.graph.outputs[0];
             return true;
         }},
        {"a transfer lands in a smaller box", "transfer-box",
         [](Plan& p) {
             Transfer* t = find_transfer(p.decode);
             if (!t) return false;
             --value_of(p.decode, t->destination).box[1].end;
             return true;
         }},
        {"a transfer says another payload", "payload-bytes",
         [](Plan& p) {
             Transfer* t = find_transfer(p.decode);
             if (!t) return false;
             ++t->bytes.per_token;
             return true;
         }},
    };
}

namespace {

// Breaks the first all-reduce of decode that computes a norm.
Mutation of_norm(const char* name, const char* rule,
                 std::function<void(Plan&, Collective&)> apply) {
    return {name, rule, [apply = std::move(apply)](Plan& p) {
                const size_t i = nth_step<Collective>(
                    p.decode, 0, [](const Collective& c) { return !c.weights.empty(); });
                if (i == p.decode.steps.size()) return false;
                apply(p, std::get<Collective>(p.decode.steps[i].action));
                return true;
            }};
}

}  // namespace

std::vector<Mutation> norm_mutations() {
    return {
        of_norm("a norm has another norm's weight", "weight-missing",
                [](Plan& p, Collective& c) {
                    const WeightShard own = p.weights[c.weights[0].index()];
                    for (size_t i = 0; i < p.weights.size(); ++i)
                        if (p.weights[i].device == own.device && p.weights[i].rows == own.rows &&
                            p.graph.weight(p.weights[i].weight).shape.size() == 1 &&
                            p.weights[i].weight != own.weight)
                            c.weights[0] = WeightShardId(i);
                }),
        of_norm("a norm has no weights", "weight-missing",
                [](Plan&, Collective& c) { c.weights.clear(); }),
        of_norm("a member has no weight of the norm", "weight-missing",
                [](Plan&, Collective& c) { c.weights.pop_back(); }),
        of_norm("a member normalises by another device's weight", "weight-device",
                [](Plan&, Collective& c) { c.weights[0] = c.weights[1]; }),
        of_norm("a member has a part of the norm's weight", "weight-box",
                [](Plan& p, Collective& c) { --p.weights[c.weights[1].index()].rows.end; }),
        of_norm("a norm names a weight that is not there", "index",
                [](Plan& p, Collective& c) { c.weights[0] = WeightShardId(p.weights.size()); }),
        of_norm("weights stand beside a sum without a norm", "collective-epilogue",
                [](Plan&, Collective& c) {
                    c.epilogue.pop_back();
                    c.outputs.resize(c.group.size());
                }),
        of_norm("a norm goes through host memory", "collective-epilogue",
                [](Plan&, Collective& c) { c.path = Path::kStaged; }),
        of_norm("a norm is of a sum in parts", "collective-epilogue",
                [](Plan&, Collective& c) { c.two_phase = true; }),
        of_norm("a norm comes before the residual", "collective-epilogue",
                [](Plan&, Collective& c) { std::swap(c.epilogue[0], c.epilogue[1]); }),
        of_norm("a norm is of another sum", "collective-epilogue",
                [](Plan& p, Collective& c) {
                    for (size_t i = 0; i < p.graph.ops.size(); ++i)
                        if (p.graph.ops[i].name == "final_norm") c.epilogue[1] = OpId(i);
                }),
        of_norm("a member stores no normalised sum", "collective-group",
                [](Plan&, Collective& c) { c.outputs.pop_back(); }),
        of_norm("sum and normalised sum change places", "output-value",
                [](Plan&, Collective& c) { std::swap(c.outputs[0], c.outputs[c.group.size()]); }),
        of_norm("a launch normalises what was normalised", "operand-missing",
                [](Plan& p, Collective& c) {
                    find_kernel(p.decode, KernelKind::kNormGateUp)
                        ->ops.insert(find_kernel(p.decode, KernelKind::kNormGateUp)->ops.begin(),
                                     c.epilogue[1]);
                }),
        of_norm("a launch reads the sum for the normalised sum", "operand-missing",
                [](Plan& p, Collective& c) {
                    find_kernel(p.decode, KernelKind::kNormGateUp)->inputs[0] = c.outputs[0];
                }),
        of_norm("a normalised sum overwrites its residual's sum", "live-overlap",
                [](Plan& p, Collective& c) {
                    value_of(p.decode, c.outputs[c.group.size()]).buffer =
                        value_of(p.decode, c.outputs[0]).buffer;
                }),
    };
}

std::vector<Mutation> limit_mutations() {
    return {
        {"a launch asks for more shared memory than its device has", "tile-limits",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kAttention);
             const DeviceLimits& limits = p.machine.device(c->device).limits;
             c->tile.shared_bytes = limits.shared_memory_per_block + 1;
             return limits.has_warps();
         }},
        {"a block has more threads than its device allows", "tile-limits",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kLinear);
             const DeviceLimits& limits = p.machine.device(c->device).limits;
             c->tile.threads = limits.max_threads_per_block * 2;
             return limits.has_warps();
         }},
        {"a grid has more rows of blocks than its device allows", "grid-limits",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kNormGateUp);
             DeviceLimits& limits = p.machine.devices[c->device.index()].limits;
             limits.max_grid[1] = p.workload.max_tokens() / 2;
             c->tile.tokens = 1;
             return limits.has_warps();
         }},
        {"a launch has a block for each of more tokens than a grid holds", "grid-limits",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kEmbedding);
             if (!c) return false;
             DeviceLimits& limits = p.machine.devices[c->device.index()].limits;
             limits.max_grid[0] = p.workload.max_tokens() - 1;
             return limits.has_warps();
         }},
        {"the keys are split into more parts than a grid holds", "grid-limits",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             const DeviceLimits& limits = p.machine.device(c->device).limits;
             c->tile.splits = limits.max_grid[2] + 1;
             return limits.has_warps();
         }},
        {"a ring names a member twice", "collective-group",
         [](Plan& p) {
             Collective* c = find_collective(p.prefill, CollectiveOp::kAllReduce);
             if (!c || c->group.size() < 2) return false;
             c->path = Path::kVendor;
             c->group[1] = c->group[0];
             return true;
         }},
    };
}

std::vector<Mutation> loop_mutations() {
    return {
        {"a product multiplies by warpgroups that its device lacks, or in a ring of one stage",
         "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kNormGateUp);
             const DeviceInfo& device = p.machine.device(c->device);
             if (!device.limits.has_warps()) return false;
             if (c->tile.main_loop == MainLoop::kWarpgroups) return c->tile.stages = 1, true;
             c->tile.main_loop = MainLoop::kWarpgroups;
             return device.arch != "sm_90a";
         }},
        {"a ring has more stages than a block's shared memory holds", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kNormGateUp);
             c->tile.stages = 1 << 20;
             return p.machine.device(c->device).limits.has_warps();
         }},
        {"a product's tiles have no rows", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kNormGateUp);
             c->tile.rows = 0;
             return p.machine.device(c->device).limits.has_warps();
         }},
        {"a launch of attention divides no tokens", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kAttention);
             c->tile.tokens = 0;
             return p.machine.device(c->device).limits.has_warps();
         }},
        {"attention has no main loop", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             c->tile.main_loop = MainLoop::kNone;
             return p.machine.device(c->device).limits.has_warps();
         }},
        {"a launch of a host multiplies by warps", "tile-loop",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kLinear);
             c->tile.main_loop = MainLoop::kWarps;
             return !p.machine.device(c->device).limits.has_warps();
         }},
    };
}

std::vector<Mutation> buffer_mutations() {
    return {
        {"a result overwrites what the step reads", "live-overlap",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             value_of(p.decode, c->outputs[0]).buffer = value_of(p.decode, c->inputs[0]).buffer;
             return true;
         }},
        {"a result overwrites the residual", "live-overlap",
         [](Plan& p) {
             Compute* c = find_kernel(p.prefill, KernelKind::kNormQkvRopeAppend);
             p.buffers[value_of(p.prefill, c->outputs[0]).buffer.index()].offset =
                 p.buffer(value_of(p.prefill, c->inputs[0]).buffer).offset;
             return true;
         }},
        {"a buffer is too small for prefill", "buffer-size",
         [](Plan& p) {
             p.buffers[value_of(p.prefill,
                                find_kernel(p.prefill, KernelKind::kNormGateUp)->outputs[0])
                           .buffer.index()]
                 .size -= 4;
             return true;
         }},
        {"two weights overlap", "buffer-overlap",
         [](Plan& p) {
             WeightShard& first = p.weights[0];
             for (WeightShard& w : p.weights)
                 if (w.buffer != first.buffer && w.device == first.device) {
                     p.buffers[w.buffer.index()].offset = p.buffer(first.buffer).offset;
                     return true;
                 }
             return false;
         }},
        {"two weights share a buffer", "buffer-overlap",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kNormGateUp);
             matrix_of(p, *c, 1).buffer = matrix_of(p, *c, 2).buffer;
             return true;
         }},
        {"a buffer is not aligned", "buffer-bounds",
         [](Plan& p) {
             p.buffers[p.weights.back().buffer.index()].offset += 4;
             return true;
         }},
        {"a weight's buffer is on another device", "buffer-device",
         [](Plan& p) {
             Buffer& b = p.buffers[p.weights[0].buffer.index()];
             if (p.machine.devices.size() == 1) return false;
             b.device = other_than(p, b.device);
             return true;
         }},
        {"a value's buffer is on another device", "buffer-device",
         [](Plan& p) {
             Buffer& b =
                 p.buffers[value_of(p.decode,
                                    find_kernel(p.decode, KernelKind::kAttention)->outputs[0])
                               .buffer.index()];
             if (p.machine.devices.size() == 1) return false;
             b.device = other_than(p, b.device);
             return true;
         }},
        {"a value lies among the weights", "buffer-arena",
         [](Plan& p) {
             p.buffers[value_of(p.decode, find_kernel(p.decode, KernelKind::kAttention)->outputs[0])
                           .buffer.index()]
                 .role = BufferRole::kConstant;
             return true;
         }},
        {"a value has no buffer", "buffer-missing",
         [](Plan& p) {
             value_of(p.decode, find_kernel(p.decode, KernelKind::kAttention)->outputs[0]).buffer =
                 BufferId();
             return true;
         }},
    };
}

std::vector<Mutation> account_mutations() {
    return {
        {"the account is short", "memory-account",
         [](Plan& p) {
             p.memory[0].weights -= 256;
             return true;
         }},
        {"the account assumes a larger device", "memory-account",
         [](Plan& p) {
             p.memory[0].capacity *= 2;
             return true;
         }},
        {"the tokens of a pass have no room", "memory-tokens",
         [](Plan& p) {
             for (Buffer& b : p.buffers)
                 if (b.role == BufferRole::kChosenTokens) return b.size = 4, true;
             return false;
         }},
        {"what comes from other hosts has no room", "exchange-arrivals",
         [](Plan& p) {
             for (Buffer& b : p.buffers)
                 if (b.role == BufferRole::kArrivals) return b.size -= 4, true;
             return false;
         }},
        {"the positions of a pass have no room", "memory-batch",
         [](Plan& p) {
             for (Buffer& b : p.buffers)
                 if (b.role == BufferRole::kPositions) return b.size = 4, true;
             return false;
         }},
        {"a device has no slots of a pass", "memory-batch",
         [](Plan& p) {
             for (Buffer& b : p.buffers)
                 if (b.role == BufferRole::kSlots) return b.role = BufferRole::kInput, true;
             return false;
         }},
        {"two buffers of a device are its output rows", "buffer-role",
         [](Plan& p) {
             for (Buffer& b : p.buffers)
                 if (b.role == BufferRole::kOutputRows) return p.buffers.push_back(b), true;
             return false;
         }},
        {"tokens are chosen where no logits are", "memory-tokens",
         [](Plan& p) {
             for (Buffer& b : p.buffers)
                 if (b.role == BufferRole::kChosenTokens)
                     return b.device = DeviceId(p.output_device.index() == 0 ? 1 : 0), true;
             return false;
         }},
        {"a device is too small", "memory-capacity",
         [](Plan& p) {
             p.machine.devices[0].memory_bytes = p.memory[0].capacity = p.memory[0].needed() - 1;
             return true;
         }},
    };
}

std::vector<Mutation> whole_mutations() {
    return {
        {"a group has a device that is not declared", "device",
         [](Plan& p) {
             Collective* c = find_collective(p.decode, CollectiveOp::kAllReduce);
             if (!c) return false;
             c->group.back() = DeviceId(p.machine.devices.size());
             return true;
         }},
        {"a link is of a device that is not declared", "device",
         [](Plan& p) {
             if (p.machine.links.empty()) return false;
             p.machine.links.back().to = DeviceId(p.machine.devices.size());
             return true;
         }},
        {"a step runs on a device that is not declared", "device",
         [](Plan& p) {
             find_kernel(p.decode, KernelKind::kAttention)->device =
                 DeviceId(p.machine.devices.size());
             return true;
         }},
        {"a step names a value that is not there", "index",
         [](Plan& p) {
             find_kernel(p.decode, KernelKind::kAttention)->inputs = {
                 PlacedId(p.decode.values.size())};
             return true;
         }},
        {"the graph is another", "digest",
         [](Plan& p) {
             p.graph.ops[0].name += "!";
             return true;
         }},
        {"an operator uses a value before it is made", "graph",
         [](Plan& p) {
             p.graph.ops[0].inputs = {p.graph.outputs[0]};
             return true;
         }},
        {"a pinned operator is in a stage without its device", "pin",
         [](Plan& p) {
             if (p.stages.size() < 2) return false;
             DeviceId elsewhere = p.stages[1].devices[0];
             p.options.pins.push_back({"embedding", p.machine.device(elsewhere).name});
             return true;
         }},
        {"an operator belongs to no stage", "stage",
         [](Plan& p) {
             --p.stages.back().last_op.value;
             return true;
         }},
        {"a step runs on a device of another stage", "stage",
         [](Plan& p) {
             if (p.stages.size() < 2) return false;
             p.stages[1].devices = p.stages[0].devices;
             return true;
         }},
        {"the logits are wanted on another device", "output-whole",
         [](Plan& p) {
             if (p.machine.devices.size() == 1) return false;
             p.output_device = other_than(p, p.output_device);
             return true;
         }},
        {"the logits are no output", "output-whole",
         [](Plan& p) {
             p.decode.outputs.clear();
             return true;
         }},
        {"a value that no step makes is an input", "phase-input",
         [](Plan& p) {
             p.decode.inputs.push_back(find_kernel(p.decode, KernelKind::kAttention)->inputs[0]);
             return true;
         }},
        {"the batch is empty", "workload",
         [](Plan& p) {
             p.workload.batch = 0;
             return true;
         }},
    };
}

std::vector<Mutation> joined(const std::vector<std::vector<Mutation>>& lists) {
    std::vector<Mutation> all;
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
}

std::vector<Mutation> all_mutations() {
    return joined({step_mutations(), operand_mutations(), result_mutations(), weight_mutations(),
                   weight_list_mutations(), cache_mutations(), pool_mutations(),
                   contribution_mutations(), group_mutations(), transfer_mutations(),
                   limit_mutations(), loop_mutations(), narrow_tile_mutations(), tile_mutations(),
                   buffer_mutations(), account_mutations(), whole_mutations(), number_mutations()});
}

}  // namespace cleave::test
