// SPDX-License-Identifier: Apache-2.0
// Tiles of matrix products: what a shape is on an architecture, and the choice between gemv.cpp and
// gemm.cpp.
#include "importer/weights/formats.h"
#include "planner/machine/gpu_arch.h"
#include "planner/tiles/parts.h"

namespace cleave::planner {

using namespace gpu;

namespace {

// The stages of the tile's ring, and the shared memory that it then takes.
void take_stages(const DeviceLimits& limits, const ProductShape& s, Tile& tile) {
    tile.stages =
        multiplies_tiles(tile) ? gemm_stages(limits, s, tile) : gemv_stages(limits, s, tile);
    tile.shared_bytes = product_shared_bytes(limits, s, tile);
}

}  // namespace

void set_arch(std::string_view arch, ProductShape& shape) {
    const GpuArch* known = find_gpu_arch(arch);
    shape.warpgroups = known && known->warpgroups;
    shape.async_copies = known && known->copies_asynchronously;
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

int64_t product_shared_bytes(const DeviceLimits& limits, const ProductShape& s, const Tile& tile) {
    return round_up(
        multiplies_tiles(tile) ? gemm_shared_bytes(s, tile) : gemv_shared_bytes(limits, s, tile),
        16);
}

Tile product_tile(const DeviceLimits& limits, const ProductShape& s) {
    std::optional<Tile> gemm;
    if (s.tokens > kGemvTokens) gemm = find_gemm_tile(limits, s);
    Tile tile = gemm ? *gemm : gemv_tile(limits, s);
    take_stages(limits, s, tile);
    check_whole_warps(limits, tile);
    return tile;
}

std::optional<Tile> smaller_product_tile(const DeviceLimits& limits, const ProductShape& s,
                                         const Tile& tile) {
    std::optional<Tile> smaller = multiplies_tiles(tile) ? smaller_gemm_tile(limits, s, tile)
                                                         : smaller_gemv_tile(limits, s, tile);
    if (smaller) {
        smaller->shared_bytes = 0;  // its ring may be deeper than that of the larger tile
        take_stages(limits, s, *smaller);
    }
    return smaller;
}

Grid product_grid(const ProductShape& s, const Tile& tile) {
    // No block crosses a head.
    const int64_t parts = s.head > 0 ? ceil_div(s.rows, s.head) * ceil_div(s.head, tile.rows)
                                     : ceil_div(s.rows, tile.rows);
    return {parts, ceil_div(s.tokens, tile.tokens), 1};
}

int64_t product_registers(const ProductShape& s, const Tile& tile) {
    if (!multiplies_tiles(tile)) return gemv_registers(s, tile.tokens);
    return kOtherRegisters + tile.tokens * tile.rows * s.per_feature / tile.threads;
}

std::optional<ShrunkTile> shrunk_product_tile(const DeviceLimits& limits, const ProductShape& s,
                                              const Tile& tile) {
    Tile preferred = product_tile(without_limits(limits), s);
    take_stages(limits, s, preferred);  // as few as the limits leave room for
    return shrunk(limits, tile, preferred, product_registers(s, preferred),
                  product_grid(s, preferred));
}

}  // namespace cleave::planner
