// SPDX-License-Identifier: Apache-2.0
// METIS behind its wrapper, and the device groups it finds.
#include "tests/support/test.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "planner/device_order.h"
#include "planner/metis.h"

using namespace cleave;
using namespace cleave::planner;

namespace {

// `nodes` of `width` devices each, shuffled; `home[d]` is the node of device d.
Machine shuffled_nodes(int nodes, int width, std::mt19937& random, std::vector<int>& home) {
    home.clear();
    for (int n = 0; n < nodes; ++n) home.insert(home.end(), width, n);
    std::shuffle(home.begin(), home.end(), random);
    Machine machine;
    for (size_t d = 0; d < home.size(); ++d) {
        Device device;
        device.name = fmt::format("d{}", d);
        device.memory_bandwidth = 2'000'000'000'000;
        machine.devices.push_back(device);
    }
    for (size_t a = 0; a < home.size(); ++a)
        for (size_t b = 0; b < home.size(); ++b)
            if (a != b) {
                bool inner = home[a] == home[b];
                machine.links.push_back({DeviceId(a), DeviceId(b),
                                         inner ? LinkKind::kNvlink : LinkKind::kNetwork,
                                         inner ? 450'000'000'000 : 45'000'000'000, 2000});
            }
    return machine;
}

}  // namespace

TEST_CASE("shuffled nodes are recovered exactly, fifty trials of fifty", "[planner]") {
    for (auto [nodes, width] : {std::pair{2, 8}, {4, 8}, {8, 8}, {16, 4}, {8, 16}}) {
        std::mt19937 random(nodes * 100 + width);
        int recovered = 0;
        for (int trial = 0; trial < 50; ++trial) {
            std::vector<int> home;
            Machine machine = shuffled_nodes(nodes, width, random, home);
            REQUIRE(natural_group_count(machine) == nodes);
            DeviceGroups groups = group_devices(machine, nodes, trial);
            bool exact = static_cast<int>(groups.groups.size()) == nodes;
            for (const auto& group : groups.groups)
                for (DeviceId d : group) exact = exact && home[d.index()] == home[group[0].index()];
            recovered += exact;
        }
        INFO(nodes << " x " << width);
        REQUIRE(recovered == 50);
    }
}

TEST_CASE("parts of a partition are never empty and follow their targets", "[planner]") {
    std::mt19937 random(3);
    for (int trial = 0; trial < 200; ++trial) {
        int n = 2 + static_cast<int>(random() % 60), k = 1 + static_cast<int>(random() % n);
        std::vector<PartitionEdge> edges;
        for (int e = 0; e < 2 * n; ++e)
            edges.push_back({static_cast<int>(random() % n), static_cast<int>(random() % n),
                             static_cast<int64_t>(random())});
        std::vector<int64_t> weights(n);
        for (int64_t& w : weights)
            w = random() % 3 == 0 ? 0 : static_cast<int64_t>(random()) << 20;  // beyond 32 bits
        std::vector<int> parts =
            partition_graph(n, edges, weights, std::vector<double>(k, 1.0), trial);
        REQUIRE(std::set<int>(parts.begin(), parts.end()).size() == static_cast<size_t>(k));
        REQUIRE(parts == partition_graph(n, edges, weights, std::vector<double>(k, 1.0), trial));
    }
}

TEST_CASE("a chain in two parts is cut once", "[planner]") {
    std::vector<PartitionEdge> edges;
    for (int i = 0; i + 1 < 40; ++i) edges.push_back({i, i + 1, 7});
    std::vector<int64_t> weights(40, 1);
    std::vector<int> parts = partition_graph(40, edges, weights, std::vector<double>{1, 1}, 0);
    REQUIRE(edge_cut(edges, parts) == 7);
}
