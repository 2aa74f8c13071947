// SPDX-License-Identifier: Apache-2.0
#include "planner/tiles/gpu.h"

#include <algorithm>
#include <array>

#include "importer/weights/formats.h"
#include "planner/machine/gpu_arch.h"
#include "planner/tiles/parts.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace gpu;

namespace {

// Keys that warpgroups attend to at once.
constexpr int64_t kWarpgroupKeys = 64;

// Prefill: queries, keys and values, and a warp's probabilities, each row padded.
int64_t prefill_shared_bytes(const AttentionShape& s, int64_t queries, int64_t keys) {
    int64_t pad = padding(s.element_bytes), dim = round_up(s.head_dim, 16),
            v_dim = round_up(s.v_head_dim, 16);
    int64_t elements =
        (queries + keys) * (dim + pad) + v_dim * (keys + pad) + queries * (keys + pad);
    return elements * s.element_bytes;
}

// By warpgroups: queries, and two halves of keys and values, in panels of 64 features.
int64_t warpgroup_prefill_bytes(const AttentionShape& s, int64_t queries) {
    int64_t dim = round_up(s.head_dim, kWarpgroupDepth),
            v_dim = round_up(s.v_head_dim, kWarpgroupDepth);
    int64_t elements = queries * dim + 2 * kWarpgroupKeys * (dim + v_dim);
    return elements * s.element_bytes + kSwizzleBytes - 16;
}

// Blocks of two warpgroups read the keys half as often; where there is too little work for them,
// one spreads it more.
bool find_warpgroup_prefill_tile(const DeviceLimits& limits, const AttentionShape& s, Tile& tile) {
    bool found = false;
    for (int64_t queries : {2 * kWarpgroupTokens, kWarpgroupTokens}) {
        if (queries > round_up(s.tokens, 16)) continue;
        Tile wanted;
        wanted.tokens = queries;
        wanted.depth = kWarpgroupKeys;
        wanted.rows = 1;
        wanted.threads = queries / kWarpgroupTokens * kWarpgroupThreads;
        if (wanted.threads > limits.max_threads_per_block ||
            !attends_by_warpgroups(limits, s, wanted) ||
            !has_registers(limits, attention_registers(limits, s, wanted), wanted.threads))
            continue;
        tile = wanted;
        found = true;
        if (ceil_div(s.tokens, queries) * s.heads >= units_of(limits)) break;
    }
    return found;
}

bool find_prefill_tile(const DeviceLimits& limits, const AttentionShape& s, Tile& tile) {
    const int64_t warp = warp_of(limits);
    for (int64_t queries : {64, 32, 16}) {
        if (queries > std::max<int64_t>(16, round_up(s.tokens, 16))) continue;
        int64_t threads = queries / 16 * warp;
        if (threads > limits.max_threads_per_block) continue;
        for (int64_t keys : {64, 32, 16}) {
            if (prefill_shared_bytes(s, queries, keys) > limits.shared_memory_per_block) continue;
            // Sums of a lane: a row of values over a warp's 16 queries.
            if (16 * round_up(s.v_head_dim, 16) / warp > 160) continue;
            Tile wanted;
            wanted.tokens = queries;
            wanted.depth = keys;
            wanted.rows = 1;
            wanted.threads = threads;
            if (!has_registers(limits, attention_registers(limits, s, wanted), threads)) continue;
            tile = wanted;
            return true;
        }
    }
    return false;
}

int64_t decode_shared_bytes(const DeviceLimits& limits, const AttentionShape& s, const Tile& tile) {
    return 4 * tile.threads / warp_of(limits) * tile.rows * (s.v_head_dim + 2);
}

// Of a launch without splits: each has a counter when there are some.
int64_t decode_blocks(const AttentionShape& s, int64_t rows) {
    return s.tokens * s.kv_heads * ceil_div(s.group, rows);
}

Tile decode_tile(const DeviceLimits& limits, const AttentionShape& s) {
    const int64_t warp = warp_of(limits), lanes = attention_lanes(limits, s);
    Tile tile;
    tile.tokens = 1;
    tile.depth = s.head_dim;
    tile.threads = std::max<int64_t>(128, warp);
    tile.rows = std::min<int64_t>(s.group, 8);
    // Queries and sums of a lane stay in registers.
    auto held = [&] { return tile.rows * ceil_div(s.head_dim + s.v_head_dim, lanes); };
    auto fits = [&] {
        return decode_shared_bytes(limits, s, tile) <= limits.shared_memory_per_block &&
               has_registers(limits, attention_registers(limits, s, tile), tile.threads);
    };
    while (tile.rows > 1 && (held() > 128 || !fits())) tile.rows = ceil_div(tile.rows, 2);
    while (tile.threads > warp && (tile.threads > limits.max_threads_per_block || !fits()))
        tile.threads /= 2;
    constexpr int64_t kKeysOfPart = 64, kMostSplits = 64;
    int64_t blocks = decode_blocks(s, tile.rows);
    int64_t wanted = ceil_div(2 * units_of(limits), std::max<int64_t>(blocks, 1));
    tile.splits = std::clamp<int64_t>(std::min(wanted, s.context / kKeysOfPart), 1, kMostSplits);
    tile.splits = std::min(tile.splits, limits.max_grid[2]);
    if (blocks * 4 > kCounterBytes || s.prefill) tile.splits = 1;
    return tile;
}

void check_whole_warps(const DeviceLimits& limits, const Tile& tile) {
    CHECK(tile.threads > 0 && tile.threads % warp_of(limits) == 0)
        << "a tile of " << tile.threads << " threads for warps of " << warp_of(limits);
}

// The same device where a block may have as much of everything as it likes.
DeviceLimits without_limits(DeviceLimits limits) {
    constexpr int64_t kAny = int64_t{1} << 40;
    limits.shared_memory_per_block = limits.max_threads_per_block = kAny;
    limits.registers_per_block = 0;
    limits.max_grid = {kAny, kAny, kAny};
    return limits;
}

std::optional<ShrunkTile> shrunk(const DeviceLimits& limits, const Tile& tile,
                                 const Tile& preferred, int64_t registers, const Grid& grid) {
    std::optional<Excess> excess = block_excess(limits, preferred, registers);
    if (!excess) excess = grid_excess(limits, grid);
    const auto sizes = [](const Tile& t) {
        return std::array{t.tokens, t.rows, t.depth, t.threads, t.splits};
    };
    if (!excess || sizes(tile) == sizes(preferred)) return std::nullopt;
    return ShrunkTile{preferred, *excess};
}

}  // namespace

int64_t load_width(int64_t element_bytes, int64_t length) {
    int64_t width = 16 / element_bytes;
    while (width > 1 && length % width != 0) width /= 2;
    return width;
}

void set_arch(std::string_view arch, ProductShape& shape) {
    const GpuArch* known = find_gpu_arch(arch);
    shape.warpgroups = known && known->warpgroups;
    shape.async_copies = known && copies_asynchronously(*known);
}

void set_weight_type(DType dtype, bool quantized, ProductShape& shape) {
    const bool coded = importer::find_quantized_type(dtype) && !is_floating(dtype);
    const DType staged = importer::staged_type(dtype);
    shape.element_bytes = dtype_bytes(dtype, 1);
    shape.code_bits = quantized || coded ? dtype_bits(dtype) : 0;
    shape.staged_bytes = dtype_bytes(staged, 1);
    shape.as_f16 = staged == DType::kF16;
}

int64_t weight_width(const ProductShape& s) {
    return s.code_bits > 0 ? 128 / s.code_bits : load_width(s.element_bytes, s.depth);
}

int64_t product_stages(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    return is_gemm(tile) ? gemm_stages(limits, s, tile) : gemv_stages(limits, s, tile);
}

int64_t product_shared_bytes(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    return round_up(
        is_gemm(tile) ? gemm_shared_bytes(limits, s, tile) : gemv_shared_bytes(limits, s, tile),
        16);
}

Tile product_tile(const DeviceLimits& limits, const ProductShape& s) {
    Tile tile;
    if (s.tokens <= kGemvTokens || !find_gemm_tile(limits, s, tile)) tile = gemv_tile(limits, s);
    tile.shared_bytes = product_shared_bytes(limits, s, tile);
    check_whole_warps(limits, tile);
    return tile;
}

std::optional<Tile> smaller_product_tile(const DeviceLimits& limits, const ProductShape& s,
                                         const Tile& tile) {
    std::optional<Tile> smaller =
        is_gemm(tile) ? smaller_gemm_tile(limits, s, tile) : smaller_gemv_tile(limits, s, tile);
    if (smaller) {
        smaller->shared_bytes = 0;  // its ring may be deeper than that of the larger tile
        smaller->shared_bytes = product_shared_bytes(limits, s, *smaller);
    }
    return smaller;
}

int64_t attention_lanes(const DeviceLimits& limits, const AttentionShape& s) {
    int64_t loads = ceil_div(s.head_dim, load_width(s.element_bytes, s.head_dim));
    return std::min(warp_of(limits), power_of_two_from(loads));
}

int64_t attention_shared_bytes(const DeviceLimits& limits, const AttentionShape& s,
                               const Tile& tile) {
    return round_up(attends_by_warpgroups(limits, s, tile) ? warpgroup_prefill_bytes(s, tile.tokens)
                    : tile.tokens > 1 ? prefill_shared_bytes(s, tile.tokens, tile.depth)
                                      : decode_shared_bytes(limits, s, tile),
                    16);
}

bool attends_by_warpgroups(const DeviceLimits& limits, const AttentionShape& s, const Tile& tile) {
    return s.warpgroups && s.element_bytes == 2 && tile.tokens >= kWarpgroupTokens &&
           tile.tokens % kWarpgroupTokens == 0 && tile.depth == kWarpgroupKeys &&
           s.head_dim % 8 == 0 && s.v_head_dim % 8 == 0 && s.v_head_dim <= 256 &&
           warpgroup_prefill_bytes(s, tile.tokens) <= limits.shared_memory_per_block;
}

Tile attention_tile(const DeviceLimits& limits, const AttentionShape& s) {
    Tile tile;
    if (!s.prefill ||
        (!find_warpgroup_prefill_tile(limits, s, tile) && !find_prefill_tile(limits, s, tile)))
        tile = decode_tile(limits, s);
    tile.shared_bytes = attention_shared_bytes(limits, s, tile);
    check_whole_warps(limits, tile);
    return tile;
}

std::optional<Tile> smaller_attention_tile(const DeviceLimits& limits, const AttentionShape& s,
                                           const Tile& tile) {
    Tile smaller = tile;
    const bool prefill = tile.tokens > 1;
    if (prefill && tile.tokens > kWarpgroupTokens) {
        smaller.tokens /= 2;
        smaller.threads /= 2;
    } else if (prefill && tile.depth > 16) {
        smaller.depth /= 2;
    } else if (prefill && tile.tokens > 16) {
        smaller.tokens /= 2;
        smaller.threads /= 2;
    } else if (!prefill && tile.rows > 1 &&
               (tile.splits == 1 ||
                4 * decode_blocks(s, ceil_div(tile.rows, 2)) <= kCounterBytes)) {
        smaller.rows = ceil_div(tile.rows, 2);
    } else if (!prefill && tile.threads >= 2 * warp_of(limits)) {
        smaller.threads /= 2;
    } else {
        return std::nullopt;
    }
    smaller.shared_bytes = attention_shared_bytes(limits, s, smaller);
    return smaller;
}

int64_t attention_scratch_bytes(const AttentionShape& s, const Tile& tile) {
    if (tile.splits <= 1) return 0;
    return kCounterBytes + 4 * s.tokens * s.heads * tile.splits * (s.v_head_dim + 2);
}

Tile elementwise_tile(const DeviceLimits& limits, int64_t features) {
    Tile tile;
    tile.tokens = 1;
    tile.rows = features;
    tile.depth = 1;
    tile.threads = std::min(std::max<int64_t>(128, warp_of(limits)), most_threads(limits));
    while (tile.threads >= 2 * warp_of(limits) &&
           !has_registers(limits, kOtherRegisters, tile.threads))
        tile.threads /= 2;
    tile.shared_bytes = 8 * tile.threads / warp_of(limits);
    check_whole_warps(limits, tile);
    return tile;
}

Tile argmax_tile(const DeviceLimits& limits, int64_t length, int64_t run) {
    // Compilers give a thread 32 registers; twice that is kept.
    constexpr int64_t kLoads = 4, kRegisters = 64, kMostThreads = 1024;
    const int64_t most = std::min(kMostThreads, limits.max_threads_per_block);
    Tile tile;
    tile.tokens = 1;
    tile.rows = length;
    tile.depth = 1;
    tile.threads = warp_of(limits);
    while (tile.threads * run * kLoads < length && tile.threads * 2 <= most &&
           has_registers(limits, kRegisters, tile.threads * 2))
        tile.threads *= 2;
    tile.shared_bytes = 8 * tile.threads / warp_of(limits);
    check_whole_warps(limits, tile);
    return tile;
}

Grid product_grid(const ProductShape& s, const Tile& tile) {
    // No block crosses a head.
    const int64_t parts = s.head > 0 ? ceil_div(s.rows, s.head) * ceil_div(s.head, tile.rows)
                                     : ceil_div(s.rows, tile.rows);
    return {parts, ceil_div(s.tokens, tile.tokens), 1};
}

Grid attention_grid(const AttentionShape& s, const Tile& tile) {
    if (tile.tokens <= 1) return {decode_blocks(s, tile.rows), 1, tile.splits};
    // A sequence may leave its last tile almost empty.
    return {ceil_div(s.tokens + s.sequences * (tile.tokens - 1), tile.tokens), s.heads, 1};
}

Grid elementwise_grid(int64_t rows, int64_t features, const Tile& tile) {
    return {rows * ceil_div(features, tile.threads), 1, 1};
}

int64_t product_registers(const ProductShape& s, const Tile& tile) {
    if (!is_gemm(tile)) return gemv_registers(s, tile.tokens);
    return kOtherRegisters + tile.tokens * tile.rows * s.per_feature / tile.threads;
}

int64_t attention_registers(const DeviceLimits& limits, const AttentionShape& s, const Tile& tile) {
    const int64_t lanes = tile.tokens > 1 ? tile.threads : attention_lanes(limits, s);
    const int64_t sums = tile.tokens > 1 ? tile.tokens * round_up(s.v_head_dim, 16)
                                         : tile.rows * (s.head_dim + s.v_head_dim);
    return kOtherRegisters + ceil_div(sums, lanes);
}

int64_t elementwise_registers() { return kOtherRegisters; }

std::optional<Excess> block_excess(const DeviceLimits& limits, const Tile& tile,
                                   int64_t registers) {
    if (tile.shared_bytes > limits.shared_memory_per_block)
        return Excess{"shared_memory_per_block", tile.shared_bytes, limits.shared_memory_per_block};
    if (tile.threads > limits.max_threads_per_block)
        return Excess{"max_threads_per_block", tile.threads, limits.max_threads_per_block};
    if (!has_registers(limits, registers, tile.threads))
        return Excess{"registers_per_block", registers * tile.threads, limits.registers_per_block};
    return std::nullopt;
}

std::optional<Excess> grid_excess(const DeviceLimits& limits, const Grid& grid) {
    constexpr const char* kNames[] = {"max_grid_x", "max_grid_y", "max_grid_z"};
    for (size_t axis = 0; axis < grid.size(); ++axis)
        if (grid[axis] > limits.max_grid[axis])
            return Excess{kNames[axis], grid[axis], limits.max_grid[axis]};
    return std::nullopt;
}

std::optional<ShrunkTile> shrunk_product_tile(const DeviceLimits& limits, const ProductShape& s,
                                              const Tile& tile) {
    Tile preferred = product_tile(without_limits(limits), s);
    preferred.shared_bytes = product_shared_bytes(limits, s, preferred);  // with as few stages
    return shrunk(limits, tile, preferred, product_registers(s, preferred),
                  product_grid(s, preferred));
}

std::optional<ShrunkTile> shrunk_attention_tile(const DeviceLimits& limits, const AttentionShape& s,
                                                const Tile& tile) {
    const Tile preferred = attention_tile(without_limits(limits), s);
    return shrunk(limits, tile, preferred, attention_registers(limits, s, preferred),
                  attention_grid(s, preferred));
}

std::optional<ShrunkTile> shrunk_elementwise_tile(const DeviceLimits& limits, int64_t features,
                                                  const Tile& tile) {
    const Tile preferred = elementwise_tile(without_limits(limits), features);
    return shrunk(limits, tile, preferred, kOtherRegisters, {1, 1, 1});
}

std::optional<Tile> smaller_elementwise_tile(const DeviceLimits& limits, const Tile& tile) {
    if (tile.threads < 2 * warp_of(limits)) return std::nullopt;
    Tile smaller = tile;
    smaller.threads /= 2;
    smaller.shared_bytes = 8 * smaller.threads / warp_of(limits);
    return smaller;
}

}  // namespace cleave::planner
