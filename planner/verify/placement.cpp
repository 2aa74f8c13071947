// SPDX-License-Identifier: Apache-2.0
// What is on devices for the whole run: stages, weights, rope tables, KV slabs, and their
// buffers.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "planner/verify/report.h"
#include "runtime/base/rounding.h"

namespace cleave::planner::verify {
namespace {

const std::string& device_name(const Plan& plan, DeviceId id) {
    return plan.machine.device(id).name;
}

// The decoder's layers of a stage's operators; begin >= end: none.
Range layers_of(const Plan& plan, const Stage& s) {
    Range layers{INT64_MAX, 0};
    const int64_t most = plan.graph.config.num_layers;
    for (int32_t i = s.first_op.value; i <= s.last_op.value; ++i) {
        const int64_t layer = plan.graph.ops[static_cast<size_t>(i)].layer;
        if (layer < 0 || (most > 0 && layer >= most)) continue;
        layers = {std::min(layers.begin, layer), std::max(layers.end, layer + 1)};
    }
    return layers;
}

void check_stages(const Plan& plan, Report& report) {
    int32_t next = 0;
    for (size_t i = 0; i < plan.stages.size(); ++i) {
        const Stage& s = plan.stages[i];
        if (s.first_op.value != next || s.last_op < s.first_op)
            report.add("stage", "stage {} holds operators {} to {}, not those from {}", i,
                       s.first_op, s.last_op, next);
        const Range layers = layers_of(plan, s);
        const bool agrees = s.last_layer < s.first_layer
                                ? layers.empty()
                                : layers == Range{s.first_layer, int64_t{s.last_layer} + 1};
        if (!agrees)
            report.add("stage",
                       "stage {} is said to have layers {} to {}, not those of its operators", i,
                       s.first_layer, s.last_layer);
        next = s.last_op.value + 1;
        std::set<DeviceId> devices(s.devices.begin(), s.devices.end());
        if (devices.empty()) report.add("stage", "stage {} has no device", i);
        if (devices.size() != s.devices.size())
            report.add("stage", "stage {} has a device twice", i);
    }
    if (static_cast<size_t>(next) != plan.graph.ops.size())
        report.add("stage", "the stages hold {} of {} operators", next, plan.graph.ops.size());
}

// Each operator that a pin names is in a stage with the pin's device.
void check_pins(const Plan& plan, Report& report) {
    for (const Pin& pin : plan.options.pins) {
        int first = -1, last = -1;
        int read = 0;
        bool by_name = std::any_of(plan.graph.ops.begin(), plan.graph.ops.end(),
                                   [&](const importer::Op& op) { return op.name == pin.what; });
        if (!by_name) read = std::sscanf(pin.what.c_str(), "layers.%d-%d", &first, &last);
        if (read == 1) last = first;
        bool found = false, by_layer = read > 0;
        for (size_t i = 0; i < plan.graph.ops.size(); ++i) {
            const importer::Op& op = plan.graph.ops[i];
            if (by_layer ? op.layer < first || op.layer > last : op.name != pin.what) continue;
            found = true;
            bool met = false;
            for (const Stage& s : plan.stages)
                if (s.first_op.index() <= i && i <= s.last_op.index())
                    for (DeviceId d : s.devices) met = met || device_name(plan, d) == pin.device;
            if (!met) {
                report.add("pin", "{} is pinned to {}, and {} is in a stage without it", pin.what,
                           pin.device, op.name);
                break;
            }
        }
        if (!found) report.add("pin", "{} is pinned, and no operator is meant by it", pin.what);
    }
}

// Where whole layers are asked for, each is in one stage.
void check_whole_layers(const Plan& plan, Report& report) {
    if (!plan.options.whole_layers) return;
    std::map<int, size_t> stage_of;  // by layer
    for (size_t s = 0; s < plan.stages.size(); ++s)
        for (int32_t i = plan.stages[s].first_op.value; i <= plan.stages[s].last_op.value; ++i) {
            const int layer = plan.graph.ops[static_cast<size_t>(i)].layer;
            if (layer < 0 || layer >= plan.graph.config.num_layers) continue;
            const auto [at, fresh] = stage_of.try_emplace(layer, s);
            if (at->second == s) continue;
            report.add("whole-layers", "layer {} is in stages {} and {}", layer, at->second, s);
            return;
        }
}

// The buffer is where its user needs it, in the right arena, and large enough.
void check_buffer(const Plan& plan, BufferId id, DeviceId device, Arena arena, int64_t bytes,
                  const std::string& what, Report& report) {
    const Buffer& b = plan.buffer(id);
    if (b.device != device)
        report.add("buffer-device", "{} on {} has its buffer on {}", what,
                   device_name(plan, device), device_name(plan, b.device));
    if (b.arena() != arena)
        report.add("buffer-arena", "{} has its buffer in the {} arena, not {}", what,
                   arena_name(b.arena()), arena_name(arena));
    if (b.size < bytes)
        report.add("buffer-size", "{} needs {} bytes, its buffer has {}", what, bytes, b.size);
}

// Codes of 4 or 8 bits in rows of whole groups of 32, then scales and zero points of each row and
// block, the parts at multiples of 64: the verifier's own count of what
// importer/weights/quantized_shard.h lays out.
int64_t quantized_bytes(const importer::Weight& w, int64_t rows, int64_t columns) {
    const importer::Quantization& q = w.quantization;
    const auto align = [](int64_t n) { return (n + 63) / 64 * 64; };
    const int64_t blocks = q.block > 0 ? (columns + q.block - 1) / q.block : 1;
    int64_t bytes = align(rows * ((columns + 31) / 32) * 4 * dtype_bits(w.dtype));
    bytes += rows * blocks * dtype_bits(q.scale_dtype) / 8;
    if (!q.zero_points.has_data() || w.dtype == DType::kF8E4M3) return bytes;
    const bool floating = is_floating(q.zero_point_dtype);
    return align(bytes) +
           rows *
               ((blocks * (floating ? dtype_bits(q.zero_point_dtype) : dtype_bits(w.dtype)) + 7) /
                8);
}

void check_kept_quantized(const Plan& plan, const WeightShard& s, const std::string& what,
                          Report& report) {
    const importer::Weight& w = plan.graph.weight(s.weight);
    const int64_t block = w.quantization.block;
    if (block > 0 && (s.columns.begin % block != 0 ||
                      (s.columns.end % block != 0 && s.columns.end != w.shape[1])))
        report.add("weight-box", "{}: cuts a block of {} {} elements", what, block, s.dtype);
    check_buffer(plan, s.buffer, s.device, Arena::kWeights,
                 quantized_bytes(w, s.rows.size(), s.columns.size()), what, report);
}

bool is_storable(DType dtype) { return is_floating(dtype) && dtype != DType::kF64; }

void check_weight_shard(const Plan& plan, const WeightShard& s, bool readers_keep_form,
                        Report& report) {
    const importer::Weight& w = plan.graph.weight(s.weight);
    std::string what = fmt::format("{} rows {} columns {} on {}", w.name, range_text(s.rows),
                                   range_text(s.columns), device_name(plan, s.device));
    bool matrix = w.shape.size() >= 2;
    Range rows{0, w.shape.empty() ? 1 : w.shape[0]}, columns{0, matrix ? w.shape[1] : 1};
    if (s.rows.empty() || !contains(rows, s.rows) ||
        (matrix && (s.columns.empty() || !contains(columns, s.columns)))) {
        report.add("weight-box", "{}: outside its {} x {}", what, rows.end, columns.end);
        return;
    }
    if (w.packing != importer::Packing::kDense && s.dtype == w.dtype)
        return check_kept_quantized(plan, s, what, report);
    // ONNX operators read what their standard says, also integers: as the file has them.
    const bool as_stored = readers_keep_form && s.dtype == w.dtype;
    if (!is_storable(s.dtype) && !as_stored)
        report.add("weight-dtype", "{}: {} is no type of a dense weight", what, s.dtype);
    int64_t elements = s.rows.size() * (matrix ? s.columns.size() : 1);
    check_buffer(plan, s.buffer, s.device, Arena::kWeights, dtype_bytes(s.dtype, elements), what,
                 report);
}

void check_weights(const Plan& plan, Report& report) {
    std::vector<bool> keep_form(plan.graph.weights.size(), true);
    for (const importer::Op& op : plan.graph.ops)
        for (WeightId w : op.weights)
            keep_form[w.index()] = keep_form[w.index()] && keeps_onnx_form(op);
    std::map<WeightId, DType> dtypes;  // one on all devices: results do not depend on their number
    using Key = std::tuple<DeviceId, WeightId, int64_t, int64_t, int64_t, int64_t>;
    std::set<Key> seen;
    for (const WeightShard& s : plan.weights) {
        check_weight_shard(plan, s, keep_form[s.weight.index()], report);
        const std::string& name = plan.graph.weight(s.weight).name;
        if (!seen.insert(
                     {s.device, s.weight, s.rows.begin, s.rows.end, s.columns.begin, s.columns.end})
                 .second)
            report.add("weight-duplicate", "{} lies on {} twice", name,
                       device_name(plan, s.device));
        if (dtypes.emplace(s.weight, s.dtype).first->second != s.dtype)
            report.add("weight-dtype", "{} is {} on one device and {} on {}", name,
                       dtypes[s.weight], s.dtype, device_name(plan, s.device));
    }
}

void check_ropes(const Plan& plan, Report& report) {
    std::set<std::pair<DeviceId, RopeTableId>> seen;
    for (const RopeShard& s : plan.rope_tables) {
        const importer::RopeTable& t = plan.graph.rope_table(s.table);
        std::string what = fmt::format("rope table {} on {}", t.name, device_name(plan, s.device));
        const int64_t bytes =
            product({plan.workload.context, t.rotary_dim / 2, 2, dtype_bytes(DType::kF32, 1)});
        check_buffer(plan, s.buffer, s.device, Arena::kWeights, bytes, what, report);
        if (!seen.insert({s.device, s.table}).second)
            report.add("rope-duplicate", "{} lies there twice", what);
        if (t.max_positions > 0 && t.max_positions < plan.workload.context)
            report.add("rope-positions", "{} has {} positions, the context is {}", what,
                       t.max_positions, plan.workload.context);
    }
}

// The KvAppend that makes a state, or nullptr.
const importer::Op* append_of(const Graph& graph, ValueId state) {
    for (const importer::Op& op : graph.ops)
        if (op.kind == importer::OpKind::kKvAppend && op.outputs[0] == state) return &op;
    return nullptr;
}

// Positions of a block of the KV pool.
constexpr int64_t kBlockPositions = 16;

void check_slab(const Plan& plan, const KvSlab& s, const importer::Op& append,
                int64_t& element_bytes, Report& report) {
    const auto& a = append.as<importer::KvAppendAttrs>();
    std::string what = fmt::format("KV heads {} of {} on {}", range_text(s.kv_heads), append.name,
                                   device_name(plan, s.device));
    if (s.kv_heads.empty() || !contains({0, a.num_kv_heads}, s.kv_heads))
        report.add("kv-slab", "{}: the model has {}", what, a.num_kv_heads);
    if (s.head_dim != a.head_dim || s.v_head_dim != a.v_head_dim)
        report.add("kv-slab", "{}: head dimensions {} and {}, the model's are {} and {}", what,
                   s.head_dim, s.v_head_dim, a.head_dim, a.v_head_dim);
    const double elements = static_cast<double>(s.kv_heads.size()) *
                            static_cast<double>(plan.kv_pool.num_blocks) * kBlockPositions *
                            static_cast<double>(s.head_dim + s.v_head_dim);
    if (elements > 1e15) return report.add("kv-slab", "{}: {} elements", what, elements);
    // Without a stated type the slabs still agree on one: what the first one's size allows.
    const int64_t count = static_cast<int64_t>(elements);
    if (plan.workload.kv_dtype)
        element_bytes = dtype_bits(*plan.workload.kv_dtype) / 8;
    else if (element_bytes == 0 && count > 0)
        element_bytes = plan.buffer(s.buffer).size / count >= 4 ? 4 : 2;
    // Elements of one byte are times a float for each head and position, of K and of V.
    const int64_t scales =
        element_bytes == 1
            ? product({2, s.kv_heads.size(), plan.kv_pool.num_blocks, kBlockPositions})
            : 0;
    const int64_t bytes = sum(count * element_bytes, product({4, scales}));
    check_buffer(plan, s.buffer, s.device, Arena::kKv, bytes, what, report);
    // One id means the same positions everywhere: no slab has blocks that another has not.
    if (const int64_t size = plan.buffer(s.buffer).size; size > bytes)
        report.add("kv-slab-size", "{} has {} bytes, the {} blocks of the pool take {}", what, size,
                   plan.kv_pool.num_blocks, bytes);
}

void check_kv_dtype(const Plan& plan, Report& report) {
    constexpr std::array kAllowed{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                  DType::kInt8};
    const std::optional<DType> dtype = plan.workload.kv_dtype;
    if (!plan.kv_slabs.empty() && dtype &&
        std::find(kAllowed.begin(), kAllowed.end(), *dtype) == kAllowed.end())
        report.add("kv-dtype", "keys and values are kept in {}", *dtype);
}

// Kernels keep activations in floats; those of hosts in f32 alone.
void check_activation_dtype(const Plan& plan, Report& report) {
    const DType dtype = plan.workload.activation_dtype;
    if (dtype == DType::kF32) return;
    if (dtype != DType::kF16 && dtype != DType::kBF16)
        return report.add("activation-dtype", "activations are kept in {}", dtype);
    for (const DeviceInfo& d : plan.machine.devices)
        if (!d.limits.has_warps())
            report.add("activation-dtype", "activations are kept in {}, but {} computes in f32",
                       dtype, d.name);
}

// Only hosts can round activations, and where some product does, each has all of its columns in one
// sum: the last bits of sums in parts would become other roundings.
void check_compute(const Plan& plan, Report& report) {
    if (plan.workload.compute != ComputeMode::kFast) return;
    for (const DeviceInfo& d : plan.machine.devices)
        if (d.limits.has_warps())
            report.add("compute", "products round their activations, which {} cannot", d.name);
    std::vector<bool> multiplies(plan.graph.weights.size(), false);
    for (const importer::Op& op : plan.graph.ops)
        if (op.kind == importer::OpKind::kLinear) multiplies[op.weights[0].index()] = true;
    const auto is_matrix = [&](const WeightShard& s) {
        return multiplies[s.weight.index()] && plan.graph.weight(s.weight).shape.size() == 2;
    };
    if (std::none_of(plan.weights.begin(), plan.weights.end(), [&](const WeightShard& s) {
            return is_matrix(s) &&
                   (s.dtype == DType::kBF16 || meets_int8(plan.graph.weight(s.weight), s.dtype));
        }))
        return;
    for (const WeightShard& s : plan.weights) {
        const importer::Weight& w = plan.graph.weight(s.weight);
        if (is_matrix(s) && s.columns != Range{0, w.shape[1]})
            report.add("compute",
                       "{} columns {} on {}: a product is summed in parts, and products round "
                       "their activations",
                       w.name, range_text(s.columns), device_name(plan, s.device));
    }
}

// Whether every device with slabs could hold one block more.
bool has_room_for_a_block(const Plan& plan) {
    std::map<DeviceId, int64_t> grown;  // slabs, each from a multiple of 256 on
    for (const KvSlab& s : plan.kv_slabs) {
        const int64_t block = plan.buffer(s.buffer).size / plan.kv_pool.num_blocks;
        grown[s.device] =
            sum(grown[s.device], round_up(block * (plan.kv_pool.num_blocks + 1), 256));
    }
    return std::all_of(plan.memory.begin(), plan.memory.end(), [&](const DeviceMemory& m) {
        const auto found = grown.find(m.device);
        return found == grown.end() || sum(m.needed() - m.kv, found->second) <= m.capacity;
    });
}

// The pool has a whole context, and what was asked for, beside block 0, which is nobody's.
void check_pool(const Plan& plan, Report& report) {
    const Workload& w = plan.workload;
    const int64_t blocks = plan.kv_pool.num_blocks;
    if (plan.kv_slabs.empty()) {
        if (blocks != 0) report.add("kv-pool", "{} blocks, and no slab has them", blocks);
        return;
    }
    const auto of = [](int64_t tokens) { return (tokens + kBlockPositions - 1) / kBlockPositions; };
    const int64_t context = of(w.context);
    if (blocks > INT32_MAX) report.add("kv-pool", "{} blocks are more than ids of 32 bits", blocks);
    if (blocks <= context)
        report.add("kv-pool-context",
                   "{} blocks, one of them nobody's: one sequence as long as the context takes {}",
                   blocks, context);
    const int64_t asked = w.kv_tokens == 0 ? w.batch * context : of(w.kv_tokens);
    if (w.kv_tokens >= 0 && blocks != 1 + std::max(asked, context))
        report.add("kv-pool", "{} blocks; {} positions take {}, beside block 0", blocks,
                   w.kv_tokens == 0 ? w.batch * w.context : w.kv_tokens, asked);
    if (w.kv_tokens == Workload::kAllThatIsLeft && blocks > 0 && blocks < INT32_MAX &&
        has_room_for_a_block(plan))
        report.add("kv-pool-left", "each device has room for more than {} blocks", blocks);
}

// Each device with slabs has the whole block table, to itself.
void check_block_tables(const Plan& plan, Report& report) {
    const Workload& w = plan.workload;
    const int64_t entries = w.batch * ((w.context + kBlockPositions - 1) / kBlockPositions);
    std::set<DeviceId> owners, tables;
    for (const KvSlab& s : plan.kv_slabs) owners.insert(s.device);
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
        const Buffer& b = plan.buffers[i];
        if (b.role != BufferRole::kBlockTable) continue;
        tables.insert(b.device);
        if (!owners.contains(b.device))
            report.add("block-table", "{} has a block table and no KV cache",
                       device_name(plan, b.device));
        if (b.size != entries * dtype_bytes(DType::kInt32, 1))
            report.add("block-table-size", "the block table of {} has {} bytes for {} entries",
                       device_name(plan, b.device), b.size, entries);
        for (size_t j = 0; j < plan.buffers.size(); ++j) {
            const Buffer& other = plan.buffers[j];
            if (i != j && other.device == b.device && other.arena() == b.arena() &&
                other.offset < b.offset + b.size && b.offset < other.offset + other.size)
                report.add("block-table-overlap", "buffer {} of {} is over its block table", j,
                           device_name(plan, b.device));
        }
    }
    for (DeviceId device : owners)
        if (!tables.contains(device))
            report.add("block-table-missing", "{} has a KV cache and no block table",
                       device_name(plan, device));
}

void check_slabs(const Plan& plan, Report& report) {
    std::map<std::pair<DeviceId, ValueId>, RangeSet> seen;
    std::map<ValueId, const importer::Op*> appends;
    int64_t element_bytes = 0;
    for (const KvSlab& s : plan.kv_slabs) {
        auto [found, added] = appends.emplace(s.state, nullptr);
        if (added) found->second = append_of(plan.graph, s.state);
        if (!found->second) {
            report.add("kv-slab", "{} is no KV state", plan.graph.value(s.state).name);
            continue;
        }
        check_slab(plan, s, *found->second, element_bytes, report);
        if (seen[{s.device, s.state}].add(s.kv_heads))
            report.add("kv-slab", "a KV head of {} lies on {} twice", found->second->name,
                       device_name(plan, s.device));
    }
}

// Weights, tables and KV live for the whole run: each has a buffer of its own, apart from all
// others.
void check_permanent_buffers(const Plan& plan, Report& report) {
    std::map<BufferId, int> users;
    for (const WeightShard& s : plan.weights) ++users[s.buffer];
    for (const RopeShard& s : plan.rope_tables) ++users[s.buffer];
    for (const KvSlab& s : plan.kv_slabs) ++users[s.buffer];
    std::map<std::pair<DeviceId, Arena>, std::vector<BufferId>> arenas;
    for (auto [id, count] : users) {
        const Buffer& b = plan.buffer(id);
        if (count > 1)
            report.add("buffer-overlap", "buffer {} on {} has {} owners", id,
                       device_name(plan, b.device), count);
        arenas[{b.device, b.arena()}].push_back(id);
    }
    for (auto& [key, buffers] : arenas) {
        std::sort(buffers.begin(), buffers.end(), [&](BufferId a, BufferId b) {
            return plan.buffer(a).offset < plan.buffer(b).offset;
        });
        for (size_t i = 0; i + 1 < buffers.size(); ++i)
            if (plan.buffer(buffers[i]).offset + plan.buffer(buffers[i]).size >
                plan.buffer(buffers[i + 1]).offset)
                report.add("buffer-overlap", "buffers {} and {} on {} overlap in the {} arena",
                           buffers[i], buffers[i + 1], device_name(plan, key.first),
                           arena_name(key.second));
    }
}

}  // namespace

void check_placement(const Plan& plan, Report& report) {
    check_stages(plan, report);
    check_pins(plan, report);
    check_whole_layers(plan, report);
    check_weights(plan, report);
    check_ropes(plan, report);
    check_kv_dtype(plan, report);
    check_activation_dtype(plan, report);
    check_compute(plan, report);
    check_pool(plan, report);
    check_slabs(plan, report);
    check_block_tables(plan, report);
    check_permanent_buffers(plan, report);
    for (size_t i = 0; i < plan.buffers.size(); ++i)
        if (const Buffer& b = plan.buffers[i]; b.offset % 256 != 0)
            report.add("buffer-bounds", "buffer {} on {} is at {}, no multiple of 256", i,
                       device_name(plan, b.device), b.offset);
}

}  // namespace cleave::planner::verify
