// SPDX-License-Identifier: Apache-2.0
#include "tests/support/notation.h"
#include "tests/planner/support/machines.h"

#include "models/llama_graph.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/planner/support/every_field.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

Plan plan_of(const std::string& shape, const std::string& devices, const Workload& workload = {},
             const PlanOptions& options = {}) {
    const models::Shape found = models::find_shape(shape).value();
    return make_plan(models::build_llama_graph(found, found.dtype),
                     machine_of(devices, small_host(4, 64)), workload, options);
}

void check_round_trip(const Plan& plan) {
    const std::string text = print(plan);
    const Plan read = read_plan(text, "text");
    CHECK(same(read, plan));
    CHECK(serialize_plan(read) == serialize_plan(plan));
    CHECK(print(read) == text);
}

std::string error_of(const std::string& text) {
    return user_error([&] { read_plan(text, "case"); });
}

}  // namespace

TEST_CASE("plans of the baseline models are read back as they were", "[golden]") {
    check_round_trip(
        plan_of("stories-260k", "host[0-3]", {}, {.tensor_parallel = 2, .pipeline_stages = 2}));
    check_round_trip(plan_of("llama-110m", "host[0-1]"));
    check_round_trip(plan_of("tinyllama-1.1b", "sim:rtx4090[0-1]"));
    check_round_trip(plan_of("llama-3.2-1b", "sim:a100-40[0-2]", {.dtype = DType::kInt8}));
    check_round_trip(plan_of("llama-3-8b", "sim:h100[0],sim:mi300x[0],sim:host[0]"));
    check_round_trip(plan_of("llama-3-8b", "sim:mi300x[0-3]", {.batch = 8},
                             {.objective = Objective::kThroughput}));
    check_round_trip(plan_of("llama-3-70b", "sim:h100[0-7]", {.dtype = DType::kInt4}));
}

TEST_CASE("every field of a plan survives its text", "[golden]") {
    for (uint32_t seed = 0; seed < 12; ++seed) {
        Plan plan;
        Filler(seed).fill(plan);
        const Plan read = read_plan(print(plan), "text");
        CHECK(same(read, plan));
    }
}

TEST_CASE("text that is no plan is refused with its line and column", "[golden]") {
    CHECK(error_of("graph g\n  op q linear layer=x\n").starts_with("case:2:21: 'x' is no number"));
    CHECK(error_of("graph g\n  op q linaer\n").starts_with("case:2:8: 'linaer' is none of embedd"));
    CHECK(error_of("graph g dtype=f31\n").starts_with("case:1:15: 'f31' is none of f32, f16"));
    CHECK(error_of("graph g\n  op q linear lair=3\n")
              .starts_with("case:2:20: there is no field 'lair'; a op has: kind, name, layer"));
    CHECK(error_of("# x\n\ngraph g\n  op q add inputs=[x]\n") ==
          "case:4:20: there is no 'x', or several");
    CHECK(error_of("graph g\n  valu x\n") == "case:2:3: 'valu' is no part of this");
    CHECK(error_of("graph g\ngraph h\n") == "case:2:1: a second graph");
    CHECK(error_of("graph g\n  op q add layer=1 layer=2\n") == "case:2:26: layer is given twice");
    CHECK(error_of("graph g\n   op q add\n").starts_with("case:2:4: a line begins two spaces"));
    CHECK(error_of("machine m\n  device d limits={warp_width=3\n") == "case:2:32: '}' is missing");
    CHECK(error_of("graph g notes=[\"a\n") == "case:1:18: '\"' is missing");
    CHECK(error_of("graph g\n  op q add inputs=[a b]\n") == "case:2:22: ',' or ']' is wanted here");
    CHECK(error_of("graph g\n  op q add inputs=3\n").starts_with("case:2:19: a list"));
    CHECK(error_of("graph g\n  value #1 x\n") == "case:2:9: this is #0 of its list");
    CHECK(error_of("options use_metis=yes\n") == "case:1:19: true or false is wanted");
    CHECK(error_of("options seed=99999999999999999999\n").find("is no number that fits") !=
          std::string::npos);
}

}  // namespace cleave::test
