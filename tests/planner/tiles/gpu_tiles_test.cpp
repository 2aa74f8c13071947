// SPDX-License-Identifier: Apache-2.0
// By the tile arithmetic alone: on every limit of shared memory, for every Llama shape, dtype and
// context, fused or not, each kernel has a tile within its limits that covers its work.
#include "planner/tiles/gpu.h"
#include "tests/support/model_sizes.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;

namespace {

constexpr int64_t kKiB = 1024;
struct Sweep {
    int64_t kernels = 0, launches_of_many = 0, launches_of_warpgroups = 0;
    int64_t attention_of_warpgroups = 0, shrunk_tiles = 0, rings = 0, prepared = 0;

    static DeviceLimits roomy(DeviceLimits limits) {
        limits.shared_memory_per_block = 1 << 30;
        return limits;
    }

    void check(const DeviceLimits& limits, const Tile& tile, int64_t need) {
        ++kernels;
        bool fits = need <= limits.shared_memory_per_block && need <= tile.shared_bytes &&
                    tile.shared_bytes <= limits.shared_memory_per_block;
        bool runs = tile.threads > 0 && tile.threads <= limits.max_threads_per_block &&
                    tile.threads % limits.warp_width == 0 && tile.rows > 0 && tile.tokens > 0 &&
                    tile.depth > 0;
        CAPTURE(tile.rows, tile.tokens, tile.depth, tile.threads, tile.shared_bytes, need);
        CHECK((fits && runs));
    }

    void product(const DeviceLimits& limits, DType dtype, ProductShape shape) {
        set_weight_type(dtype, false, shape);
        product_as(limits, shape);
        // The same on a device that copies asynchronously, and on one that multiplies by
        // warpgroups.
        if (limits.warp_width == 32 && shape.tokens <= kGemvTokens) {
            shape.async_copies = true;
            product_as(limits, shape);
        }
        if (limits.warp_width != 32 || dtype == DType::kF32 || shape.tokens < kWarpgroupTokens)
            return;
        shape.warpgroups = true;
        product_as(limits, shape);
        // Activations that a launch in front has made ready, for warps and for warpgroups.
        shape.prepared = pays_to_prepare(shape);
        if (!shape.prepared) return;
        for (bool warpgroups : {false, true}) {
            shape.warpgroups = warpgroups;
            product_as(limits, shape);
            prepared_as(limits, shape);
        }
    }

    // Slices stay within the limits down to the smallest tile. Where none of many tokens fits
    // (whole heads of 256 in 32 KiB), nothing is prepared.
    void prepared_as(const DeviceLimits& limits, const ProductShape& shape) {
        for (std::optional<Tile> tile = product_tile(limits, shape); tile;
             tile = smaller_product_tile(limits, shape, *tile)) {
            if (!multiplies_tiles(*tile)) return;
            ++prepared;
            check(limits, *tile, product_shared_bytes(limits, shape, *tile));
            const int64_t stages = tile->stages;
            CHECK((stages >= 2 && stages <= 4));
        }
    }

    void product_as(const DeviceLimits& limits, const ProductShape& shape) {
        CAPTURE(shape.depth, shape.rows, shape.tokens, shape.element_bytes, shape.head);
        Tile tile = product_tile(limits, shape);
        check(limits, tile, product_shared_bytes(limits, shape, tile));
        CHECK_FALSE(grid_excess(limits, product_grid(shape, tile)));
        // A tile that is not the one without limits names the limit, and the need that is over it.
        if (std::optional<ShrunkTile> shrunk = shrunk_product_tile(limits, shape, tile)) {
            ++shrunk_tiles;
            CHECK(shrunk->excess.need > shrunk->excess.available);
        } else if (!shape.async_copies && !shape.prepared) {  // rings are as deep as fits
            CHECK(tile.shared_bytes == product_tile(roomy(limits), shape).shared_bytes);
        }
        launches_of_many += multiplies_tiles(tile);
        if (tile.main_loop == MainLoop::kWarpgroups) {
            ++launches_of_warpgroups;
            CHECK((shape.warpgroups && tile.rows * shape.per_feature % 16 == 0));
            CHECK(tile.tokens / kWarpgroupTokens * kWarpgroupThreads == tile.threads);
            CHECK(tile.tokens % kWarpgroupTokens == 0);
        }
        if (!multiplies_tiles(tile)) {
            // A block's lanes come out even: whole groups, rows together, loads within a stage.
            int64_t lanes = product_lanes(limits, shape), groups = tile.threads / lanes;
            int64_t at_once = product_rows_at_once(limits, shape, tile);
            CHECK(tile.rows * shape.per_feature % (groups * at_once) == 0);
            CHECK((tile.depth % weight_width(shape) == 0 || tile.depth == shape.depth));
            CHECK(tile.rows * shape.per_feature % 2 == 0);  // pairs meet in a block
            const int64_t stages = tile.stages;
            rings += stages > 0;
            const bool whole_pieces = shape.code_bits == 0 && shape.tokens <= 4 &&
                                      weight_width(shape) * shape.element_bytes == 16;
            CHECK((stages == 0 || (stages >= 2 && shape.async_copies && whole_pieces)));
            // A lane that has several pieces of a row to read always has a ring.
            if (shape.async_copies && whole_pieces && shape.depth > lanes * weight_width(shape))
                CHECK(stages >= 2);
            ring_of_smaller(limits, shape, tile);
        }
        if (shape.whole_head) CHECK(tile.rows >= shape.head);
    }

    // What a compiled kernel falls back to keeps to the limits, too, and to what it claims.
    void ring_of_smaller(const DeviceLimits& limits, const ProductShape& shape, const Tile& tile) {
        const std::optional<Tile> smaller = smaller_product_tile(limits, shape, tile);
        if (!smaller) return;
        check(limits, *smaller, product_shared_bytes(limits, shape, *smaller));
        CHECK((smaller->main_loop == MainLoop::kLanes && smaller->stages != 1));
    }

    void attention(const DeviceLimits& limits, AttentionShape shape) {
        attention_as(limits, shape);
        if (limits.warp_width != 32 || shape.element_bytes != 2 || !shape.prefill) return;
        shape.warpgroups = true;
        attention_as(limits, shape);
    }

    void attention_as(const DeviceLimits& limits, const AttentionShape& shape) {
        CAPTURE(shape.heads, shape.group, shape.head_dim, shape.tokens, shape.context,
                shape.element_bytes, shape.prefill);
        Tile tile = attention_tile(limits, shape);
        check(limits, tile, attention_shared_bytes(limits, shape, tile));
        CHECK_FALSE(grid_excess(limits, attention_grid(shape, tile)));
        CHECK(attention_scratch_bytes(shape, tile) < int64_t{64} << 20);
        if (!shape.prefill) CHECK(shape.tokens * shape.kv_heads * 4 <= kCounterBytes);
        // Down to the smallest, each is smaller in one way, fits, and is of warps in the end.
        bool by_warpgroups = tile.main_loop == MainLoop::kWarpgroups;
        attention_of_warpgroups += by_warpgroups;
        CHECK(
            (!by_warpgroups || tile.tokens / kWarpgroupTokens * kWarpgroupThreads == tile.threads));
        while (std::optional<Tile> smaller = smaller_attention_tile(limits, shape, tile)) {
            check(limits, *smaller, attention_shared_bytes(limits, shape, *smaller));
            CHECK((smaller->tokens * smaller->depth < tile.tokens * tile.depth ||
                   smaller->rows < tile.rows || smaller->threads < tile.threads));
            tile = *smaller;
            by_warpgroups = tile.main_loop == MainLoop::kWarpgroups;
        }
        CHECK_FALSE(by_warpgroups);
    }

    // Every launch of a device that has one part in `parts` of the model.
    void model(const DeviceLimits& limits, const test::ModelSize& m, DType dtype, int64_t tokens,
               int64_t context, int64_t parts, bool fused) {
        CAPTURE(m.name, limits.shared_memory_per_block, limits.warp_width, dtype_name(dtype),
                tokens, parts, fused);
        int64_t heads = m.heads / parts, kv_heads = std::max<int64_t>(1, m.kv_heads / parts);
        int64_t q = heads * m.head_dim, kv = kv_heads * m.head_dim, wide = m.intermediate / parts;
        if (fused) {
            for (bool whole : {false, true})
                product(limits, dtype, {m.hidden, q + 2 * kv, tokens, 0, 1, m.head_dim, whole});
            product(limits, dtype, {m.hidden, wide, tokens, 0, 2});
        } else {
            for (int64_t rows : {q, kv, wide}) product(limits, dtype, {m.hidden, rows, tokens});
        }
        product(limits, dtype, {q, m.hidden, tokens});
        product(limits, dtype, {wide, m.hidden, tokens});
        product(limits, dtype, {m.hidden, m.vocabulary / parts, 1});
        // Caches are f32 or of 16 bits, 8 on paper.
        const int64_t cache = dtype == DType::kF32 ? 4 : dtype == DType::kF8E4M3 ? 1 : 2;
        attention(limits, {heads, kv_heads, std::max<int64_t>(1, heads / kv_heads), m.head_dim,
                           m.head_dim, cache, tokens, context, tokens > 8});
        for (int64_t features : {m.hidden, q, kv, wide})
            check(limits, elementwise_tile(limits, features), 0);
    }
};

DeviceLimits limits_of(int64_t shared_kib, int64_t warp, int64_t units) {
    return {shared_kib * kKiB, 65536, 1024, warp, units};
}

}  // namespace

TEST_CASE("every kernel has a tile within its limits, whatever the device and the shape",
          "[planner]") {
    Sweep sweep;
    for (int64_t shared : test::kSharedKiB)
        for (int64_t warp : {32, 64})
            for (const test::ModelSize& m : test::kModelSizes)
                for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                    DType::kInt8, DType::kInt4})
                    for (bool fused : {true, false})
                        for (int64_t parts : {1, 8})
                            for (auto [tokens, context] : {std::pair{1, 4096},
                                                           {1, 131072},
                                                           {8, 4096},
                                                           {64, 4096},
                                                           {512, 131072}})
                                sweep.model(limits_of(shared, warp, 132), m, dtype, tokens, context,
                                            parts, fused);
    CHECK(sweep.kernels > 160'000);
    CHECK(sweep.launches_of_many > 10'000);
    CHECK(sweep.launches_of_warpgroups > 3'000);
    CHECK(sweep.attention_of_warpgroups > 250);
    CHECK(sweep.shrunk_tiles > 1'000);
    CHECK(sweep.rings > 4'000);
    CHECK(sweep.prepared > 10'000);
}

TEST_CASE("chunks of 100,000 tokens fit the grids of every device", "[planner]") {
    for (int64_t shared : test::kSharedKiB)
        for (int64_t bytes : {1, 2, 4})
            for (const test::ModelSize& m : test::kModelSizes)
                for (bool warpgroups : {false, true}) {
                    const DeviceLimits limits = limits_of(shared, 32, 132);
                    CAPTURE(shared, bytes, m.name, warpgroups);
                    ProductShape product{m.hidden, m.intermediate, 100'000, bytes, 2};
                    product.warpgroups = warpgroups;
                    Tile tile = product_tile(limits, product);
                    CHECK_FALSE(grid_excess(limits, product_grid(product, tile)));
                    AttentionShape attention{m.heads,    m.kv_heads, m.heads / m.kv_heads,
                                             m.head_dim, m.head_dim, bytes,
                                             100'000,    131'072,    true,
                                             warpgroups, 64};
                    tile = attention_tile(limits, attention);
                    CHECK_FALSE(grid_excess(limits, attention_grid(attention, tile)));
                    // A block for each token's heads, where the tile is that of decode.
                    attention.prefill = false;
                    tile = attention_tile(limits, attention);
                    CHECK(attention_grid(attention, tile)[0] >= 100'000 * m.kv_heads);
                    CHECK_FALSE(grid_excess(limits, attention_grid(attention, tile)));
                    tile = elementwise_tile(limits, m.intermediate);
                    CHECK_FALSE(
                        grid_excess(limits, elementwise_grid(100'000, m.intermediate, tile)));
                }
}

TEST_CASE(
    "the grid, registers and threads of a device choose among tiles as its shared memory does",
    "[planner]") {
    DeviceLimits limits = limits_of(227, 32, 132);
    ProductShape shape{4096, 1024, 512, 2};
    auto tile_with = [&](auto change) {
        DeviceLimits changed = limits;
        change(changed);
        Tile tile = product_tile(changed, shape);
        return std::pair{tile, shrunk_product_tile(changed, shape, tile)};
    };
    Tile free = product_tile(limits, shape);
    CHECK(free.tokens < 128);  // small ones fill the device
    CHECK_FALSE(shrunk_product_tile(limits, shape, free));
    auto [tall, by_grid] = tile_with([](DeviceLimits& l) { l.max_grid[1] = 4; });
    CHECK(tall.tokens == 128);
    REQUIRE(by_grid);
    CHECK(std::string(by_grid->excess.limit) == "max_grid_y");
    CHECK(by_grid->excess.need == (512 + free.tokens - 1) / free.tokens);
    CHECK(by_grid->excess.available == 4);
    CHECK(by_grid->preferred.tokens == free.tokens);
    shape.rows = 14336;  // work for large tiles
    free = product_tile(limits, shape);
    auto [thin, by_registers] = tile_with([](DeviceLimits& l) { l.registers_per_block = 8192; });
    CHECK(product_registers(shape, thin) * thin.threads <= 8192);
    REQUIRE(by_registers);
    CHECK(std::string(by_registers->excess.limit) == "registers_per_block");
    auto [narrow, by_threads] = tile_with([](DeviceLimits& l) { l.max_threads_per_block = 128; });
    CHECK(narrow.threads == 128);
    REQUIRE(by_threads);
    CHECK(std::string(by_threads->excess.limit) == "max_threads_per_block");
    auto [small, by_memory] = tile_with([](DeviceLimits& l) { l.shared_memory_per_block = 8192; });
    REQUIRE(by_memory);
    CHECK(std::string(by_memory->excess.limit) == "shared_memory_per_block");
    CHECK(by_memory->excess.need == free.shared_bytes);
    // Attention: fewer parts of the keys, fewer queries.
    const AttentionShape decode{32, 8, 4, 128, 128, 2, 1, 131072, false};
    limits.max_grid[2] = 3;
    CHECK(attention_tile(limits, decode).splits == 3);
    const AttentionShape prompt{32, 8, 4, 128, 128, 2, 512, 4096, true};
    const Tile wide = attention_tile(limits, prompt);
    limits.registers_per_block = 128 * attention_registers(limits, prompt, wide) - 1;
    REQUIRE(wide.threads == 128);
    CHECK(attention_tile(limits, prompt).tokens < wide.tokens);
}

TEST_CASE("blocks of warpgroups are those whose rounds end first on the device's units",
          "[planner]") {
    const DeviceLimits limits = limits_of(227, 32, 132);
    const auto tile_of = [&](int64_t tokens, int64_t rows, int64_t per_feature) {
        ProductShape s;
        s.depth = 4096;
        s.rows = rows;
        s.tokens = tokens;
        s.element_bytes = 2;
        s.per_feature = per_feature;
        s.warpgroups = s.async_copies = s.prepared = true;
        const Tile tile = product_tile(limits, s);
        REQUIRE(tile.main_loop == MainLoop::kWarpgroups);
        return std::pair{tile.tokens, tile.rows * per_feature};
    };
    using Choice = std::pair<int64_t, int64_t>;
    CHECK(tile_of(2048, 4096, 1) == Choice{256, 128});  // 256 blocks in two rounds
    CHECK(tile_of(2048, 14336, 2) == Choice{256, 128});
    // 128 blocks are a round of 132 units, and 256 smaller ones would be two.
    CHECK(tile_of(512, 4096, 1) == Choice{128, 128});
    CHECK(tile_of(512, 14336, 2) == Choice{256, 128});
    // Little work: many small blocks, each on a unit of its own.
    CHECK(tile_of(128, 4096, 1) == Choice{64, 64});
    CHECK(tile_of(64, 4096, 1) == Choice{64, 32});
}

TEST_CASE("attention is a warpgroup's where all of its tile fits, and a warp's otherwise",
          "[planner]") {
    const DeviceLimits limits = limits_of(227, 32, 132);
    auto tile_of = [](const DeviceLimits& device, int64_t dim, int64_t v_dim, int64_t bytes,
                      int64_t tokens, bool warpgroups) {
        AttentionShape shape{32, 8, 4, dim, v_dim, bytes, tokens, 4096, true, warpgroups};
        Tile tile = attention_tile(device, shape);
        return std::pair{tile.main_loop == MainLoop::kWarpgroups, tile.tokens};
    };
    using Choice = std::pair<bool, int64_t>;
    for (int64_t dim : {64, 80, 96, 128, 256})
        CHECK(tile_of(limits, dim, dim, 2, 1024, true) == Choice{true, 128});
    CHECK(tile_of(limits, 128, 128, 2, 100, true) == Choice{true, 64});
    CHECK(tile_of(limits_of(99, 32, 132), 128, 128, 2, 1024, true) == Choice{true, 128});
    CHECK(tile_of(limits_of(96, 32, 132), 128, 128, 2, 1024, true) == Choice{true, 64});
    CHECK(tile_of(limits, 128, 128, 2, 512, true) == Choice{true, 64});  // 128 blocks for 132 units
    // Too few tokens, f32, odd heads, too many sums, too little memory, no such instruction.
    CHECK(tile_of(limits, 128, 128, 2, 32, true) == Choice{false, 32});
    CHECK(tile_of(limits, 128, 128, 4, 512, true).first == false);
    CHECK(tile_of(limits, 84, 84, 2, 512, true).first == false);
    CHECK(tile_of(limits, 128, 264, 2, 512, true).first == false);
    CHECK(tile_of(limits_of(64, 32, 132), 128, 128, 2, 512, true).first == false);
    CHECK(tile_of(limits, 128, 128, 2, 512, false).first == false);
}

TEST_CASE("attention over an 8-bit cache has the tiles of f16, with scales and what is widened",
          "[planner]") {
    const DeviceLimits limits = limits_of(227, 32, 132);
    for (int64_t dim : {64, 80, 128, 256})
        for (int64_t tokens : {1, 40, 1024}) {
            AttentionShape narrow{32, 8, 4, dim, dim, 1, tokens, 4096, tokens > 1, true};
            AttentionShape wide = narrow;
            wide.element_bytes = 2;
            const Tile tile = attention_tile(limits, narrow), of_f16 = attention_tile(limits, wide);
            CAPTURE(dim, tokens);
            CHECK(tile.main_loop == of_f16.main_loop);
            CHECK(tile.tokens == of_f16.tokens);
            CHECK(tile.rows == of_f16.rows);
            CHECK(tile.depth == of_f16.depth);
            CHECK(attention_lanes(limits, narrow) == attention_lanes(limits, wide));
            const int64_t keys = tile.depth, panel = (dim + 63) / 64 * 64;
            // By warpgroups one half of f16 gives way to bytes and two halves of scales.
            const int64_t more = tile.main_loop == MainLoop::kWarpgroups
                                     ? keys * (2 * dim + 2 * 8) - 2 * keys * 2 * panel
                                 : tokens > 1 ? 8 * keys
                                              : 0;
            CHECK(tile.shared_bytes == of_f16.shared_bytes + more);
        }
}

TEST_CASE("f16 attention with rope fused stays far below the 286,720 bytes it once asked for",
          "[planner]") {
    // Heads of 128, 512 tokens, 64 KiB: the tile shrinks, however long the context.
    for (int64_t context : {4096, 131072})
        for (bool prefill : {false, true}) {
            AttentionShape shape{32, 8, 4, 128, 128, 2, prefill ? 512 : 1, context, prefill};
            Tile tile = attention_tile(limits_of(64, 64, 104), shape);
            CHECK(tile.shared_bytes <= 65536);
            CHECK(tile.shared_bytes >= attention_shared_bytes(limits_of(64, 64, 104), shape, tile));
        }
}

TEST_CASE("one token's attention is split until the device is full", "[planner]") {
    AttentionShape shape{32, 8, 4, 128, 128, 2, 1, 131072, false};
    Tile tile = attention_tile(limits_of(227, 32, 132), shape);
    CHECK(tile.splits * 8 >= 132);
    CHECK(attention_scratch_bytes(shape, tile) > 0);
    shape.tokens = 64;  // 512 blocks without splitting
    CHECK(attention_tile(limits_of(227, 32, 132), shape).splits == 1);
}

TEST_CASE("parts of the keys are so small that half a context fills the device, and no smaller",
          "[planner]") {
    const DeviceLimits h100 = limits_of(227, 32, 132);
    AttentionShape shape{32, 8, 4, 128, 128, 2, 1, 1024, false};
    CHECK(attention_grid(shape, attention_tile(h100, shape)) == Grid{8, 1, 16});
    shape.context = 512;
    CHECK(attention_tile(h100, shape).splits == 8);
    for (int64_t context : {64, 300, 1024, 2048, 131072}) {
        shape.context = context;
        const int64_t splits = attention_tile(h100, shape).splits;
        CHECK((splits == 1 || context / splits >= 64));
        CHECK(splits * 8 < 3 * 132);
    }
}

namespace {

// The products of one token of Llama 3 8B in bf16.
std::vector<ProductShape> products_of_8b() {
    std::vector<ProductShape> all{{4096, 6144, 1, 2, 1, 128},
                                  {4096, 4096, 1, 2},
                                  {4096, 14336, 1, 2, 2},
                                  {14336, 4096, 1, 2},
                                  {4096, 128256, 1, 2}};
    for (ProductShape& shape : all) shape.async_copies = true;
    return all;
}

// Weights that blocks have under way on each unit when as many stand there as its shared memory
// holds, 1 KiB more than a block may have, of which each block's driver keeps as much.
int64_t under_way(const DeviceLimits& limits, const ProductShape& shape) {
    const Tile tile = product_tile(limits, shape);
    const Grid grid = product_grid(shape, tile);
    const int64_t at_once = (limits.shared_memory_per_block + kKiB) / (tile.shared_bytes + kKiB);
    const int64_t blocks = std::min(grid[0] * grid[1], at_once * limits.num_compute_units);
    return blocks * tile.stages * tile.threads * product_rows_at_once(limits, shape, tile) * 16 /
           limits.num_compute_units;
}

}  // namespace

TEST_CASE(
    "decode products of 8B keep at least 48 KiB of weights under way on each "
    "multiprocessor of an H100",
    "[planner]") {
    const DeviceLimits h100 = limits_of(227, 32, 132);
    for (const ProductShape& shape : products_of_8b()) {
        CAPTURE(shape.depth, shape.rows);
        CHECK(under_way(h100, shape) >= 48 * kKiB);
        // All blocks stand there at once, with all of a token's features, and lines come out nearly
        // even.
        const Tile tile = product_tile(h100, shape);
        const int64_t blocks = product_grid(shape, tile)[0];
        CHECK(blocks * (tile.shared_bytes + kKiB) <= 132 * 228 * kKiB);
        CHECK(tile.depth == shape.depth);
        CHECK(blocks * tile.rows <= shape.rows * 51 / 50);
    }
    // Cards with less shared memory, and with less to fill: A100, RTX 4090, RTX 5090.
    for (const DeviceLimits& card :
         {limits_of(163, 32, 108), limits_of(99, 32, 128), limits_of(99, 32, 170)})
        for (const ProductShape& shape : products_of_8b()) {
            CAPTURE(card.num_compute_units, shape.depth, shape.rows);
            CHECK(under_way(card, shape) >= 36 * kKiB);
        }
}

TEST_CASE(
    "a ring of weights is as deep as each limit of shared memory allows, and at most as "
    "what a block reads",
    "[planner]") {
    for (const ProductShape& shape : products_of_8b()) {
        int64_t before = 0;
        for (int64_t kib : test::kSharedKiB) {
            const DeviceLimits limits = limits_of(kib, 32, 132);
            const Tile tile = product_tile(limits, shape);
            CAPTURE(kib, shape.depth, shape.rows, tile.shared_bytes, tile.depth);
            // Two blocks share a unit, where both get at least what a block without a ring may
            // have.
            CHECK(tile.shared_bytes <=
                  std::max<int64_t>((kib + 1) / 2 - 1, std::min<int64_t>(kib, 48)) * kKiB);
            const int64_t stages = tile.stages;
            CHECK(stages >= std::max<int64_t>(before, 2));
            before = stages;
            ProductShape plain = shape;
            plain.async_copies = false;
            CHECK(product_tile(limits, plain).stages == 0);
        }
    }
    ProductShape narrow{64, 96, 1, 2};  // rows of 8 pieces: a step for each row that a lane takes
    narrow.async_copies = true;
    const DeviceLimits limits = limits_of(227, 32, 1);
    const Tile tile = product_tile(limits, narrow);
    CHECK(tile.stages <= tile.rows / (tile.threads / product_lanes(limits, narrow) *
                                      product_rows_at_once(limits, narrow, tile)));
}

TEST_CASE("tiles fall back to plain loads where nothing is aligned", "[planner]") {
    // 7 features of 16 bits: one element a load, one lane a row.
    ProductShape shape{7, 5, 3, 2};
    Tile tile = product_tile(limits_of(48, 32, 4), shape);
    CHECK(load_width(2, 7) == 1);
    CHECK(tile.depth == 7);
    CHECK(product_shared_bytes(limits_of(48, 32, 4), shape, tile) <= tile.shared_bytes);
}
