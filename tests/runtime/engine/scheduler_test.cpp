// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/scheduler.h"

#include "tests/runtime/engine/watched_scheduler.h"
#include "tests/support/failures.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

// Room for four contexts of 1,024 tokens; passes of 64.
EngineLimits plain_limits() {
    return {.slots = 4, .context = 1024, .num_blocks = 257, .max_tokens = 64, .max_outputs = 4};
}

EngineLimits whole_pass_limits() {
    EngineLimits limits = plain_limits();
    limits.whole_passes = true;
    return limits;
}

// A prompt of its own, unless `first` is another's.
ScheduledRequest request_of(int64_t prompt, int64_t new_tokens, int32_t first = -1) {
    static int32_t next = 1000;
    ScheduledRequest request{.max_new_tokens = new_tokens};
    for (int64_t i = 0; i < prompt; ++i) {
        request.prompt.push_back(first >= 0 ? first + static_cast<int32_t>(i) : next++);
    }
    return request;
}

std::string reason_of(const EngineLimits& limits, const ScheduledRequest& request) {
    WatchedScheduler scheduler(limits, {});
    Admission admission = scheduler.add(request);
    CHECK(!admission.queue_full);
    return admission.reason;
}

// Tokens of a request in the last pass.
int64_t rows_of(const WatchedScheduler& scheduler, RequestId request) {
    if (!scheduler.last_pass()) return 0;
    const ScheduledPass& pass = *scheduler.last_pass();
    int64_t rows = 0;
    for (size_t s = 0; s < pass.sequences.size(); ++s) {
        if (pass.sequences[s].request != request) continue;
        rows += pass.batch.sequence_starts[s + 1] - pass.batch.sequence_starts[s];
    }
    return rows;
}

// Passes, one after the other, until the request has its first token.
int64_t passes_to_first_token(WatchedScheduler& scheduler, RequestId request) {
    for (int64_t passes = 1;; ++passes) {
        REQUIRE(passes < 1000);
        REQUIRE(scheduler.next());
        bool given = false;
        for (const ScheduledOutput& output : scheduler.last_pass()->outputs) {
            given |= output.request == request && output.gives_token;
        }
        scheduler.done();
        if (given) return passes;
    }
}

void pass(WatchedScheduler& scheduler) {
    REQUIRE(scheduler.next());
    scheduler.done();
}

}  // namespace

TEST_CASE("options that do not fit the plan are refused with its numbers", "[runtime][engine]") {
    auto error = [](EngineLimits limits, SchedulerOptions options) {
        return user_error([&] { Scheduler scheduler(limits, options); });
    };
    EngineLimits small = plain_limits();
    small.num_blocks = 64;
    CHECK_THAT(error(small, {}),
               Catch::Contains("63 blocks of 16 tokens; a context of 1024 tokens needs 64"));
    CHECK_THAT(error(plain_limits(), {.token_budget = 3}),
               Catch::Contains("a pass of at most 3 tokens; the plan takes 4 to 64"));
    CHECK_THAT(error(plain_limits(), {.token_budget = 65}), Catch::Contains("takes 4 to 64"));
    CHECK_THAT(error(plain_limits(), {.groups = 0}), Catch::Contains("0 groups of sequences"));
    CHECK_THAT(error(plain_limits(), {.max_queue = 0}), Catch::Contains("a queue of 0"));
}

TEST_CASE("what can never run is refused with the numbers", "[runtime][engine]") {
    CHECK(reason_of(plain_limits(), request_of(0, 1)) == "an empty prompt");
    CHECK(reason_of(plain_limits(), request_of(900, 200)) ==
          "a prompt of 900 tokens and 200 new ones are 1100; the context has 1024");
    for (const int64_t many : {int64_t{1} << 40, INT64_MAX - 3, INT64_MAX})
        CHECK_THAT(reason_of(plain_limits(), request_of(7, many)),
                   Catch::Contains(std::to_string(many) + " new ones are ") &&
                       Catch::Contains("the context has 1024"));
    CHECK_THAT(reason_of(plain_limits(), request_of(5, 0)),
               Catch::Contains("0 new tokens; at least 1"));
    ScheduledRequest copies = request_of(10, 10);
    copies.copies = 5;
    CHECK(reason_of(plain_limits(), copies) == "5 copies; 4 sequences run at once");
    copies.copies = 0;
    CHECK(reason_of(plain_limits(), copies) == "0 copies of 10 new tokens");
    copies = request_of(16, 1008);
    copies.copies = 4;
    CHECK(reason_of(plain_limits(), copies).empty());
    EngineLimits small = plain_limits();
    small.num_blocks = 129;
    WatchedScheduler scheduler(small, {});
    CHECK(scheduler.add(copies).reason == "253 KV blocks of 16 tokens needed; the pool has 128");
    CHECK_THAT(reason_of(whole_pass_limits(), request_of(65, 1)),
               Catch::Contains("a prompt of 65 tokens; this model takes a prompt in one pass"));
}

TEST_CASE("a full queue refuses for now", "[runtime][engine]") {
    WatchedScheduler scheduler(plain_limits(), {.max_queue = 2});
    REQUIRE(scheduler.add(request_of(10, 5)).request);
    REQUIRE(scheduler.add(request_of(10, 5)).request);
    Admission third = scheduler.add(request_of(10, 5));
    CHECK(!third.request);
    CHECK(third.queue_full);
    CHECK(third.reason == "2 requests wait; the queue has no room for more");
    pass(scheduler);
    CHECK(scheduler.add(request_of(10, 5)).request);
    scheduler.drain();
}

TEST_CASE("a pass has a row of each sequence that decodes before it has a prompt's",
          "[runtime][engine]") {
    WatchedScheduler scheduler(plain_limits(), {.token_budget = 8});
    for (int i = 0; i < 3; ++i) REQUIRE(scheduler.add(request_of(2, 100)).request);
    pass(scheduler);
    REQUIRE(scheduler.next());
    CHECK(!scheduler.last_pass()->batch.is_prefill);
    scheduler.done();
    RequestId longer = *scheduler.add(request_of(200, 10)).request;
    for (int i = 0; i < 20; ++i) {
        REQUIRE(scheduler.next());
        const Batch& batch = scheduler.last_pass()->batch;
        CHECK(batch.is_prefill);
        CHECK(batch.num_sequences() == 4);
        CHECK(batch.num_outputs() == 3);
        CHECK(rows_of(scheduler, longer) == 5);
        scheduler.done();
    }
}

TEST_CASE("a short prompt passes beside a long one", "[runtime][engine]") {
    WatchedScheduler alone(plain_limits(), {});
    RequestId longer = *alone.add(request_of(1000, 1)).request;
    int64_t passes_alone = passes_to_first_token(alone, longer);
    CHECK(passes_alone == 16);

    WatchedScheduler scheduler(plain_limits(), {});
    longer = *scheduler.add(request_of(1000, 1)).request;
    pass(scheduler);
    RequestId shorter = *scheduler.add(request_of(60, 1)).request;
    CHECK(passes_to_first_token(scheduler, shorter) == 2);
    CHECK(3 + passes_to_first_token(scheduler, longer) <= passes_alone + 1);
}

TEST_CASE("prompts that end together share a pass", "[runtime][engine]") {
    WatchedScheduler scheduler(plain_limits(), {});
    for (int i = 0; i < 4; ++i) REQUIRE(scheduler.add(request_of(16, 5)).request);
    REQUIRE(scheduler.next());
    CHECK(scheduler.last_pass()->batch.num_outputs() == 4);
}

TEST_CASE("a prompt's first token comes within twice the time of first come, first served",
          "[runtime][engine]") {
    WatchedScheduler scheduler(plain_limits(), {});
    RequestId first = *scheduler.add(request_of(640, 1)).request;
    RequestId second = *scheduler.add(request_of(640, 1)).request;
    // Short ones come without end.
    int64_t passes = 0, first_passes = 0, second_passes = 0;
    for (; second_passes == 0; ++passes) {
        REQUIRE(passes < 100);
        for (int i = 0; i < 2; ++i) scheduler.add(request_of(32, 1));
        REQUIRE(scheduler.next());
        scheduler.done();
        if (first_passes == 0 && !scheduler.scheduler().alive(first)) first_passes = passes + 1;
        if (!scheduler.scheduler().alive(second)) second_passes = passes + 1;
    }
    CHECK(first_passes <= 2 * 10);
    CHECK(second_passes <= 2 * 20);
}

TEST_CASE("a cancelled request is in no later pass, and its blocks come back",
          "[runtime][engine]") {
    for (int when = 0; when < 4; ++when) {
        INFO("passes before it " << when);
        WatchedScheduler scheduler(plain_limits(), {.groups = 2});
        RequestId other = *scheduler.add(request_of(40, 8)).request;
        RequestId request = *scheduler.add(request_of(100, 50)).request;
        for (int i = 0; i < when; ++i) pass(scheduler);
        scheduler.next();
        int64_t held = scheduler.scheduler().statistics().blocks_held;
        bool in_flight = rows_of(scheduler, request) > 0;
        scheduler.cancel(request);
        if (in_flight) {
            CHECK(scheduler.scheduler().statistics().blocks_held == held);
        } else {
            CHECK(scheduler.scheduler().statistics().blocks_held < std::max<int64_t>(held, 1));
        }
        while (!scheduler.scheduler().idle()) {
            if (scheduler.next()) {
                CHECK(rows_of(scheduler, request) == 0);
            }
            if (scheduler.in_flight()) scheduler.done();
            for (const SequenceView& view : scheduler.scheduler().sequences()) {
                CHECK(view.request == other);
            }
        }
        CHECK(scheduler.scheduler().statistics().blocks_held == 0);
    }
}

TEST_CASE("kReserve starts a request where its last token has room, kOvercommit where its next has",
          "[runtime][engine]") {
    EngineLimits limits = plain_limits();
    limits.num_blocks = 65;  // one context
    auto running = [&](KvMode mode) {
        WatchedScheduler scheduler(limits, {.kv_mode = mode});
        for (int i = 0; i < 4; ++i) REQUIRE(scheduler.add(request_of(16, 400)).request);
        pass(scheduler);
        pass(scheduler);
        int64_t result = scheduler.scheduler().statistics().running;
        scheduler.drain();
        CHECK((scheduler.scheduler().statistics().preemptions > 0) ==
              (mode == KvMode::kOvercommit));
        CHECK(scheduler.streams_ended() == 4);
        return result;
    };
    CHECK(running(KvMode::kReserve) == 2);
    CHECK(running(KvMode::kOvercommit) == 4);
}

TEST_CASE("the request that came last is preempted, and goes on where it was",
          "[runtime][engine]") {
    EngineLimits limits = plain_limits();
    limits.num_blocks = 65;
    WatchedScheduler scheduler(limits, {.kv_mode = KvMode::kOvercommit});
    RequestId first = *scheduler.add(request_of(500, 500)).request;
    RequestId last = *scheduler.add(request_of(400, 500)).request;
    while (scheduler.scheduler().statistics().preemptions == 0) pass(scheduler);
    auto tokens = scheduler.tokens(last)[0].size();
    CHECK(tokens > 0);
    CHECK(scheduler.scheduler().alive(first));
    SequenceView waiting = scheduler.scheduler().sequences()[0];
    CHECK(waiting.place == SequencePlace::kQueued);
    CHECK(waiting.request == last);
    CHECK(waiting.tokens == 400 + static_cast<int64_t>(tokens));
    scheduler.drain();
    CHECK(scheduler.streams_ended() == 2);
}

TEST_CASE("copies of a request share its prompt's full blocks and copy the last",
          "[runtime][engine]") {
    for (auto [prompt, copies] : {std::pair{40, 3}, {48, 0}}) {
        INFO("a prompt of " << prompt);
        WatchedScheduler scheduler(plain_limits(), {.share_prefixes = false});
        ScheduledRequest request = request_of(prompt, 10);
        request.copies = 4;
        REQUIRE(scheduler.add(request).request);
        pass(scheduler);
        REQUIRE(scheduler.next());
        const Batch& batch = scheduler.last_pass()->batch;
        CHECK(static_cast<int>(batch.copies.size()) == copies);
        CHECK(batch.num_tokens() == 4);
        CHECK(scheduler.scheduler().statistics().blocks_held == prompt / 16 + 4);
        scheduler.drain();
    }
}

TEST_CASE("a prompt takes the full blocks of a prefix that the pool has", "[runtime][engine]") {
    WatchedScheduler scheduler(plain_limits(), {});
    auto cached = [&](ScheduledRequest request) {
        const Admission admission = scheduler.add(std::move(request));
        REQUIRE(admission.request);
        REQUIRE(scheduler.next());
        REQUIRE(scheduler.last_pass()->started.size() == 1);
        int64_t tokens = scheduler.last_pass()->started[0].cached_tokens;
        scheduler.drain();
        return tokens;
    };
    CHECK(cached(request_of(100, 20, 0)) == 0);
    CHECK(cached(request_of(100, 20, 0)) == 96);
    CHECK(cached(request_of(50, 20, 0)) == 48);
    // Its last token is computed: it gives the logits.
    CHECK(cached(request_of(96, 20, 0)) == 80);
    CHECK(cached(request_of(96, 20, 1)) == 0);
    ScheduledRequest other_tenant = request_of(100, 20, 0);
    other_tenant.salt = 7;
    CHECK(cached(other_tenant) == 0);
    ScheduledRequest with_logits = request_of(4, 1, 0);
    with_logits.prompt = request_of(64, 1, 0).prompt;
    with_logits.prompt_logits = true;
    CHECK(cached(with_logits) == 0);
}

TEST_CASE("groups have sequences dealt evenly and one pass in flight each", "[runtime][engine]") {
    EngineLimits limits = plain_limits();
    limits.slots = limits.max_outputs = 6;
    limits.num_blocks = 385;
    WatchedScheduler scheduler(limits, {.groups = 3});
    std::vector<RequestId> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(*scheduler.add(request_of(10, 400)).request);
    auto sizes = [&] {
        std::vector<int> result(3);
        for (const SequenceView& view : scheduler.scheduler().sequences()) {
            if (view.group >= 0) ++result[static_cast<size_t>(view.group)];
        }
        return result;
    };
    pass(scheduler);
    CHECK(sizes() == std::vector{2, 2, 2});
    for (int i = 0; i < 3; ++i) {
        REQUIRE(scheduler.next());
        CHECK(scheduler.last_pass()->batch.num_tokens() == 2);
    }
    CHECK(!scheduler.next());
    scheduler.done();
    CHECK(scheduler.next());
    CHECK(!scheduler.next());
    // What one group loses, others make up.
    for (const SequenceView& view : scheduler.scheduler().sequences()) {
        if (view.group == 1) scheduler.cancel(view.request);
    }
    for (int i = 0; i < 9; ++i) {
        while (scheduler.next()) {
        }
        scheduler.done();
    }
    std::vector<int> left = sizes();
    std::ranges::sort(left);
    CHECK(left == std::vector{1, 1, 2});
    scheduler.drain();
}

TEST_CASE("chunks of one prompt fill a pipeline", "[runtime][engine]") {
    WatchedScheduler scheduler(plain_limits(), {.groups = 2});
    RequestId request = *scheduler.add(request_of(200, 1)).request;
    REQUIRE(scheduler.next());
    CHECK(rows_of(scheduler, request) == 64);
    REQUIRE(scheduler.next());
    CHECK(rows_of(scheduler, request) == 64);
    CHECK(!scheduler.next());
    scheduler.drain();
}

TEST_CASE("a model that sees the whole pass has one sequence in it", "[runtime][engine]") {
    WatchedScheduler scheduler(whole_pass_limits(), {});
    for (int i = 0; i < 3; ++i) REQUIRE(scheduler.add(request_of(50, 10, 0)).request);
    while (!scheduler.scheduler().idle()) {
        REQUIRE(scheduler.next());
        const Batch& batch = scheduler.last_pass()->batch;
        CHECK(batch.num_sequences() == 1);
        CHECK((batch.num_tokens() == 50 || batch.num_tokens() == 1));
        scheduler.done();
    }
    CHECK(scheduler.streams_ended() == 3);
}

TEST_CASE("passes are done in the order in which they were given", "[runtime][engine]") {
    Scheduler scheduler(plain_limits(), {.groups = 2});
    REQUIRE(scheduler.add(request_of(200, 1)).request);
    auto first = scheduler.next(), second = scheduler.next();
    REQUIRE((first && second));
    CHECK_THAT(failure_of<InternalError>([&] { scheduler.done(second->id, {}); }),
               Catch::Contains("pass 1 is not the oldest in flight"));
    CHECK_THAT(failure_of<InternalError>([&] { scheduler.done(first->id, {{}, {}}); }),
               Catch::Contains("2 tokens for 0 outputs"));
}

TEST_CASE("held tokens are counted once, and fill their blocks", "[runtime][engine]") {
    WatchedScheduler scheduler(plain_limits(), {});
    REQUIRE(scheduler.add(request_of(40, 100, 0)).request);
    pass(scheduler);
    CHECK(scheduler.scheduler().statistics().tokens_held == 40);
    REQUIRE(scheduler.add(request_of(40, 100, 0)).request);
    pass(scheduler);
    // 32 shared, 8 and 1 more of the first, 8 of the second.
    SchedulerStatistics now = scheduler.scheduler().statistics();
    CHECK(now.tokens_held == 49);
    CHECK(now.blocks_held == 4);
    scheduler.drain();
}
