// SPDX-License-Identifier: Apache-2.0
// Sums over links that share a PCIe root, against what others measured.
#include <algorithm>
#include <cmath>

#include "planner/cost/collective_form.h"
#include "planner/cost/link_times.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

// Cards two by two behind a switch; what leaves a switch passes the root.
Machine with_root(Machine machine, int64_t rate) {
    machine.domains.push_back({"PCIe root", rate});
    for (Link& link : machine.links)
        if (link.from.index() / 2 != link.to.index() / 2)
            link.domain = static_cast<int>(machine.domains.size()) - 1;
    return machine;
}

std::vector<DeviceId> first_devices(int count) {
    std::vector<DeviceId> devices;
    for (int d = 0; d < count; ++d) devices.emplace_back(d);
    return devices;
}

int64_t sum_ns(const Machine& machine, int members, int64_t bytes) {
    return choose_all_reduce(LinkTable(machine), first_devices(members), bytes, false).ns;
}

}  // namespace

TEST_CASE("a sum takes at least its bytes over the root that its links share", "[planner]") {
    const Machine apart = machine_of("sim:l40s[0-7]");
    const int64_t rate = 10'000'000'000;
    const Machine shared = with_root(apart, rate);
    for (const int members : {2, 4, 6, 8})
        for (const int64_t bytes : {8'192, 1 << 20, 16 << 20}) {
            INFO(members << " members, " << bytes << " bytes");
            const int64_t with = sum_ns(shared, members, bytes);
            CHECK(with >= sum_ns(apart, members, bytes));
            if (members == 2) CHECK(with == sum_ns(apart, members, bytes));
            // Any sum brings each pair's payload out of it and the result into it.
            const int pairs = members / 2;
            if (members > 2)
                CHECK(static_cast<double>(with) >=
                      static_cast<double>(pairs * bytes) * 1e9 / static_cast<double>(rate));
        }
}

TEST_CASE("eight L40S with their root given are near what was measured", "[planner]") {
    // ai-dynamo/aiconfigurator, l40s: vLLM 0.22.0, TensorRT-LLM 1.3.0rc20, NCCL 2.27.3; all-reduces
    // in a graph. The root's rate is fitted to these rows.
    struct Row {
        int members;
        int64_t bytes;
        double us;
    };
    const Row rows[] = {
        {2, 8192, 5.724},     {2, 65536, 9.861},   {2, 131072, 10.99},   {2, 16777216, 891.9},
        {4, 65536, 36.93},    {4, 262144, 115.6},  {4, 16777216, 6676},  {8, 65536, 72.89},
        {8, 1048576, 582.6},  {8, 4194304, 4014},  {8, 16777216, 15810}, {2, 65536, 13.22},
        {2, 131072, 19.78},   {2, 4194304, 222.7}, {4, 8192, 15.32},     {4, 16384, 16.08},
        {4, 65536, 34.24},    {4, 131072, 60.83},  {4, 262144, 113.4},   {4, 1048576, 273.7},
        {4, 4194304, 1262},   {4, 16777216, 5029}, {8, 16384, 42.88},    {8, 65536, 164.6},
        {8, 131072, 297.3},   {8, 262144, 319.7},  {8, 1048576, 978.3},  {8, 4194304, 6569},
        {8, 16777216, 20340}, {2, 8192, 8.09},     {2, 16384, 7.54},     {2, 131072, 18.76},
        {2, 4194304, 221.5},  {8, 8192, 32.51},    {8, 131072, 279.9}};
    const Machine machine = with_root(machine_of("sim:l40s[0-7]"), 7'500'000'000);
    std::vector<double> ratios;
    for (const Row& row : rows) {
        ratios.push_back(row.us * 1e3 /
                         static_cast<double>(sum_ns(machine, row.members, row.bytes)));
        UNSCOPED_INFO(row.members << " members, " << row.bytes << " bytes: " << ratios.back());
    }
    std::ranges::sort(ratios);
    CHECK(ratios[ratios.size() / 2] >= 0.9);
    CHECK(ratios[ratios.size() / 2] <= 1.4);
    CHECK(ratios[ratios.size() * 9 / 10] <= 2);
}

}  // namespace cleave::test
