// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/rounding.h"

#include <cstdint>

#include "tests/support/test.h"

using namespace cleave;

TEST_CASE("parts that hold a number are counted up to the end of 64 bits", "[base]") {
    CHECK(ceil_div<int64_t>(0, 32) == 0);
    CHECK(ceil_div<int64_t>(1, 32) == 1);
    CHECK(ceil_div<int64_t>(32, 32) == 1);
    CHECK(ceil_div<int64_t>(33, 32) == 2);
    // A file's tile may say so. (A plan's verifier added 32 to it: found by its fuzz target.)
    CHECK(ceil_div<int64_t>(INT64_MAX, 32) == INT64_MAX / 32 + 1);
    CHECK(ceil_div<int64_t>(32, INT64_MAX) == 1);
    CHECK(ceil_div<int64_t>(INT64_MAX, 1) == INT64_MAX);
    CHECK(round_up<int64_t>(33, 32) == 64);
}
