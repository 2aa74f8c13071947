// SPDX-License-Identifier: Apache-2.0
// The KV pool of a plan: its size as it was asked for, all that is left, what bounds it, and what
// is said of it.
#include <nlohmann/json.hpp>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/build/assign_memory.h"
#include "planner/plan/kv_room.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/machines.h"
#include "tests/support/failures.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;
using Catch::Matchers::Contains;

namespace {

// `kv_tokens` of batch 2 and a context of 100 on machines whose devices differ in memory.
Plan pool_plan(int64_t kv_tokens, const std::string& devices = "host[0-2]", int64_t first_mib = 64,
               int tp = 3, std::optional<DType> kv_dtype = {}) {
    Machine machine = machine_of(devices, small_host(2));
    for (DeviceInfo& d : machine.devices) d.memory_bytes = int64_t{64} << 20;
    machine.devices[0].memory_bytes = first_mib << 20;
    for (DeviceInfo& d : machine.devices) d.reserved_bytes = 0;
    const auto graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    return make_plan(
        graph, machine,
        {.batch = 2,
         .prompt_tokens = 32,
         .context = 100,
         .kv_dtype = kv_dtype,
         .kv_tokens = kv_tokens},
        {.tensor_parallel = tp, .pipeline_stages = static_cast<int>(machine.devices.size()) / tp});
}

}  // namespace

TEST_CASE("a pool has whole contexts, or the tokens that were asked for, beside block 0",
          "[planner]") {
    for (auto [tokens, blocks] : {std::pair{0, 15}, {100, 8}, {112, 8}, {113, 9}, {5000, 314}}) {
        const Plan plan = pool_plan(tokens);
        CHECK(plan.kv_pool.num_blocks == blocks);
        for (const KvSlab& s : plan.kv_slabs)
            CHECK(plan.buffer(s.buffer).size == kv_slab_bytes(s.kv_heads.size(), s.head_dim,
                                                              s.v_head_dim, plan.workload, blocks));
        CHECK(find_violations(plan).empty());
    }
}

TEST_CASE("a cache of 8 bits has a scale for each head and position of K, and of V", "[planner]") {
    for (DType dtype : {DType::kInt8, DType::kF8E4M3})
        for (int64_t tokens : {int64_t{0}, Workload::kAllThatIsLeft}) {
            const Plan plan = pool_plan(tokens, "host[0-2]", 20, 3, dtype);
            for (const KvSlab& s : plan.kv_slabs)
                CHECK(plan.buffer(s.buffer).size == s.kv_heads.size() * plan.kv_pool.num_blocks *
                                                        16 * (s.head_dim + s.v_head_dim + 4 + 4));
            CHECK(find_violations(plan).empty());
            CHECK_THAT(plan_to_text(plan),
                       Contains(fmt::format("KV cache {} with scales, ", dtype)));
            const auto json = nlohmann::json::parse(plan_to_json(plan));
            CHECK(json["workload"]["kv_dtype"] == dtype_name(dtype));
        }
}

TEST_CASE("attention reads the scales of its keys and values with them", "[planner]") {
    const auto bytes_of_key = [](DType dtype) {
        const Plan plan = pool_plan(0, "host[0-2]", 64, 3, dtype);
        int64_t bytes = 0;
        for (const Step& step : plan.decode.steps)
            if (const Compute* c = step.compute(); c && c->kernel == KernelKind::kAttention)
                bytes += c->activation_bytes.per_key;
        return bytes;
    };
    // A head of stories-260k has 8 features.
    CHECK(bytes_of_key(DType::kInt8) * (8 + 8) * 4 == bytes_of_key(DType::kF32) * (8 + 8 + 4 + 4));
    CHECK(bytes_of_key(DType::kInt8) == bytes_of_key(DType::kF8E4M3));
}

TEST_CASE("all that is left is the largest pool that every device has room for", "[planner]") {
    for (int64_t mib : {20, 40, 64, 101})
        for (auto [tp, dtype] : {std::pair{3, DType::kF32}, {1, DType::kF32}, {3, DType::kInt8}}) {
            const Plan plan = pool_plan(Workload::kAllThatIsLeft, "host[0-2]", mib, tp, dtype);
            CHECK(find_violations(plan).empty());
            for (size_t i = 0; i < plan.memory.size(); ++i)
                CHECK(plan.memory[i].needed() <= plan.memory[i].capacity);
            const std::optional<KvBound> bound = kv_bound(plan);
            REQUIRE(bound);
            CHECK(bound->num_blocks == plan.kv_pool.num_blocks);
            int64_t more = 0;
            for (const KvSlab& s : plan.kv_slabs)
                if (s.device == bound->device)
                    more += plan.buffer(s.buffer).size / plan.kv_pool.num_blocks;
            CHECK(plan.memory[bound->device.index()].free() < more);
        }
}

TEST_CASE("the device with the least room bounds the pool, and text and JSON name it",
          "[planner]") {
    const Plan plan = pool_plan(Workload::kAllThatIsLeft, "host[0-2]", 20);
    CHECK(kv_bound(plan)->device == DeviceId(0));
    const int64_t tokens = kv_tokens(plan.kv_pool.num_blocks);
    CHECK_THAT(plan_to_text(plan), Contains(fmt::format("{} tokens, {} sequences of 100; bound by "
                                                        "host[0]",
                                                        tokens, tokens / 112)));
    const auto json = nlohmann::json::parse(plan_to_json(plan));
    CHECK(json["workload"]["kv_tokens"] == "auto");
    CHECK(json["kv_pool"]["tokens"] == tokens);
    CHECK(json["kv_pool"]["bound_by"] == "host[0]");
    CHECK(json["kv_pool"]["sequences"] == tokens / 112);
    const Plan small = pool_plan(112, "host[0-2]", 20);
    CHECK_THAT(plan_to_text(small),
               Contains(fmt::format("112 tokens, 1 sequence of 100; host[0] would bound it at {}",
                                    tokens)));
}

TEST_CASE("a pool of less than one context is refused with the least that works", "[planner]") {
    const std::string text = user_error([] { pool_plan(99); });
    CHECK_THAT(text, Contains("$kv_tokens 99") && Contains("give $kv_tokens 112 or more"));
    CHECK_THAT(user_error([] { pool_plan(-2); }), Contains("$kv_tokens -2: give 1 or more"));
    CHECK_THAT(user_error([] { pool_plan(int64_t{1} << 40); }), Contains("at most 34359738336"));
}

TEST_CASE("whole contexts that do not fit are refused with the tokens that would", "[planner]") {
    const auto graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    Machine machine = machine_of("host[0]", small_host(2));
    machine.devices[0].memory_bytes = int64_t{32} << 20;
    machine.devices[0].reserved_bytes = 0;
    Workload workload{.batch = 64, .prompt_tokens = 32, .context = 512, .prefill_chunk = 64};
    const std::string text = user_error([&] { make_plan(graph, machine, workload, {}); });
    const std::string_view before = "$kv_tokens ";
    REQUIRE(text.find(before) != std::string::npos);
    const int64_t tokens = std::stoll(text.substr(text.find(before) + before.size()));
    CHECK(tokens % 256 == 0);
    workload.kv_tokens = tokens;
    CHECK(kv_tokens(make_plan(graph, machine, workload, {}).kv_pool.num_blocks) == tokens);
}

TEST_CASE("whole contexts that do not fit are refused with a narrower cache that would",
          "[planner]") {
    const auto graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    Machine machine = machine_of("host[0]", small_host(2));
    machine.devices[0].reserved_bytes = 0;
    Workload workload{.batch = 64, .prompt_tokens = 32, .context = 512, .prefill_chunk = 64};
    const auto needed = [&](DType dtype) {
        workload.kv_dtype = dtype;
        return make_plan(graph, machine, workload, {}).memory[0].needed();
    };
    // The planner estimates more than a plan needs: 12 MiB are between its two narrower types.
    const int64_t narrow = needed(DType::kInt8), wide = needed(DType::kF32);
    workload.kv_dtype.reset();
    machine.devices[0].memory_bytes = wide - 1;
    CHECK_THAT(user_error([&] { make_plan(graph, machine, workload, {}); }),
               Contains("$kv_dtype bf16 (16 bits an element of the KV cache instead of 32)"));
    machine.devices[0].memory_bytes = narrow + (int64_t{12} << 20);
    CHECK_THAT(user_error([&] { make_plan(graph, machine, workload, {}); }),
               Contains("$kv_dtype int8 (8 bits an element of the KV cache instead of 32)"));
    machine.devices[0].memory_bytes = narrow - 1;
    CHECK_THAT(user_error([&] { make_plan(graph, machine, workload, {}); }),
               !Contains("$kv_dtype"));
}

}  // namespace cleave::test
