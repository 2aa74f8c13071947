// SPDX-License-Identifier: Apache-2.0
// Sums over links that share a PCIe root, against what others measured.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/llama_graph.h"
#include "planner/cost/collective_form.h"
#include "planner/cost/link_times.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/machine_file.h"
#include "planner/planner.h"
#include "planner/view/plan_text.h"
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

TEST_CASE("cards of a PCIe group share the rate of one link, and no other card's", "[planner]") {
    const Machine grouped =
        build_machine(parse_devices("sim:l40s[0-7],sim:h100[0-1]"), {}, nullptr, {.pcie_group = 3});
    const Machine apart = build_machine(parse_devices("sim:l40s[0-7],sim:h100[0-1]"), {});
    std::map<int, std::set<DeviceId>> members;
    for (const Link& link : grouped.links) {
        if (link.kind != LinkKind::kPcie) CHECK(link.domain == -1);
        if (link.domain >= 0) members[link.domain].insert(link.from);
    }
    // Ten cards are joined by PCIe, the H100 to the others: three groups of three, and one alone.
    std::vector<size_t> sizes;
    for (const auto& [domain, cards] : members) sizes.push_back(cards.size());
    CHECK(sizes == std::vector<size_t>{3, 3, 3, 1});
    const Link& link = *apart.link(DeviceId(0), DeviceId(1));
    CHECK(grouped.domains[0].bandwidth == link.bandwidth / 4 * 3);
    CHECK(grouped.domains[0].name == "PCIe link 0 of localhost");
    // A sum in one group takes at least all that its members send; one of two cards, twice a
    // card's.
    for (const int64_t bytes : {int64_t{8192}, int64_t{16} << 20}) {
        CHECK(sum_ns(grouped, 3, bytes) > sum_ns(apart, 3, bytes));
        CHECK(static_cast<double>(sum_ns(grouped, 3, bytes)) >=
              4.0 * static_cast<double>(bytes) * 1e9 / static_cast<double>(link.bandwidth));
    }
    CHECK_FALSE(with_pcie_groups(grouped, 4));  // they are given
    // More than four are on two processors, whatever the group could hold.
    const auto rate_of = [](const char* devices, int group) {
        return with_pcie_groups(machine_of(devices), group)->domains[0].bandwidth;
    };
    CHECK(rate_of("sim:l40s[0-7]", 8) == link.bandwidth / 2);
    CHECK(rate_of("sim:l40s[0-3]", 8) == link.bandwidth / 4 * 3);
    CHECK_THAT(user_error([] {
                   build_machine(parse_devices("sim:h100[0-7]"), {}, nullptr, {.pcie_group = 4});
               }),
               Catch::Matchers::Contains("$pcie_group 4") &&
                   Catch::Matchers::Contains("no node has two of them"));
}

TEST_CASE("a plan over PCIe says what one link for a node's cards would make of its times",
          "[planner]") {
    const auto graph = models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16);
    const auto plan_for = [&](const char* devices, const Wiring& wiring = {}) {
        return make_plan(graph, build_machine(parse_devices(devices), {}, nullptr, wiring),
                         {.prompt_tokens = 512, .context = 1024},
                         {.tensor_parallel = 4, .pipeline_stages = 1});
    };
    const Plan apart = plan_for("sim:l40s[0-3]");
    const PassPair shared = apart.prediction.one_pcie_link;
    // It is what the plan would say, were that link given.
    const Plan given = plan_for("sim:l40s[0-3]", {.pcie_group = 4});
    CHECK(shared.prefill_ns >= given.prediction.prefill_ns);
    CHECK(shared.decode_ns >= given.prediction.decode_ns_per_token);
    CHECK(shared.prefill_ns > apart.prediction.prefill_ns);
    CHECK(given.prediction.one_pcie_link.decode_ns == 0);
    CHECK(plan_for("sim:h100[0-3]").prediction.one_pcie_link.decode_ns == 0);
    CHECK(parse_plan(serialize_plan(apart), "a plan").prediction.one_pcie_link.decode_ns ==
          shared.decode_ns);
    CHECK_THAT(plan_to_text(apart), Catch::Matchers::Contains("behind one link a node: prefill"));
    CHECK_THAT(plan_to_text(given), !Catch::Matchers::Contains("behind one link a node"));
}

TEST_CASE("a sum of GPUs waits for the last of them, for each doubling of their number",
          "[planner]") {
    for (const char* devices : {"sim:h100[0-15]", "sim:l40s[0-7]"}) {
        const Machine together = build_machine(parse_devices(devices), {});
        const Machine late =
            build_machine(parse_devices(devices), {}, nullptr, {.sum_skew_ns = 2000});
        for (const int members : {2, 4, 8})
            for (const int64_t bytes : {int64_t{8192}, int64_t{1} << 20})
                CHECK(sum_ns(late, members, bytes) - sum_ns(together, members, bytes) ==
                      std::llround(2000 * std::log2(members)));
        CHECK(parse_machine(machine_to_json(late), "a machine").sum_skew_ns == 2000);
    }
    const Machine over_nodes =
        build_machine(parse_devices("sim:h100[0-15]"), {}, nullptr, {.sum_skew_ns = 2000});
    CHECK(sum_ns(over_nodes, 16, 65536) -
              sum_ns(build_machine(parse_devices("sim:h100[0-15]"), {}), 16, 65536) ==
          8000);
    Machine hosts = machine_of("host[0-1]");
    const int64_t before = sum_ns(hosts, 2, 65536);
    hosts.sum_skew_ns = 2000;  // as a machine file may say it of all its devices
    CHECK(sum_ns(hosts, 2, 65536) == before);
    CHECK_THAT(user_error([] {
                   build_machine(parse_devices("host[0-1]"), {}, nullptr, {.sum_skew_ns = 2000});
               }),
               Catch::Matchers::Contains("$sum_skew 2: it is of sums of GPUs"));
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
