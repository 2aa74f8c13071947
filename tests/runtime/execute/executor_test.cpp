// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <thread>

#include "runtime/cards/open_devices.h"
#include "tests/runtime/support/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::runtime::test;
using planner::Plan;

namespace {

// What the tiny model gives for a token: 4 (id + c / 4).
std::vector<float> expected_logits(int32_t token) {
    std::vector<float> logits;
    for (int c = 0; c < 4; ++c)
        logits.push_back(4.0f * (static_cast<float>(token) + 0.25f * static_cast<float>(c)));
    return logits;
}

std::string message_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const std::exception& error) {
        return error.what();
    }
    FAIL("nothing was thrown");
    return {};
}

planner::Collective& all_reduce_of(planner::Phase& phase) {
    return std::get<planner::Collective>(phase.steps[4].action);
}
void set_all_reduce(Plan& plan, bool two_phase) {
    for (auto* phase : {&plan.prefill, &plan.decode}) all_reduce_of(*phase).two_phase = two_phase;
}

size_t count_threads() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/task"))
        ++count;
    return count;
}

// Passes of the tiny model by turns in flight and taken, at random.
std::vector<Batch> random_passes(std::mt19937& random, int count) {
    std::vector<Batch> passes;
    for (int i = 0; i < count; ++i) {
        passes.push_back(tiny_batch(std::vector<int32_t>(1 + random() % 8, i)));
        passes.back().is_prefill = passes.back().num_tokens() > 2;
    }
    return passes;
}

// host[1]'s last kernel waits until host[0]'s first one has begun in two passes.
std::atomic<int> begun{0};
void counted_embedding(const uint64_t* args, int64_t begin, int64_t end, void* scratch) {
    ++begun;
    TinyPlan::kernels()[0](args, begin, end, scratch);
}
void late_select(const uint64_t* args, int64_t begin, int64_t end, void* scratch) {
    const bool on_second = args[3] == 2;
    while (on_second && begun < 2) std::this_thread::yield();
    TinyPlan::kernels()[2](args, begin, end, scratch);
}

std::atomic<bool> release_kernel{false};
void blocked_kernel(const uint64_t*, int64_t, int64_t, void*) {
    while (!release_kernel) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

TEST_CASE("passes give the model's logits in poisoned memory, whatever the collective's form",
          "[runtime]") {
    for (bool two_phase : {false, true}) {
        TinyPlan tiny;
        set_all_reduce(tiny.plan, two_phase);
        TinySession session(tiny);
        std::vector<Batch> passes{tiny_batch({1, 2, 3}), tiny_batch({5}), tiny_batch({7, 9})};
        passes[1].is_prefill = false;
        auto logits = session.run(passes);
        CHECK(logits[0] == expected_logits(3));
        CHECK(logits[1] == expected_logits(5));
        CHECK(logits[2] == expected_logits(9));
        CHECK(session.run({&passes[0], 1})[0] == expected_logits(3));
        CHECK(session.run_greedy(passes) == std::vector(3, std::vector<int32_t>{3}));
    }
}

TEST_CASE("many passes in flight keep their values apart", "[runtime]") {
    TinyPlan tiny;
    TinySession session(tiny);
    std::vector<Batch> passes;
    for (int i = 0; i < 500; ++i) {
        passes.push_back(tiny_batch(std::vector<int32_t>(static_cast<size_t>(1 + i % 8), i)));
        passes.back().is_prefill = passes.back().num_tokens() > 2;
    }
    auto logits = session.run(passes);
    for (int i = 0; i < 500; ++i) REQUIRE(logits[static_cast<size_t>(i)] == expected_logits(i));
}

TEST_CASE("passes submitted and taken in any rhythm give what runs of them give", "[runtime]") {
    std::mt19937 random(5);
    TinyPlan tiny;
    TinySession session(tiny);
    for (int round = 0; round < 20; ++round) {
        const std::vector<Batch> passes = random_passes(random, 40);
        std::vector<PassResults> wanted;
        std::vector<PassResult> results;
        const Ticket first = session.executor->submit(passes[0], wanted.emplace_back());
        while (results.size() < passes.size()) {
            const bool submits = wanted.size() < passes.size() &&
                                 (session.executor->in_flight() == 0 || random() % 2 == 0);
            if (!submits) {
                results.push_back(session.executor->take());
                continue;
            }
            const auto one = static_cast<PassResults>(random() % 3);
            const Ticket ticket = session.executor->submit(passes[wanted.size()], one);
            CHECK(ticket == first + static_cast<Ticket>(wanted.size()));
            wanted.push_back(one);
        }
        CHECK(session.executor->in_flight() == 0);
        for (size_t i = 0; i < passes.size(); ++i) {
            CHECK(results[i].ticket == first + static_cast<Ticket>(i));
            CHECK(results[i].logits == (wanted[i] == PassResults::kLogits
                                            ? expected_logits(static_cast<int32_t>(i))
                                            : std::vector<float>{}));
            CHECK(results[i].tokens == (wanted[i] == PassResults::kTokens
                                            ? std::vector<int32_t>{3}
                                            : std::vector<int32_t>{}));
        }
    }
}

TEST_CASE("a device begins the next pass while another is in the one before", "[runtime]") {
    TinyPlan tiny;
    ExecutorOptions options;
    options.record_trace = true;
    TinySession session(tiny, options, true,
                        {counted_embedding, TinyPlan::kernels()[1], late_select});
    begun = 0;
    // Without the second pass the first does not end.
    session.executor->submit(tiny_batch({1}), PassResults::kLogits);
    session.executor->submit(tiny_batch({2}), PassResults::kLogits);
    CHECK(session.executor->take().logits == expected_logits(1));
    CHECK(session.executor->take().logits == expected_logits(2));
    int64_t first_ends = 0, second_begins = INT64_MAX;
    for (const TraceEvent& event : session.executor->trace().events) {
        if (event.pass == 0) first_ends = std::max(first_ends, event.end_ns);
        if (event.pass == 1) second_begins = std::min(second_begins, event.start_ns);
    }
    CHECK(second_begins < first_ends);
}

TEST_CASE("what fails in a pass is thrown in its turn, behind the results of all before it",
          "[runtime]") {
    for (size_t failing : {0, 1}) {  // the second gives the results
        TinyPlan tiny;
        tiny.programs[failing].kernels.resize(4);
        for (codegen::Instruction& i : tiny.programs[failing].decode) i.kernel = 3;
        TinySession session(tiny);
        std::vector<Batch> passes(6, tiny_batch({7}));
        passes[4].is_prefill = false;
        for (const Batch& pass : passes) session.executor->submit(pass, PassResults::kLogits);
        for (int i = 0; i < 4; ++i) CHECK(session.executor->take().logits == expected_logits(7));
        const std::string message = message_of([&] { session.executor->take(); });
        CHECK(message.find(fmt::format("kernel 3 of 3 on host[{}]", failing)) != std::string::npos);
        CHECK_THROWS_AS(session.executor->take(), InternalError);
        CHECK_THROWS_AS(session.executor->submit(passes[0], PassResults::kNone), InternalError);
        CHECK_THROWS_AS(session.run(passes), InternalError);
    }
}

TEST_CASE("an executor goes with passes in flight, and nobody waits", "[runtime]") {
    const size_t before = count_threads();
    for (int i = 0; i < 50; ++i) {
        TinyPlan tiny;
        TinySession session(tiny);
        for (int p = 0; p < i % 9; ++p)
            session.executor->submit(tiny_batch({p}), PassResults::kTokens);
        if (i % 3 == 0 && session.executor->in_flight() > 0) session.executor->take();
    }
    CHECK(count_threads() == before);
}

TEST_CASE("a call that needs all passes taken says so while one is in flight", "[runtime]") {
    TinyPlan tiny;
    TinySession session(tiny);
    const Batch batch = tiny_batch({1});
    CHECK_THROWS_AS(session.executor->take(), InternalError);
    session.executor->submit(batch, PassResults::kLogits);
    CHECK_THROWS_AS(session.executor->trace(), InternalError);
    CHECK_THROWS_AS(session.run({&batch, 1}), InternalError);
    CHECK(session.executor->take().logits == expected_logits(1));
    CHECK(session.run({&batch, 1})[0] == expected_logits(1));
}

TEST_CASE("a pass that wants no logits gives none", "[runtime]") {
    TinyPlan tiny;
    TinySession session(tiny);
    Batch batch = tiny_batch({1, 2});
    batch.output_rows.clear();
    CHECK(session.run({&batch, 1})[0].empty());
}

TEST_CASE("counted bytes are those that crossed devices, and the trace holds them step by step",
          "[runtime]") {
    for (bool two_phase : {false, true}) {
        TinyPlan tiny;
        set_all_reduce(tiny.plan, two_phase);
        ExecutorOptions options;
        options.record_trace = true;
        TinySession session(tiny, options);
        Batch batch = tiny_batch({1, 2, 3});
        session.run({&batch, 1});
        int64_t x = 3 * 4 * 4;  // [3, 4] f32
        int64_t transfer = x, sum = 2 * x, gather = 1 * 2 * 4;
        CHECK(session.executor->transferred_bytes() == transfer + sum + gather);
        int64_t traced = 0;
        std::vector<int> takers(8, 0);
        for (const TraceEvent& event : session.executor->trace().events) {
            traced += event.bytes;
            ++takers[event.step.index()];
            CHECK(event.end_ns >= event.start_ns);
        }
        CHECK(traced == transfer + sum + gather);
        CHECK(takers == std::vector<int>{1, 2, 1, 1, 2, 1, 1, 2});
    }
}

TEST_CASE("a plan that lost its transfer does not run", "[runtime]") {
    TinyPlan tiny;
    tiny.plan.decode.steps.erase(tiny.plan.decode.steps.begin() + 1);
    std::string message = cleave::test::user_error([&] { TinySession session(tiny); });
    CHECK(message.find("'x'") != std::string::npos);
    CHECK(message.find("host[1]") != std::string::npos);
    CHECK(message.find("decode") != std::string::npos);
}

TEST_CASE("a step that reads another device's memory does not run", "[runtime]") {
    TinyPlan tiny;
    auto& step = std::get<planner::Compute>(tiny.plan.prefill.steps[3].action);
    step.inputs[0] = std::get<planner::Compute>(tiny.plan.prefill.steps[2].action).inputs[0];
    std::string message = cleave::test::user_error([&] { TinySession session(tiny); });
    CHECK(message.find("in the memory of host[0]") != std::string::npos);
}

TEST_CASE("values that no step sent stay unreadable even if the step list is believed",
          "[runtime]") {
    // host[1] sums its poisoned partial when its compute step computes nothing.
    TinyPlan tiny;
    auto kernels = TinyPlan::kernels();
    kernels[1] = [](const uint64_t*, int64_t, int64_t, void*) {};
    TinySession session(tiny, {}, true, kernels);
    Batch batch = tiny_batch({1});
    auto logits = session.run({&batch, 1});
    REQUIRE(logits[0].size() == 4);
    for (float logit : logits[0]) CHECK(std::isnan(logit));
}

TEST_CASE("devices hold exactly the bytes that the plan counts", "[runtime]") {
    TinyPlan tiny;
    TinySession session(tiny);
    for (size_t d = 0; d < 2; ++d) {
        CHECK(session.devices[d]->allocated_bytes() == tiny.plan.memory[d].needed());
    }
}

TEST_CASE("a collective that a member never reaches ends with its name, the step and the member",
          "[runtime]") {
    TinyPlan tiny;
    ExecutorOptions options;
    options.watchdog_seconds = 1;
    auto kernels = TinyPlan::kernels();
    kernels[0] = blocked_kernel;
    release_kernel = false;
    TinySession session(tiny, options, true, kernels);
    std::thread later([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        release_kernel = true;
    });
    Batch batch = tiny_batch({1});
    std::string message = message_of([&] { session.run({&batch, 1}); });
    later.join();
    CHECK(message.find("prefill step 1 (transfer of x)") != std::string::npos);
    CHECK(message.find("host[0] never reached") != std::string::npos);
    CHECK_THROWS_AS(session.run({&batch, 1}), InternalError);
}

TEST_CASE("what one worker throws reaches the caller, and nobody waits for it", "[runtime]") {
    // A broken argument: the second program launches a kernel that its device does not have.
    TinyPlan tiny;
    tiny.programs[1].kernels.resize(4);
    tiny.programs[1].prefill[0].kernel = 3;
    TinySession session(tiny);
    Batch batch = tiny_batch({1});
    std::string message = message_of([&] { session.run({&batch, 1}); });
    CHECK(message.find("kernel 3 of 3 on host[1]") != std::string::npos);
}

TEST_CASE("an interrupt stops the run and leaves no threads", "[runtime]") {
    size_t before = count_threads();
    {
        TinyPlan tiny;
        CancelToken cancel;
        ExecutorOptions options;
        options.cancel = &cancel;
        TinySession session(tiny, options);
        CHECK(count_threads() == before + 2);
        std::vector<Batch> passes(200000, tiny_batch({1}));
        std::thread interrupt([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            cancel.cancel();
        });
        CHECK_THROWS_AS(session.run(passes), Cancelled);
        interrupt.join();
    }
    CHECK(count_threads() == before);
}

TEST_CASE("an all_reduce by a library that is not open is refused by name", "[runtime]") {
    TinyPlan tiny;
    all_reduce_of(tiny.plan.decode).path = planner::Path::kVendor;
    CHECK(cleave::test::user_error([&] { TinySession session(tiny); }).find("'vendor'") !=
          std::string::npos);
}

TEST_CASE("a batch that breaks its rules is refused", "[runtime]") {
    TinyPlan tiny;
    TinySession session(tiny);
    auto refused = [&](Batch batch) { CHECK_THROWS_AS(session.run({&batch, 1}), InternalError); };
    refused(tiny_batch({}));
    refused(tiny_batch(std::vector<int32_t>(9, 0)));
    Batch batch = tiny_batch({1, 2});
    batch.slots[1] = 2;
    refused(batch);
    batch = tiny_batch({1, 2});
    batch.positions[1] = 16;
    refused(batch);
    batch = tiny_batch({1, 2});
    batch.output_rows = {1, 0};
    refused(batch);
    batch = tiny_batch({1, 2, 3});
    batch.is_prefill = false;  // more tokens than sequences
    refused(batch);
}

TEST_CASE("the trace as Perfetto's JSON has a track a device and an event a step", "[runtime]") {
    TinyPlan tiny;
    ExecutorOptions options;
    options.record_trace = true;
    TinySession session(tiny, options);
    Batch batch = tiny_batch({1});
    session.run({&batch, 1});
    std::string json = trace_to_perfetto(session.executor->trace(), tiny.plan);
    CHECK(json.find("\"name\":\"host[1]\"") != std::string::npos);
    CHECK(json.find("prefill step 4 (all_reduce of p)") != std::string::npos);
}

TEST_CASE("the host devices of a stage share the threads, and each stage has them all",
          "[runtime]") {
    Plan plan;
    for (int i = 0; i < 5; ++i) plan.machine.devices.push_back(host_info(i));
    using planner::DeviceId;
    plan.stages.resize(2);
    plan.stages[0].devices = {DeviceId(0), DeviceId(1), DeviceId(2)};
    plan.stages[1].devices = {DeviceId(3), DeviceId(4)};
    CHECK(threads_of_devices(plan, 8) == std::vector<int>{3, 3, 2, 4, 4});
    CHECK(threads_of_devices(plan, 1) == std::vector<int>{1, 1, 1, 1, 1});
    CHECK_FALSE(threads_fit_cores(plan, 100000));
}
