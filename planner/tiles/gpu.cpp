// SPDX-License-Identifier: Apache-2.0
// Tiles of operators that stand alone, and what a limit refuses of any tile.
#include "planner/tiles/gpu.h"

#include <algorithm>

#include "planner/tiles/parts.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace gpu;

void gpu::check_whole_warps(const DeviceLimits& limits, const Tile& tile) {
    CLEAVE_CHECK(tile.threads > 0 && tile.threads % warp_of(limits) == 0)
        << "a tile of " << tile.threads << " threads for warps of " << warp_of(limits);
}

DeviceLimits gpu::without_limits(DeviceLimits limits) {
    constexpr int64_t kAny = int64_t{1} << 40;
    limits.shared_memory_per_block = limits.max_threads_per_block = kAny;
    limits.registers_per_block = 0;
    limits.max_grid = {kAny, kAny, kAny};
    return limits;
}

std::optional<ShrunkTile> gpu::shrunk(const DeviceLimits& limits, const Tile& tile,
                                      const Tile& preferred, int64_t registers, const Grid& grid) {
    std::optional<Excess> excess = block_excess(limits, preferred, registers);
    if (!excess) excess = grid_excess(limits, grid);
    const auto sizes = [](const Tile& t) {
        return std::array{t.tokens, t.rows, t.depth, t.threads, t.splits};
    };
    if (!excess || sizes(tile) == sizes(preferred)) return std::nullopt;
    return ShrunkTile{preferred, *excess};
}

int64_t load_width(int64_t element_bytes, int64_t length) {
    int64_t width = 16 / element_bytes;
    while (width > 1 && length % width != 0) width /= 2;
    return width;
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

Grid elementwise_grid(int64_t rows, int64_t features, const Tile& tile) {
    return {rows * ceil_div(features, tile.threads), 1, 1};
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
