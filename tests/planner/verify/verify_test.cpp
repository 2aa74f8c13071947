// SPDX-License-Identifier: Apache-2.0
#include "planner/verify/verify.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "models/llama_graph.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

std::string violations(const planner::Plan& plan) {
    std::string text;
    for (const planner::Violation& v : planner::find_violations(plan))
        text += v.rule + ": " + v.message + "\n";
    return text;
}

planner::Plan made_plan(const std::string& shape, const std::string& devices, int tp, int pp,
                        DType dtype = DType::kF32) {
    auto found = models::find_shape(shape);
    REQUIRE(found);
    planner::Workload workload{.batch = 2, .prompt_tokens = 32, .context = 128};
    planner::PlanOptions options{.tensor_parallel = tp, .pipeline_stages = pp};
    return make_plan(models::build_llama_graph(*found, dtype),
                     machine_of(devices, small_host(2, 64)), workload, options);
}

}  // namespace

TEST_CASE("plans of the planner are sound", "[planner]") {
    CHECK(violations(made_plan("stories-260k", "host", 1, 1)) == "");
    CHECK(violations(made_plan("stories-260k", "host[0-1]", 2, 1)) == "");
    CHECK(violations(made_plan("stories-260k", "host[0-1]", 1, 2)) == "");
    CHECK(violations(made_plan("stories-260k", "host[0-3]", 2, 2)) == "");
    CHECK(violations(made_plan("stories-260k", "host[0-2]", 3, 1)) == "");
    CHECK(violations(made_plan("stories-260k", "host[0-7]", 8, 1)) == "");
    CHECK(violations(made_plan("stories-260k", "host[0-4]", 1, 5)) == "");
    CHECK(violations(made_plan("tinyllama-1.1b", "host[0-5]", 3, 2, DType::kBF16)) == "");
    CHECK(violations(made_plan("llama-3-8b", "sim:h100[0-7]", 8, 1, DType::kBF16)) == "");
}

TEST_CASE("a buffer of another role than its own is no sound plan", "[planner]") {
    using planner::BufferRole;
    for (const auto& [devices, tp, pp] : {std::tuple{"host[0-1]", 2, 1},
                                          {"host[0-3]", 2, 2},
                                          {"sim:rtx4090[0-1]", 2, 1},
                                          {"sim:h100[0]@a,sim:h100[0]@b", 2, 1},
                                          {"simt:sm_90a[0-1]", 2, 1}}) {
        planner::Plan plan = made_plan("stories-260k", devices, tp, pp);
        std::set<std::pair<planner::DeviceId, BufferRole>> seen;
        for (planner::Buffer& buffer : plan.buffers) {
            const BufferRole own = buffer.role;
            // A plan may go without tokens that are chosen on the device.
            if (own == BufferRole::kChosenTokens || !seen.emplace(buffer.device, own).second)
                continue;
            for (auto role = BufferRole::kConstant; role <= BufferRole::kArrivals;
                 role = static_cast<BufferRole>(static_cast<int>(role) + 1)) {
                if (role == own) continue;
                buffer.role = role;
                INFO(devices << ": " << buffer_role_name(own) << " becomes "
                             << buffer_role_name(role));
                CHECK(violations(plan) != "");
            }
            buffer.role = own;
        }
        CHECK(seen.size() > 10);
        CHECK(violations(plan) == "");
    }
}

TEST_CASE("random sound plans are accepted", "[planner]") {
    std::mt19937 random(7);
    auto pick = [&](int low, int high) {
        return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    for (int i = 0; i < 300; ++i) {
        TinyShape shape;
        shape.layers = pick(1, 5);
        shape.kv_heads = pick(1, 4);
        shape.heads = shape.kv_heads * pick(1, 4);
        shape.head_dim = 2 * pick(1, 4);
        shape.intermediate = pick(8, 40);
        shape.vocab = pick(8, 50);
        shape.o_bias = pick(0, 1) == 1;
        std::vector<int> devices(static_cast<size_t>(pick(1, 8)));
        std::iota(devices.begin(), devices.end(), 0);
        std::shuffle(devices.begin(), devices.end(), random);
        std::vector<std::vector<int>> stages;
        for (int d : devices) {
            bool opens = stages.empty() ||
                         (static_cast<int64_t>(stages.size()) < shape.layers && pick(0, 2) == 0);
            if (opens) stages.emplace_back();
            stages.back().push_back(d);
        }
        for (auto& stage : stages) std::sort(stage.begin(), stage.end());
        INFO("plan " << i);
        CHECK(violations(hand_plan(stages, shape)) == "");
    }
}

TEST_CASE("plans written by hand are sound", "[planner]") {
    CHECK(violations(hand_plan({{0}})) == "");
    CHECK(violations(hand_plan({{0, 1}})) == "");
    CHECK(violations(hand_plan({{0}, {1}})) == "");
    CHECK(violations(hand_plan({{0, 1}, {2, 3}})) == "");
    CHECK(violations(hand_plan({{2, 3}, {0}})) == "");
    CHECK(violations(hand_plan({{0, 1, 2}}, {.o_bias = true})) == "");
    CHECK(violations(hand_plan({{0, 1, 2, 3, 4, 5, 6, 7}})) == "");
    CHECK(violations(hand_plan({{0, 1, 2}}, {.heads = 8, .kv_heads = 2})) == "");
}

}  // namespace cleave::test
