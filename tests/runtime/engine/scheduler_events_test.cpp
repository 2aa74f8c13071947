// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/split_mix.h"
#include "tests/runtime/engine/watched_scheduler.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

EngineLimits random_limits(SplitMix64& random) {
    EngineLimits limits;
    limits.slots = 1 + random.below(6);
    limits.context = 20 + random.below(140);
    int64_t one = limits.blocks_per_slot();
    int64_t most = random.below(2) == 0 ? one * limits.slots : one;
    limits.num_blocks = 1 + one + random.below(static_cast<int>(most) + 1);
    limits.max_tokens = limits.slots + random.below(60);
    bool all_logits = random.below(4) == 0;
    limits.max_outputs = all_logits ? limits.max_tokens : limits.slots;
    limits.window = random.below(4) == 0 ? 1 + random.below(50) : 0;
    return limits;
}

SchedulerOptions random_options(SplitMix64& random, EngineLimits& limits) {
    SchedulerOptions options;
    options.kv_mode = random.below(2) == 0 ? KvMode::kReserve : KvMode::kOvercommit;
    options.share_prefixes = random.below(4) != 0;
    options.max_queue = 1 + random.below(12);
    options.groups = 1 + random.below(3);
    if (random.below(2) == 0) {
        auto spare = static_cast<int>(limits.max_tokens - limits.slots);
        options.token_budget = limits.slots + random.below(spare + 1);
    }
    limits.whole_passes = random.below(16) == 0;
    if (limits.whole_passes) options.token_budget = 0;
    return options;
}

// Prompts begin with one of few texts, so that they meet; some are too long.
ScheduledRequest random_request(SplitMix64& random, const EngineLimits& limits) {
    ScheduledRequest request;
    auto context = static_cast<int>(limits.context);
    int length = 1 + random.below(random.below(2) == 0 ? context : (context + 3) / 4);
    int shared = random.below(length + 1), text = random.below(3);
    for (int i = 0; i < length; ++i) {
        request.prompt.push_back(i < shared ? (i * 7 + text) % 50 : random.below(50));
    }
    request.max_new_tokens = 1 + random.below(context - length / 2);
    if (random.below(6) == 0) request.copies = 1 + random.below(static_cast<int>(limits.slots) + 1);
    request.salt = static_cast<uint64_t>(random.below(2));
    request.prompt_logits = random.below(8) == 0;
    if (request.prompt_logits && request.copies == 1 && random.below(2) == 0) {
        request.max_new_tokens = 0;
    }
    return request;
}

// Events of every kind in any order, each checked by WatchedScheduler. Returns their number.
int64_t run_events(uint64_t seed, int64_t events) {
    SplitMix64 random(seed);
    EngineLimits limits = random_limits(random);
    SchedulerOptions options = random_options(random, limits);
    WatchedScheduler scheduler(limits, options);
    scheduler.stop_every = random.below(3) == 0 ? 11 : 0;
    std::vector<RequestId> known;
    int busy = 1 + random.below(10);  // how many passes for a request
    for (int64_t event = 0; event < events; ++event) {
        int kind = random.below(4 + 4 * busy);
        if (kind < 2) {
            auto admission = scheduler.add(random_request(random, limits));
            if (admission.request) known.push_back(*admission.request);
        } else if (kind == 2 && !known.empty()) {
            auto last = static_cast<int>(std::min<size_t>(known.size(), 10));
            scheduler.cancel(known[known.size() - 1 - static_cast<size_t>(random.below(last))]);
        } else if (kind % 2 == 0 || !scheduler.in_flight()) {
            scheduler.next();
        } else {
            scheduler.done();
        }
    }
    scheduler.drain();
    return events;
}

}  // namespace

TEST_CASE("no order of events loses a block, owns it twice or makes another token",
          "[runtime][engine]") {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        INFO("seed " << seed);
        CHECK(run_events(seed, 1000) == 1000);
    }
}

TEST_CASE("no order of a million events loses a block, owns it twice or makes another token",
          "[runtime][engine][slow]") {
    int64_t events = 0;
    for (uint64_t seed = 1000; events < 1000000; ++seed) {
        INFO("seed " << seed);
        events += run_events(seed, 5000);
    }
    CHECK(events == 1000000);
}
