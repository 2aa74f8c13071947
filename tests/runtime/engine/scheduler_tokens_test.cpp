// SPDX-License-Identifier: Apache-2.0
// WatchedScheduler compares every token with that of its sequence alone.
#include "runtime/base/split_mix.h"
#include "tests/runtime/engine/watched_scheduler.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

EngineLimits limits_for(int64_t slots, int64_t blocks, int64_t budget) {
    return {.slots = slots,
            .context = 160,
            .num_blocks = 1 + blocks,
            .max_tokens = budget,
            .max_outputs = slots};
}

ScheduledRequest request_of(SplitMix64& random, int prompt, int64_t new_tokens, int shared = 0) {
    ScheduledRequest request{.max_new_tokens = new_tokens};
    for (int i = 0; i < prompt; ++i) {
        request.prompt.push_back(i < shared ? i % 50 : random.below(50));
    }
    return request;
}

// Adds requests while passes run, and ends with none left.
SchedulerStatistics run_all(WatchedScheduler& scheduler, SplitMix64& random, int requests,
                            int64_t new_tokens, int shared) {
    for (int i = 0; i < requests; ++i) {
        int prompt = shared + 1 + random.below(60);
        auto admission = scheduler.add(request_of(random, prompt, new_tokens, shared));
        REQUIRE(admission.request);
        for (int j = random.below(4); j > 0; --j) {
            scheduler.next();
            if (scheduler.in_flight() && random.below(2) == 0) scheduler.done();
        }
    }
    scheduler.drain();
    CHECK(scheduler.streams_ended() == requests);
    return scheduler.scheduler().statistics();
}

}  // namespace

TEST_CASE("a sequence's tokens do not depend on the size of its chunks", "[runtime][engine]") {
    for (int64_t chunk = 1; chunk <= 64; ++chunk) {
        INFO("chunks of " << chunk);
        SplitMix64 random(static_cast<uint64_t>(chunk));
        int64_t slots = std::min<int64_t>(chunk, 4);
        WatchedScheduler scheduler(limits_for(slots, 40, chunk), {});
        run_all(scheduler, random, 12, 20, 0);
    }
}

TEST_CASE("a sequence's tokens do not depend on a prefix found in the pool", "[runtime][engine]") {
    SplitMix64 random(1);
    WatchedScheduler scheduler(limits_for(4, 40, 32), {});
    SchedulerStatistics end = run_all(scheduler, random, 60, 10, 70);
    CHECK(end.prefix_hits > 50 * 64);
}

TEST_CASE("a sequence's tokens do not depend on preemptions", "[runtime][engine]") {
    for (int64_t groups = 1; groups <= 3; ++groups) {
        for (bool share : {false, true}) {
            INFO("groups " << groups << ", share_prefixes " << share);
            SplitMix64 random(static_cast<uint64_t>(groups));
            WatchedScheduler scheduler(
                limits_for(6, 12, 32),
                {.kv_mode = KvMode::kOvercommit, .share_prefixes = share, .groups = groups});
            SchedulerStatistics end = run_all(scheduler, random, 60, 90, 0);
            CHECK(end.preemptions > 20);
        }
    }
}

TEST_CASE("a sequence's tokens do not depend on what others cancel", "[runtime][engine]") {
    SplitMix64 random(5);
    WatchedScheduler scheduler(limits_for(4, 20, 24), {.groups = 2});
    int64_t kept = 0;
    for (int i = 0; i < 200; ++i) {
        auto admission = scheduler.add(request_of(random, 1 + random.below(80), 30, 40));
        REQUIRE(admission.request);
        bool cancelled = i % 2 == 0;
        for (int j = random.below(8); j > 0; --j) {
            scheduler.next();
            if (scheduler.in_flight()) scheduler.done();
        }
        scheduler.next();
        if (cancelled) scheduler.cancel(*admission.request);
        kept += cancelled ? 0 : 1;
    }
    scheduler.drain();
    CHECK(scheduler.streams_ended() >= kept);
}

TEST_CASE("a sequence that is preempted in flight waits for its token", "[runtime][engine]") {
    int64_t restarts = 0;  // blocks came back while its pass was in flight
    for (int prompt = 1; prompt <= 32; ++prompt) {
        SplitMix64 random(static_cast<uint64_t>(prompt));
        WatchedScheduler scheduler(limits_for(3, 12, 64),
                                   {.kv_mode = KvMode::kOvercommit, .groups = 3});
        RequestId first = *scheduler.add(request_of(random, 15 + prompt % 16, 120)).request;
        RequestId second = *scheduler.add(request_of(random, 33 - prompt, 120)).request;
        RequestId last = *scheduler.add(request_of(random, prompt, 120)).request;
        auto preempted = [&] { return scheduler.scheduler().statistics().preemptions > 0; };
        while (!preempted() && !scheduler.scheduler().idle()) {
            if (scheduler.next()) continue;
            scheduler.done();
            if (scheduler.in_flight()) scheduler.done();
        }
        REQUIRE(preempted());
        RequestId other = scheduler.in_flight(first) ? second : first;
        restarts += scheduler.in_flight(last) && !scheduler.in_flight(other) ? 1 : 0;
        scheduler.cancel(other);
        scheduler.drain();
        CHECK(scheduler.streams_ended() == 2);
    }
    CHECK(restarts > 0);
}

TEST_CASE("each copy of a request has the tokens that it has alone", "[runtime][engine]") {
    for (int prompt : {1, 15, 16, 17, 40, 48}) {
        for (KvMode mode : {KvMode::kReserve, KvMode::kOvercommit}) {
            INFO("prompt " << prompt);
            SplitMix64 random(3);
            WatchedScheduler scheduler(limits_for(4, 16, 32), {.kv_mode = mode});
            ScheduledRequest request = request_of(random, prompt, 30);
            request.copies = 4;
            REQUIRE(scheduler.add(request).request);
            REQUIRE(scheduler.add(request_of(random, 30, 50)).request);
            scheduler.drain();
            CHECK(scheduler.streams_ended() == 2);
        }
    }
}

TEST_CASE("a window's blocks come back, and no token changes", "[runtime][engine]") {
    for (int64_t window : {1, 2, 16, 17, 31, 33, 50}) {
        INFO("window " << window);
        SplitMix64 random(static_cast<uint64_t>(window));
        EngineLimits limits = limits_for(4, 20, 16);
        limits.window = window;
        WatchedScheduler scheduler(limits, {});
        REQUIRE(scheduler.add(request_of(random, 10, 150)).request);
        int64_t most = 0;
        while (!scheduler.scheduler().idle()) {
            REQUIRE(scheduler.next());
            scheduler.done();
            most = std::max(most, scheduler.scheduler().statistics().blocks_held);
        }
        CHECK(most <= (window + 14) / 16 + 1);
        WatchedScheduler together(limits, {});
        run_all(together, random, 30, 40, 20);
    }
}
