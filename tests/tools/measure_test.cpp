// SPDX-License-Identifier: Apache-2.0
// cleave devices --measure: a machine file of this host that later commands plan with.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tools/cli/machine_load.h"

using namespace cleave;
using namespace cleave::test;
using Json = nlohmann::json;

TEST_CASE("what devices --measure saves has every rate, and plans are made with it", "[tools]") {
    TemporaryFolder folder;
    std::string file = (folder.path() / "host.json").string();
    CommandResult r = run_cleave({"devices", "--measure", "-o", file, "--json"});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    CHECK_THAT(r.error, Catch::Matchers::Contains(file));
    Json machine = Json::parse(std::ifstream(file));
    REQUIRE(machine["devices"].size() == 2);
    CHECK(Json::parse(r.output)["devices"] == machine["devices"]);
    for (const Json& device : machine["devices"]) {
        CHECK_FALSE(device["identity"].get<std::string>().empty());
        const Json& m = device["measured"];
        REQUIRE(m.size() == 11);
        for (const auto& [name, rate] : m.items()) {
            INFO(name);
            CHECK(rate.get<int64_t>() >= 1);
        }
        // Between a machine from 2005 and one of a hundred fast cores.
        for (const char* rate : {"bandwidth", "bandwidth_alone", "cache_bandwidth"})
            CHECK((m[rate] > 100'000'000 && m[rate] < 20'000'000'000'000));
        for (const char* rate : {"flops_f32", "flops_narrow"})
            CHECK((m[rate] > 500'000'000 && m[rate] < 200'000'000'000'000));
        CHECK(device["memory_bandwidth"] == m["bandwidth"]);
    }
    const Json& measurement = machine["measurement"];
    CHECK(measurement["spread"] >= 0);
    CHECK((measurement["other_load"] >= 0 && measurement["other_load"] <= 1));
    const std::string warning = measurement["warning"];
    CHECK(warning.empty() == (measurement["spread"] <= 0.25 && measurement["other_load"] <= 0.1 &&
                              measurement["stolen"] <= 0.05));
    CHECK((r.error.find("warning: " + warning) != std::string::npos) == !warning.empty());
    for (const Json& link : machine["links"]) {
        CHECK(link["exchange_latency_ns"] > 0);
        CHECK(link["bandwidth"] > 1'000'000);
    }
    CommandResult plan =
        run_cleave({"plan", "llama-110m", "--machine", file, "--tp", "2", "--pp", "1", "--json"});
    INFO(plan.error);
    REQUIRE(plan.exit_code == 0);
    Json json = Json::parse(plan.output);
    // 220 MB of bf16 weights at the measured rate are the least a token takes.
    double least = 2.2e8 / machine["devices"][0]["measured"]["cache_bandwidth"].get<double>() * 1e3;
    CHECK(json["predicted"]["decode_ms_per_token"] > std::min(1.0, least));

    // Kept for later commands, a doubtful measurement is remembered by each that uses it.
    machine["measurement"]["warning"] = "a neighbour was loud";
    std::filesystem::create_directories(folder.path() / "cleave");
    std::ofstream(folder.path() / "cleave" / "host.json") << machine;
    // run_cleave has a configuration of its own, so that no test meets what another kept.
    std::string errors = (folder.path() / "errors").string();
    std::string line = "XDG_CONFIG_HOME=" + folder.path().string() +
                       " " CLEAVE_BINARY " plan llama-110m --devices host >/dev/null 2>" + errors;
    CHECK(std::system(line.c_str()) == 0);
    std::ifstream kept(errors);
    CHECK_THAT(std::string(std::istreambuf_iterator<char>(kept), {}),
               Catch::Matchers::Contains("a neighbour was loud"));
}

TEST_CASE("what others do on the cores is what the system counts beyond this process", "[tools]") {
    using namespace cleave::tools;
    auto before = parse_cpu_ticks("cpu  100 10 40 800 20 5 5 20 0 0\ncpu0 1 1 1 1\n");
    auto after = parse_cpu_ticks("cpu  180 10 50 900 20 5 5 30 0 0\n");
    REQUIRE(before);
    REQUIRE(after);
    // 200 ticks of all cores: 90 busy (50 of them this process), 10 stolen.
    MachineLoad load = load_between(*before, *after, 50);
    CHECK(load.others == 0.2);
    CHECK(load.stolen == 0.05);
    CHECK(load_between(*before, *after, 95).others == 0);  // two clocks never agree to the tick
    CHECK(load_between(*before, *before, 0).others == 0);
    CHECK_FALSE(parse_cpu_ticks("intr 1 2 3 4 5 6 7 8\n"));
    CHECK_FALSE(parse_cpu_ticks("cpu  1 2 3\n"));
}

TEST_CASE("devices --measure measures host devices alone, and says what it needs", "[tools]") {
    TemporaryFolder folder;
    std::string file = (folder.path() / "host.json").string();
    for (auto [arguments, piece] :
         std::initializer_list<std::pair<std::vector<std::string>, const char*>>{
             {{"--devices", "sim:h100[0]", "-o", file}, "only host devices are measured"},
             {{"--devices", "host[0]"}, "two host devices"},
             {{"--machine", file}, "drop one"},
             {{"-o", (folder.path() / "absent" / "x.json").string()}, "cannot write"}}) {
        std::vector<std::string> all{"devices", "--measure"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        CommandResult r = run_cleave(all);
        INFO(r.error);
        CHECK(r.exit_code == 1);
        CHECK_THAT(r.error, Catch::Matchers::Contains(piece));
    }
}
