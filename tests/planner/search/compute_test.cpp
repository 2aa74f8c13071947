// SPDX-License-Identifier: Apache-2.0
// How products treat their activations: what the planner settles, refuses, states and proves.
#include <nlohmann/json.hpp>

#include "models/llama_graph.h"
#include "planner/ask/what_if.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;

namespace {

using Catch::Matchers::Contains;

Plan computed(DType weights, const char* devices, std::optional<ComputeMode> compute,
              std::optional<DType> dtype = {}) {
    Workload workload{.prompt_tokens = 32, .context = 128, .dtype = dtype};
    workload.compute = compute;
    return make_plan(models::build_llama_graph(*models::find_shape("stories-260k"), weights),
                     machine_of(devices, small_host(2)), workload, {});
}

}  // namespace

TEST_CASE("products are fast on hosts alone, where some weights have a type to round to",
          "[planner]") {
    CHECK(computed(DType::kBF16, "host[0-1]", {}).workload.compute == ComputeMode::kFast);
    CHECK(computed(DType::kF32, "host", {}, DType::kInt4).workload.compute == ComputeMode::kFast);
    for (DType floating : {DType::kF32, DType::kF16})
        CHECK(computed(floating, "host", {}).workload.compute == ComputeMode::kExact);
    CHECK(computed(DType::kF32, "host", {}, DType::kMxfp4).workload.compute == ComputeMode::kExact);
    CHECK(computed(DType::kBF16, "sim:a40", {}).workload.compute == ComputeMode::kExact);
    CHECK(computed(DType::kBF16, "host", ComputeMode::kExact).workload.compute ==
          ComputeMode::kExact);
}

TEST_CASE("a GPU refuses products on rounded activations by name", "[planner]") {
    CHECK_THAT(user_error([] { computed(DType::kBF16, "host[0],sim:a40", ComputeMode::kFast); }),
               Contains("$compute fast") && Contains("sim:a40[0]"));
}

TEST_CASE("a plan states how its products treat activations, in text, JSON and file", "[planner]") {
    const Plan fast = computed(DType::kBF16, "host", {}, DType::kInt8);
    CHECK_THAT(plan_to_text(fast), Contains("fast: products round their activations, to int8 in "
                                            "groups of 32"));
    CHECK(nlohmann::json::parse(plan_to_json(fast))["workload"]["compute"] == "fast");
    const Plan exact = computed(DType::kBF16, "host", ComputeMode::kExact);
    CHECK(nlohmann::json::parse(plan_to_json(exact))["workload"]["compute"] == "exact");
    for (const Plan* plan : {&fast, &exact})
        CHECK(parse_plan(serialize_plan(*plan), "a plan").workload.compute ==
              plan->workload.compute);
}

TEST_CASE("what rounds its activations is summed whole on each device, and shared by rows",
          "[planner]") {
    for (int tp : {2, 3, 5, 8})
        for (const DType dtype : {DType::kInt8, DType::kBF16}) {
            const Workload workload{.prompt_tokens = 32, .context = 128, .dtype = dtype};
            const Plan plan = make_plan(
                models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32),
                machine_of(fmt::format("host[0-{}]", tp - 1), small_host(2)), workload,
                {.tensor_parallel = tp});
            INFO("tp " << tp << ", " << dtype_name(dtype));
            for (const WeightShard& s : plan.weights) {
                const importer::Weight& weight = plan.graph.weight(s.weight);
                if (weight.shape.size() != 2) continue;
                CHECK(s.columns == Range{0, weight.shape[1]});
                CHECK(s.rows.size() < weight.shape[0]);
            }
        }
}

TEST_CASE("a plan that rounds what it sums in parts is refused", "[planner]") {
    for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kInt4)}) {
        Plan plan = computed(DType::kBF16, "host[0-1]", ComputeMode::kExact, dtype);
        if (plan.stages.front().devices.size() == 1)
            plan = make_plan(plan.graph, plan.machine, plan.workload, {.tensor_parallel = 2});
        REQUIRE(find_violations(plan).empty());
        plan.workload.compute = ComputeMode::kFast;
        const std::vector<Violation> violations = find_violations(plan);
        REQUIRE(!violations.empty());
        CHECK(violations[0].rule == "compute");
        CHECK_THAT(violations[0].message, Contains("a product is summed in parts"));
    }
}

TEST_CASE("what if other types or devices were given chooses the arithmetic of products anew",
          "[planner]") {
    const auto after = [](const Plan& before, const Change& change) {
        const WhatIfAnswer answer = what_if(before, case_of(before), change);
        INFO(answer.answer);
        REQUIRE(answer.outcome.plan);
        return answer.outcome.plan->workload.compute;
    };
    CHECK(after(computed(DType::kF32, "host[0-1]", {}), {.dtype = DType::kInt8}) ==
          ComputeMode::kFast);
    CHECK(after(computed(DType::kBF16, "host[0-1]", {}), {.dtype = DType::kF32}) ==
          ComputeMode::kExact);
    CHECK(after(computed(DType::kBF16, "host[0-1]", ComputeMode::kExact), {.batch = 2}) ==
          ComputeMode::kExact);
    CHECK(after(computed(DType::kBF16, "sim:host[0-1]", {}), {.add = {"sim:h100[0]"}}) ==
          ComputeMode::kExact);
}

}  // namespace cleave::test
