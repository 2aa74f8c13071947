// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_topology.h"

#include <thread>

#include "tests/support/test.h"

TEST_CASE("the host's topology counts at least the threads that the system gives this process",
          "[runtime]") {
    cleave::runtime::HostTopology host = cleave::runtime::read_host_topology();
    CHECK(host.threads >= static_cast<int>(std::thread::hardware_concurrency()));
    CHECK(host.threads >= host.cores);
    CHECK(host.cores >= 1);
    CHECK(host.numa_nodes >= 1);
}
