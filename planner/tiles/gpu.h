// SPDX-License-Identifier: Apache-2.0
// Tiles of GPU launches by arithmetic on DeviceLimits alone: what a block computes, its threads,
// and the shared memory that codegen/templates/gpu then uses to the byte. The largest tile that
// fits and fills the device wins; what does not fit shrinks. Threads are whole warps. Every tile
// returned is within the limits of a block where any tile is (block_excess); its grid is too where
// any tile's is (grid_excess), and takes more tokens a block for that.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "planner/plan/plan.h"

namespace cleave::planner {

// A matrix product, or several that share their input.
struct ProductShape {
    int64_t depth = 0;          // input features
    int64_t rows = 0;           // output features
    int64_t tokens = 1;         // most of a launch
    int64_t element_bytes = 4;  // of a weight
    int64_t per_feature = 1;    // rows of weights for an output feature: 2 for gate and up
    int64_t head = 0;           // features of a head, which no block crosses; 0: none
    bool whole_head = false;    // a head may not be cut: its norm, or its scale in an 8-bit cache
    int64_t code_bits = 0;      // of a quantised matrix: 4 or 8; 0: plain elements
    int64_t staged_bytes = 0;   // of a weight in shared memory; 0: element_bytes
    bool warpgroups = false;    // the device multiplies 16-bit tiles by warpgroups
    bool async_copies = false;  // and copies into shared memory while its threads go on
    // Many tokens: activations come as the weights are staged, in rows of whole copies of 16 bytes:
    // blocks copy them as they are, several slices ahead.
    bool prepared = false;
    bool as_f16 = false;  // staged as f16: prepared rows have a factor each
};

// What an architecture makes of a shape: nothing where it is not in the table of
// planner/machine/gpu_arch.h.
void set_arch(std::string_view arch, ProductShape& shape);

// What a matrix of that type makes of a shape: 8 bits and fewer are widened to 16 in shared memory.
// `quantized`: its elements are codes with scales, as they always are of a type that no dense
// matrix has.
void set_weight_type(DType dtype, bool quantized, ProductShape& shape);

// Up to this many tokens a product is a gemv: weights stream once, past all tokens of the block.
inline constexpr int64_t kGemvTokens = 8;
// Whether warps or warpgroups multiply tiles: a gemm, or attention of a prompt.
inline bool multiplies_tiles(const Tile& tile) {
    return tile.main_loop == MainLoop::kWarps || tile.main_loop == MainLoop::kWarpgroups;
}

// Of a warpgroup: tokens (or queries), threads, and features of a row in shared memory.
inline constexpr int64_t kWarpgroupTokens = 64, kWarpgroupThreads = 128, kWarpgroupDepth = 64;

// Whether rows of so many 16-bit elements, `offset` behind each other's begin, are whole copies.
inline bool has_whole_copies(int64_t depth, int64_t stride, int64_t offset) {
    return depth % 8 == 0 && stride % 8 == 0 && offset % 8 == 0;
}
// Whether a launch pays that prepares the activations of a prompt, on a device that copies
// asynchronously: it reads and writes them once (6 bytes an element of f32), where each column of
// blocks would read 2 bytes more of them, and every block would normalise and narrow them on its
// way. Not for few tokens, few columns, or weights that are staged as f32.
bool pays_to_prepare(const ProductShape& shape);
// What it makes, in the scratch of the product's step: rows, and behind them the f32 factor of each
// where they are f16.
inline constexpr int64_t kFactorBytes = 4;
int64_t prepared_bytes(const ProductShape& shape);

// Elements that one load of at most 16 bytes takes from rows of `length`.
int64_t load_width(int64_t element_bytes, int64_t length);
// Weights of a row that one load takes.
int64_t weight_width(const ProductShape& shape);

// Tile: `rows` output features, `tokens`, `depth` features staged at once. `stages` of a gemm:
// slices of both operands in shared memory at once; two, or of prepared activations up to four. Of
// a gemv: pieces of 16 bytes that a lane has under way of each of the rows that it takes together;
// 0: weights come through registers.
Tile product_tile(const DeviceLimits& limits, const ProductShape& shape);
// The next smaller one that fits, for a compiled kernel that took more registers than there are.
std::optional<Tile> smaller_product_tile(const DeviceLimits& limits, const ProductShape& shape,
                                         const Tile& tile);
// With the stages of the tile.
int64_t product_shared_bytes(const DeviceLimits& limits, const ProductShape& shape,
                             const Tile& tile);
// Token tiles of a product whose blocks go through the features together, and so read the same
// weights at about the same time.
inline constexpr int64_t kTokensTogether = 2048;
// Few tokens: neighbouring lanes that share a row; rows that such lanes take together.
int64_t product_lanes(const DeviceLimits& limits, const ProductShape& shape);
int64_t product_rows_at_once(const DeviceLimits& limits, const ProductShape& shape,
                             const Tile& tile);

struct AttentionShape {
    int64_t heads = 1;     // query heads of the launch
    int64_t kv_heads = 1;  // that they read
    int64_t group = 1;     // query heads of a KV head
    int64_t head_dim = 0, v_head_dim = 0;
    int64_t element_bytes = 4;  // of the cache; 1: with scales, and staged as 2
    int64_t tokens = 1;         // most of a launch
    int64_t context = 1;
    bool prefill = false;
    bool warpgroups = false;  // the device multiplies 16-bit tiles by warpgroups
    int64_t sequences = 1;    // most of a launch
};

// Decode: `rows` query heads of a KV head together, `splits` of the keys, `tokens` 1. Prefill:
// `tokens` queries, `depth` keys at once; where no such tile fits, that of decode. By warpgroups on
// a device that has them: 64 queries each and 64 keys, where the cache has 16 or 8 bits, heads are
// whole groups of 8 features, 256 at most for values (the sums of a thread), and both halves of the
// keys fit in shared memory.
Tile attention_tile(const DeviceLimits& limits, const AttentionShape& shape);
// As smaller_product_tile; it takes the same arguments and scratch.
std::optional<Tile> smaller_attention_tile(const DeviceLimits& limits, const AttentionShape& shape,
                                           const Tile& tile);
// With the main loop of the tile.
int64_t attention_shared_bytes(const DeviceLimits& limits, const AttentionShape& shape,
                               const Tile& tile);
// Decode: neighbouring lanes that share a key.
int64_t attention_lanes(const DeviceLimits& limits, const AttentionShape& shape);
// Of partial results and counters; 0 for one split.
int64_t attention_scratch_bytes(const AttentionShape& shape, const Tile& tile);
// Counters of arrivals come first, and have as many bytes in every launch: they stay zero between
// launches.
inline constexpr int64_t kCounterBytes = 8192;

// Operators that stand alone: `features` of a row by `threads` threads, and two words of shared
// memory a warp.
Tile elementwise_tile(const DeviceLimits& limits, int64_t features);
std::optional<Tile> smaller_elementwise_tile(const DeviceLimits& limits, const Tile& tile);
// A row that has one block to itself, and that the device: as many threads as find a few loads of
// `run` elements each.
Tile argmax_tile(const DeviceLimits& limits, int64_t length, int64_t run);

// Blocks of the largest launch in x, y and z. Tokens lie in y where a block has many of them or
// few, and in x where it has one.
using Grid = std::array<int64_t, 3>;
Grid product_grid(const ProductShape& shape, const Tile& tile);
Grid attention_grid(const AttentionShape& shape, const Tile& tile);
Grid elementwise_grid(int64_t rows, int64_t features, const Tile& tile);  // x: at most

// 32-bit registers of a thread, estimated: its sums, and what every thread holds beside them.
int64_t product_registers(const ProductShape& shape, const Tile& tile);
int64_t attention_registers(const DeviceLimits& limits, const AttentionShape& shape,
                            const Tile& tile);
int64_t elementwise_registers();

// A need that is over a limit.
struct Excess {
    const char* limit =
        "";  // the field of DeviceLimits: "shared_memory_per_block", "max_grid_y", ...
    int64_t need = 0, available = 0;
};
// `registers` of a thread.
std::optional<Excess> block_excess(const DeviceLimits& limits, const Tile& tile, int64_t registers);
std::optional<Excess> grid_excess(const DeviceLimits& limits, const Grid& grid);

// What a limit took from a launch: the tile that the device would have without limits, and the
// first one that it is over.
struct ShrunkTile {
    Tile preferred;
    Excess excess;
};
// Nothing where `tile` is what the device would have without them.
std::optional<ShrunkTile> shrunk_product_tile(const DeviceLimits& limits, const ProductShape& shape,
                                              const Tile& tile);
std::optional<ShrunkTile> shrunk_attention_tile(const DeviceLimits& limits,
                                                const AttentionShape& shape, const Tile& tile);
std::optional<ShrunkTile> shrunk_elementwise_tile(const DeviceLimits& limits, int64_t features,
                                                  const Tile& tile);

}  // namespace cleave::planner
