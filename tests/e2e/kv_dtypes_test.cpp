// SPDX-License-Identifier: Apache-2.0
// What narrower keys and values cost a trained model.
#include <cmath>
#include <filesystem>

#include "importer/onnx/import.h"
#include "runtime/generate/score.h"
#include "runtime/text/tokenizer.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

TEST_CASE("keys and values of 8 bits change the bundled model's perplexity by 1 % at most",
          "[e2e]") {
    const std::filesystem::path folder =
        std::filesystem::path(CLEAVE_SOURCE_DIR) / "models" / "bundled";
    const importer::Graph graph = importer::import_onnx((folder / "model.onnx").string());
    const std::vector<int32_t> tokens =
        load_tokenizer(folder / "tokenizer.json")
            ->encode(
                "Once upon a time, in a sunny village by a river, there lived a shy girl named "
                "Nora. One day in spring, her mom gave Nora a small seed. \"If you take care "
                "of it, it will become a tomato,\" said her grandma. Nora dug a hole in the "
                "woods and put the seed in it. She covered it with earth and gave it a little "
                "water. Nora waited. One day passed. Two days passed, but nothing happened. "
                "\"When will it grow?\" asked Nora. \"Seeds grow slowly,\" said her grandma.");
    const auto perplexity = [&](DType dtype) {
        planner::Workload workload = all_logits_workload(1, 128, 32);
        workload.kv_dtype = dtype;
        planner::Plan plan = plan_for(graph, {"one device", "host", 1, 1}, workload);
        Session session(plan, checked_options());
        return score(session, plan, tokens).perplexity;
    };
    const double exact = perplexity(DType::kF32);
    REQUIRE(exact < 20);
    for (auto [dtype, share] : {std::pair{DType::kF16, 0.001},
                                {DType::kBF16, 0.005},
                                {DType::kInt8, 0.005},
                                {DType::kF8E4M3, 0.01}}) {
        const double narrow = perplexity(dtype);
        INFO(dtype_name(dtype) << ": " << narrow << " instead of " << exact);
        CHECK(std::abs(narrow / exact - 1) < share);
        CHECK(narrow != exact);
    }
}
