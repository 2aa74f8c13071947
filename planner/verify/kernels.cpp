// SPDX-License-Identifier: Apache-2.0
// Which operators, in which order, each kind of kernel computes, the grid that its tile makes of
// them, and how it may come by its activations.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "planner/machine/gpu_arch.h"
#include "planner/verify/walk.h"
#include "runtime/base/rounding.h"

namespace cleave::planner::verify {
namespace {

using importer::OpKind;

// One letter an operator.
char letter(OpKind kind) {
    static constexpr std::string_view kLetters = "ENLRKTGASMOX";
    return kLetters[static_cast<size_t>(kind)];
}

// Letters in order; those in brackets may be absent, all or none. A star: a chain of elementwise
// operators.
constexpr std::array<std::string_view, 15> kPatterns{"E",       "[N]LLL[NN][RR]K",
                                                     "T",       "L*",
                                                     "[N]LLG*", "[M][N]L*",
                                                     "N*",      "R*",
                                                     "K",       "G*",
                                                     "A*",      "S*",
                                                     "M*",      "O",
                                                     "X"};

// Whether the last `count` operators are elementwise and each reads the one before it, and of the
// launch nothing else.
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

// No pattern needs a second try: what a bracket opens with never follows it. `epilogue`:
// operators left for a star.
bool matches(std::string_view pattern, std::string_view text, size_t& epilogue) {
    epilogue = 0;
    while (!pattern.empty()) {
        if (pattern == "*") {
            epilogue = text.size();
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

// Tokens of a block that multiplies no tiles, at most; elements of 16 bits that an asynchronous
// copy takes.
constexpr int64_t kGemvTokens = 8, kPiece = 8;

bool multiplies_tiles(const Compute& c) {
    return c.tile.main_loop == MainLoop::kWarps || c.tile.main_loop == MainLoop::kWarpgroups;
}

// Of an element of its matrices; 0 for a launch without any but attention, which has its cache's.
int64_t matrix_bits(const Plan& plan, const Compute& c) {
    if (c.kernel == KernelKind::kAttention) return 16;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() == 2) return dtype_bits(shard.dtype);
    }
    return 0;
}

// Rows of all matrices of a launch: its output features, gate and up apart.
int64_t matrix_rows(const Plan& plan, const Compute& c) {
    int64_t rows = 0;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() == 2) rows = sum(rows, shard.rows.size());
    }
    return c.kernel == KernelKind::kNormGateUp ? rows / 2 : rows;
}

}  // namespace

bool meets_int8(const importer::Weight& weight, DType dtype) {
    const bool integers = dtype == DType::kInt8 || dtype == DType::kUInt8 ||
                          dtype == DType::kInt4 || dtype == DType::kUInt4;
    const importer::Quantization& q = weight.quantization;
    return integers && weight.packing != importer::Packing::kDense && dtype == weight.dtype &&
           !q.dynamic_activations && q.block % 32 == 0;
}

bool is_product(const Compute& c) {
    return c.kernel == KernelKind::kLinear || c.kernel == KernelKind::kNormLinear ||
           c.kernel == KernelKind::kNormGateUp || c.kernel == KernelKind::kNormQkvRopeAppend;
}

int64_t most_rows(const Plan& plan, bool is_prefill, const Compute& c) {
    const Workload& w = plan.workload;
    const bool selects = std::any_of(c.ops.begin(), c.ops.end(), [&](OpId id) {
        return plan.graph.op(id).kind == OpKind::kSelectTokens;
    });
    return !is_prefill ? w.batch : selects ? w.max_outputs() : w.max_tokens();
}

std::array<int64_t, 3> least_grid(const Plan& plan, const Compute& c, int64_t tokens) {
    const auto parts = [](int64_t whole, int64_t part) {
        return part > 0 ? ceil_div(whole, part) : whole;
    };
    switch (c.kernel) {
        case KernelKind::kAttention:
            // Many tokens have a block for each head; one token has blocks for its KV heads, and
            // for parts of the keys.
            if (multiplies_tiles(c))
                return {product({parts(tokens, c.tile.tokens), c.heads.size()}), 1, 1};
            return {tokens, 1, c.tile.splits};
        case KernelKind::kLinear:
        case KernelKind::kNormLinear:
        case KernelKind::kNormGateUp:
        case KernelKind::kNormQkvRopeAppend:
            return {parts(matrix_rows(plan, c), c.tile.rows), parts(tokens, c.tile.tokens), 1};
        default: return {tokens, 1, 1};
    }
}

int64_t least_scratch(const Plan& plan, const Compute& c, int64_t tokens) {
    // Sums of a head, their largest score and their total, of each part of the keys, in f32.
    if (c.kernel == KernelKind::kAttention && c.kv.valid() && c.tile.splits > 1)
        return product(
            {tokens, c.heads.size(), c.tile.splits, plan.kv_slabs[c.kv.index()].v_head_dim + 2, 4});
    if (c.activations != ActivationPath::kPrepared) return 0;
    int64_t columns = 0, factor = 0;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() != 2) continue;
        columns = std::max(columns, shard.columns.size());
        // What is no bf16 is staged as f16, whose rows have an f32 each behind them.
        if (shard.dtype != DType::kBF16) factor = 4;
    }
    return product({2 * columns + factor, tokens});
}

int64_t least_thread_scratch(const Plan& plan, const Compute& c) {
    // Of all CPUs: floats of a vector, rows of a register tile, features of a widened strip.
    constexpr int64_t kLanes = 16, kTileRows = 12, kStripDepth = 256;
    // Sizes that no memory holds are cut, so that no product overflows.
    constexpr int64_t kMost = 1 << 26;
    const int64_t block = std::min(c.tile.tokens, kMost / 64);
    int64_t depth = 0;
    bool rounds_to_int8 = plan.workload.compute == ComputeMode::kFast;
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        const importer::Weight& weight = plan.graph.weight(shard.weight);
        if (weight.shape.size() != 2) continue;
        depth = std::max(depth, shard.columns.size());
        rounds_to_int8 = rounds_to_int8 && meets_int8(weight, shard.dtype);
    }
    if (depth == 0) return 0;
    depth = std::min(depth, kMost);
    int64_t rows = c.tile.rows;
    if (c.kernel == KernelKind::kNormQkvRopeAppend && c.kv.valid()) {
        const KvSlab& slab = plan.kv_slabs[c.kv.index()];
        rows = std::max(slab.head_dim, slab.v_head_dim);  // a head is an item
    }
    rows = std::min(rows, kMost);
    // Sums in f32, each row a vector longer, so that rows begin in other sets of the cache.
    const int64_t results = c.kernel == KernelKind::kNormGateUp ? 2 : 1;
    const int64_t sums = results * block * (rows + kLanes) * 4;
    const int64_t row = round_up(depth, kLanes) * 4;
    if (!rounds_to_int8)
        return round_up(round_up(block, kLanes) * row + sums + kTileRows * kStripDepth * 4, 64);
    // A group of 32 codes has a scale and its codes' sum behind it. Then 16 groups of 32 rows of
    // weights, each 8 words of codes, a scale and a zero point; a row in f32 takes their place
    // while it is made ready.
    const int64_t tokens = block * ceil_div(depth, 32) * (32 + 8);
    const int64_t strip = kLanes * 32 * (8 + 2) * 4;
    return round_up(tokens, 64) + std::max(strip, row + kLanes * 4) + round_up(sums, 64);
}

std::string wrong_narrow_tiles(const Plan& plan, bool is_prefill, const Compute& c) {
    const bool is_gpu = plan.machine.device(c.device).limits.has_warps();
    const bool attends = c.kernel == KernelKind::kAttention;
    const bool has_any =
        is_gpu && (is_prefill ? attends && multiplies_tiles(c)
                              : attends || (is_product(c) && matrix_bits(plan, c) > 0));
    const int64_t batch = plan.workload.batch;
    std::vector<int64_t> wanted, found;
    if (has_any && is_prefill) wanted = {batch};
    if (has_any && !is_prefill)
        for (const int64_t width : {1, 8})
            if (width < batch) wanted.push_back(width);
    for (const NarrowTile& narrow : c.narrow) {
        found.push_back(narrow.tokens);
        if (is_prefill && narrow.tile.main_loop != MainLoop::kLanes)
            return "single tokens of a prompt's pass have the loop of many tokens";
    }
    if (wanted != found) return "it has them for other numbers of tokens";
    return "";
}

std::string wrong_main_loop(const Plan& plan, const Compute& c) {
    const DeviceInfo& device = plan.machine.device(c.device);
    const GpuArch* arch = find_gpu_arch(device.arch);
    const Tile& t = c.tile;
    const bool has_loop = device.limits.has_warps() &&
                          (is_product(c) || c.kernel == KernelKind::kAttention) &&
                          matrix_bits(plan, c) > 0;
    if (has_loop != (t.main_loop != MainLoop::kNone)) return "it has another kind of work";
    if (t.main_loop == MainLoop::kWarpgroups && !(arch && arch->warpgroups))
        return "its device has no warpgroups";
    if (has_loop &&
        (t.tokens < 1 || t.threads < 1 || t.splits < 1 || (is_product(c) && t.rows < 1)))
        return "it divides its work by nothing";
    if (has_loop && is_product(c) && multiplies_tiles(c) != (t.tokens > kGemvTokens))
        return "its tokens are those of another loop";
    if (t.stages == 0) return is_product(c) && multiplies_tiles(c) ? "its ring has no stages" : "";
    if (!has_loop || !is_product(c)) return "it has no ring";
    if (t.stages < 2) return "a ring has two stages or more";
    if (!multiplies_tiles(c))
        return arch && arch->copies_asynchronously ? "" : "its device has no asynchronous copies";
    if (c.activations == ActivationPath::kConverted && t.stages != 2)
        return "activations that pass registers fill a ring of two stages";
    // Both operands, as narrow as they are multiplied: at 32 bits, or 16.
    const int64_t rows = t.rows * (c.kernel == KernelKind::kNormGateUp ? 2 : 1);
    const int64_t bytes = matrix_bits(plan, c) > 16 ? 4 : 2;
    if (product({t.stages, t.tokens + rows, t.depth, bytes}) > t.shared_bytes)
        return "its stages do not fit its shared memory";
    return "";
}

std::string wrong_activations(const Plan& plan, const Phase& phase, const Compute& c) {
    if (c.activations == ActivationPath::kConverted) return "";
    const GpuArch* arch = find_gpu_arch(plan.machine.device(c.device).arch);
    if (!arch || !arch->copies_asynchronously) return "its device has no asynchronous copies";
    if (&phase != &plan.prefill || !multiplies_tiles(c) || c.tile.tokens <= kGemvTokens ||
        c.inputs.empty() || !is_product(c))
        return "it is no product of many tokens of a prompt";
    const bool copied = c.activations == ActivationPath::kCopied;
    const Range x = columns_of(phase.values[c.inputs[0].index()]);
    for (WeightShardId id : c.weights) {
        const WeightShard& shard = plan.weights[id.index()];
        if (plan.graph.weight(shard.weight).shape.size() != 2) continue;
        if (shard.columns.size() % kPiece != 0) return "rows of its matrices end within a copy";
        if (dtype_bits(shard.dtype) > 16) return "its matrices are staged as f32";
        if (copied && shard.dtype != plan.workload.activation_dtype)
            return "activations are of another type than its matrices";
        if (copied && (x.size() % kPiece != 0 || (shard.columns.begin - x.begin) % kPiece != 0))
            return "rows of activations begin or end within a copy";
    }
    if (copied && plan.graph.op(c.ops.front()).kind != OpKind::kLinear)
        return "something comes before its product";
    if (!copied && !c.scratch.valid()) return "there is no scratch for what is prepared";
    return "";
}

bool kernel_fits(const Graph& graph, const Compute& compute) {
    if (compute.kernel == KernelKind::kTensor) return tensors_fit(graph, compute);
    std::string letters;
    for (OpId id : compute.ops) letters += letter(graph.op(id).kind);
    size_t epilogue = 0;
    return matches(kPatterns[static_cast<size_t>(compute.kernel)], letters, epilogue) &&
           is_chain(graph, compute.ops, epilogue);
}

}  // namespace cleave::planner::verify
