// SPDX-License-Identifier: Apache-2.0
// Traces served by an engine over a model of a test.
#include "runtime/engine/replay.h"

#include "runtime/base/errors.h"
#include "tests/runtime/engine/engine_support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Contains;

namespace {

std::vector<TraceRequest> few_requests() {
    return {{0, 20, 9}, {0, 3, 12}, {0, 40, 20}, {1, 7, 1}, {1, 33, 20}, {2, 5, 5}};
}

}  // namespace

TEST_CASE("a replay counts every request, its tokens and what the pool cannot hold",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    std::vector<TraceRequest> trace = few_requests();
    trace.push_back({2, 60, 20});
    trace.push_back({200, 1000, 1});  // behind the last answer
    int64_t told = 0;
    ReplayOptions options;
    options.progress = [&](int64_t done, int64_t total) {
        CHECK(done > told);
        CHECK(total == 8);
        told = done;
    };
    const ServeReport report = replay(plan, runner, trace, options);
    CHECK(told == 8);
    CHECK(report.requests == 6);
    CHECK(report.refused == 2);
    CHECK_THAT(report.refusal, Contains("a prompt of 60 tokens and 20 new ones are 80"));
    CHECK(report.prompt_tokens == 20 + 3 + 40 + 7 + 33 + 5);
    CHECK(report.output_tokens == 9 + 12 + 20 + 1 + 20 + 5);
    CHECK(report.kv_tokens == 4 * 64);
    CHECK(report.most_kv_tokens > 0);
    CHECK(report.most_kv_tokens <= report.kv_tokens);
    CHECK(report.mean_sequences <= 4);
    CHECK(report.passes >= 20);
    CHECK(report.token_budget == 16);
    CHECK(report.tokens_per_second == Approx(67 / report.seconds));
    for (const Percentiles& p :
         {report.first_token_ms, report.token_gap_ms, report.request_ms, report.pass_ms})
        CHECK(p.p50 <= p.p99);
}

TEST_CASE("no pass of a replay has more tokens than its budget", "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    runner.on_batch = [](const Batch& batch) { CHECK(batch.num_tokens() <= 6); };
    ReplayOptions options;
    options.scheduler.token_budget = 6;
    CHECK(replay(plan, runner, few_requests(), options).token_budget == 6);
}

TEST_CASE("a replay ends with what ended its passes, and with logits that are not numbers",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner broken(plan);
    broken.before_pass = [](int64_t pass) {
        if (pass == 3) throw DeviceError("launch", "ERROR_OF_A_TEST", "fake[0]");
    };
    CHECK_THROWS_AS(replay(plan, broken, few_requests(), {}), DeviceError);
    FakeRunner poisoned(plan);
    poisoned.on_batch = [&](const Batch& batch) {
        if (!batch.output_rows.empty())
            poisoned.poison = batch.token_ids[static_cast<size_t>(batch.output_rows[0])];
    };
    CHECK_THAT(user_error([&] { replay(plan, poisoned, {{0, 60, 4}, {0, 60, 4}}, {}); }),
               Contains("are not numbers"));
}

TEST_CASE("a replay that is interrupted ends, also while it waits for an arrival",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    CancelToken cancel;
    ReplayOptions options;
    options.cancel = &cancel;
    runner.before_pass = [&](int64_t pass) {
        if (pass == 2) cancel.cancel();
    };
    CHECK_THROWS_AS(replay(plan, runner, {{0, 5, 9}, {1e9, 5, 9}}, options), Cancelled);
}
