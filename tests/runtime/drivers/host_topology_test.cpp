// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/host/host_topology.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "runtime/base/thread_team.h"
#include "tests/support/test.h"

TEST_CASE("the host's topology counts at least the threads that the system gives this process",
          "[runtime]") {
    cleave::runtime::HostTopology host = cleave::runtime::read_host_topology();
    CHECK(host.threads >= static_cast<int>(std::thread::hardware_concurrency()));
    CHECK(host.threads >= host.cores);
    CHECK(host.cores >= 1);
    CHECK(host.numa_nodes >= 1);
}

TEST_CASE("a team's pieces cover every index once, in grains", "[runtime]") {
    for (int threads : {1, 2, 3})
        for (auto [count, grain] : std::initializer_list<std::pair<int64_t, int64_t>>{
                 {0, 1}, {1, 1}, {2, 1}, {97, 1}, {1000, 64}, {63, 64}}) {
            INFO(threads << " threads, " << count << " in grains of " << grain);
            cleave::runtime::ThreadTeam team(threads, false);
            std::vector<std::atomic<int>> times(static_cast<size_t>(count));
            std::atomic<int> small{0};
            team.split(
                count,
                [&, count = count, grain = grain](int64_t begin, int64_t end, int thread) {
                    if (begin >= end || thread < 0 || thread >= threads) small += 2;
                    if (end - begin < grain && end != count) ++small;
                    for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
                },
                grain);
            CHECK(small == 0);
            CHECK(std::all_of(times.begin(), times.end(), [](const auto& t) { return t == 1; }));
        }
}
