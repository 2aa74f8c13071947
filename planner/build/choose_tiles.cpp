// SPDX-License-Identifier: Apache-2.0
#include "planner/build/choose_tiles.h"

#include <algorithm>

#include "importer/weights/quantized_shard.h"
#include "planner/analysis/storage.h"
#include "planner/machine/gpu_arch.h"
#include "planner/plan/plan_queries.h"
#include "planner/tiles/host.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

// Output features a launch computes per row, over all its outputs; its widest input row.
int64_t features_of(const Phase& phase, const std::vector<PlacedId>& ids) {
    int64_t widest = 0;
    for (PlacedId id : ids) {
        const Box& box = phase.values[id.index()].box;
        if (box.size() > 1 && box.back().end != kWhole)
            widest = std::max(widest, box.back().size());
    }
    return widest;
}

// Whether a launch has a row for each wanted output instead of each token.
bool is_per_output(const Plan& plan, const Phase& phase, const Compute& c) {
    if (c.outputs.empty()) return false;
    return rows_of(plan.graph.value(phase.values[c.outputs[0].index()].value)) == Rows::kOutputs;
}

bool is_host(const Plan& plan, DeviceId device) {
    return !plan.machine.device(device).limits.has_warps();
}

// What the launch's products round their shared input to: all the same, or nothing.
std::optional<DType> shared_rounding(const Plan& plan, const Compute& c) {
    std::optional<DType> shared;
    if (plan.workload.compute != ComputeMode::kFast) return shared;
    bool first = true;
    for (WeightShardId id : c.weights) {
        const importer::Weight& weight = plan.graph.weight(plan.weights[id.index()].weight);
        if (weight.shape.size() < 2) continue;
        const std::optional<DType> own = activation_rounding(weight, plan.workload);
        if (!first && own != shared) return std::nullopt;
        shared = own;
        first = false;
    }
    return shared;
}

Tile host_tile(const Plan& plan, const Phase& phase, const Compute& c, int64_t threads) {
    Tile tile;
    tile.threads = 1;
    tile.tokens = 1;
    int64_t outputs = features_of(phase, c.outputs);
    tile.rows = outputs;
    bool products = c.kernel == KernelKind::kLinear || c.kernel == KernelKind::kNormGateUp ||
                    c.kernel == KernelKind::kNormQkvRopeAppend ||
                    c.kernel == KernelKind::kNormLinear;
    if (c.kernel == KernelKind::kAttention) tile.rows = 1;  // a query head
    if (!products || c.inputs.empty()) return tile;
    const Box& x = phase.values[c.inputs[0].index()].box;
    tile.depth = x.empty() ? 0 : x.back().size();
    const std::optional<DType> rounding = shared_rounding(plan, c);
    tile.tokens = host_tokens(tile.depth, rounding);
    tile.rows = host_rows(outputs, threads, rounding);
    if (c.kernel == KernelKind::kNormQkvRopeAppend && c.kv.valid()) {
        const KvSlab& slab = plan.kv_slabs[c.kv.index()];
        tile.rows = std::max(slab.head_dim, slab.v_head_dim);
    }
    tile.shared_bytes = host_scratch_bytes(tile.depth, tile.tokens, tile.rows,
                                           c.kernel == KernelKind::kNormGateUp ? 2 : 1, rounding);
    return tile;
}

int64_t element_bytes(DType dtype) { return std::max<int64_t>(1, dtype_bytes(dtype, 1)); }

// The matrix product of a launch: all its matrices share their input.
ProductShape product_shape(const Plan& plan, const Compute& c, int64_t tokens) {
    ProductShape shape;
    shape.tokens = tokens;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() < 2) continue;
        shape.depth = shard.columns.size();
        shape.rows += shard.rows.size();
        set_weight_type(shard.dtype,
                        importer::stays_quantized(plan.graph.weight(shard.weight), shard.dtype),
                        shape);
    }
    if (c.kernel == KernelKind::kNormGateUp) {
        shape.per_feature = 2;
        shape.rows /= 2;
    }
    if (c.kernel == KernelKind::kNormQkvRopeAppend) {
        const KvSlab& slab = plan.kv_slabs[c.kv.index()];
        shape.head = std::max(slab.head_dim, slab.v_head_dim);
        // Norms of heads are further norms than the one in front of the projections.
        auto norms = std::count_if(c.ops.begin(), c.ops.end(), [&](OpId id) {
            const Op& op = plan.graph.op(id);
            return op.kind == OpKind::kRmsNorm && op.as<RmsNormAttrs>().group == slab.head_dim;
        });
        shape.whole_head = norms > 0 || has_kv_scales(plan.workload.kv_dtype.value_or(DType::kF32));
    }
    return shape;
}

AttentionShape attention_shape(const Plan& plan, const Compute& c, int64_t tokens,
                               bool is_prefill) {
    const KvSlab& slab = plan.kv_slabs[c.kv.index()];
    AttentionShape shape;
    shape.heads = c.heads.size();
    for (OpId id : c.ops)
        if (plan.graph.op(id).kind == OpKind::kAttention) {
            const auto& attrs = plan.graph.op(id).as<AttentionAttrs>();
            shape.group = attrs.num_heads / attrs.num_kv_heads;
        }
    shape.kv_heads = slab.kv_heads.size();
    shape.head_dim = slab.head_dim;
    shape.v_head_dim = slab.v_head_dim;
    shape.element_bytes = element_bytes(plan.workload.kv_dtype.value_or(DType::kF32));
    shape.tokens = tokens;
    shape.context = plan.workload.context;
    shape.prefill = is_prefill;
    const GpuArch* arch = find_gpu_arch(plan.machine.device(c.device).arch);
    shape.warpgroups = arch && arch->warpgroups;
    shape.sequences = plan.workload.batch;
    return shape;
}

// What a GPU launch computes, as the arithmetic of tiles takes it, and the three questions that it
// answers.
struct GpuLaunch {
    enum class Is : uint8_t { kProduct, kAttention, kElementwise };

    // `narrow`: of so many tokens, each of a sequence of its own; 0: the step's largest launch.
    GpuLaunch(const Plan& plan, const Phase& phase, const Compute& c, int64_t narrow = 0)
        : limits(plan.machine.device(c.device).limits) {
        const bool is_prefill = &phase == &plan.prefill && narrow == 0;
        const int64_t most = narrow > 0 ? narrow : plan.workload.batch;
        const int64_t tokens = is_prefill ? plan.workload.max_tokens() : most;
        const int64_t outputs = is_prefill ? plan.workload.max_outputs() : most;
        rows = is_per_output(plan, phase, c) ? outputs : tokens;
        features = features_of(phase, c.outputs);
        switch (c.kernel) {
            case KernelKind::kLinear:
            case KernelKind::kNormLinear:
            case KernelKind::kNormGateUp:
            case KernelKind::kNormQkvRopeAppend:
                product = product_shape(plan, c, rows);
                set_arch(plan.machine.device(c.device).arch, product);
                product.prepared = c.activations != ActivationPath::kConverted;
                if (product.depth > 0) is = Is::kProduct;
                break;
            case KernelKind::kAttention:
                attention = attention_shape(plan, c, tokens, is_prefill);
                is = Is::kAttention;
                break;
            default: break;
        }
    }

    Tile tile() const {
        return is == Is::kProduct     ? product_tile(limits, product)
               : is == Is::kAttention ? attention_tile(limits, attention)
                                      : elementwise_tile(limits, features);
    }
    Grid grid(const Tile& tile) const {
        return is == Is::kProduct     ? product_grid(product, tile)
               : is == Is::kAttention ? attention_grid(attention, tile)
                                      : elementwise_grid(rows, features, tile);
    }
    int64_t registers(const Tile& tile) const {
        return is == Is::kProduct     ? product_registers(product, tile)
               : is == Is::kAttention ? attention_registers(limits, attention, tile)
                                      : elementwise_registers();
    }
    std::optional<Excess> excess(const Tile& tile) const {
        const std::optional<Excess> of_block = block_excess(limits, tile, registers(tile));
        return of_block ? of_block : grid_excess(limits, grid(tile));
    }
    std::optional<ShrunkTile> shrunk(const Tile& tile) const {
        return is == Is::kProduct     ? shrunk_product_tile(limits, product, tile)
               : is == Is::kAttention ? shrunk_attention_tile(limits, attention, tile)
                                      : shrunk_elementwise_tile(limits, features, tile);
    }

    const DeviceLimits& limits;
    int64_t rows = 0, features = 0;
    Is is = Is::kElementwise;
    ProductShape product;
    AttentionShape attention;
};

// Whether blocks can copy a product's activations unchanged: they have the weights' type, in rows
// of whole copies, and nothing comes before the product.
bool lie_as_staged(const Plan& plan, const Phase& phase, const Compute& c,
                   const ProductShape& product) {
    const Range columns = phase.values[c.inputs[0].index()].box.back();
    bool as_staged = plan.graph.op(c.ops.front()).kind == OpKind::kLinear && product.code_bits == 0;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() < 2) continue;
        as_staged =
            as_staged && dtype_bytes(shard.dtype, 1) == 2 &&
            shard.dtype == plan.workload.activation_dtype &&
            has_whole_copies(product.depth, columns.size(), shard.columns.begin - columns.begin);
    }
    return as_staged;
}

ActivationPath activation_path(const Plan& plan, const Phase& phase, const Compute& c,
                               const GpuLaunch& launch) {
    const bool is_prefill = &phase == &plan.prefill;
    if (launch.is != GpuLaunch::Is::kProduct || !is_prefill || !launch.product.async_copies ||
        c.inputs.empty() || phase.values[c.inputs[0].index()].box.empty())
        return ActivationPath::kConverted;
    if (lie_as_staged(plan, phase, c, launch.product)) return ActivationPath::kCopied;
    return pays_to_prepare(launch.product) ? ActivationPath::kPrepared : ActivationPath::kConverted;
}

// Tokens of the launches that a step has beside its largest.
std::vector<int64_t> narrow_launches(const Plan& plan, const Phase& phase, const Compute& c,
                                     const GpuLaunch& launch) {
    if (&phase == &plan.prefill) {
        if (launch.is != GpuLaunch::Is::kAttention || !multiplies_tiles(c.tile)) return {};
        return {plan.workload.batch};
    }
    if (launch.is == GpuLaunch::Is::kElementwise) return {};
    std::vector<int64_t> widths = decode_widths(plan.workload);
    widths.pop_back();
    return widths;
}

// The tile, and for a product how its blocks come by their activations, which the tile depends on.
void choose_gpu_tile(const Plan& plan, const Phase& phase, Compute& c) {
    c.activations = ActivationPath::kConverted;
    GpuLaunch launch(plan, phase, c);
    c.activations = activation_path(plan, phase, c, launch);
    launch.product.prepared = c.activations != ActivationPath::kConverted;
    c.tile = launch.tile();
    if (!multiplies_tiles(c.tile)) c.activations = ActivationPath::kConverted;
    c.narrow.clear();
    for (int64_t tokens : narrow_launches(plan, phase, c, launch))
        c.narrow.push_back({tokens, GpuLaunch(plan, phase, c, tokens).tile()});
}

// Which operator, where, of how many tokens; the tokens of a launch are the user's to lower, heads
// and features are not.
[[noreturn]] void throw_limit_too_small(const Plan& plan, const Phase& phase, const Compute& c,
                                        int64_t rows, const Excess& excess) {
    const bool is_prefill = &phase == &plan.prefill;
    const std::string_view limit = excess.limit;
    const bool of_grid = limit.starts_with("max_grid");
    const std::string what = fmt::format(
        "{} ({}) of {} {} {}", c.ops.empty() ? "a launch" : plan.graph.op(c.ops.front()).name,
        kernel_kind_name(c.kernel), rows, is_prefill ? "prompt" : "decode",
        rows == 1 ? "token" : "tokens");
    const std::string& device = plan.machine.device(c.device).name;
    if (!of_grid)
        throw UserError(
            "{} needs {} {} in a block on {}, which has {} ({} of the machine), with the smallest "
            "tile that there is; give the device its real limits, split the operator with a larger "
            "$tensor_parallel, or plan for a device that has more",
            what, excess.need,
            limit == "max_threads_per_block" ? "threads"
            : limit == "registers_per_block" ? "registers"
                                             : "bytes of shared memory",
            device, excess.available, limit);
    throw UserError(
        "{} needs {} blocks in one dimension of its grid on {}, which has at most {} there ({} of "
        "the machine): {}",
        what, excess.need, device, excess.available, limit,
        is_prefill
            ? fmt::format("lower $prefill_chunk (it is {}), or split the operator with a larger "
                          "$tensor_parallel",
                          plan.workload.prefill_chunk)
            : fmt::format(
                  "lower $batch (it is {}), or split the operator with a larger $tensor_parallel",
                  plan.workload.batch));
}

// Devices of a stage most often have launches that differ in nothing but the device: what is chosen
// for one holds for the next.
class Alike {
public:
    explicit Alike(const Plan& plan) : plan_(plan) {
        const auto& devices = plan.machine.devices;
        for (const DeviceInfo& d : devices)
            class_.push_back(std::ranges::find_if(devices,
                                                  [&](const DeviceInfo& other) {
                                                      return other.kind == d.kind &&
                                                             other.arch == d.arch &&
                                                             other.limits == d.limits;
                                                  }) -
                             devices.begin());
    }

    bool operator()(const Phase& phase, const Compute& a, const Compute& b) const {
        const int64_t later = first_column(phase, b) - first_column(phase, a);
        return a.kernel == b.kernel && a.ops == b.ops && a.heads.size() == b.heads.size() &&
               class_[a.device.index()] == class_[b.device.index()] &&
               std::ranges::equal(
                   a.weights, b.weights,
                   [&](WeightShardId x, WeightShardId y) { return shards(x, y, later); }) &&
               a.kv.valid() == b.kv.valid() && (!a.kv.valid() || slabs(a.kv, b.kv)) &&
               values(phase, a.inputs, b.inputs) && values(phase, a.outputs, b.outputs);
    }

private:
    // Of the input.
    static int64_t first_column(const Phase& phase, const Compute& c) {
        if (c.inputs.empty()) return 0;
        const Box& box = phase.values[c.inputs[0].index()].box;
        return box.empty() ? 0 : box.back().begin;
    }
    // `later`: columns by which the second input begins behind the first.
    bool shards(WeightShardId x, WeightShardId y, int64_t later) const {
        const WeightShard &a = plan_.weights[x.index()], &b = plan_.weights[y.index()];
        return a.weight == b.weight && a.rows.size() == b.rows.size() &&
               a.columns.size() == b.columns.size() && a.columns.begin + later == b.columns.begin;
    }
    bool slabs(KvSlabId x, KvSlabId y) const {
        return plan_.kv_slabs[x.index()].kv_heads.size() ==
               plan_.kv_slabs[y.index()].kv_heads.size();
    }
    static bool values(const Phase& phase, const std::vector<PlacedId>& x,
                       const std::vector<PlacedId>& y) {
        return std::ranges::equal(x, y, [&](PlacedId a, PlacedId b) {
            const Box &one = phase.values[a.index()].box, &other = phase.values[b.index()].box;
            return std::ranges::equal(one, other, [](const Range& r, const Range& s) {
                return r.end == kWhole || s.end == kWhole ? r == s : r.size() == s.size();
            });
        });
    }

    const Plan& plan_;
    std::vector<std::ptrdiff_t> class_;  // by device: the first like it
};

// Calls `act` with each launch of a GPU whose tile takes more of a block, or leaves more blocks,
// than there is.
template <class Act>
void for_each_excess(const Plan& plan, Act act) {
    const Alike alike(plan);
    for (const Phase* phase : {&plan.prefill, &plan.decode}) {
        const Compute* before = nullptr;
        for (const Step& step : phase->steps) {
            const Compute* c = step.compute();
            if (!c || is_host(plan, c->device)) continue;
            if (before && alike(*phase, *before, *c)) continue;  // the one before says it of both
            before = c;
            const GpuLaunch launch(plan, *phase, *c);
            if (std::optional<Excess> excess = launch.excess(c->tile))
                act(*phase, *c, launch.rows, *excess);
            for (const NarrowTile& n : c->narrow)
                if (std::optional<Excess> excess =
                        GpuLaunch(plan, *phase, *c, n.tokens).excess(n.tile))
                    act(*phase, *c, n.tokens, *excess);
        }
    }
}

}  // namespace

int64_t host_threads(const Plan& plan, DeviceId id) {
    const DeviceInfo& device = plan.machine.device(id);
    if (!is_host(plan, id)) return 0;
    if (device.kind != DeviceKind::kHost)  // a simulated one has its cores for itself
        return std::max<int64_t>(1, device.limits.num_compute_units);
    const int64_t cores =
        device.is_numa_node() ? device.host_cores : device.limits.num_compute_units;
    return core_shares(plan, cores)[id.index()];
}

void choose_tiles(Plan& plan) {
    std::vector<int64_t> threads;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d)
        threads.push_back(std::max<int64_t>(1, host_threads(plan, DeviceId(d))));
    const Alike alike(plan);
    for (Phase* phase : {&plan.prefill, &plan.decode}) {
        const Compute* before = nullptr;
        for (Step& step : phase->steps) {
            auto* c = std::get_if<Compute>(&step.action);
            if (!c) continue;
            if (is_host(plan, c->device)) {
                c->tile = host_tile(plan, *phase, *c, threads[c->device.index()]);
            } else if (before && alike(*phase, *before, *c)) {
                c->tile = before->tile;
                c->activations = before->activations;
                c->narrow = before->narrow;
            } else {
                choose_gpu_tile(plan, *phase, *c);
            }
            before = c;
        }
    }
}

bool fits_limits(const Plan& plan) {
    bool fits = true;
    for_each_excess(plan, [&](auto&&...) { fits = false; });
    return fits;
}

void check_launch_limits(const Plan& plan) {
    for_each_excess(plan,
                    [&](const Phase& phase, const Compute& c, int64_t rows, const Excess& excess) {
                        throw_limit_too_small(plan, phase, c, rows, excess);
                    });
}

std::optional<ShrunkTile> shrunk_tile(const Plan& plan, const Phase& phase, const Compute& c) {
    if (is_host(plan, c.device)) return std::nullopt;
    return GpuLaunch(plan, phase, c).shrunk(c.tile);
}

int64_t scratch_bytes(const Plan& plan, const Phase& phase, const Compute& c) {
    const bool prepares = c.activations == ActivationPath::kPrepared;
    if (is_host(plan, c.device) || (c.kernel != KernelKind::kAttention && !prepares)) return 0;
    const GpuLaunch launch(plan, phase, c);
    if (launch.is == GpuLaunch::Is::kAttention) {
        int64_t bytes = attention_scratch_bytes(launch.attention, c.tile);
        for (const NarrowTile& n : c.narrow)
            bytes = std::max(bytes, attention_scratch_bytes(
                                        GpuLaunch(plan, phase, c, n.tokens).attention, n.tile));
        return bytes;
    }
    return prepares ? prepared_bytes(launch.product) : 0;
}

}  // namespace cleave::planner
