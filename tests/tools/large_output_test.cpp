// SPDX-License-Identifier: Apache-2.0
// What commands print of very many devices, of unequal ones and of long names is as short to read
// as of a few; and every figure across nodes says so.
#include <cstdlib>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr size_t kColumns = 120, kLines = 100;

// The words of a text in which lines go on.
std::string unwrapped(const std::string& text) {
    std::string whole;
    std::istringstream pieces(text);
    for (std::string piece; pieces >> piece;) whole += (whole.empty() ? "" : " ") + piece;
    return whole;
}

void check_short(const Words& arguments) {
    ::setenv("COLUMNS", "120", 1);
    const CommandResult result = run_cleave(arguments);
    ::unsetenv("COLUMNS");
    INFO(fmt::format("{}\n{}", fmt::join(arguments, " "), result.error));
    REQUIRE(result.exit_code == 0);
    std::istringstream text(result.output);
    size_t lines = 0;
    for (std::string line; std::getline(text, line); ++lines) {
        INFO(line);
        CHECK(line.size() <= kColumns);
    }
    CHECK(lines <= kLines);
}

const std::string kLongHost = "a-node-with-a-very-long-name-of-its-own.cluster.example.org";
const std::string kKinds = "sim:h100[0-20],sim:a100-80[0-12],sim:l40s[0-9],sim:h200[0-6]";

}  // namespace

TEST_CASE("a plan for 1,024 devices takes at most 500 MB, whatever it is for", "[tools]") {
    // Of the children of a process that has this one alone.
    const std::string peak =
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n";
    for (const Words& objective : {Words{"--objective", "throughput"},
                                   Words{"--objective", "throughput", "--concurrency", "512"}}) {
        const Words plan{CLEAVE_BINARY, "plan", "llama-3.1-405b", "--devices", "sim:h100[0-1023]"};
        const CommandResult result =
            run_program(joined(joined({"python3", "-c", peak}, plan), objective));
        INFO(result.error);
        REQUIRE(result.exit_code == 0);
        CHECK(std::stoll(result.output) * 1024 <= 500'000'000);
    }
}

TEST_CASE("no command prints more than 100 lines of 120 columns of a plan of many devices",
          "[tools]") {
    const std::string hosts = fmt::format("sim:h100[0-3]@a{0},sim:h100[0-3]@b{0}", kLongHost);
    using Case = std::tuple<const char*, Words, Words>;
    for (const auto& [model, devices, shape] :
         {Case{"llama-3-8b", {"--devices", "sim:h100[0-63]"}, {"--tp", "2", "--pp", "32"}},
          Case{"llama-3-8b", {"--devices", "sim:h100[0-63]"}, {"--pp", "30"}},
          Case{"llama-3-8b", {"--devices", kKinds, "--fabric", "ib400"}, {"--pp", "9"}},
          Case{"llama-3-8b", {"--devices", hosts}, {"--pp", "5"}}}) {
        const Words on = joined(joined({model}, devices), shape);
        for (const char* command : {"plan", "inspect", "limits"})
            check_short(joined({command}, on));
        for (const char* what : {"token", "links", "layers.5"})
            check_short(joined(joined({"why"}, on), {what}));
        check_short(joined(joined({"why-not"}, on), {"pp=4"}));
        check_short(joined({"devices"}, devices));
    }
    const Words many{"llama-3-8b", "--devices", "sim:h100[0-63]"};
    check_short(joined({"what-if"}, joined(many, {"--pp", "8", "--tp", "8", "--batch", "4"})));
    check_short({"plan", "llama-3-8b", "--devices", "sim:h100[0-3]", "--pareto"});
    check_short(joined({"plan"}, joined(many, {"--tp", "8", "--sweep", "batch=1,8"})));
    const TemporaryFolder folder;
    const std::string a = (folder.path() / ("a" + std::string(150, 'a') + ".plan")).string(),
                      b = (folder.path() / "b.plan").string();
    REQUIRE(run_cleave(joined({"plan"}, joined(many, {"--pp", "30", "-o", a}))).exit_code == 0);
    REQUIRE(
        run_cleave(joined({"plan"}, joined(many, {"--tp", "8", "--pp", "8", "-o", b}))).exit_code ==
        0);
    check_short({"diff", a, b});
}

TEST_CASE("every figure across nodes says its fabric and that it was not run", "[tools]") {
    const std::string words =
        "ib400 (InfiniBand, 400 Gb/s an adapter) joins 2 nodes: times over it are modelled, not "
        "run";
    const Words on{"llama-3-8b", "--devices", "sim:h100[0-15]", "--tp", "8", "--pp", "2"};
    const TemporaryFolder folder;
    const std::string plan = (folder.path() / "a.plan").string();
    REQUIRE(run_cleave(joined({"plan"}, joined(on, {"-o", plan}))).exit_code == 0);
    const Words sweep = joined({"plan"}, joined(on, {"--sweep", "batch=1,2"}));
    const Words pareto{"plan",       "llama-3.1-405b",
                       "--devices",  "sim:h100[0-15]",
                       "--context",  "1024",
                       "--replicas", "1",
                       "--tp",       "8",
                       "--pp",       "2",
                       "--pareto"};
    for (const Words& question :
         {Words{"limits", plan}, Words{"why", plan, "token"}, Words{"why", plan, "layers.5"},
          Words{"why", plan, "links"}, Words{"why-not", plan, "tp=16"},
          Words{"what-if", plan, "--batch", "2"}, Words{"diff", plan, plan}, sweep, pareto}) {
        INFO(fmt::format("{}", fmt::join(question, " ")));
        const CommandResult text = run_cleave(question);
        REQUIRE(text.exit_code == 0);
        CHECK_THAT(unwrapped(text.output), Catch::Contains("rests on " + words));
        const Json json = Json::parse(run_cleave(joined(question, {"--json"})).output);
        CHECK(json["rests_on"][0] == words);
        CHECK(json["rests_on"].size() >= 3);
        const CommandResult csv = run_cleave(joined(question, {"--csv", "-"}));
        REQUIRE(csv.exit_code == 0);
        CHECK_THAT(csv.output, Catch::Contains("network") && Catch::Contains(words));
    }
    for (const char* table : {"devices", "steps", "links"})
        CHECK_THAT(run_cleave({"plan", plan, "--csv", "-", "--table", table}).output,
                   Catch::Contains(words));
    for (const char* part : {"plan", "layers", "memory", "time", "prefill", "kernels", "all"})
        CHECK_THAT(unwrapped(run_cleave({"inspect", plan, "--show", part}).output),
                   Catch::Contains(words));
    const Words serve =
        joined({"plan"}, joined(on, {"--serve", "rate=1,prompt=64,output=8,requests=4"}));
    CHECK_THAT(unwrapped(run_cleave(serve).output), Catch::Contains("rests on " + words));
    CHECK(Json::parse(run_cleave(joined(serve, {"--json"})).output)["network"] == words);
    // Inside one node nothing is said.
    const CommandResult one = run_cleave({"limits", "llama-3-8b", "--devices", "sim:h100[0-1]"});
    CHECK_THAT(one.output, Catch::Contains("rests on") && !Catch::Contains("not run"));
}

}  // namespace cleave::test
