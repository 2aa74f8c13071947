// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/numa_nodes.h"

#include <fstream>

#include "models/llama_graph.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/machine_file.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "tests/planner/support/json_schema.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

constexpr int64_t kGiB = int64_t{1} << 30;

// Twelve cores on two nodes, of which the first has eight and a quarter of the memory.
HostFacts two_nodes() {
    HostFacts facts;
    facts.num_cores = 12;
    facts.memory_bytes = 80 * kGiB;
    facts.memory_bandwidth = 120'000'000'000;
    facts.flops_f32 = 1'200'000'000'000;
    facts.arch = "x86-64-v3";
    facts.numa_nodes = {{8, 20 * kGiB}, {4, 60 * kGiB}};
    return facts;
}

std::vector<std::string> names(const Machine& machine) {
    std::vector<std::string> names;
    for (const DeviceInfo& d : machine.devices) names.push_back(d.name);
    return names;
}

}  // namespace

TEST_CASE("host@numa is a device for each NUMA node, with its cores, memory and rates",
          "[planner]") {
    const Machine machine = build_machine(parse_devices("host@numa"), two_nodes());
    CHECK(names(machine) == std::vector<std::string>{"host[0]@numa", "host[1]@numa"});
    const DeviceInfo &large = machine.devices[0], &small = machine.devices[1];
    CHECK(large.limits.num_compute_units == 8);
    CHECK(small.limits.num_compute_units == 4);
    CHECK(large.memory_bytes == 20 * kGiB);
    CHECK(small.memory_bytes == 60 * kGiB);
    CHECK(large.memory_bandwidth == 80'000'000'000);
    CHECK(small.flops_f32 == 400'000'000'000);
    // Neither takes of the other's memory bandwidth.
    CHECK(large.memory_domain != small.memory_domain);
    for (const DeviceInfo& d : machine.devices) {
        CHECK(d.host_cores == 12);
        CHECK(machine.domains[static_cast<size_t>(d.memory_domain)].bandwidth ==
              d.memory_bandwidth);
    }
    const Machine second = build_machine(parse_devices("host[1]@numa"), two_nodes());
    CHECK(names(second) == std::vector<std::string>{"host[1]@numa"});
    CHECK(second.devices[0].memory_bytes == small.memory_bytes);
    // Names of nodes are names of devices, on this host or on another.
    CHECK(parse_devices("host[1]@numa").at(0).machine.empty());
    CHECK(parse_devices("host[1]@numa@b").at(0).machine == "b");
    CHECK(parse_devices("host[1]@numa@b").at(0).text == "host[1]@numa@b");
}

TEST_CASE("rates that were measured are divided among NUMA nodes, those of one thread are not",
          "[planner]") {
    HostFacts facts = two_nodes();
    MeasuredRates& rates = facts.calibration.rates;
    rates.bandwidth = 90'000'000'000;
    rates.bandwidth_alone = 12'000'000'000;
    rates.flops_f32 = rates.flops_narrow = 600'000'000'000;
    rates.launch_ns = 4'000;
    const Machine machine = build_machine(parse_devices("host@numa"), facts);
    const MeasuredRates& measured = machine.devices[1].measured;
    CHECK(measured.bandwidth == 30'000'000'000);
    CHECK(measured.flops_narrow == 200'000'000'000);
    CHECK(measured.bandwidth_alone == 12'000'000'000);
    CHECK(measured.launch_ns == 4'000);
}

TEST_CASE("a NUMA node that is not there, twice there or beside the whole host is refused",
          "[planner]") {
    for (const auto& [list, says] : std::initializer_list<std::pair<const char*, const char*>>{
             {"host[2]@numa",
              "this host has 2 NUMA nodes with cores for this process, "
              "host[0-1]@numa"},
             {"host@numa,host[1]@numa", "host[1]@numa is given twice"},
             {"host[0],host[1]@numa", "host[0] has the cores of every NUMA node"},
             {"sim:h100[0]@numa", "only host devices are NUMA nodes"},
             {"host@numa@b", "name them, for example host[0-1]@numa@b"}}) {
        INFO(list);
        CHECK_THAT(
            user_error([&, list = list] { build_machine(parse_devices(list), two_nodes()); }),
            Contains(says));
    }
    CHECK_THAT(user_error([] { build_machine(parse_devices("host@numa"), HostFacts{}); }),
               Contains("is not known here"));
}

TEST_CASE("a plan over NUMA nodes is sound, and keeps their cores in its file and the machine's",
          "[planner]") {
    const Machine machine = build_machine(parse_devices("host@numa"), two_nodes());
    const std::string json = machine_to_json(machine);
    const auto schema =
        nlohmann::json::parse(std::ifstream(source_root() / "tools/schema/machine.schema.json"));
    CHECK(schema_errors(schema, nlohmann::json::parse(json)).empty());
    CHECK(parse_machine(json, "a machine").devices[1].host_cores == 12);
    const auto graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    for (const auto& [tensor_parallel, stages] : {std::pair{2, 1}, std::pair{1, 2}}) {
        const Plan plan =
            make_plan(graph, machine, {.prompt_tokens = 8, .context = 32},
                      {.tensor_parallel = tensor_parallel, .pipeline_stages = stages});
        CHECK(find_violations(plan).empty());
        // Nodes share no cores: a stage has its own alone, too.
        CHECK(core_shares(plan, 12) == std::vector<int64_t>{8, 4});
        CHECK(core_shares(plan, 6) == std::vector<int64_t>{4, 2});
        CHECK(parse_plan(serialize_plan(plan), "a plan").machine.devices[1].host_cores == 12);
    }
}

}  // namespace cleave::test
