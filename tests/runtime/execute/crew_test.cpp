// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/crew.h"

#include <atomic>
#include <set>
#include <thread>

#include "tests/support/test.h"

using cleave::runtime::Crew;

TEST_CASE("every member of a crew does each piece of work once, on a thread of its own",
          "[runtime]") {
    constexpr size_t kMembers = 4;
    Crew crew(kMembers);
    std::vector<std::thread::id> threads(kMembers);
    std::atomic<int> done{0};
    for (int round = 1; round <= 100; ++round) {
        crew.run([&](size_t member) {
            threads[member] = std::this_thread::get_id();
            ++done;
        });
        REQUIRE(done == round * static_cast<int>(kMembers));
    }
    CHECK(std::set(threads.begin(), threads.end()).size() == kMembers);
    CHECK(std::find(threads.begin(), threads.end(), std::this_thread::get_id()) == threads.end());
}

TEST_CASE("a crew of one works on its caller's thread", "[runtime]") {
    Crew crew(1);
    std::thread::id worked_on;
    crew.run([&](size_t member) {
        CHECK(member == 0);
        worked_on = std::this_thread::get_id();
    });
    CHECK(worked_on == std::this_thread::get_id());
}
