// SPDX-License-Identifier: Apache-2.0
// METIS behind its wrapper, what becomes of its failures, and the device groups it finds.
#include "tests/support/test.h"

#include <dlfcn.h>
#include <metis.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <random>
#include <set>

#include "models/llama_graph.h"
#include "planner/machine/build_machine.h"
#include "planner/metis/metis.h"
#include "planner/planner.h"
#include "planner/search/device_order.h"
#include "tests/planner/support/machines.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

// `nodes` of `width` devices each, shuffled; `home[d]` is the node of device d.
Machine shuffled_nodes(int nodes, int width, std::mt19937& random, std::vector<int>& home) {
    home.clear();
    for (int n = 0; n < nodes; ++n) home.insert(home.end(), width, n);
    std::shuffle(home.begin(), home.end(), random);
    Machine machine;
    for (size_t d = 0; d < home.size(); ++d) {
        DeviceInfo device;
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
    const auto is_cut = [&](const PartitionEdge& e) { return parts[e.a] != parts[e.b]; };
    REQUIRE(std::ranges::count_if(edges, is_cut) == 1);
}

// The linker finds this METIS_PartGraphRecursive before the library's; it fails in the way a test
// asks for, and hands on every other call.
namespace {

enum class MetisFault { kNone, kSignal, kCode };
thread_local MetisFault metis_fault = MetisFault::kNone;

struct FaultyMetis {
    explicit FaultyMetis(MetisFault fault) { metis_fault = fault; }
    ~FaultyMetis() { metis_fault = MetisFault::kNone; }
};

volatile std::sig_atomic_t seen_signal = 0;

void count_signal(int signal, siginfo_t*, void*) { seen_signal = signal; }

}  // namespace

extern "C" int METIS_PartGraphRecursive(idx_t* nvtxs, idx_t* ncon, idx_t* xadj, idx_t* adjncy,
                                        idx_t* vwgt, idx_t* vsize, idx_t* adjwgt, idx_t* nparts,
                                        real_t* tpwgts, real_t* ubvec, idx_t* options,
                                        idx_t* edgecut, idx_t* part) {
    if (metis_fault == MetisFault::kSignal) raise(SIGTERM);  // as gk_errexit does
    if (metis_fault == MetisFault::kCode) return METIS_ERROR_MEMORY;
    using Call = decltype(&METIS_PartGraphRecursive);
    static const auto kReal = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "METIS_PartGraphRecursive"));
    REQUIRE(kReal);
    return kReal(nvtxs, ncon, xadj, adjncy, vwgt, vsize, adjwgt, nparts, tpwgts, ubvec, options,
                 edgecut, part);
}

TEST_CASE("a METIS that raises a signal or fails is an error that says so, not the end",
          "[planner]") {
    std::vector<PartitionEdge> edges{{0, 1, 1}, {1, 2, 1}, {2, 3, 1}};
    std::vector<int64_t> weights(4, 1);
    auto message = [&](MetisFault fault) -> std::string {
        FaultyMetis faulty(fault);
        try {
            partition_graph(4, edges, weights, std::vector<double>{1, 1}, 0);
        } catch (const MetisError& error) {
            return error.what();
        }
        return "";
    };
    for (int i = 0; i < 3; ++i) {  // the signal is not left blocked
        CHECK_THAT(message(MetisFault::kSignal),
                   Contains("METIS raised signal 15 (internal error)") && Contains("4 vertices"));
        CHECK_THAT(message(MetisFault::kCode), Contains("no memory"));
        CHECK(message(MetisFault::kNone).empty());
    }
}

TEST_CASE("the handlers of the program are back after METIS, flags and mask included",
          "[planner]") {
    struct sigaction mine{}, old[2], after{};
    mine.sa_sigaction = count_signal;
    mine.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&mine.sa_mask);
    sigaddset(&mine.sa_mask, SIGUSR1);
    sigaction(SIGTERM, &mine, &old[0]);
    sigaction(SIGABRT, &mine, &old[1]);
    std::vector<PartitionEdge> edges{{0, 1, 1}, {1, 2, 1}, {2, 3, 1}};
    std::vector<int64_t> weights(4, 1);
    for (MetisFault fault : {MetisFault::kNone, MetisFault::kSignal, MetisFault::kCode}) {
        {
            FaultyMetis faulty(fault);
            try {
                partition_graph(4, edges, weights, std::vector<double>{1, 1}, 0);
            } catch (const MetisError&) {  // NOLINT(bugprone-empty-catch)
            }
        }
        for (int signal : {SIGTERM, SIGABRT}) {
            sigaction(signal, nullptr, &after);
            CHECK(after.sa_sigaction == count_signal);
            CHECK((after.sa_flags & mine.sa_flags) == mine.sa_flags);
            CHECK(sigismember(&after.sa_mask, SIGUSR1) == 1);
        }
    }
    seen_signal = 0;
    raise(SIGTERM);
    CHECK(seen_signal == SIGTERM);
    sigaction(SIGTERM, &old[0], nullptr);
    sigaction(SIGABRT, &old[1], nullptr);
}

TEST_CASE("a plan goes on without a METIS that gives up, and names that", "[planner]") {
    FaultyMetis faulty(MetisFault::kSignal);
    PlanOptions options;
    options.tensor_parallel = 1;
    options.pipeline_stages = 4;
    Plan plan = make_plan(models::build_llama_graph(*models::find_shape("llama-110m"), DType::kF32),
                          test::machine_of("host[0-3]"), {.context = 1024}, options);
    CHECK_THAT(plan.why.metis, Contains("left out: METIS raised signal 15"));
    CHECK(plan.stages.size() == 4);
}
