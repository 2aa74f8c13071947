// SPDX-License-Identifier: Apache-2.0
#include "runtime/cards/open_devices.h"

#include "planner/machine/build_machine.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;

TEST_CASE("a plan with a device of another machine is refused by name, place and remedy",
          "[runtime]") {
    Drivers drivers;
    planner::Plan plan;
    plan.machine = planner::build_machine(planner::parse_devices("host[0-1]"),
                                          planner::read_host_facts(), nullptr);
    CHECK(open_devices(plan, drivers, {}).size() == 2);
    plan.machine.devices[1].host = "node1";
    CHECK_THAT(cleave::test::user_error([&] { open_devices(plan, drivers, {}); }),
               Contains("host[1]") && Contains("'node1'") && Contains("'localhost'") &&
                   Contains("plan for the devices of one machine"));
}
