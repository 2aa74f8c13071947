// SPDX-License-Identifier: Apache-2.0
// Tiles of products of many tokens (prompts).
#include <array>
#include <span>

#include "planner/tiles/parts.h"

namespace cleave::planner::gpu {

namespace {

struct Block {
    int64_t tokens, rows, depth, threads;
};

// Best first: large tiles read weights and activations least often, small ones fill the device.
constexpr std::array<Block, 8> kNarrowBlocks{{{128, 128, 32, 256},
                                              {128, 64, 32, 256},
                                              {64, 128, 32, 256},
                                              {64, 64, 32, 256},
                                              {64, 32, 32, 128},
                                              {32, 32, 32, 128},
                                              {16, 32, 32, 128},
                                              {16, 16, 32, 64}}};
constexpr std::array<Block, 6> kWideBlocks{{{64, 64, 16, 256},
                                            {64, 32, 16, 256},
                                            {32, 64, 16, 256},
                                            {32, 32, 16, 128},
                                            {16, 32, 16, 128},
                                            {16, 16, 16, 64}}};

// Of warpgroups, each with the sums of 64 tokens: 128 x 128 by two of them. With four of them a
// slice of 48 KiB is multiplied in 1024 cycles of a H100's unit, with two one of 32 KiB in 512.
constexpr std::array<Block, 6> kWarpgroupBlocks{{{256, 128, 64, 512},
                                                 {128, 128, 64, 256},
                                                 {128, 64, 64, 256},
                                                 {64, 128, 64, 128},
                                                 {64, 64, 64, 128},
                                                 {64, 32, 64, 128}}};

// Of both operands, swizzled instead of padded for warpgroups.
int64_t slice_bytes(const ProductShape& s, const Tile& tile) {
    const int64_t staged = staged_bytes(s);
    const int64_t stride =
        tile.depth + (tile.main_loop == MainLoop::kWarpgroups ? 0 : padding(staged));
    return (tile.tokens + tile.rows * s.per_feature) * stride * staged;
}

// Beside slices and the table of results: scales, and the way to where the swizzle begins.
int64_t fixed_bytes(const ProductShape& s, const Tile& tile) {
    return 4 * tile.tokens + (s.head > 0 ? 4 * tile.tokens : 0) +
           (tile.main_loop == MainLoop::kWarpgroups ? kSwizzleBytes - 16 : 0);
}

// The tile of a block for that shape, if it is within the limits.
std::optional<Tile> gemm_tile(const DeviceLimits& limits, const ProductShape& s, MainLoop loop,
                              Block b) {
    int64_t rows = b.rows;
    if (s.head > 0) rows = std::min(rows, round_up(s.head, 16));
    if (s.whole_head) rows = round_up(s.head, 16);
    b.threads = std::max(b.threads, warp_of(limits));
    // Half the registers of a thread are sums: activations or codes on their way would have no room
    // beside them.
    if (b.threads > 256 && !(s.prepared && s.code_bits == 0 && s.element_bytes == 2))
        return std::nullopt;
    if (b.threads > limits.max_threads_per_block) return std::nullopt;
    if (b.tokens > round_up(s.tokens, 16) && b.tokens > 16) return std::nullopt;
    // Sums of a thread stay in registers.
    if (b.tokens * rows / b.threads > 128) return std::nullopt;
    Tile tile;
    tile.tokens = b.tokens;
    tile.rows = rows / s.per_feature;
    tile.depth = b.depth;
    tile.threads = b.threads;
    tile.main_loop = loop;
    tile.stages = gemm_stages(limits, s, tile);
    if (gemm_shared_bytes(s, tile) > limits.shared_memory_per_block) return std::nullopt;
    if (!has_registers(limits, product_registers(s, tile), tile.threads) ||
        grid_excess(limits, product_grid(s, tile)))
        return std::nullopt;
    return tile;
}

// By warps: the first of `blocks` that fills the device; where there is too little work for that,
// the smallest spread it most.
std::optional<Tile> search_blocks(const DeviceLimits& limits, const ProductShape& s,
                                  std::span<const Block> blocks) {
    std::optional<Tile> tile;
    for (const Block& b : blocks) {
        const std::optional<Tile> fits = gemm_tile(limits, s, MainLoop::kWarps, b);
        if (!fits) continue;
        tile = fits;
        if (ceil_div(s.tokens, tile->tokens) * ceil_div(s.rows, tile->rows) >= units_of(limits))
            break;
    }
    return tile;
}

// Cycles of a H100's unit for a slice of all its blocks one after the other: 2,048 multiply-adds
// each (989 TFLOP/s of 132 units: NVIDIA H100 white paper), or, where that is more, 128 bytes of
// shared memory each (32 banks of 4: CUDA programming guide), of which every warpgroup reads its
// own 64 tokens and all rows of weights, and the copies that brought both wrote them.
int64_t warpgroup_cycles(const ProductShape& s, const Tile& tile) {
    const int64_t rows = tile.rows * s.per_feature, groups = ceil_div(tile.tokens, 64);
    const int64_t products = tile.tokens * rows * tile.depth / 2048;
    const int64_t elements = groups * (64 + rows) + tile.tokens + rows;
    return std::max(products, elements * tile.depth * staged_bytes(s) / 128);
}

// Of warpgroups the block that is done first, as whole rounds of the device's units: larger ones
// need fewer cycles for the same work, smaller ones leave fewer units idle. A smaller one must gain
// a tenth, as it reads more from outside its unit.
std::optional<Tile> search_warpgroup_blocks(const DeviceLimits& limits, const ProductShape& s) {
    std::optional<Tile> tile;
    int64_t best = 0;
    for (const Block& b : kWarpgroupBlocks) {
        const std::optional<Tile> fits = gemm_tile(limits, s, MainLoop::kWarpgroups, b);
        if (!fits) continue;
        const int64_t blocks = ceil_div(s.tokens, fits->tokens) * ceil_div(s.rows, fits->rows);
        const int64_t cycles = ceil_div(blocks, units_of(limits)) * warpgroup_cycles(s, *fits);
        if (best > 0 && cycles * 10 > best * 9) continue;
        best = cycles;
        tile = fits;
    }
    return tile;
}

bool takes_warpgroups(const ProductShape& s) {
    return s.warpgroups && s.tokens >= kWarpgroupTokens && staged_bytes(s) <= 2;
}

// The largest of `blocks` that is smaller than `tile`.
std::optional<Tile> smaller_of(const DeviceLimits& limits, const ProductShape& s, MainLoop loop,
                               std::span<const Block> blocks, const Tile& tile) {
    std::optional<Tile> best;
    for (const Block& b : blocks) {
        std::optional<Tile> fits = gemm_tile(limits, s, loop, b);
        if (!fits || fits->tokens * fits->rows >= tile.tokens * tile.rows) continue;
        if (!best || fits->tokens * fits->rows > best->tokens * best->rows) best = fits;
    }
    return best;
}

}  // namespace

int64_t gemm_stages(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    constexpr int64_t kMost = 4;
    if (!s.prepared) return 2;
    const auto fit = [&](int64_t bytes) {
        return (bytes - fixed_bytes(s, tile)) / slice_bytes(s, tile);
    };
    // Another block finds room beside it, unless registers leave none; but three stages come first.
    const bool alone = !has_registers(limits, 2 * product_registers(s, tile), tile.threads);
    const int64_t whole = fit(limits.shared_memory_per_block),
                  half = fit(limits.shared_memory_per_block / 2);
    return std::clamp<int64_t>(alone ? whole : std::max(half, std::min<int64_t>(whole, 3)), 2,
                               kMost);
}

int64_t gemm_shared_bytes(const ProductShape& s, const Tile& tile) {
    const int64_t slices = tile.stages * slice_bytes(s, tile);
    const int64_t table = tile.tokens * (tile.rows * s.per_feature + 4) * 4;
    return std::max(slices, table) + fixed_bytes(s, tile);
}

std::optional<Tile> find_gemm_tile(const DeviceLimits& limits, const ProductShape& s) {
    if (staged_bytes(s) > 2) return search_blocks(limits, s, kWideBlocks);
    std::optional<Tile> tile;
    if (takes_warpgroups(s)) tile = search_warpgroup_blocks(limits, s);
    return tile ? tile : search_blocks(limits, s, kNarrowBlocks);
}

std::optional<Tile> smaller_gemm_tile(const DeviceLimits& limits, const ProductShape& s,
                                      const Tile& tile) {
    if (staged_bytes(s) > 2) return smaller_of(limits, s, MainLoop::kWarps, kWideBlocks, tile);
    std::optional<Tile> smaller;
    if (tile.main_loop == MainLoop::kWarpgroups)
        smaller = smaller_of(limits, s, MainLoop::kWarpgroups, kWarpgroupBlocks, tile);
    return smaller ? smaller : smaller_of(limits, s, MainLoop::kWarps, kNarrowBlocks, tile);
}

}  // namespace cleave::planner::gpu

namespace cleave::planner {

using namespace gpu;

bool pays_to_prepare(const ProductShape& s) {
    constexpr int64_t kTokens = 64, kColumn = 128, kColumns = 4;
    return staged_bytes(s) == 2 && has_whole_copies(s.depth, s.depth, 0) && s.tokens >= kTokens &&
           table_rows(s) >= kColumns * kColumn;
}

int64_t prepared_bytes(const ProductShape& s) {
    // Behind the counters of attention, which share the scratch and stay zero.
    return kCounterBytes + s.tokens * (s.depth * staged_bytes(s) + (s.as_f16 ? kFactorBytes : 0));
}

}  // namespace cleave::planner
