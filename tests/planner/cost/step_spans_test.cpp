// SPDX-License-Identifier: Apache-2.0
// When steps of a pass begin and end, at any size of the pass.
#include <algorithm>

#include "planner/analysis/work.h"
#include "planner/cost/simulate.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/device_list.h"
#include "planner/planner.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

Plan made(const std::string& devices) {
    HostFacts facts;
    facts.num_cores = 4;
    facts.memory_bytes = int64_t{1} << 32;
    facts.memory_bandwidth = 20'000'000'000;
    facts.flops_f32 = 100'000'000'000;
    Workload workload;
    workload.batch = 2;
    workload.prompt_tokens = 16;
    workload.context = 64;
    PlanOptions options;
    options.tensor_parallel = 2;
    return make_plan(tiny_graph(), build_machine(parse_devices(devices), facts), workload, options);
}

}  // namespace

TEST_CASE("the spans of a plan's own pass are its simulated times", "[planner][cost]") {
    const Plan plan = made("host[0-1]");
    const Analysis analysis = analyse(plan.graph, plan.workload);
    for (bool is_prefill : {true, false}) {
        const std::vector<StepSpan> spans = step_spans(analysis, plan, is_prefill, plan.workload);
        const Phase& phase = plan.phase(is_prefill);
        REQUIRE(spans.size() == phase.steps.size());
        int64_t end = 0;
        for (size_t i = 0; i < spans.size(); ++i) {
            CHECK(spans[i].start_ns == phase.steps[i].start_ns);
            // Alone it takes as long or less.
            CHECK(spans[i].end_ns - spans[i].start_ns >= phase.steps[i].predicted_ns - 1);
            CHECK(spans[i].fixed_ns >= 0);
            CHECK(spans[i].fixed_ns <= phase.steps[i].predicted_ns);
            end = std::max(end, spans[i].end_ns);
        }
        if (!is_prefill) CHECK(end == plan.prediction.decode_ns_per_token);
    }
}

TEST_CASE("the workload of a pass has passes of that size", "[planner][cost]") {
    const Workload decode = workload_of_pass({}, {false, 3, 3, 41});
    CHECK(decode.batch == 3);
    CHECK(decode_point(decode).num_tokens == 3);
    CHECK(decode_point(decode).num_keys == 3 * 41);
    const Workload whole = workload_of_pass({}, {true, 20, 1, 10});
    CHECK(num_prefill_passes(whole) == 1);
    CHECK(prefill_point(whole).num_tokens == 20);
    const Workload late = workload_of_pass({}, {true, 32, 1, 112});
    CHECK(num_prefill_passes(late) == 7);
    CHECK(prefill_point(late).num_tokens == 32);
}

}  // namespace cleave::test
