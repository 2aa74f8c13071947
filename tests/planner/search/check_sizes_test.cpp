// SPDX-License-Identifier: Apache-2.0
#include <climits>

#include "models/llama_graph.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/search/check_sizes.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

models::Shape small_shape() {
    models::Shape shape{.name = "small"};
    auto& c = shape.config;
    c.num_layers = 2, c.num_kv_heads = 2, c.num_heads = 4, c.head_dim = 16, c.hidden_size = 64;
    c.intermediate_size = 128, c.vocab_size = 100, c.max_positions = 0, c.rope_theta = 1e4;
    return shape;
}

}  // namespace

TEST_CASE("workloads of any size plan or are refused as the user's, never as internal errors",
          "[planner]") {
    Graph graph = models::build_llama_graph(small_shape(), DType::kF16);
    const int64_t sizes[] = {
        1, 1 << 10, 1 << 20, int64_t{1} << 25, int64_t{1} << 30, 99'999'999'999, INT64_MAX};
    for (const char* devices : {"host", "sim:h100[0-1]"})
        for (int64_t batch : sizes)
            for (int64_t context : sizes)
                for (int64_t chunk : sizes) {
                    Workload w{.batch = batch, .prompt_tokens = std::max<int64_t>(1, context / 2)};
                    w.context = context;
                    w.prefill_chunk = chunk;
                    INFO(devices << " batch " << batch << " context " << context << " chunk "
                                 << chunk);
                    try {
                        Plan plan = make_plan(graph, machine_of(devices, small_host(2)), w, {});
                        REQUIRE(plan.prediction.objective_ns >= plan.prediction.lower_bound_ns);
                    } catch (const UserError& e) {
                        REQUIRE(std::string(e.what()).find("not sound") == std::string::npos);
                    }
                }
}

TEST_CASE("a flag beyond its limit is named with its value and the largest supported",
          "[planner]") {
    Graph graph = models::build_llama_graph(small_shape(), DType::kF16);
    auto refused = [&](int64_t Workload::* field, int64_t value) {
        Workload w;
        w.context = 1024;
        w.*field = value;
        return user_error([&] { make_plan(graph, machine_of("host", small_host(2)), w, {}); });
    };
    using Catch::Matchers::Contains;
    REQUIRE_THAT(refused(&Workload::batch, INT64_MAX),
                 Contains("$batch 9223372036854775807") && Contains("1048576"));
    REQUIRE_THAT(refused(&Workload::prefill_chunk, 99'999'999'999),
                 Contains("$prefill_chunk 99999999999") && Contains("1073741824"));
    REQUIRE_THAT(refused(&Workload::context, INT64_MAX), Contains("$context"));
    models::Shape huge = small_shape();
    huge.config.vocab_size = 99'999'999'999'999'999;
    REQUIRE_THAT(user_error([&] {
                     make_plan(models::build_llama_graph(huge, DType::kF16),
                               machine_of("host", small_host(2)), Workload{.context = 1024}, {});
                 }),
                 Contains("embed") && Contains("99999999999999999 x 64") && Contains("at most"));
}

}  // namespace cleave::test
