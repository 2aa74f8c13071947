// SPDX-License-Identifier: Apache-2.0
// What a machine file says of a device's limits: a plan within them, or the user's error.
#include <nlohmann/json.hpp>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/gpu_arch.h"
#include "planner/machine/machine_file.h"
#include "planner/planner.h"
#include "planner/tiles/gpu.h"
#include "planner/verify/verify.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

constexpr const char* kLimits[] = {"shared_memory_per_block",
                                   "registers_per_block",
                                   "max_threads_per_block",
                                   "warp_width",
                                   "num_compute_units",
                                   "max_grid_x",
                                   "max_grid_y",
                                   "max_grid_z"};

// One device, as `cleave devices -o` writes it.
Json machine_file(const std::string& device) {
    return Json::parse(machine_to_json(machine_of(device, small_host(2))));
}

Machine machine_with(Json machine, const char* limit, int64_t value) {
    machine["devices"][0][limit] = value;
    return parse_machine(machine.dump(), "m.json");
}

Workload small_workload() {
    Workload w{.batch = 2, .prompt_tokens = 200};
    w.context = 256;
    return w;
}

}  // namespace

TEST_CASE("a GPU architecture without kernels is refused with those that have them", "[planner]") {
    for (const char* arch : {"sm_999", "gfx9999"}) {
        Json machine = machine_file("sim:h100[0]");
        machine["devices"][0]["arch"] = arch;
        CHECK_THROWS_WITH(parse_machine(machine.dump(), "m.json"),
                          Contains(fmt::format("m.json: devices[0].arch is '{}'", arch)) &&
                              Contains("supported are sm_70, sm_75"));
    }
    // What is no GPU's is its owner's word.
    Json machine = machine_file("sim:host[0]");
    machine["devices"][0]["arch"] = "my-cpu";
    CHECK(parse_machine(machine.dump(), "m.json").devices[0].arch == "my-cpu");
}

TEST_CASE("a machine file of any limits gives a plan within them or an error of the user's",
          "[planner]") {
    const models::Shape shape = *models::find_shape("stories-260k");
    int plans = 0, refused = 0;
    for (DType dtype : {DType::kF32, DType::kF16}) {
        const Graph graph = models::build_llama_graph(shape, dtype);
        for (const char* device :
             {"sim:a100-80[0]", "sim:h100[0]", "sim:mi300x[0]", "simt:gfx1100[0]", "host[0]"}) {
            const Json machine = machine_file(device);
            for (const char* limit : kLimits)
                for (int64_t value : std::initializer_list<int64_t>{0, 1, 31, 96, 1000, 2048,
                                                                    int64_t{1} << 40, -1}) {
                    CAPTURE(device, limit, value, dtype_name(dtype));
                    try {
                        const Machine changed = machine_with(machine, limit, value);
                        const Plan plan = make_plan(graph, changed, small_workload(), {});
                        verify_plan(plan);
                        ++plans;
                        if (changed.devices[0].kind == DeviceKind::kHost) continue;
                        const DeviceLimits& limits = changed.devices[0].limits;
                        for (const Phase* phase : {&plan.prefill, &plan.decode})
                            for (const Step& step : phase->steps) {
                                const Compute* c = step.compute();
                                if (!c) continue;
                                CHECK(c->tile.threads > 0);
                                CHECK(c->tile.threads % limits.warp_width == 0);
                                CHECK(c->tile.threads <= limits.max_threads_per_block);
                                CHECK(c->tile.shared_bytes <= limits.shared_memory_per_block);
                            }
                    } catch (const UserError& error) {
                        CHECK_THAT(error.what(), !Contains("not sound"));
                        // Scratch of a host's threads is memory, and may be lacking.
                        if (std::string_view(device) != "host[0]")
                            CHECK_THAT(error.what(), Contains(limit));
                        ++refused;
                    }
                }
        }
    }
    CHECK(plans > 100);
    CHECK(refused > 100);
}

TEST_CASE("a limit that the architecture does not have is refused where the machine file is read",
          "[planner]") {
    const Json amd = machine_file("sim:mi300x[0]"), nvidia = machine_file("sim:h100[0]");
    const auto refusal = [](const Json& machine, const char* limit, int64_t value) {
        return user_error([&] { machine_with(machine, limit, value); });
    };
    struct Case {
        const Json& machine;
        const char* limit;
        int64_t value;
        const char* supported;
    };
    for (const Case& c : {Case{amd, "warp_width", 32, "64"},
                          {amd, "warp_width", 0, "64"},
                          {nvidia, "warp_width", 64, "32"},
                          {amd, "shared_memory_per_block", 65537, "1 to 65536"},
                          {nvidia, "shared_memory_per_block", 0, "1 to 232448"},
                          {nvidia, "registers_per_block", 65537, "1 to 65536"},
                          {amd, "max_threads_per_block", 63, "64 to 1024"},
                          {nvidia, "max_threads_per_block", 1025, "32 to 1024"},
                          {nvidia, "num_compute_units", 0, "1 to 65536"},
                          {nvidia, "max_grid_y", int64_t{1} << 31, "1 to 2147483647"}}) {
        CAPTURE(c.limit, c.value);
        const std::string text = refusal(c.machine, c.limit, c.value);
        CHECK_THAT(text, Contains("m.json: devices[0]." + std::string(c.limit)));
        CHECK_THAT(text, Contains(c.machine["devices"][0]["name"].get<std::string>()));
        CHECK_THAT(text, Contains("is " + std::to_string(c.value)));
        CHECK_THAT(text, Contains(c.machine["devices"][0]["arch"].get<std::string>() +
                                  " supports " + c.supported));
    }
    CHECK_THAT(refusal(machine_file("host[0]"), "warp_width", 32), Contains("supports 1"));
}

TEST_CASE("limits that a machine file leaves out are the architecture's own", "[planner]") {
    for (const GpuArch& arch : gpu_archs()) {
        const Json machine = {{"devices",
                               {{{"name", "a"},
                                 {"kind", "sim"},
                                 {"arch", arch.name},
                                 {"memory_bytes", 1 << 30},
                                 {"memory_bandwidth", 1000},
                                 {"flops_f32", 1000}}}}};
        const DeviceLimits limits = parse_machine(machine.dump(), "m.json").devices[0].limits;
        CAPTURE(std::string(arch.name));
        CHECK(limits.warp_width == arch.warp_width);
        CHECK(limits.shared_memory_per_block == arch.shared_bytes);
        CHECK(limits.registers_per_block == arch.registers);
        CHECK(limits.max_threads_per_block == arch.max_threads);
    }
}

TEST_CASE("an operator that no tile brings within a block is refused with its need and a way out",
          "[planner]") {
    const Graph graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF16);
    const auto refusal = [&](const char* limit, int64_t value) {
        const Machine machine = machine_with(machine_file("sim:mi300x[0]"), limit, value);
        return user_error([&] { make_plan(graph, machine, small_workload(), {}); });
    };
    for (const char* limit : {"shared_memory_per_block", "registers_per_block"}) {
        const std::string text = refusal(limit, 31);
        CHECK_THAT(text, Contains(limit));
        CHECK_THAT(text, Contains("sim:mi300x[0]"));
        CHECK_THAT(text, Contains("has 31"));
        CHECK_THAT(text, Contains("$tensor_parallel"));
    }
}

TEST_CASE("threads of a block are whole warps also where the limit is no multiple of one",
          "[planner]") {
    for (int64_t warp : {32, 64})
        for (int64_t most : {64, 96, 127, 200, 1000, 1023}) {
            const DeviceLimits limits{64 << 10, 65536, most, warp, 8};
            CAPTURE(warp, most);
            for (int64_t tokens : {1, 2, 8, 16, 200}) {
                for (bool copies : {false, true}) {
                    ProductShape product{.depth = 512, .rows = 1024, .tokens = tokens};
                    product.async_copies = copies;
                    CHECK(product_tile(limits, product).threads % warp == 0);
                    CHECK(product_tile(limits, product).threads <= most);
                }
                AttentionShape attention{.heads = 8, .kv_heads = 8, .head_dim = 64};
                attention.v_head_dim = 64, attention.tokens = tokens, attention.context = 1024;
                attention.prefill = tokens > 2;
                CHECK(attention_tile(limits, attention).threads % warp == 0);
                CHECK(attention_tile(limits, attention).threads <= most);
            }
            CHECK(elementwise_tile(limits, 4096).threads % warp == 0);
            CHECK(elementwise_tile(limits, 4096).threads <= most);
            CHECK(argmax_tile(limits, 32000, 4).threads % warp == 0);
            CHECK(argmax_tile(limits, 32000, 4).threads <= most);
        }
}

}  // namespace cleave::test
