// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/engine_group.h"

#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "runtime/base/errors.h"
#include "tests/runtime/engine/engine_support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

namespace {

// Engines over plans of these sizes, and what they need.
struct Engines {
    explicit Engines(const std::vector<PoolSizes>& sizes, const EngineOptions& options = {}) {
        for (const PoolSizes& one : sizes) plans.push_back(plan_of_sizes(one));
        for (const planner::Plan& plan : plans) {
            runners.push_back(std::make_unique<FakeRunner>(plan));
            engines.push_back(std::make_unique<Engine>(plan, *runners.back(), nullptr, options));
        }
    }
    EngineGroup group() const {
        std::vector<Engine*> all;
        for (const auto& engine : engines) all.push_back(engine.get());
        return EngineGroup(all);
    }

    std::vector<planner::Plan> plans;
    std::vector<std::unique_ptr<FakeRunner>> runners;
    std::vector<std::unique_ptr<Engine>> engines;
};

// Holds every pass back until it is opened.
class Gate {
public:
    void before(Engines& all) {
        for (auto& runner : all.runners)
            runner->before_pass = [this](int64_t) { const std::lock_guard wait(mutex_); };
    }
    void open() { closed_.unlock(); }

private:
    std::mutex mutex_;
    std::unique_lock<std::mutex> closed_{mutex_};
};

}  // namespace

TEST_CASE("requests of a group have the tokens that each has alone, on every engine of it",
          "[runtime][engine][replicas]") {
    Recorder recorder;
    Engines all({{4, 64, 16, 0}, {2, 64, 16, 0}, {4, 64, 16, 0}});
    const EngineGroup group = all.group();
    std::mt19937 random(3);
    std::vector<EngineRequest> requests;
    std::set<RequestId> ids;
    for (int64_t key = 0; key < 60; ++key) {
        std::vector<int32_t> prompt(1 + random() % 20, static_cast<int32_t>(random() % 50));
        requests.push_back(simple(prompt, 1 + static_cast<int64_t>(random() % 20)));
        requests.back().copies = 1 + static_cast<int64_t>(random() % 2);
        const EngineAdmission admission =
            group.add(requests.back(), recorder.sink(key, requests.back().copies));
        REQUIRE(admission.request);
        CHECK(ids.insert(*admission.request).second);
    }
    recorder.wait();
    CHECK(recorder.mistakes().empty());
    for (size_t key = 0; key < requests.size(); ++key)
        for (int64_t c = 0; c < requests[key].copies; ++c)
            CHECK(recorder.told(static_cast<int64_t>(key)).copies[static_cast<size_t>(c)].tokens ==
                  tokens_alone(requests[key], c, group.limits()));
    int64_t accepted = 0;
    for (size_t r = 0; r < group.size(); ++r) {
        CHECK(group.statistics_of(r).accepted > 0);
        accepted += group.statistics_of(r).accepted;
    }
    CHECK(accepted == 60);
    CHECK(group.statistics().accepted == 60);
    CHECK(group.statistics().refused == 0);
    CHECK(group.drain(60s));
    CHECK(group.statistics().requests == 0);
    CHECK(group.add(simple({1}, 1), [](const EngineEvent&) {}).refusal == Refusal::kDraining);
}

TEST_CASE("a request goes to the engine with the fewest for its slots",
          "[runtime][engine][replicas]") {
    Recorder recorder;
    Gate gate;
    Engines all({{6, 64, 16, 0}, {2, 64, 16, 0}});
    gate.before(all);
    const EngineGroup group = all.group();
    for (int64_t key = 0; key < 8; ++key)
        REQUIRE(group.add(simple({1, 2}, 3), recorder.sink(key, 1)).request);
    CHECK(group.statistics_of(0).accepted == 6);
    CHECK(group.statistics_of(1).accepted == 2);
    gate.open();
    recorder.wait();
}

TEST_CASE("a cancel of a group ends that request alone", "[runtime][engine][replicas]") {
    Recorder recorder;
    Gate gate;
    Engines all({{4, 64, 16, 0}, {4, 64, 16, 0}});
    gate.before(all);
    const EngineGroup group = all.group();
    std::vector<RequestId> ids;
    for (int64_t key = 0; key < 6; ++key)
        ids.push_back(*group.add(simple({1, 2}, 9), recorder.sink(key, 1)).request);
    for (const RequestId none : {RequestId(-1), RequestId(1'000'001)}) group.cancel(none);
    group.cancel(ids[3]);
    gate.open();
    recorder.wait();
    for (int64_t key = 0; key < 6; ++key)
        CHECK((recorder.told(key).copies[0].finish == FinishReason::kCancelled) == (key == 3));
}

TEST_CASE("a group refuses what all its engines refuse, once, for the reason that passes soonest",
          "[runtime][engine][replicas]") {
    Recorder recorder;
    Gate gate;
    EngineOptions options;
    options.scheduler.max_queue = 1;
    Engines all({{1, 64, 16, 0}, {1, 128, 16, 0}}, options);
    gate.before(all);
    const EngineGroup group = all.group();
    const auto never = group.add(simple({1}, 500), [](const EngineEvent&) {});
    CHECK(never.refusal == Refusal::kNeverFits);
    CHECK(group.statistics().refused == 1);
    // What only one of them has room for.
    REQUIRE(group.add(simple({1}, 100), recorder.sink(0, 1)).request);
    CHECK(group.statistics_of(1).accepted == 1);
    CHECK(group.statistics().refused == 1);
    int64_t key = 1;
    EngineAdmission last;
    while ((last = group.add(simple({1}, 2), recorder.sink(key, 1))).request && key < 10) ++key;
    CHECK(last.refusal == Refusal::kQueueFull);
    CHECK(group.statistics().refused == 2);
    gate.open();
}

TEST_CASE("an engine of a group whose device fails ends its own requests, and the others go on",
          "[runtime][engine][replicas]") {
    Recorder recorder;
    Engines all({{4, 64, 16, 0}, {4, 64, 16, 0}});
    all.runners[0]->before_pass = [](int64_t pass) {
        if (pass == 1) throw DeviceError("launch of step 7", "700", "gpu[1]");
    };
    const EngineGroup group = all.group();
    for (int64_t key = 0; key < 2; ++key)
        REQUIRE(group.add(simple({1, 2, 3}, 9), recorder.sink(key, 1)).request);
    recorder.wait();
    int64_t failed = 0;
    for (int64_t key = 0; key < 2; ++key)
        failed += recorder.told(key).copies[0].finish == FinishReason::kFault ? 1 : 0;
    CHECK(failed == 1);
    CHECK(group.alive() == 1);
    CHECK(group.statistics().fault.empty());
    for (int64_t key = 2; key < 8; ++key)
        REQUIRE(group.add(simple({4, 5}, 5), recorder.sink(key, 1)).request);
    recorder.wait();
    for (int64_t key = 2; key < 8; ++key)
        CHECK(recorder.told(key).copies[0].finish == FinishReason::kLength);
    CHECK(group.statistics_of(1).accepted == 7);

    all.runners[1]->before_pass = [](int64_t) { throw DeviceError("launch", "700", "gpu[2]"); };
    REQUIRE(group.add(simple({1}, 5), recorder.sink(8, 1)).request);
    recorder.wait();
    CHECK(group.alive() == 0);
    CHECK_THAT(group.statistics().fault, Contains("gpu[1]"));
    CHECK(group.add(simple({1}, 5), [](const EngineEvent&) {}).refusal == Refusal::kDead);
}
