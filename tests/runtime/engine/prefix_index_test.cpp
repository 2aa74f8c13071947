// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/prefix_index.h"

#include <numeric>

#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

namespace {

std::vector<int32_t> tokens_from(int32_t first) {
    std::vector<int32_t> tokens(static_cast<size_t>(planner::kKvBlock));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

BlockTokens block_of(const std::vector<int32_t>& tokens) {
    return BlockTokens(std::span(tokens).first<planner::kKvBlock>());
}

}  // namespace

TEST_CASE("a prefix is found by its tokens, and only by all of them", "[runtime][engine]") {
    PrefixIndex index(10);
    std::vector<int32_t> a = tokens_from(0), b = tokens_from(100), c = a;
    c.back() = 99;
    auto first = index.insert(0, {}, block_of(a), 3);
    REQUIRE(first);
    auto second = index.insert(0, *first, block_of(b), 5);
    REQUIRE(second);
    CHECK(index.find(0, {}, block_of(a))->block == 3);
    CHECK(index.find(0, *first, block_of(b))->block == 5);
    CHECK(!index.find(0, {}, block_of(b)));
    CHECK(!index.find(0, {}, block_of(c)));
    CHECK(!index.find(0, *second, block_of(b)));
}

TEST_CASE("prefixes with one hash are never taken for each other", "[runtime][engine]") {
    PrefixIndex index(100, 0);  // every hash is 0
    std::vector<int32_t> texts[5];
    Prefix prefixes[5];
    for (int32_t i = 0; i < 5; ++i) {
        texts[i] = tokens_from(i);
        prefixes[i] = *index.insert(0, {}, block_of(texts[i]), 1 + i);
    }
    for (int32_t i = 0; i < 5; ++i) {
        CHECK(index.find(0, {}, block_of(texts[i]))->block == 1 + i);
        CHECK(!index.find(1, {}, block_of(texts[i])));
        CHECK(!index.find(0, prefixes[i], block_of(texts[i])));
    }
    index.forget(3);
    CHECK(!index.find(0, {}, block_of(texts[2])));
    CHECK(index.find(0, {}, block_of(texts[3]))->block == 4);
}

TEST_CASE("tenants with different salts do not find each other's prefixes", "[runtime][engine]") {
    PrefixIndex index(10);
    std::vector<int32_t> tokens = tokens_from(0);
    index.insert(1, {}, block_of(tokens), 3);
    CHECK(!index.find(2, {}, block_of(tokens)));
    CHECK(index.insert(2, {}, block_of(tokens), 4)->block == 4);
    CHECK(index.find(1, {}, block_of(tokens))->block == 3);
}

TEST_CASE("of two blocks with one prefix the index keeps the first", "[runtime][engine]") {
    PrefixIndex index(10);
    std::vector<int32_t> tokens = tokens_from(0);
    auto first = index.insert(0, {}, block_of(tokens), 3);
    auto again = index.insert(0, {}, block_of(tokens), 4);
    CHECK((again->block == 3 && again->id == first->id));
    CHECK(index.has(3));
    CHECK(!index.has(4));
}

TEST_CASE("nothing is found behind a prefix that was forgotten", "[runtime][engine]") {
    PrefixIndex index(10);
    std::vector<int32_t> a = tokens_from(0), b = tokens_from(50);
    Prefix first = *index.insert(0, {}, block_of(a), 3);
    index.insert(0, first, block_of(b), 4);
    index.forget(3);
    CHECK(!index.insert(0, first, block_of(a), 6));
    // The same block holds another prefix now.
    Prefix other = *index.insert(0, {}, block_of(b), 3);
    CHECK(!index.find(0, other, block_of(b)));
    CHECK(!index.insert(0, first, block_of(a), 6));
    // The same tokens again are another prefix, too: what was behind the old one is not found.
    Prefix renewed = *index.insert(0, {}, block_of(a), 7);
    CHECK(!index.find(0, renewed, block_of(b)));
}
