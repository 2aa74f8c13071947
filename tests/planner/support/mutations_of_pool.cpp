// SPDX-License-Identifier: Apache-2.0
// Ways of breaking a plan's KV pool, its block tables, and what it says of its values and types.
#include <climits>

#include "planner/plan/plan_queries.h"
#include "tests/planner/support/mutations.h"

namespace cleave::test {

namespace {

int64_t block_bytes(const Plan& p, const KvSlab& s) {
    return p.buffer(s.buffer).size / p.kv_pool.num_blocks;
}
Buffer* first_table(Plan& p) {
    for (Buffer& b : p.buffers)
        if (b.role == BufferRole::kBlockTable) return &b;
    return nullptr;
}
// Another pool, with slabs to match; accounts and offsets stay as they are.
bool set_blocks(Plan& p, int64_t blocks) {
    if (p.kv_slabs.empty() || blocks == p.kv_pool.num_blocks) return false;
    for (const KvSlab& s : p.kv_slabs)
        p.buffers[s.buffer.index()].size = block_bytes(p, s) * blocks;
    p.kv_pool.num_blocks = blocks;
    return true;
}

std::vector<Mutation> size_mutations() {
    return {
        {"one slab is a block short", "buffer-size",
         [](Plan& p) {
             const KvSlab& s = p.kv_slabs.back();
             p.buffers[s.buffer.index()].size -= block_bytes(p, s);
             return true;
         }},
        {"one slab has a block that no other has", "kv-slab-size",
         [](Plan& p) {
             const KvSlab& s = p.kv_slabs.back();
             p.buffers[s.buffer.index()].size += block_bytes(p, s);
             return true;
         }},
        {"one slab of 8 bits has no scales", "buffer-size",
         [](Plan& p) {
             for (const KvSlab& s : p.kv_slabs)
                 if (p.workload.kv_dtype == DType::kInt8)
                     return p.buffers[s.buffer.index()].size -=
                            8 * s.kv_heads.size() * p.kv_pool.num_blocks * kKvBlock,
                            true;
             return false;
         }},
        {"elements of 8 bits are taken for wider ones", "buffer-size",
         [](Plan& p) {
             if (p.workload.kv_dtype != DType::kInt8) return false;
             p.workload.kv_dtype = DType::kBF16;
             return true;
         }},
        {"keys and values are kept in what has no kernel", "kv-dtype",
         [](Plan& p) {
             p.workload.kv_dtype = DType::kInt4;
             return true;
         }},
        {"a host is to keep its activations in 16 bits", "activation-dtype",
         [](Plan& p) {
             p.workload.activation_dtype = DType::kBF16;
             return std::any_of(p.machine.devices.begin(), p.machine.devices.end(),
                                [](const DeviceInfo& d) { return !d.limits.has_warps(); });
         }},
        {"activations are kept in what has no kernel", "activation-dtype",
         [](Plan& p) {
             p.workload.activation_dtype = DType::kInt8;
             return true;
         }},
        {"a GPU is to round its activations", "compute",
         [](Plan& p) {
             p.workload.compute = ComputeMode::kFast;
             return std::any_of(p.machine.devices.begin(), p.machine.devices.end(),
                                [](const DeviceInfo& d) { return d.limits.has_warps(); });
         }},
        {"sequences own block 0, too", "kv-pool",
         [](Plan& p) { return set_blocks(p, p.kv_pool.num_blocks - 1); }},
        {"the pool has room for less than one context", "kv-pool-context",
         [](Plan& p) {
             p.workload.kv_tokens = Workload::kAllThatIsLeft;
             return set_blocks(p, p.workload.blocks_per_slot());
         }},
        {"the pool has fewer tokens than were asked for", "kv-pool",
         [](Plan& p) {
             p.workload.kv_tokens = p.kv_pool.num_blocks * kKvBlock;
             return true;
         }},
        {"the pool leaves memory that it was to take", "kv-pool-left",
         [](Plan& p) {
             p.workload.kv_tokens = Workload::kAllThatIsLeft;
             return true;
         }},
        {"blocks are more than their ids can tell", "kv-pool",
         [](Plan& p) {
             p.kv_pool.num_blocks = int64_t{1} << 31;
             return true;
         }},
    };
}

std::vector<Mutation> kind_mutations() {
    return {
        {"keys and values are taken for a tensor", "graph",
         [](Plan& p) {
             for (importer::Value& v : p.graph.values)
                 if (v.kind == importer::ValueKind::kKvState)
                     return v.kind = importer::ValueKind::kTensor, true;
             return false;
         }},
        {"an operator is in a layer that no model has", "graph",
         [](Plan& p) {
             p.graph.ops.back().layer = INT_MAX;
             return true;
         }},
        {"an activation is taken for keys and values", "graph",
         [](Plan& p) {
             for (const importer::Op& op : p.graph.ops)
                 if (op.kind == importer::OpKind::kAdd)
                     return p.graph.values[op.outputs[0].index()].kind =
                                importer::ValueKind::kKvState,
                            true;
             return false;
         }},
    };
}

std::vector<Mutation> table_and_slab_mutations() {
    return {
        {"a device with keys and values has no block table", "block-table-missing",
         [](Plan& p) {
             first_table(p)->role = BufferRole::kInput;
             return true;
         }},
        {"a block table lacks a sequence", "block-table-size",
         [](Plan& p) {
             first_table(p)->size -= 4 * p.workload.blocks_per_slot();
             return true;
         }},
        {"a block table is on a device without keys and values", "block-table",
         [](Plan& p) {
             for (size_t d = 0; d < p.machine.devices.size(); ++d) {
                 if (has_kv(p, DeviceId(d))) continue;
                 Buffer table = *first_table(p);
                 table.device = DeviceId(d);
                 p.buffers.push_back(table);
                 return true;
             }
             return false;
         }},
        {"a block table is where slots of a pass are written", "block-table-overlap",
         [](Plan& p) {
             Buffer& table = *first_table(p);
             const BufferId slots = find_buffer(p, table.device, BufferRole::kSlots);
             table.offset = p.buffer(slots).offset;
             return true;
         }},
        {"slabs of two layers are one memory", "buffer-overlap",
         [](Plan& p) {
             for (size_t i = 1; i < p.kv_slabs.size(); ++i)
                 if (p.kv_slabs[i].device == p.kv_slabs[0].device) {
                     p.buffers[p.kv_slabs[i].buffer.index()].offset =
                         p.buffer(p.kv_slabs[0].buffer).offset;
                     return true;
                 }
             return false;
         }},
        {"two devices have each other's slabs", "buffer-device",
         [](Plan& p) {
             for (KvSlab& s : p.kv_slabs)
                 if (s.device != p.kv_slabs[0].device)
                     return std::swap(s.buffer, p.kv_slabs[0].buffer), true;
             return false;
         }},
    };
}

}  // namespace

std::vector<Mutation> pool_mutations() {
    return joined({size_mutations(), kind_mutations(), table_and_slab_mutations()});
}

}  // namespace cleave::test
