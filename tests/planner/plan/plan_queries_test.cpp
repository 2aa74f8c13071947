// SPDX-License-Identifier: Apache-2.0
// Questions to a plan that planner, codegen, runtime and views share: buffers by role and their
// names, the words for paths, shares of the host's cores.
#include "planner/plan/plan_queries.h"

#include <set>

#include "tests/planner/support/hand_plan.h"
#include "tests/planner/support/mutations.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;

TEST_CASE("a buffer that a device has once is found by its role, and no other device's",
          "[planner]") {
    const Plan plan = hand_plan({{0, 1}, {2}});
    for (size_t d = 0; d < plan.machine.devices.size(); ++d)
        for (const BatchBuffer& array : batch_buffers(plan.workload)) {
            const BufferId found = find_buffer(plan, DeviceId(d), array.role);
            REQUIRE(found.valid());
            CHECK(plan.buffer(found).device == DeviceId(d));
            CHECK(plan.buffer(found).size == array.bytes());
            CHECK(plan.buffer(found).arena() == Arena::kStaging);
        }
    CHECK_FALSE(find_buffer(plan, DeviceId(0), BufferRole::kPeerSignals).valid());
    CHECK_FALSE(tokens_buffer(plan).valid());
}

TEST_CASE("the name of a buffer is that of what it holds", "[planner]") {
    const Plan plan = hand_plan({{0, 1}});
    const std::vector<std::string> names = buffer_names(plan);
    REQUIRE(names.size() == plan.buffers.size());
    for (const WeightShard& s : plan.weights)
        CHECK(names[s.buffer.index()] == plan.graph.weight(s.weight).name);
    for (const KvSlab& s : plan.kv_slabs)
        CHECK(names[s.buffer.index()] == plan.graph.value(s.state).name);
    const std::set<std::string> all(names.begin(), names.end());
    for (const char* name : {"rope", "input.token_ids", "batch.positions", "activations"})
        CHECK(all.count(name) == 1);
}

TEST_CASE("a staged transfer is called by the link that it crosses", "[planner]") {
    Plan plan = hand_plan({{0}, {1}});
    Transfer& t = *find_transfer(plan.decode);
    const DeviceId from = value_of(plan.decode, t.source).device,
                   to = value_of(plan.decode, t.destination).device;
    Step step{.action = t};
    const auto word = [&] { return step_implementation(plan, plan.decode, step); };
    CHECK(word() == "same_memory");
    for (auto [kind, name] : {std::pair{LinkKind::kNvlink, "host_staged"},
                              {LinkKind::kPcie, "host_staged"},
                              {LinkKind::kNetwork, "network"}}) {
        for (Link& link : plan.machine.links)
            if (link.from == from && link.to == to) link.kind = kind;
        CHECK(word() == name);
    }
    plan.machine.links.clear();
    CHECK(word() == "host_staged");
    std::get<Transfer>(step.action).path = Path::kPeer;
    CHECK(word() == "peer");
}

TEST_CASE("a collective is called by its form, a gather by a library by the library", "[planner]") {
    const Plan plan = hand_plan({{0}});
    const auto word = [&](Collective c) {
        return step_implementation(plan, plan.decode, Step{.action = std::move(c)});
    };
    CHECK(word({}) == "one_shot");
    CHECK(word({.two_phase = true}) == "two_phase");
    CHECK(word({.path = Path::kPeer, .two_phase = true}) == "two_phase");
    CHECK(word({.path = Path::kVendor}) == "ring");
    CHECK(word({.op = CollectiveOp::kAllGather, .path = Path::kVendor}) == "vendor");
    CHECK(word({.op = CollectiveOp::kAllGather, .path = Path::kPeer}) == "one_shot");
}

TEST_CASE("devices of a stage on the host's cores divide them, and each stage has all",
          "[planner]") {
    Plan plan = hand_plan({{0, 1, 2}, {3}});
    using Shares = std::vector<int64_t>;
    CHECK(core_shares(plan, 8) == Shares{3, 3, 2, 8});
    CHECK(core_shares(plan, 1) == Shares{1, 1, 1, 1});
    plan.machine.devices[1].kind = DeviceKind::kCuda;
    plan.machine.devices[2].kind = DeviceKind::kSimt;
    CHECK(core_shares(plan, 8) == Shares{4, 0, 4, 8});
    plan.stages.pop_back();
    CHECK(core_shares(plan, 8) == Shares{4, 0, 4, 1});
}

}  // namespace cleave::test
