// SPDX-License-Identifier: Apache-2.0
// What the files of planner/tiles/gpu.h share. Products are in products.cpp, which chooses between
// gemv.cpp and gemm.cpp; attention is in attention.cpp; the rest, limits among it, in gpu.cpp.
#pragma once

#include <algorithm>
#include <optional>

#include "planner/tiles/gpu.h"
#include "runtime/base/rounding.h"

namespace cleave::planner::gpu {

// The swizzle of warpgroups' operands repeats after so many bytes of shared memory.
inline constexpr int64_t kSwizzleBytes = 1024;
// Registers of a thread that hold no sums: addresses, and operands on their way. As compiled
// kernels report (tests/reports).
inline constexpr int64_t kOtherRegisters = 40;

inline int64_t power_of_two_from(int64_t n) {
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}
inline int64_t power_of_two_to(int64_t n) {
    int64_t p = 1;
    while (2 * p <= n) p *= 2;
    return p;
}

inline int64_t warp_of(const DeviceLimits& limits) {
    return std::max<int64_t>(limits.warp_width, 1);
}
inline int64_t units_of(const DeviceLimits& limits) {
    return std::max<int64_t>(limits.num_compute_units, 1);
}
// Threads of the widest block: whole warps, as many as a power of two, so that halves of them are
// whole warps, too. One warp where a device has room for less.
inline int64_t most_threads(const DeviceLimits& limits) {
    const int64_t warp = warp_of(limits);
    return power_of_two_to(std::max<int64_t>(limits.max_threads_per_block / warp, 1)) * warp;
}
// Elements behind a row of shared memory, so that neighbouring rows start in other banks.
inline int64_t padding(int64_t element_bytes) { return 16 / element_bytes; }

// Whether a block of so many threads gets them; a device that does not say has enough.
inline bool has_registers(const DeviceLimits& limits, int64_t registers, int64_t threads) {
    return limits.registers_per_block <= 0 || registers * threads <= limits.registers_per_block;
}

inline int64_t staged_bytes(const ProductShape& s) {
    return s.staged_bytes > 0 ? s.staged_bytes : s.element_bytes;
}

// Rows of weights of all blocks together.
inline int64_t table_rows(const ProductShape& s) { return s.rows * s.per_feature; }

// Threads of a tile are whole warps: InternalError otherwise.
void check_whole_warps(const DeviceLimits& limits, const Tile& tile);

// The same device where a block may have as much of everything as it likes.
DeviceLimits without_limits(DeviceLimits limits);
// What a limit took from a launch that would have `preferred` without limits.
std::optional<ShrunkTile> shrunk(const DeviceLimits& limits, const Tile& tile,
                                 const Tile& preferred, int64_t registers, const Grid& grid);

// Products of few tokens; `stages` and `shared_bytes` of their tiles are the caller's.
Tile gemv_tile(const DeviceLimits& limits, const ProductShape& s);
// Sums of fewer tokens, or rows that fewer lanes take together.
std::optional<Tile> smaller_gemv_tile(const DeviceLimits& limits, const ProductShape& s, Tile tile);
int64_t gemv_shared_bytes(const DeviceLimits& limits, const ProductShape& s, const Tile& tile);
int64_t gemv_registers(const ProductShape& s, int64_t tokens);
// Stages that the launch wants and a block has room for: within `shared_bytes` of the tile, where
// it says so.
int64_t gemv_stages(const DeviceLimits& limits, const ProductShape& s, const Tile& tile);

// Products of many tokens: stages that fit, shared memory of a tile with its stages, the tile of a
// shape with its stages, and the next smaller one.
int64_t gemm_stages(const DeviceLimits& limits, const ProductShape& s, const Tile& tile);
int64_t gemm_shared_bytes(const ProductShape& s, const Tile& tile);
std::optional<Tile> find_gemm_tile(const DeviceLimits& limits, const ProductShape& s);
std::optional<Tile> smaller_gemm_tile(const DeviceLimits& limits, const ProductShape& s,
                                      const Tile& tile);

}  // namespace cleave::planner::gpu
