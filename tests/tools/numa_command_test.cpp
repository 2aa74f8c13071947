// SPDX-License-Identifier: Apache-2.0
// NUMA nodes on the command line. hwloc describes a machine of two, on which nothing is kept: where
// threads and memory are in fact is tests/runtime/drivers/numa_node_test.cpp's.
#include "runtime/drivers/host/numa_node.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

CommandResult on_two_nodes(const Words& arguments) {
    return run_program(joined(
        {"env", "HWLOC_SYNTHETIC=numa:2(memory=8GB) core:1 pu:1", CLEAVE_BINARY}, arguments));
}

}  // namespace

TEST_CASE("NUMA nodes as devices have the tokens of one device, from the plan's file too",
          "[tools]") {
    const TemporaryFolder folder;
    const std::string model = bundled_model().string();
    const Words asked{"--prompt", "Once upon a time", "--max-new-tokens", "12"};
    const CommandResult one = run_cleave(joined({"run", model, "--devices", "host"}, asked));
    REQUIRE(one.exit_code == 0);
    REQUIRE(!one.output.empty());
    for (const Words& shape : {Words{"--tp", "2"}, Words{"--pp", "2", "--tp", "1"}}) {
        const CommandResult two =
            on_two_nodes(joined(joined({"run", model, "--devices", "host@numa"}, shape), asked));
        INFO(two.error);
        CHECK(two.exit_code == 0);
        CHECK(two.output == one.output);
    }
    const CommandResult second =
        on_two_nodes(joined({"run", model, "--devices", "host[1]@numa"}, asked));
    INFO(second.error);
    CHECK(second.output == one.output);

    const std::string plan = (folder.path() / "two.plan").string();
    REQUIRE(on_two_nodes({"plan", model, "--devices", "host@numa", "--tp", "2", "-o", plan})
                .exit_code == 0);
    CHECK(on_two_nodes(joined({"run", plan}, asked)).output == one.output);
    if (runtime::read_numa_nodes().size() == 1) {
        const CommandResult refused = run_cleave(joined({"run", plan}, asked));
        CHECK(refused.exit_code == 1);
        CHECK_THAT(refused.error, Contains("host[1]@numa is a NUMA node that this host has not"));
    }
}

TEST_CASE("devices lists NUMA nodes, and does not measure them apart", "[tools]") {
    const CommandResult listed = on_two_nodes({"devices", "--devices", "host@numa"});
    CHECK(listed.exit_code == 0);
    CHECK_THAT(listed.output, Contains("host[0]@numa") && Contains("host[1]@numa"));
    const CommandResult refused = run_cleave({"devices", "--measure", "--devices", "host@numa"});
    CHECK(refused.exit_code == 1);
    CHECK_THAT(refused.error, Contains("the host is measured whole"));
    const CommandResult absent =
        run_cleave({"plan", "tinyllama-1.1b", "--devices", "host[9]@numa"});
    CHECK(absent.exit_code == 1);
    CHECK_THAT(absent.error, Contains("--devices: host[9]@numa: this host has"));
}

}  // namespace cleave::test
