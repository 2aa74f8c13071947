// SPDX-License-Identifier: Apache-2.0
// Tiles of products of few tokens (codegen/templates/gpu/gemv.cuh). Weights stream once; what
// counts is how many bytes of them are under way. Where the device copies into shared memory
// asynchronously they are in a ring there (weight_ring.cuh), and the tile decides how many stages
// it has; elsewhere they pass through registers.
#include "planner/tiles/parts.h"

namespace cleave::planner {

using namespace gpu;

namespace {

// Blocks that a launch should have for each compute unit, so that the last ones do not run alone.
constexpr int64_t kBlocksPerUnit = 4;
// Activations that a block stages: more would leave room for too few blocks beside it.
constexpr int64_t kStagedBytes = 48 * 1024;
// Passes over its staged activations that a block makes at most.
constexpr int64_t kMostPasses = 16;

// Weights that each compute unit should have under way. Little's law: bandwidth times latency, 3.35
// TB/s of 132 units and 0.7 us unloaded are 18 KB, and a memory that is kept busy takes two to
// three times as long.
constexpr int64_t kUnderWay = 64 * 1024;
// Blocks with a ring that a unit has room for: what one has under way fills the gaps of the other.
// A launch has up to twice as many where its rows come out more evenly.
constexpr int64_t kRingBlocks = 2, kMostRingBlocks = 4;
// Of a block's shared memory, which the driver keeps for itself.
constexpr int64_t kReservedBytes = 1024;
constexpr int64_t kMostStages = 16;
// More tokens have too many sums beside a ring's addresses: ptxas spilled some.
constexpr int64_t kMostRingTokens = 4;
constexpr int64_t kPieceBytes = 16;

bool has_ring(const ProductShape& s, int64_t tokens) {
    return s.async_copies && tokens <= kMostRingTokens && s.code_bits == 0 &&
           weight_width(s) * s.element_bytes == kPieceBytes;
}

// Rows that a lane takes together: their weights and sums stay in registers. Through a ring each
// piece is written to shared memory and read again, and activations once for all of them: two keep
// both below half of what it can do.
int64_t most_at_once(const ProductShape& s, int64_t tokens) {
    if (has_ring(s, tokens)) return 2;
    return std::clamp<int64_t>(16 / tokens, 1, weight_width(s) > 16 ? 2 : 4);
}

int64_t bytes_without_ring(const DeviceLimits& limits, const ProductShape& s, int64_t rows,
                           int64_t tokens, int64_t depth, int64_t threads) {
    int64_t warps = threads / warp_of(limits);
    // Quantised rows are padded to whole loads.
    int64_t floats = tokens * round_up(depth, weight_width(s)) + tokens * rows + warps * tokens;
    if (s.head > 0) floats += tokens;  // scales of a normalised head
    return 4 * floats;
}

// A block's part of a unit's shared memory, or as much as it has without a ring.
int64_t ring_budget(const DeviceLimits& limits) {
    const int64_t part =
        (limits.shared_memory_per_block + kReservedBytes) / kRingBlocks - kReservedBytes;
    return std::max(part, std::min(limits.shared_memory_per_block, kStagedBytes));
}

int64_t blocks_of(const ProductShape& s, const Tile& tile) {
    const Grid grid = product_grid(s, tile);
    return grid[0] * grid[1];
}

// So many that most units have two.
int64_t enough_blocks(const DeviceLimits& limits) {
    return units_of(limits) + units_of(limits) / 2;
}

int64_t slot_bytes(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    return tile.threads * product_rows_at_once(limits, s, tile) * kPieceBytes;
}

// Of a ring, so that the whole launch has enough under way.
int64_t wanted_stages(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    const int64_t all = slot_bytes(limits, s, tile) * blocks_of(s, tile);
    return std::clamp<int64_t>((kUnderWay * units_of(limits) + all / 2) / all, 2, kMostStages);
}

// Features of all tokens at once, or as many as fit: equal parts of whole steps.
int64_t staged_depth(const ProductShape& s, int64_t tokens, int64_t step, int64_t bytes) {
    if (4 * tokens * s.depth <= bytes) return s.depth;
    const int64_t most = std::max(step, bytes / (4 * tokens) / step * step);
    return round_up(ceil_div(s.depth, ceil_div(s.depth, most)), step);
}

// Threads and rows of a block that has a ring.
struct RingRows {
    int64_t threads = 0, rows = 0, blocks = 0, busiest = 0;
};

// Rows that leave each unit some blocks and the busiest as little to read as can be; a block reads
// its activations as it reads a row.
RingRows ring_rows_of(const DeviceLimits& limits, const ProductShape& s, int64_t tokens,
                      int64_t threads, int64_t unit) {
    const int64_t units = units_of(limits), enough = enough_blocks(limits);
    RingRows best;
    for (int64_t share = kRingBlocks; share <= kMostRingBlocks; ++share) {
        int64_t wanted = ceil_div(table_rows(s), share * units);
        if (s.head > 0) wanted = std::min(wanted, round_up(s.head, 2));
        if (s.whole_head) wanted = round_up(s.head, 2);
        RingRows made{threads, round_up(wanted, unit)};
        Tile tile;
        tile.tokens = tokens;
        tile.rows = made.rows / s.per_feature;
        made.blocks = blocks_of(s, tile);
        made.busiest = ceil_div(made.blocks, units) * (made.rows + 1);
        if (best.threads == 0 || best.blocks < enough ||
            (made.blocks >= enough && made.busiest < best.busiest))
            best = made;
    }
    return best;
}

// The widest block, and the most rows together, of which there are enough; else of which there are
// most.
RingRows ring_rows(const DeviceLimits& limits, const ProductShape& s, int64_t tokens) {
    RingRows best;
    for (int64_t threads : {256, 128, 64})
        for (int64_t together : {2, 1}) {
            const int64_t unit = threads / product_lanes(limits, s) * together;
            if (threads < warp_of(limits) || threads > limits.max_threads_per_block ||
                unit % 2 != 0 || !has_registers(limits, gemv_registers(s, tokens), threads))
                continue;
            const RingRows made = ring_rows_of(limits, s, tokens, threads, unit);
            if (made.blocks > best.blocks) best = made;
            if (best.blocks >= enough_blocks(limits)) return best;
        }
    return best;
}

// Nothing where the limits leave no room for two stages.
std::optional<Tile> ring_tile(const DeviceLimits& limits, const ProductShape& s, int64_t tokens) {
    const int64_t step = product_lanes(limits, s) * weight_width(s), budget = ring_budget(limits);
    const RingRows chosen = ring_rows(limits, s, tokens);
    if (chosen.threads == 0) return std::nullopt;
    Tile tile;
    tile.main_loop = MainLoop::kLanes;
    tile.threads = chosen.threads;
    tile.rows = chosen.rows / s.per_feature;
    for (tile.tokens = tokens; tile.tokens > 0; tile.tokens /= 2) {
        const int64_t slot = slot_bytes(limits, s, tile);
        const int64_t ring = std::min(wanted_stages(limits, s, tile) * slot, budget / 2);
        const int64_t rest =
            bytes_without_ring(limits, s, chosen.rows, tile.tokens, 0, tile.threads);
        tile.depth = staged_depth(s, tile.tokens, step, budget - ring - rest);
        if (gemv_stages(limits, s, tile) > 0) return tile;
    }
    return std::nullopt;
}

}  // namespace

int64_t gpu::gemv_registers(const ProductShape& s, int64_t tokens) {
    return kOtherRegisters + most_at_once(s, tokens) * (tokens + weight_width(s));
}

int64_t gpu::gemv_stages(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    if (!has_ring(s, tile.tokens)) return 0;
    const int64_t rows = tile.rows * s.per_feature, slot = slot_bytes(limits, s, tile);
    const int64_t lanes = product_lanes(limits, s);
    const int64_t base = bytes_without_ring(limits, s, rows, tile.tokens, tile.depth, tile.threads);
    int64_t room = ring_budget(limits);
    if (tile.shared_bytes > 0) room = std::min(room, tile.shared_bytes);
    // No more than the lanes of a group have to read.
    const int64_t steps = rows / (tile.threads / lanes * product_rows_at_once(limits, s, tile)) *
                          ceil_div(s.depth, lanes * weight_width(s));
    const int64_t stages =
        std::min({wanted_stages(limits, s, tile), steps, std::max<int64_t>(room - base, 0) / slot});
    return stages >= 2 ? stages : 0;
}

int64_t gpu::gemv_shared_bytes(const DeviceLimits& limits, const ProductShape& s,
                               const Tile& tile) {
    return tile.stages * slot_bytes(limits, s, tile) +
           bytes_without_ring(limits, s, tile.rows * s.per_feature, tile.tokens, tile.depth,
                              tile.threads);
}

Tile gpu::gemv_tile(const DeviceLimits& limits, const ProductShape& s) {
    const int64_t warp = warp_of(limits), lanes = product_lanes(limits, s);
    const int64_t step = lanes * weight_width(s);
    const int64_t budget = std::min(limits.shared_memory_per_block, kStagedBytes);
    int64_t tokens = std::min(power_of_two_from(s.tokens), kGemvTokens);
    if (has_ring(s, tokens))
        if (const std::optional<Tile> tile = ring_tile(limits, s, tokens)) return *tile;
    int64_t threads = std::min(std::max<int64_t>(256, warp), most_threads(limits));
    while (threads > warp && !has_registers(limits, gemv_registers(s, tokens), threads))
        threads /= 2;
    int64_t wanted = ceil_div(table_rows(s), kBlocksPerUnit * units_of(limits));
    if (s.head > 0) wanted = std::min(wanted, round_up(s.head, 2));
    if (s.whole_head) wanted = round_up(s.head, 2);
    int64_t together = most_at_once(s, tokens);
    auto unit = [&] { return threads / lanes * together; };
    while (unit() > wanted && together > 1) together /= 2;
    while (unit() > wanted && threads > 2 * warp) threads /= 2;
    if (unit() % 2 != 0) together *= 2;  // pairs meet in a block
    int64_t passes = std::clamp<int64_t>(wanted / unit(), 1, kMostPasses);
    if (s.whole_head) passes = ceil_div(wanted, unit());
    const int64_t rows = passes * unit();

    // All features of the tokens at once, as many as fit, or fewer tokens.
    auto rest = [&] { return bytes_without_ring(limits, s, rows, tokens, 0, threads); };
    while (tokens > 1 && rest() + 4 * tokens * step > budget) tokens /= 2;
    Tile tile;
    tile.main_loop = MainLoop::kLanes;
    tile.tokens = tokens;
    tile.threads = threads;
    tile.rows = rows / s.per_feature;
    tile.depth = s.depth;
    if (rest() + 4 * tokens * tile.depth > budget)
        tile.depth = std::max(step, (budget - rest()) / (4 * tokens) / step * step);
    return tile;
}

std::optional<Tile> gpu::smaller_gemv_tile(const DeviceLimits& limits, const ProductShape& s,
                                           Tile tile) {
    const int64_t groups = tile.threads / product_lanes(limits, s);
    if (tile.tokens > 1) {
        tile.tokens /= 2;
    } else if (!s.whole_head && tile.rows * s.per_feature % (2 * groups) == 0 &&
               tile.rows * s.per_feature / 2 % 2 == 0 && tile.rows % 2 == 0) {
        tile.rows /= 2;
    } else {
        return std::nullopt;
    }
    if (grid_excess(limits, product_grid(s, tile))) return std::nullopt;
    return tile;
}

int64_t product_lanes(const DeviceLimits& limits, const ProductShape& s) {
    return std::min(warp_of(limits),
                    power_of_two_to(std::max<int64_t>(1, s.depth / weight_width(s))));
}

int64_t product_rows_at_once(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    int64_t turns = tile.rows * s.per_feature / (tile.threads / product_lanes(limits, s));
    int64_t most = most_at_once(s, tile.tokens);
    for (int64_t n : {4, 2})
        if (n <= most && turns % n == 0) return n;
    return 1;
}

}  // namespace cleave::planner
