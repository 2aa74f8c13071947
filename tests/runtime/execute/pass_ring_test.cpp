// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/pass_ring.h"

#include <array>
#include <atomic>
#include <latch>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

namespace {

void nothing() {}

// The last member gives each pass its ticket as the token.
bool give_ticket(PassRing& ring, Pass& pass) {
    pass.result.tokens = {static_cast<int32_t>(pass.ticket())};
    ring.give(pass);
    return true;
}

void check_taken(PassRing& ring, Ticket ticket) {
    const PassResult result = ring.take();
    CHECK(result.ticket == ticket);
    CHECK(result.tokens == std::vector{static_cast<int32_t>(ticket)});
}

template <class Error>
std::string thrown_by_take(PassRing& ring) {
    try {
        ring.take();
    } catch (const Error& error) {
        return error.what();
    }
    FAIL("take() threw nothing of that type");
    return {};
}

}  // namespace

TEST_CASE("every member walks each pass once, in the order of tickets, on a thread of its own",
          "[runtime]") {
    constexpr size_t kMembers = 4;
    std::array<std::vector<Ticket>, kMembers> walked;
    std::array<std::set<std::thread::id>, kMembers> threads;
    PassRing ring(kMembers, -1,
                  {[&](PassRing& own, size_t member, Pass& pass) {
                       walked[member].push_back(pass.ticket());
                       threads[member].insert(std::this_thread::get_id());
                       return member + 1 < kMembers || give_ticket(own, pass);
                   },
                   nothing});
    std::vector<Ticket> tickets;
    for (Ticket t = -1; t < 99; ++t) {
        CHECK(ring.submit({}) == t);
        if (ring.in_flight() == 1 + (t + 1) % kMostPassesInFlight)
            while (ring.in_flight() > 0)
                check_taken(ring, tickets.emplace_back(t + 1 - ring.in_flight()));
    }
    while (ring.in_flight() > 0) check_taken(ring, tickets.emplace_back(99 - ring.in_flight()));
    CHECK(tickets.size() == 100);
    std::set<std::thread::id> all{std::this_thread::get_id()};
    for (size_t m = 0; m < kMembers; ++m) {
        CHECK(walked[m] == tickets);
        REQUIRE(threads[m].size() == 1);
        CHECK(all.insert(*threads[m].begin()).second);
    }
}

TEST_CASE("a ring of one walks its caller's passes on the caller's thread and others on its own",
          "[runtime]") {
    std::latch submitted(1);
    std::thread::id walked_on;
    bool waits = false;
    PassRing ring(1, 0,
                  {[&](PassRing& own, size_t, Pass& pass) {
                       if (waits) submitted.wait();
                       walked_on = std::this_thread::get_id();
                       return give_ticket(own, pass);
                   },
                   nothing});
    for (Ticket t = 0; t < 3; ++t) ring.submit({}, true);
    for (Ticket t = 0; t < 3; ++t) check_taken(ring, t);
    CHECK(walked_on == std::this_thread::get_id());
    waits = true;
    for (Ticket t = 3; t < 6; ++t) ring.submit({});  // returns before any of them is walked
    CHECK_THROWS_AS(ring.submit({}, true), InternalError);
    submitted.count_down();
    for (Ticket t = 3; t < 6; ++t) check_taken(ring, t);
    CHECK(walked_on != std::this_thread::get_id());
    waits = false;
    ring.submit({}, true);
    check_taken(ring, 6);
    CHECK(walked_on == std::this_thread::get_id());
}

TEST_CASE("a member does not wait for others to walk a pass before it begins the next",
          "[runtime]") {
    std::latch ahead(3);
    PassRing ring(2, 0,
                  {[&](PassRing& own, size_t member, Pass& pass) {
                       if (member == 0) {
                           if (pass.ticket() > 0) ahead.count_down();
                           return true;
                       }
                       if (pass.ticket() == 0) ahead.wait();
                       return give_ticket(own, pass);
                   },
                   nothing});
    for (Ticket t = 0; t < 4; ++t) ring.submit({});
    for (Ticket t = 0; t < 4; ++t) check_taken(ring, t);
}

TEST_CASE("no more passes are unfinished than a ring holds, and finished ones need not be taken",
          "[runtime]") {
    constexpr Ticket kPasses = 200;
    std::atomic<Ticket> walked{0};
    PassRing ring(1, 0,
                  {[&](PassRing& own, size_t, Pass& pass) {
                       ++walked;
                       return give_ticket(own, pass);
                   },
                   nothing});
    for (Ticket t = 0; t < kPasses; ++t) {
        ring.submit({});
        CHECK(t + 1 - walked <= kMostPassesInFlight);
    }
    CHECK(ring.in_flight() == kPasses);
    for (Ticket t = 0; t < kPasses; ++t) check_taken(ring, t);
}

TEST_CASE("a failed pass throws in its turn, behind all results before it, and ends the ring",
          "[runtime]") {
    constexpr Ticket kFailing = 3;
    for (size_t failing : {0, 1}) {
        std::latch failed(1);
        std::atomic<bool> stopped{false};
        PassRing ring(2, 0,
                      {[&](PassRing& own, size_t member, Pass& pass) {
                           // The last member is at the first pass until the other has failed.
                           if (member == 1 && failing == 0 && pass.ticket() == 0) failed.wait();
                           if (member == failing && pass.ticket() == kFailing) {
                               try {
                                   throw std::runtime_error("broken");
                               } catch (...) {
                                   own.fail(member, pass, pass.ticket());
                               }
                               if (failing == 0) failed.count_down();
                               return false;
                           }
                           // Others wait for it in that pass.
                           while (pass.ticket() >= kFailing && !stopped) std::this_thread::yield();
                           if (pass.ticket() >= kFailing) return false;
                           return member == 0 || give_ticket(own, pass);
                       },
                       [&] { stopped = true; }});
        for (Ticket t = 0; t < 6; ++t) ring.submit({});
        for (Ticket t = 0; t < kFailing; ++t) check_taken(ring, t);
        CHECK(thrown_by_take<std::runtime_error>(ring) == "broken");
        CHECK(ring.failed_member() == failing);
        CHECK_THROWS_AS(ring.take(), InternalError);
        CHECK_THROWS_AS(ring.submit({}), InternalError);
    }
}

TEST_CASE("of two failures that of the earlier pass is thrown", "[runtime]") {
    std::latch failed(1);
    PassRing ring(2, 0,
                  {[&](PassRing& own, size_t member, Pass& pass) {
                       if (member == 1) failed.wait();
                       const Ticket failing = member == 0 ? 2 : 1;
                       if (pass.ticket() < failing) return member == 0 || give_ticket(own, pass);
                       try {
                           throw std::runtime_error(std::to_string(failing));
                       } catch (...) {
                           own.fail(member, pass, pass.ticket());
                       }
                       if (member == 0) failed.count_down();
                       return false;
                   },
                   nothing});
    for (Ticket t = 0; t < 4; ++t) ring.submit({});
    check_taken(ring, 0);
    CHECK(thrown_by_take<std::runtime_error>(ring) == "1");
}

TEST_CASE("work that may have failed earlier on its member ends passes that are not given",
          "[runtime]") {
    std::latch given(1);
    PassRing ring(2, 0,
                  {[&](PassRing& own, size_t member, Pass& pass) {
                       if (member == 1) {
                           if (pass.ticket() > 0) return false;
                           give_ticket(own, pass);
                           given.count_down();
                           return true;
                       }
                       if (pass.ticket() < 3) return true;
                       given.wait();
                       try {
                           throw std::runtime_error("late");
                       } catch (...) {
                           own.fail(member, pass, 0);  // nobody saw that it was done
                       }
                       return false;
                   },
                   nothing});
    for (Ticket t = 0; t < 4; ++t) ring.submit({});
    check_taken(ring, 0);
    CHECK(thrown_by_take<std::runtime_error>(ring) == "late");
}

TEST_CASE("a ring that goes with passes in flight ends the waits of its members", "[runtime]") {
    for (size_t members : {1, 3}) {
        std::atomic<int> stops{0};
        {
            PassRing ring(members, 0,
                          {[&](PassRing&, size_t, Pass&) {
                               while (stops == 0) std::this_thread::yield();
                               return false;
                           },
                           [&] { ++stops; }});
            ring.submit({});
            ring.submit({});
        }
        CHECK(stops == 1);
    }
}
