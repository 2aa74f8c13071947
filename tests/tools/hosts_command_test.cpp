// SPDX-License-Identifier: Apache-2.0
// One plan over several processes of mpirun, as a user starts them: real MPI, over TCP on the
// loopback device, which shows what is computed and said, and nothing of speed.
#include <map>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/support/ranks.h"

using namespace cleave;
using namespace cleave::test;
using Json = nlohmann::json;
using Catch::Contains;

namespace {

struct Run {
    Json json;
    std::string logits;
};

Run run_model(int ranks, const std::string& devices, const std::string& tp, const std::string& pp,
              std::vector<std::string> more = {}) {
    const TemporaryFolder folder;
    const std::string logits = (folder.path() / "logits").string();
    std::vector<std::string> arguments{"run",
                                       bundled_model().string(),
                                       "--devices",
                                       devices,
                                       "--tp",
                                       tp,
                                       "--pp",
                                       pp,
                                       "--dump-logits",
                                       logits,
                                       "--json",
                                       "--max-new-tokens",
                                       "8",
                                       "--ignore-eos",
                                       "--prompt",
                                       "Once upon a time",
                                       "--prompt",
                                       "The dog ran to the big red house and"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = ranks == 0 ? run_cleave(arguments) : run_ranks(ranks, arguments);
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    return {Json::parse(result.output), read_file(logits)};
}

}  // namespace

TEST_CASE("on 1, 2, 3 and 4 ranks a plan has the bits of one host, tensors and layers split",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    struct Case {
        int ranks;
        const char *devices, *tp, *pp, *alone;
    };
    for (const Case& c :
         {Case{1, "host[0-1]", "2", "1", "host[0-1]"}, Case{2, "host[0]", "2", "1", "host[0-1]"},
          Case{2, "host[0]@1,host[0]@0", "1", "2", "host[0-1]"},
          Case{2, "host[0-1]@0,host[0]@1", "3", "1", "host[0-2]"},
          Case{3, "host[0]", "1", "3", "host[0-2]"},
          Case{3, "host[0]@0,host[0]@1,host[1]@0,host[0]@2", "2", "2", "host[0-3]"},
          Case{4, "host", "2", "2", "host[0-3]"}, Case{4, "host", "4", "1", "host[0-3]"}}) {
        INFO(c.ranks << " ranks on " << c.devices << ", tp " << c.tp << ", pp " << c.pp);
        const Run alone = run_model(0, c.alone, c.tp, c.pp);
        const Run several = run_model(c.ranks, c.devices, c.tp, c.pp);
        CHECK(several.json["sequences"] == alone.json["sequences"]);
        CHECK(several.logits == alone.logits);
        CHECK(several.logits.size() > 0);
        CHECK(several.json["transferred_bytes"] == alone.json["transferred_bytes"]);
        CHECK(several.json["peak_memory_bytes"].size() == alone.json["devices"].size());
        // With a device on each rank all that moves between devices is sent, and nothing else is.
        if (several.json["devices"].size() == static_cast<size_t>(c.ranks))
            CHECK(several.json["network"]["payload_bytes"] == alone.json["transferred_bytes"]);
    }
}

TEST_CASE("MPI is linked by the library that ranks open, and by nothing else", "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const auto libraries = [](const std::filesystem::path& file) {
        const CommandResult result = run_program({"ldd", file.string()});
        INFO(result.error);
        REQUIRE(result.exit_code == 0);
        return result.output;
    };
    const std::filesystem::path binary = CLEAVE_BINARY;
    CHECK_THAT(libraries(binary), !Contains("libmpi"));
    CHECK_THAT(libraries(binary.parent_path().parent_path() / "lib/libcleave_mpi.so"),
               Contains("libmpi"));
}

TEST_CASE("a process that is no rank of a run refuses devices of other hosts", "[tools]") {
    const CommandResult result = run_cleave(
        {"run", bundled_model().string(), "--devices", "host[0]@0,host[0]@1", "--prompt", "Once"});
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.error,
               Contains("host[0]@0") && Contains("only a process there can describe"));
}

TEST_CASE("ranks say alike what the device list has wrong, and no process stays", "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    for (const auto& [devices, said] :
         {std::pair{"host[0]@0,host[0]@2", "its hosts, by rank, are 0, 1"},
          std::pair{"host[0]@0", "no device of the host '1'"}}) {
        const CommandResult result =
            run_ranks(2, {"run", bundled_model().string(), "--devices", devices, "--prompt", "a"});
        CHECK(result.exit_code == 1);
        CHECK(result.output.empty());
        CHECK_THAT(result.error, Contains(said));
    }
}

TEST_CASE(
    "on two ranks a text's score, a check, requests of a trace and a saved plan work as on one",
    "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const TemporaryFolder folder;
    const std::string model = bundled_model().string(), text = (folder.path() / "text").string(),
                      plan = (folder.path() / "two.plan").string(),
                      trace = (folder.path() / "trace.json").string();
    REQUIRE(run_program({"bash", "-c", "echo 'Once upon a time there was a dog.' > \"$0\"", text})
                .exit_code == 0);
    const auto json = [](const CommandResult& result) {
        INFO(result.error);
        REQUIRE(result.exit_code == 0);
        return Json::parse(result.output);
    };
    std::vector<std::string> score{"run",  model, "--score",   text,       "--json",
                                   "--pp", "2",   "--devices", "host[0-1]"};
    const Json alone = json(run_cleave(score));
    score.back() = "host";
    CHECK(json(run_ranks(2, score)) == alone);

    CHECK(run_ranks(2, {"plan", model, "--devices", "host", "--tp", "2", "-o", plan}).exit_code ==
          0);
    CHECK(json(run_ranks(
              2, {"run", plan, "--prompt", "Once", "--max-new-tokens", "4", "--json"}))["token_ids"]
              .size() == 4);
    const Json run =
        json(run_ranks(2, {"run", model, "--devices", "host", "--tp", "2", "--prompt", "Once",
                           "--max-new-tokens", "4", "--check", "--trace", trace, "--json"}));
    CHECK(run["check_max_difference"] < 1e-3);
    CHECK(run["devices"] == Json{"host[0]@0", "host[0]@1"});
    const std::string events = read_file(trace);
    CHECK_THAT(events, Contains("host[0]@0") && Contains("host[0]@1"));
    // Each rank's steps, and flows from one to the other.
    std::map<std::pair<std::string, int>, int> seen;
    const Json kept = Json::parse(events);
    for (const Json& event : kept["traceEvents"])
        ++seen[{event["ph"].get<std::string>(), event["tid"].get<int>()}];
    CHECK(seen[{"X", 0}] == seen[{"X", 1}]);
    CHECK(seen[{"X", 1}] > 0);
    CHECK(seen[{"f", 0}] + seen[{"f", 1}] > 0);
    CHECK_THAT(run_cleave({"run", plan, "--prompt", "Once"}).error,
               Contains("host[0]@0") && Contains("start one process on each of the plan's hosts"));

    const Json served =
        json(run_ranks(2, {"run", model, "--devices", "host", "--pp", "2", "--batch", "4",
                           "--serve-trace", "rate=200,prompt=20,output=5,requests=12", "--json"}));
    CHECK(served["measured"]["output_tokens"] == 60);
}

TEST_CASE("devices --measure on two ranks measures each host and the network, and saves both",
          "[tools][slow]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "two.json").string();
    std::vector<std::string> command{"env", "XDG_CONFIG_HOME=" + folder.path().string()};
    for (const std::string& word : mpirun(2)) command.push_back(word);
    for (const std::string& word : {std::string(CLEAVE_BINARY), std::string("devices"),
                                    std::string("--measure"), std::string("-o"), file})
        command.push_back(word);
    const CommandResult result = run_program(command);
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    const Json machine = Json::parse(read_file(file));
    REQUIRE(machine["devices"].size() == 2);
    for (size_t d = 0; d < 2; ++d) {
        CHECK(machine["devices"][d]["host"] == std::to_string(d));
        CHECK(machine["devices"][d]["measured"]["bandwidth"] > 0);
    }
    REQUIRE(machine["links"].size() == 2);
    for (const Json& link : machine["links"]) CHECK(link["kind"] == "network");
    CHECK(machine["network_measured"] == true);
    CHECK(machine["measurement"]["spread"] > 0);
    const CommandResult plan = run_cleave({"plan", "llama-110m", "--machine", file, "--json"});
    INFO(plan.error);
    CHECK(plan.exit_code == 0);
}

TEST_CASE("inspect on two ranks draws the hosts, and a server there answers with both's figures",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const TemporaryFolder folder;
    const std::string model = bundled_model().string(), dir = folder.path().string();
    const CommandResult inspected =
        run_ranks(2, {"inspect", model, "--devices", "host", "--pp", "2", "--html",
                      dir + "/plan.html", "--svg", dir + "/plan.svg"});
    INFO(inspected.error);
    REQUIRE(inspected.exit_code == 0);
    CHECK_THAT(read_file(dir + "/plan.html"), Contains("host[0]@0") && Contains("host[0]@1"));
    const std::string picture = read_file(dir + "/plan.svg");
    for (const char* host : {"0", "1"})
        CHECK_THAT(picture, Contains(std::string("host[0]@") + host) &&
                                Contains(std::string("network of ") + host + ": sends "));
    // A request, then what the metrics say once each rank has told of itself, then Ctrl-C.
    constexpr const char* kServe = R"script(
dir=$1
shift
"$@" 2> "$dir/err" < /dev/null &
mpirun=$!
until grep -q 'listening on' "$dir/err"; do kill -0 $mpirun || { cat "$dir/err"; exit 1; }; sleep 0.05; done
at=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$dir/err")
curl -sf "$at/v1/completions" -d '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}' > "$dir/answer"
for ((i = 0; i < 200; ++i)); do
    curl -sf "$at/metrics" > "$dir/metrics"
    ! grep 'device_busy_seconds_total.*host\[0\]@1' "$dir/metrics" || break
    sleep 0.1
done
kill -INT $mpirun
wait $mpirun || true
)script";
    std::vector<std::string> command{"bash", "-c", kServe, "serve", dir};
    for (const std::string& word : mpirun(2)) command.push_back(word);
    for (const std::string& word :
         {std::string(CLEAVE_BINARY), std::string("serve"), model, std::string("--devices"),
          std::string("host"), std::string("--pp"), std::string("2"), std::string("--port"),
          std::string("0"), std::string("--context"), std::string("128")})
        command.push_back(word);
    const CommandResult served = run_program(command);
    INFO(served.output << served.error << read_file(dir + "/err"));
    REQUIRE(served.exit_code == 0);
    const Json answer = Json::parse(read_file(dir + "/answer"));
    CHECK(answer["usage"]["completion_tokens"] == 8);
    const CommandResult alone = run_cleave(
        {"run", model, "--prompt", "Once upon a time", "--max-new-tokens", "8", "--json"});
    CHECK(answer["choices"][0]["text"] == Json::parse(alone.output)["text"]);
    const std::string metrics = read_file(dir + "/metrics");
    for (const char* device : {"host[0]@0", "host[0]@1"})
        CHECK_THAT(metrics, Contains(std::string("device_busy_seconds_total{device=\"") + device) ||
                                Contains(std::string("device=\"") + device));
}
