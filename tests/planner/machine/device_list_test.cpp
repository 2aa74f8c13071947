// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test.h"

#include <fstream>

#include "planner/machine/build_machine.h"
#include "planner/machine/gpu_arch.h"
#include "planner/machine/machine.h"
#include "planner/machine/machine_file.h"
#include "tests/planner/support/json_schema.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

std::vector<std::string> names(const std::string& list) {
    std::vector<std::string> out;
    for (const DeviceSpec& s : parse_devices(list)) out.push_back(s.text);
    return out;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a device list expands to its devices in the user's order", "[planner]") {
    REQUIRE(names("host") == Names{"host[0]"});
    REQUIRE(names("host[0-3]") == Names{"host[0]", "host[1]", "host[2]", "host[3]"});
    REQUIRE(names("cuda[4,5,6,7]") == Names{"cuda[4]", "cuda[5]", "cuda[6]", "cuda[7]"});
    REQUIRE(names("cuda[0],hip[0],host[0]") == Names{"cuda[0]", "hip[0]", "host[0]"});
    REQUIRE(names("sim:h100[5,2,7]") == Names{"sim:h100[5]", "sim:h100[2]", "sim:h100[7]"});
    REQUIRE(names("cuda[0,2-3]") == Names{"cuda[0]", "cuda[2]", "cuda[3]"});
    REQUIRE(names("simt:gfx90a[0-1]") == Names{"simt:gfx90a[0]", "simt:gfx90a[1]"});
}

TEST_CASE("UUIDs, PCI addresses and logical devices are parsed", "[planner]") {
    DeviceSpec uuid = parse_devices("cuda[GPU-1c2d3e4f]").at(0);
    REQUIRE(uuid.identity == "GPU-1c2d3e4f");
    REQUIRE(uuid.index == -1);
    REQUIRE(parse_devices("cuda[0000:3b:00.0]").at(0).identity == "0000:3b:00.0");
    std::vector<DeviceSpec> logical = parse_devices("cuda[0]/0-3");
    REQUIRE(logical.size() == 4);
    REQUIRE(logical[2].logical == 2);
    REQUIRE(logical[2].index == 0);
    REQUIRE(logical[2].text == "cuda[0]/2");
}

TEST_CASE("a bad device list is a UserError that names the entry and the fix", "[planner]") {
    for (auto [list, says] : std::initializer_list<std::pair<const char*, const char*>>{
             {"gpu[0]", "unknown kind of device 'gpu'"},
             {"", "empty entry"},
             {"host,,host[1]", "empty entry"},
             {"host[0", "closing bracket"},
             {"host]0[", "brackets do not match"},
             {"host[[0]]", "brackets do not match"},
             {"host[]", "empty index list"},
             {"host[0,]", "empty index"},
             {"host[a]", "no device index"},
             {"host[-1]", "no device index"},
             {"host[3-1]", "runs backwards"},
             {"host[0-5000]", "more than 1024"},
             {"sim:h100[0-1023],sim:h100[2000]",
              "$devices: with sim:h100[2000] there are more than"},
             {"host[0],host[0]", "given twice"},
             {"host[0]@", "is no host; behind the @"},
             {"host[0]@a b!", "'ab!' in 'host[0]@ab!' is no host"},
             {"host[0]@a@b]", "brackets do not match"},
             {"host[0]@a,host[0]@a", "given twice"},
             {"sim", "needs a model"},
             {"sim:h1000[0]", "no model 'h1000'"},
             {"simt[0]", "needs the architecture"},
             {"simt:sm_12[0]",
              "does not know the architecture 'sm_12' ('simt:sm_12[0]'); supported: sm_70, "
              "sm_75, "},
             {"host:avx2", "take no architecture"},
             {"host[0]/0-3", "logical devices exist on cuda and hip"},
             {"host[GPU-12]", "only cuda and hip devices have a UUID"},
             {"cuda[0]x", "not understood after the bracket"},
             {"cuda[0]/", "not understood after the bracket"}}) {
        INFO(list);
        REQUIRE_THAT(test::user_error([&] { parse_devices(list); }), Contains(says));
    }
}

TEST_CASE("simt imitates every architecture that has kernels, within that one's limits",
          "[planner]") {
    for (const GpuArch& arch : gpu_archs()) {
        CAPTURE(arch.name);
        const std::string list = fmt::format("simt:{}[0-1]", arch.name);
        const Machine machine = build_machine(parse_devices(list), HostFacts{});
        REQUIRE(machine.devices.size() == 2);
        const DeviceInfo& device = machine.devices[1];
        CHECK(device.arch == arch.name);
        CHECK(device.limits.shared_memory_per_block == arch.shared_bytes);
        CHECK(device.limits.registers_per_block == arch.registers);
        CHECK(device.limits.max_threads_per_block == arch.max_threads);
        CHECK(device.limits.warp_width == arch.warp_width);
        CHECK_THAT(test::user_error([] { parse_devices("simt[0]"); }),
                   Contains(std::string(arch.name)));
    }
}

TEST_CASE("host devices share the host's memory, cores and bandwidth", "[planner]") {
    HostFacts facts{4, int64_t{16} << 30, 40'000'000'000, 400'000'000'000, "x86-64-v3"};
    Machine two = build_machine(parse_devices("host[0-1]"), facts);
    REQUIRE(two.devices[0].memory_bytes == facts.memory_bytes / 2);
    REQUIRE(two.devices[0].memory_domain == two.devices[1].memory_domain);
    REQUIRE(two.domains.at(two.devices[0].memory_domain).bandwidth == facts.memory_bandwidth);
    REQUIRE(two.devices[0].limits.num_compute_units == 4);
    Machine eight = build_machine(parse_devices("host[0-7]"), facts);
    REQUIRE(eight.devices[7].memory_bandwidth == facts.memory_bandwidth);
    REQUIRE(eight.link(DeviceId(0), DeviceId(7))->kind == LinkKind::kSameMemory);
}

TEST_CASE("catalogue devices beyond a node of eight are joined by a network", "[planner]") {
    Machine machine = build_machine(parse_devices("sim:h100[0-15]"), {});
    REQUIRE(machine.link(DeviceId(0), DeviceId(7))->kind == LinkKind::kNvlink);
    REQUIRE(machine.link(DeviceId(0), DeviceId(8))->kind == LinkKind::kNetwork);
    for (const char* model :
         {"h100", "h200", "a100-40", "a100-80", "a40", "l40s", "rtx4090", "b200", "gb200", "mi210",
          "mi250x", "mi300x", "mi325x", "mi350x", "host"}) {
        Machine one = build_machine(parse_devices(std::string("sim:") + model), {});
        REQUIRE(one.devices.at(0).memory_bytes > 0);
        REQUIRE(one.devices.at(0).flops(DType::kBF16) > 0);
    }
}

TEST_CASE("nodes of catalogue devices are joined by a fabric that is named or their servers'",
          "[planner]") {
    const auto machine = [](const std::string& list, std::string_view fabric = {}) {
        return build_machine(parse_devices(list), {}, nullptr, {std::string(fabric)});
    };
    CHECK(machine("sim:h100[0-7]").fabric.empty());
    CHECK(machine("sim:h100[0-15]").fabric == "ib400");
    CHECK(machine("sim:h100[0-15],sim:a100-80[0-7]@b").fabric == "ib200");  // the slower one
    CHECK(machine("sim:h100[0-7]@a,sim:h100[0-7]@b", "efa").fabric == "efa");
    const Machine eth = machine("sim:rtx4090[0-7]/4", "eth10");
    CHECK(eth.devices[3].host != eth.devices[4].host);
    const Link& link = *eth.link(DeviceId(0), DeviceId(4));
    CHECK(link.bandwidth == 1'100'000'000);
    CHECK(link.domain == eth.link(DeviceId(3), DeviceId(7))->domain);  // one adapter a node
    CHECK(link.domain != eth.link(DeviceId(4), DeviceId(0))->domain);
    CHECK_THAT(test::user_error([&] { machine("sim:rtx4090[0-8]"); }),
               Contains("no network in common") && Contains("$fabric ib400"));
    CHECK_THAT(test::user_error([&] { machine("sim:h100[0-7]", "efa"); }),
               Contains("not in several"));
    CHECK_THAT(test::user_error([&] { machine("sim:h100[0-15]", "token-ring"); }),
               Contains("$fabric token-ring: no such network; known are ib400"));
    CHECK_THAT(test::user_error([&] { machine("sim:h100[0-7]/0"); }),
               Contains("one device at least"));
    CHECK_THAT(
        test::user_error([&] { machine("sim:h100[0-15]/8@a"); }),
        Contains("'sim:h100[0-15]/8@a': servers of so many devices have hosts of their own"));
}

TEST_CASE("the two dies of an MI250X have a faster link, and share their card's network adapter",
          "[planner]") {
    Machine machine = build_machine(parse_devices("sim:mi250x[0-9]"), {});
    auto link = [&](int from, int to) { return *machine.link(DeviceId(from), DeviceId(to)); };
    CHECK(link(0, 1).bandwidth == 4 * link(0, 2).bandwidth);
    CHECK(link(0, 1).domain == -1);
    REQUIRE(link(0, 8).kind == LinkKind::kNetwork);
    REQUIRE(link(0, 8).domain >= 0);
    CHECK(link(0, 8).domain == link(1, 9).domain);
    CHECK(link(2, 8).domain != link(0, 8).domain);
    CHECK(machine.domains.at(link(0, 8).domain).bandwidth == link(0, 8).bandwidth);
}

TEST_CASE("measured rates replace the estimates of host devices and of the links between them",
          "[planner]") {
    HostFacts facts{4, int64_t{16} << 30, 40'000'000'000, 400'000'000'000, "x86-64-v3"};
    MeasuredRates rates;
    int64_t next = 1000;
    for (int64_t* rate :
         {&rates.bandwidth, &rates.bandwidth_alone, &rates.widening, &rates.cache_bytes,
          &rates.cache_bandwidth, &rates.flops_f32, &rates.flops_narrow, &rates.attention_bandwidth,
          &rates.attention_flops, &rates.launch_ns, &rates.launch_alone_ns})
        *rate = ++next;
    facts.calibration = {rates, 11, 12, 13, 14};
    Machine machine = build_machine(parse_devices("host[0-1],simt:sm_80[0]"), facts);
    CHECK(machine.devices[1].memory_bandwidth == rates.bandwidth);
    CHECK(machine.devices[1].flops(DType::kF32) == rates.flops_f32);
    CHECK(machine.devices[1].flops(DType::kBF16) == rates.flops_narrow);
    CHECK(machine.domains.at(0).bandwidth == facts.memory_bandwidth);
    CHECK(machine.link(DeviceId(0), DeviceId(1))->latency_ns == 12);
    CHECK(machine.link(DeviceId(0), DeviceId(1))->exchange_latency_ns == 14);
    CHECK(machine.devices[2].measured.bandwidth == 0);

    test::TemporaryFolder folder;
    std::string path = (folder.path() / "host.json").string();
    std::ofstream(path) << machine_to_json(machine);
    HostCalibration read = calibration_of(load_machine(path), path);
    CHECK(read.rates.launch_alone_ns == rates.launch_alone_ns);
    CHECK(read.rates.bandwidth_alone == rates.bandwidth_alone);
    CHECK(read.transfer_bandwidth == 11);
    CHECK(read.exchange_bandwidth == 13);
    facts.calibration = {};
    Machine estimated = build_machine(parse_devices("host[0-1]"), facts);
    CHECK_THAT(test::user_error([&] { calibration_of(estimated, path); }),
               Contains("$measure_machine"));
}

TEST_CASE("a machine file written from a machine reads back the same", "[planner]") {
    test::TemporaryFolder folder;
    HostFacts facts{2, 1 << 30, 1 << 30, 1 << 30, "x86-64"};
    facts.calibration = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12, 13, 14, 15};
    Machine machine = build_machine(parse_devices("sim:h100[0-1],sim:mi300x[0],host[0-1]"), facts);
    std::string path = (folder.path() / "machine.json").string();
    auto write = [&](const std::string& text) {
        FILE* file = fopen(path.c_str(), "w");
        fputs(text.c_str(), file);
        fclose(file);
    };
    std::string text = machine_to_json(machine);
    write(text);
    REQUIRE(machine_to_json(load_machine(path)) == text);
    auto schema = nlohmann::json::parse(
        std::ifstream(test::source_root() / "tools/schema/machine.schema.json"));
    REQUIRE(test::schema_errors(schema, nlohmann::json::parse(text)).empty());
    std::string many;
    for (int i = 0; i < kMostDevices; ++i) many += ",{}";
    const std::string device_a = R"({"devices": [{"name": "a", "kind": "sim", "memory_bytes": 1,
        "memory_bandwidth": 1, "flops_f32": 1})";
    const std::string two_devices = device_a + R"(, {"name": "b", "kind": "sim", "memory_bytes": 1,
        "memory_bandwidth": 1, "flops_f32": 1}], "links": [)";
    const std::string link = R"({"from": "a", "to": "b", "kind": "pcie", "bandwidth": 1})";
    for (
        const auto& [content, says] : std::initializer_list<std::pair<std::string, const char*>>{
            {"{", "line 1, column 2: no JSON"},
            {R"({"devices": [{})" + many + "]}", "has 1025 devices; 1024 at most"},
            {"[]", "no JSON object"},
            {"{}", "has no devices"},
            {R"({"devices": [{"name": "a"}]})", "lacks the field 'kind'"},
            {R"({"devices": [{"name": "a", "kind": "tpu"}]})", "is 'tpu'; known are"},
            {R"({"devices": [{"name": "a", "kind": "sim", "memory_bytes": -1}]})",
             "devices[0].memory_bytes is -1"},
            {R"({"devices": [{"name": "a", "kind": "sim", "memory_bytes": 1, "memory_bandwidth": 1, "flops_f32": 1, "speed": 3}]})",
             "unknown field 'speed'"},
            {R"({"devices": [{"name": "a", "kind": "sim", "memory_bytes": 1, "memory_bandwidth": 1, "flops_f32": 1}],
                  "links": [{"from": "a", "to": "b", "kind": "pcie", "bandwidth": 1}]})",
             "names the device 'b'"},
            {R"({"name": 3, "devices": []})", "the machine.name is no text"},
            {R"({"name": "a\nb", "devices": []})", "the machine.name has a control character"},
            {R"({"devices": {}})", "'devices' is no array"},
            {device_a +
                 R"(], "links": [{"from": "a", "to": "a", "kind": "pcie", "bandwidth": 1}]})",
             "links a with itself"},
            {device_a + "," + device_a.substr(device_a.find("{\"name")) + "]}",
             "two devices are called 'a'"},
            {two_devices + link + "," + link + "]}", "two links lead from a to b"},
            {two_devices + link.substr(0, link.size() - 1) + R"(, "domain": 0}]})",
             "links[0].domain is 0 and there are 0 domains"},
            {two_devices + link.substr(0, link.size() - 1) + R"(, "peer_access": 1}]})",
             "links[0].peer_access is not true or false"}}) {
        write(content);
        INFO(content);
        REQUIRE_THAT(test::user_error([&] { load_machine(path); }), Contains(says));
    }
    REQUIRE_THAT(test::user_error([&] { load_machine(path + ".absent"); }),
                 Contains("cannot be read"));
}
