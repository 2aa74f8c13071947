// SPDX-License-Identifier: Apache-2.0
// Every activation of importer/graph/activation.h, planned and run: the reference's logits on hosts
// and on GPUs that the CPU imitates.
#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

const DeviceShape kShapes[] = {{"one host", "host[0]", 1, 1},
                               {"three hosts", "host[0-2]", 3, 1},
                               {"AMD", "simt:gfx90a[0]", 1, 1},
                               {"two of NVIDIA", "simt:sm_90a[0-1]", 2, 1}};

}  // namespace

TEST_CASE("a model of any activation gives the reference's logits on hosts and GPUs", "[e2e]") {
    const std::vector<int32_t> prompt{1, 40, 7, 99, 3, 3, 120, 64, 5, 77, 31, 8};
    for (const importer::ActivationRow& row : importer::kActivations) {
        importer::Graph graph = random_model(small_shape(), 1);
        for (importer::Op& op : graph.ops)
            if (op.kind == importer::OpKind::kGatedActivation)
                op.attrs = importer::GatedActivationAttrs{row.activation};
        std::vector<int32_t> tokens;
        for (const DeviceShape& shape : kShapes) {
            INFO(row.name << " on " << shape.name);
            planner::Plan plan = plan_for(graph, shape, all_logits_workload(1, 32, 12));
            runtime::Session session(plan, checked_options());
            runtime::GenerateOptions options;
            options.max_new_tokens = 3;
            options.keep_logits = true;
            const auto made = runtime::generate(session, plan, {prompt}, options).sequences.at(0);
            std::vector<int32_t> seen = prompt;
            seen.insert(seen.end(), made.token_ids.begin(), made.token_ids.end() - 1);
            const std::vector<double> want = test::reference_logits(graph, seen);
            CHECK(largest_difference(made.logits, {want.begin(), want.end()}) < 1e-3);
            if (tokens.empty()) tokens = made.token_ids;
            CHECK(made.token_ids == tokens);
        }
    }
}
