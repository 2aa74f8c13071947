// SPDX-License-Identifier: Apache-2.0
// Tiles of attention: of a prompt by warpgroups or warps, of single tokens by lanes.
#include "planner/tiles/parts.h"

namespace cleave::planner {

using namespace gpu;

namespace {

// Keys that warpgroups attend to at once.
constexpr int64_t kWarpgroupKeys = 64;

// A cache of 8 bits is staged as f16, with two scales of f32 a key.
bool is_scaled(const AttentionShape& s) { return s.element_bytes == 1; }
int64_t staged_bytes(const AttentionShape& s) { return is_scaled(s) ? 2 : s.element_bytes; }
constexpr int64_t kScaleBytes = 2 * 4;

// Prefill: queries, keys and values, and a warp's probabilities, each row padded.
int64_t prefill_shared_bytes(const AttentionShape& s, int64_t queries, int64_t keys) {
    int64_t pad = padding(staged_bytes(s)), dim = round_up(s.head_dim, 16),
            v_dim = round_up(s.v_head_dim, 16);
    int64_t elements =
        (queries + keys) * (dim + pad) + v_dim * (keys + pad) + queries * (keys + pad);
    return elements * staged_bytes(s) + (is_scaled(s) ? kScaleBytes * keys : 0);
}

// By warpgroups: queries, and two halves of keys and values, in panels of 64 features; of 8 bits
// one, and what is copied while it is multiplied.
int64_t warpgroup_prefill_bytes(const AttentionShape& s, int64_t queries) {
    int64_t dim = round_up(s.head_dim, kWarpgroupDepth),
            v_dim = round_up(s.v_head_dim, kWarpgroupDepth);
    const int64_t halves = is_scaled(s) ? 1 : 2;
    int64_t elements = queries * dim + halves * kWarpgroupKeys * (dim + v_dim);
    const int64_t copied =
        is_scaled(s) ? kWarpgroupKeys * (s.head_dim + s.v_head_dim + 2 * kScaleBytes) : 0;
    return elements * staged_bytes(s) + copied + kSwizzleBytes - 16;
}

// Whether warpgroups attend: on a device that has them, 64 queries (or several times that) and 64
// keys of 16 bits (staged ones), in whole groups of 8 features, 256 at most for values (the sums of
// a thread), where both halves of the keys fit in shared memory.
bool attends_by_warpgroups(const DeviceLimits& limits, const AttentionShape& s, const Tile& tile) {
    return s.warpgroups && staged_bytes(s) == 2 && tile.tokens >= kWarpgroupTokens &&
           tile.tokens % kWarpgroupTokens == 0 && tile.depth == kWarpgroupKeys &&
           s.head_dim % 8 == 0 && s.v_head_dim % 8 == 0 && s.v_head_dim <= 256 &&
           warpgroup_prefill_bytes(s, tile.tokens) <= limits.shared_memory_per_block;
}

// The main loop of a tile's sizes, and the shared memory that it then takes.
void take_main_loop(const DeviceLimits& limits, const AttentionShape& s, Tile& tile) {
    tile.main_loop = attends_by_warpgroups(limits, s, tile) ? MainLoop::kWarpgroups
                     : tile.tokens > 1                      ? MainLoop::kWarps
                                                            : MainLoop::kLanes;
    tile.shared_bytes = attention_shared_bytes(limits, s, tile);
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
    // A token alone leaves most units idle: twice the threads take half the steps, each of which is
    // a memory's latency.
    tile.threads = std::max<int64_t>(s.tokens == 1 ? 256 : 128, warp);
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

}  // namespace

int64_t attention_lanes(const DeviceLimits& limits, const AttentionShape& s) {
    // A lane takes 8 elements at once, at most: more would be registers of queries and sums.
    int64_t loads = ceil_div(s.head_dim, load_width(staged_bytes(s), s.head_dim));
    return std::min(warp_of(limits), power_of_two_from(loads));
}

int64_t attention_shared_bytes(const DeviceLimits& limits, const AttentionShape& s,
                               const Tile& tile) {
    switch (tile.main_loop) {
        case MainLoop::kWarpgroups: return round_up(warpgroup_prefill_bytes(s, tile.tokens), 16);
        case MainLoop::kWarps:
            return round_up(prefill_shared_bytes(s, tile.tokens, tile.depth), 16);
        default: return round_up(decode_shared_bytes(limits, s, tile), 16);
    }
}

Tile attention_tile(const DeviceLimits& limits, const AttentionShape& s) {
    Tile tile;
    if (!s.prefill ||
        (!find_warpgroup_prefill_tile(limits, s, tile) && !find_prefill_tile(limits, s, tile)))
        tile = decode_tile(limits, s);
    take_main_loop(limits, s, tile);
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
    take_main_loop(limits, s, smaller);
    return smaller;
}

int64_t attention_scratch_bytes(const AttentionShape& s, const Tile& tile) {
    if (tile.splits <= 1) return 0;
    return kCounterBytes + 4 * s.tokens * s.heads * tile.splits * (s.v_head_dim + 2);
}

Grid attention_grid(const AttentionShape& s, const Tile& tile) {
    if (tile.tokens <= 1) return {decode_blocks(s, tile.rows), 1, tile.splits};
    // A sequence may leave its last tile almost empty.
    const int64_t rows = s.tokens + (s.sequences + 1) * (tile.tokens - 1);
    return {ceil_div(s.heads * rows, tile.tokens), 1, 1};
}

int64_t attention_registers(const DeviceLimits& limits, const AttentionShape& s, const Tile& tile) {
    const int64_t lanes = tile.tokens > 1 ? tile.threads : attention_lanes(limits, s);
    const int64_t sums = tile.tokens > 1 ? tile.tokens * round_up(s.v_head_dim, 16)
                                         : tile.rows * (s.head_dim + s.v_head_dim);
    return kOtherRegisters + ceil_div(sums, lanes);
}

std::optional<ShrunkTile> shrunk_attention_tile(const DeviceLimits& limits, const AttentionShape& s,
                                                const Tile& tile) {
    const Tile preferred = attention_tile(without_limits(limits), s);
    return shrunk(limits, tile, preferred, attention_registers(limits, s, preferred),
                  attention_grid(s, preferred));
}

}  // namespace cleave::planner
