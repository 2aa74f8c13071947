// SPDX-License-Identifier: Apache-2.0
// int8, int4, f8e4m3 and mxfp4 weights: planned in whole blocks with their scales.
#include <map>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

Plan plan_for(const Graph& graph, const std::string& devices, DType dtype, int tp) {
    Machine machine = machine_of(devices, small_host(2));
    Workload workload{.context = 256};
    workload.prompt_tokens = 64;
    workload.dtype = dtype;
    PlanOptions options;
    options.tensor_parallel = tp;
    return make_plan(graph, machine, workload, options);
}

// A head of 16 and columns of 32 x 9 + 8: neither divides into blocks by itself.
models::Shape awkward_shape() {
    models::Shape shape{.name = "awkward"};
    auto& c = shape.config;
    c.num_layers = 2, c.num_kv_heads = 6, c.num_heads = 6, c.head_dim = 16, c.hidden_size = 96;
    c.intermediate_size = 296, c.vocab_size = 100, c.max_positions = 512, c.rope_theta = 1e4;
    shape.qkv_bias = true;
    return shape;
}

}  // namespace

TEST_CASE("narrow weights plan on sim devices in whole blocks, whatever the shape", "[planner]") {
    for (const models::Shape& shape : {awkward_shape(), *models::find_shape("llama-3-8b")}) {
        Graph graph = models::build_llama_graph(shape, DType::kBF16);
        for (DType dtype : {DType::kInt4, DType::kInt8, DType::kF8E4M3, DType::kMxfp4})
            for (const char* devices : {"sim:h100", "sim:h100[0-2]", "sim:a40,sim:h100[0-3]"}) {
                size_t count = parse_devices(devices).size();
                for (int tp : {0, static_cast<int>(count)}) {
                    INFO(shape.name << " " << dtype_name(dtype) << " on " << devices << " tp "
                                    << tp);
                    Plan plan = plan_for(graph, devices, dtype, tp);  // verifies
                    for (const WeightShard& s : plan.weights) {
                        const importer::Weight& w = plan.graph.weight(s.weight);
                        REQUIRE(s.dtype == (w.shape.size() == 2 ? dtype : DType::kBF16));
                        if (w.shape.size() != 2 || dtype == DType::kF8E4M3) continue;
                        REQUIRE(s.columns.begin % 32 == 0);
                        REQUIRE((s.columns.end % 32 == 0 || s.columns.end == w.shape[1]));
                    }
                }
            }
    }
}

TEST_CASE("int4 weights take 4.5 bits and a cut block is no sound plan", "[planner]") {
    Graph graph = models::build_llama_graph(awkward_shape(), DType::kBF16);
    Plan plan = plan_for(graph, "sim:h100[0-1]", DType::kInt4, 2);
    for (WeightShard& s : plan.weights) {
        if (plan.graph.weight(s.weight).name.find("down_proj") == std::string::npos) continue;
        int64_t blocks = s.rows.size() * ((s.columns.size() + 31) / 32);
        // Rows are padded to whole blocks, codes to 64 bytes.
        REQUIRE(plan.buffer(s.buffer).size == (blocks * 16 + 63) / 64 * 64 + blocks * 2);
        s.columns.begin += s.columns.begin > 0 ? 8 : 0;
        s.columns.end -= s.columns.end < 296 ? 24 : 0;
    }
    bool found = false;
    for (const Violation& v : find_violations(plan)) found = found || v.rule == "weight-box";
    REQUIRE(found);
}

TEST_CASE("mxfp4 weights take 4.25 bits", "[planner]") {
    const Plan plan = plan_for(models::build_llama_graph(awkward_shape(), DType::kBF16),
                               "sim:h100[0-2]", DType::kMxfp4, 3);
    for (const WeightShard& s : plan.weights) {
        if (s.dtype != DType::kMxfp4) continue;
        const int64_t blocks = s.rows.size() * ((s.columns.size() + 31) / 32);
        CHECK(plan.buffer(s.buffer).size == (blocks * 16 + 63) / 64 * 64 + blocks);
    }
}

TEST_CASE("narrow weights on host devices are as those on any other, and are quantised only once",
          "[planner]") {
    using Catch::Matchers::Contains;
    const Graph graph = models::build_llama_graph(awkward_shape(), DType::kBF16);
    for (DType dtype : {DType::kInt4, DType::kInt8, DType::kF8E4M3, DType::kMxfp4}) {
        const Plan plan = plan_for(graph, "host[0-1]", dtype, 2);  // verifies
        const Plan again = plan_for(plan.graph, "host[0-1]", dtype, 2);
        CHECK(again.graph_digest == plan.graph_digest);
        const DType other = dtype == DType::kInt4 ? DType::kInt8 : DType::kInt4;
        CHECK_THAT(user_error([&] { plan_for(plan.graph, "host", other, 0); }),
                   Contains(fmt::format("$dtype {}", other)) && Contains("embed_tokens") &&
                       Contains(fmt::format("quantised already, as {}", dtype)));
    }
}

TEST_CASE("weights stored quantised stay so on host devices, cut between their own blocks",
          "[planner]") {
    for (int64_t block : {16, 64, 128}) {
        Graph graph = models::build_llama_graph(awkward_shape(), DType::kBF16);
        for (importer::Weight& w : graph.weights) {
            if (w.shape.size() != 2) continue;
            w.dtype = DType::kUInt4;
            w.packing = importer::Packing::kMatMulNBits;
            w.quantization.block = block;
            w.quantization.scale_dtype = DType::kF16;
        }
        for (int tp : {1, 2, 3, 8}) {
            CAPTURE(block, tp);
            Machine machine = machine_of(fmt::format("host[0-{}]", tp - 1), small_host(2));
            Workload workload{.context = 256};
            workload.prompt_tokens = 64;
            PlanOptions options;
            options.tensor_parallel = tp;
            Plan plan = make_plan(graph, machine, workload, options);  // verifies
            bool cut = false;
            for (WeightShard& s : plan.weights) {
                const importer::Weight& w = plan.graph.weight(s.weight);
                if (w.shape.size() != 2) continue;
                REQUIRE(s.dtype == DType::kUInt4);
                REQUIRE(s.columns.begin % block == 0);
                REQUIRE((s.columns.end % block == 0 || s.columns.end == w.shape[1]));
                int64_t blocks = (s.columns.size() + block - 1) / block;
                int64_t codes = s.rows.size() * ((s.columns.size() + 31) / 32) * 16;
                REQUIRE(plan.buffer(s.buffer).size ==
                        (codes + 63) / 64 * 64 + s.rows.size() * blocks * 2);
                if (s.columns.begin > 0) {
                    s.columns.begin -= 8;
                    cut = true;
                }
            }
            if (!cut) continue;
            bool found = false;
            for (const Violation& v : find_violations(plan))
                found = found || v.rule == "weight-box";
            REQUIRE(found);
        }
    }
}

}  // namespace cleave::test
