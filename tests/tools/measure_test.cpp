// SPDX-License-Identifier: Apache-2.0
// cleave devices --measure: a machine file of this host that later commands plan with.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

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
