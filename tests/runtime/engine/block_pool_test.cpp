// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/block_pool.h"

#include "runtime/base/split_mix.h"
#include "tests/support/failures.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

namespace {

std::vector<int32_t> run_of(int32_t begin, int32_t count) {
    std::vector<int32_t> blocks;
    for (int32_t i = 0; i < count; ++i) blocks.push_back(begin + i);
    return blocks;
}

}  // namespace

TEST_CASE("block 0 is nobody's", "[runtime][engine]") {
    BlockPool pool(5);
    CHECK(pool.free() == 4);
    CHECK(pool.allocate(4, 0) == run_of(1, 4));
    CHECK(pool.free() == 0);
    CHECK_THAT(test::failure_of<InternalError>([&] { pool.allocate(1, 0); }),
               Catch::Contains("1 blocks wanted; 0 are free"));
    CHECK_THAT(test::failure_of<InternalError>([&] { pool.release(0, false); }),
               Catch::Contains("block 0 is not held"));
}

TEST_CASE("a sequence that grows has a run of ids where the pool has one", "[runtime][engine]") {
    BlockPool pool(101);
    std::vector<int32_t> first = pool.allocate(4, 0), second = pool.allocate(4, 0);
    CHECK(first == run_of(first[0], 4));
    CHECK(second == run_of(second[0], 4));
    // Both grow, in turns, as sequences that decode do.
    for (int i = 0; i < 20; ++i) {
        first.push_back(pool.allocate(1, first.back())[0]);
        second.push_back(pool.allocate(1, second.back())[0]);
    }
    CHECK(first == run_of(first[0], 24));
    CHECK(second == run_of(second[0], 24));
}

TEST_CASE("a block that was given back joins the runs beside it", "[runtime][engine]") {
    BlockPool pool(10);
    std::vector<int32_t> all = pool.allocate(9, 0);
    for (int32_t block : {3, 5, 4, 9, 1, 2, 8}) pool.release(block, false);
    CHECK(pool.allocate(5, 0) == run_of(1, 5));
    CHECK(pool.allocate(2, 7) == run_of(8, 2));
    CHECK(pool.free() == 0);
}

TEST_CASE("a block is held until its last reference goes", "[runtime][engine]") {
    BlockPool pool(3);
    int32_t block = pool.allocate(1, 0)[0];
    pool.share(block);
    pool.share(block);
    CHECK(pool.references(block) == 3);
    pool.release(block, true);
    pool.release(block, true);
    CHECK((pool.held() == 1 && pool.cached() == 0));
    pool.release(block, true);
    CHECK((pool.held() == 0 && pool.cached() == 1 && pool.available() == 2));
    pool.share(block);
    CHECK((pool.held() == 1 && pool.cached() == 0));
}

TEST_CASE("the block that nobody used for longest is evicted first", "[runtime][engine]") {
    BlockPool pool(6);
    pool.allocate(5, 0);
    for (int32_t block : {4, 2, 5, 1}) pool.release(block, true);
    pool.share(2);  // used again
    pool.release(2, true);
    CHECK(pool.evict() == 4);
    CHECK(pool.evict() == 5);
    CHECK(pool.evict() == 1);
    CHECK(pool.evict() == 2);
    CHECK(pool.evict() == 0);
    CHECK((pool.free() == 4 && pool.held() == 1));
}

TEST_CASE("free, held and cached blocks are all blocks, each once", "[runtime][engine]") {
    SplitMix64 random(7);
    BlockPool pool(40);
    std::vector<int32_t> references(40), held;
    for (int step = 0; step < 20000; ++step) {
        int kind = random.below(5);
        if (kind < 2 && pool.free() > 0) {
            auto count = 1 + random.below(static_cast<int>(pool.free()));
            for (int32_t block : pool.allocate(count, random.below(40))) {
                REQUIRE(block > 0);
                REQUIRE(references[static_cast<size_t>(block)]++ == 0);
                held.push_back(block);
            }
        } else if (kind == 2) {
            pool.evict();
        } else if (!held.empty()) {
            auto place = static_cast<size_t>(random.below(static_cast<int>(held.size())));
            int32_t block = held[place];
            if (kind == 3) {
                pool.share(block);
                ++references[static_cast<size_t>(block)];
                held.push_back(block);
            } else {
                pool.release(block, random.below(2) == 0);
                --references[static_cast<size_t>(block)];
                held.erase(held.begin() + static_cast<ptrdiff_t>(place));
            }
        }
        REQUIRE(pool.free() + pool.held() + pool.cached() == 39);
        REQUIRE(pool.held() == 40 - std::ranges::count(references, 0));
    }
}
