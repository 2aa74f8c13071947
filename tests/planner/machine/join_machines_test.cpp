// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/join_machines.h"
#include "planner/machine/build_machine.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

using Names = std::vector<std::string>;

Names on_hosts(const std::string& list, const Names& hosts) {
    Names names;
    for (const DeviceSpec& spec : devices_on_hosts(parse_devices(list), hosts))
        names.push_back(spec.text + " of " + spec.machine);
    return names;
}

HostMachine host(const std::string& name, const std::string& list) {
    return {name, build_machine(parse_devices(list), {4, int64_t{8} << 30, 40'000'000'000,
                                                      400'000'000'000, "x86-64-v3"})};
}

}  // namespace

TEST_CASE("a device list names machines behind an @, for any kind and for logical devices",
          "[planner]") {
    const auto specs = parse_devices("sim:h100[0-1]@a,cuda[0]/0-1@gpu-2.rack,host@1");
    REQUIRE(specs.size() == 5);
    CHECK(specs[1].text == "sim:h100[1]@a");
    CHECK(specs[1].machine == "a");
    CHECK(specs[3].text == "cuda[0]/1@gpu-2.rack");
    CHECK(specs[4].text == "host[0]@1");
    const Machine machine = build_machine(parse_devices("sim:h100[0-1]@a,sim:h100[0]@b"), {});
    CHECK(machine.devices[0].host == "a");
    CHECK(machine.link(DeviceId(0), DeviceId(1))->kind == LinkKind::kNvlink);
    CHECK(machine.link(DeviceId(1), DeviceId(2))->kind == LinkKind::kNetwork);
    CHECK_THAT(test::user_error([] { build_machine(parse_devices("host[0]@b"), {}); }),
               Contains("only a process there can describe"));
}

TEST_CASE("devices of a run on hosts: names or ranks, and entries without either on every host",
          "[planner]") {
    CHECK(on_hosts("host[0]@b,host[0]@0", {"a", "b"}) == Names{"host[0]@b of b", "host[0]@0 of a"});
    CHECK(on_hosts("host[0-1]", {"a", "b"}) ==
          Names{"host[0]@a of a", "host[1]@a of a", "host[0]@b of b", "host[1]@b of b"});
    const auto refused = [](const std::string& list) {
        return test::user_error([&] { on_hosts(list, {"a", "b"}); });
    };
    CHECK_THAT(refused("host[0]@a,host[0]@c"), Contains("its hosts, by rank, are a, b"));
    CHECK_THAT(refused("host[0]@a,host[0]@0"), Contains("given twice"));
    CHECK_THAT(refused("host[0]@a"), Contains("no device of the host 'b'"));
}

TEST_CASE("machines of two hosts joined: their own links and domains, a network between them",
          "[planner]") {
    const std::vector<std::vector<NetworkRate>> rates{{{}, {125'000'000, 50'000}},
                                                      {{100'000'000, 60'000}, {}}};
    const Machine all = join_machines({host("a", "host[0-1]"), host("b", "host[2-4]")}, rates,
                                      {"host[2]", "host[0]", "host[3]", "host[1]", "host[4]"});
    REQUIRE(all.devices.size() == 5);
    CHECK(all.devices[0].name == "host[2]");
    CHECK(all.devices[0].host == "b");
    CHECK(all.devices[1].memory_domain == all.devices[3].memory_domain);
    CHECK(all.devices[1].memory_domain != all.devices[0].memory_domain);
    CHECK(all.links.size() == 20);
    const Link& near = *all.link(DeviceId(0), DeviceId(2));
    CHECK(near.kind == LinkKind::kSameMemory);
    CHECK(near.domain == all.devices[0].memory_domain);
    const Link& far = *all.link(DeviceId(0), DeviceId(1));
    CHECK(far.kind == LinkKind::kNetwork);
    CHECK(far.bandwidth == 100'000'000);
    CHECK(far.latency_ns == 60'000);
    CHECK(all.domains.at(static_cast<size_t>(far.domain)).name == "network of b");
    CHECK(far.domain == all.link(DeviceId(4), DeviceId(3))->domain);
    CHECK(far.domain != all.link(DeviceId(1), DeviceId(0))->domain);
}
