// SPDX-License-Identifier: Apache-2.0
#include "runtime/hosts/clock_offset.h"

#include <cstdlib>
#include <vector>

#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

TEST_CASE("a clock's offset is off by no more than it says, whatever each way took", "[runtime]") {
    for (const int64_t ahead : {-5'000'000, 0, 123'456'789})
        for (const auto& [there, back] :
             {std::pair<int64_t, int64_t>{500, 500}, {0, 1001}, {9000, 1}, {0, 0}}) {
            // A slower one first, and one behind it.
            std::vector<ClockReading> readings;
            int64_t now = 1'000'000;
            for (const int64_t more : {20'000, 0, 7'000}) {
                readings.push_back({now, now + there + more + ahead, now + there + more + back});
                now = readings.back().came_ns + 50;
            }
            const ClockOffset found = clock_offset(readings);
            CHECK(found.error_ns == (there + back + 1) / 2);
            CHECK(std::abs(found.ahead_ns - ahead) <= found.error_ns);
        }
}
