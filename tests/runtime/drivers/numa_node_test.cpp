// SPDX-License-Identifier: Apache-2.0
// Devices that are NUMA nodes. Where this machine has one node, hwloc takes each of its cores for a
// node: threads are kept on them in fact, and memory on the first.
#include "runtime/drivers/host/numa_node.h"

#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>

#include "runtime/drivers/host/host_device.h"
#include "tests/runtime/support/support.h"
#include "tests/support/test.h"

namespace cleave::runtime::test {
namespace {

std::set<int> cores_of_thread() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::set<int> cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int c = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(c, &set)) cores.insert(c);
    return cores;
}

// This process's first two cores, each a node of its own.
class CoresAsNodes {
public:
    CoresAsNodes() {
        const std::set<int> cores = cores_of_thread();
        first = *cores.begin();
        second = *std::next(cores.begin());
        const std::string nodes = fmt::format("numa:2 core:1 pu:1(indexes={},{})", first, second);
        ::setenv("HWLOC_SYNTHETIC", nodes.c_str(), 1);
        ::setenv("HWLOC_THISSYSTEM", "1", 1);
    }
    ~CoresAsNodes() {
        ::unsetenv("HWLOC_SYNTHETIC");
        ::unsetenv("HWLOC_THISSYSTEM");
    }
    CoresAsNodes(const CoresAsNodes&) = delete;
    CoresAsNodes& operator=(const CoresAsNodes&) = delete;

    int first = -1, second = -1;
};

planner::DeviceInfo node_info(int node) {
    planner::DeviceInfo info = host_info(node);
    info.name = fmt::format("host[{}]@numa", node);
    info.host_cores = 2;
    return info;
}

// args: where to count the threads that were on other cores than that of the second argument, and
// those that were seen.
void look_where(const uint64_t* args, int64_t, int64_t, void*) {
    auto* elsewhere = reinterpret_cast<std::atomic<int>*>(args[0]);
    auto* seen = reinterpret_cast<std::atomic<int>*>(args[2]);
    if (cores_of_thread() != std::set<int>{static_cast<int>(args[1])}) ++*elsewhere;
    ++*seen;
}

}  // namespace

TEST_CASE("threads of a device that is a NUMA node have its cores, and the caller's stay",
          "[runtime]") {
    if (cores_of_thread().size() < 2) CLEAVE_SKIP("this process has one core");
    const CoresAsNodes nodes;
    CHECK(read_numa_nodes().size() == 2);
    const std::set<int> before = cores_of_thread();
    // Made after the caller's and before its worker's, a device's helper has the node's cores.
    for (const auto& [node, core] : {std::pair{0, nodes.first}, std::pair{1, nodes.second}}) {
        const auto device =
            make_host_device(node_info(node), {.threads = 3}, fixed_kernels({&look_where}));
        CHECK(cores_of_thread() == before);
        device->load(std::vector<codegen::CompiledKernel>(1));
        std::atomic<int> elsewhere{0}, seen{0};
        const std::array<uint64_t, 3> args{reinterpret_cast<uint64_t>(&elsewhere),
                                           static_cast<uint64_t>(core),
                                           reinterpret_cast<uint64_t>(&seen)};
        std::thread([&] { device->launch(0, args, {64, 1, 1}, {}); }).join();
        CHECK(seen > 0);
        CHECK(elsewhere == 0);
    }
    CHECK(cores_of_thread() == before);
}

TEST_CASE("memory that cannot be kept on a NUMA node is an error with its name, and none is lost",
          "[runtime]") {
    if (cores_of_thread().size() < 2) CLEAVE_SKIP("this process has one core");
    const size_t real = read_numa_nodes().size();
    if (real != 1) CLEAVE_SKIP("this machine has the second node in fact");
    const CoresAsNodes nodes;
    const auto first = make_host_device(node_info(0), {}),
               second = make_host_device(node_info(1), {});
    const DeviceAddress kept = first->allocate(1 << 20, "a test");
    first->fill(kept, 1 << 20, 1);
    CHECK(first->allocated_bytes() == 1 << 20);
    first->free(kept);
    CHECK_THROWS_AS(second->allocate(1 << 20, "a test"), DeviceError);
    CHECK(second->allocated_bytes() == 0);
    try {
        second->allocate(1 << 20, "a test");
    } catch (const DeviceError& error) {
        CHECK_THAT(error.what(), Catch::Matchers::Contains("host[1]@numa") &&
                                     Catch::Matchers::Contains("in the memory of its NUMA node") &&
                                     Catch::Matchers::Contains("leave @numa out"));
    }
}

TEST_CASE("a plan's NUMA node that this host has not is refused by its name", "[runtime]") {
    const int nodes = static_cast<int>(read_numa_nodes().size());
    CHECK_THAT(cleave::test::user_error([&] { make_host_device(node_info(nodes), {}); }),
               Catch::Matchers::Contains(fmt::format("host[{}]@numa is a NUMA node", nodes)));
}

}  // namespace cleave::runtime::test
