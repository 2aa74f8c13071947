// SPDX-License-Identifier: Apache-2.0
// Two hosts with a network of their own between them (tests/two_hosts): what goes over the wire,
// and what happens when the wire breaks. Real MPI over TCP; no speed is shown.
#include <array>
#include <map>

#include <nlohmann/json.hpp>

#include "tests/tools/support/two_hosts.h"

using namespace cleave;
using namespace cleave::test;
using Json = nlohmann::json;
using Catch::Contains;

namespace {

using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Words cleave_run(const std::string& model, const std::string& tokens) {
    return {CLEAVE_BINARY,      "run",  model,          "--prompt", "Once upon a time",
            "--max-new-tokens", tokens, "--ignore-eos", "--json"};
}

Json json_of(const CommandResult& result) {
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.output);
}

// DIR WHERE SCRIPT PROGRAM...: starts PROGRAM on both hosts, each rank's standard error in a file,
// for what is said where no word gets through; cuts the network once text comes, or kills mpirun's
// daemon on b, and says how all ended.
constexpr const char* kCut = R"script(
dir=$1 where=$2 script=$3
shift 3
timeout 600 "$script" mpirun "$dir" -np 2 --host a,b bash -c 'exec "$@" 2> "$0/err.$OMPI_COMM_WORLD_RANK"' "$dir" "$@" \
    > "$dir/out" 2> "$dir/err" < /dev/null &
mpirun=$!
until [[ $(stat -c %s "$dir/out" 2>/dev/null || echo 0) -gt 40 ]]; do kill -0 $mpirun || break; sleep 0.02; done
if [[ $where == daemon ]]; then
    for pid in $("$script" processes "$dir"); do [[ $(cat "/proc/$pid/comm") != orted ]] || kill -KILL "$pid"; done
else
    "$script" cut "$dir" "$where"
fi
wait $mpirun
echo "mpirun: $?"
for ((i = 0; i < 100; ++i)); do [[ -n $("$script" processes "$dir") ]] || break; sleep 0.1; done
for pid in $("$script" processes "$dir"); do echo "stays: $pid"; done
cat "$dir/err"
)script";

// What mpirun says; the words of both ranks are in the folder of `hosts`.
std::string ended_by(const TwoHosts& hosts, const std::string& where) {
    const CommandResult ended =
        run_program(Words{"bash", "-c", kCut, "cut", hosts.dir(), where, TwoHosts::script()} +
                    Words{CLEAVE_BINARY, "run", bundled_model().string(), "--devices",
                          "simt:sm_90a[0]@a,simt:sm_90a[0]@b", "--pp", "2", "--ignore-eos",
                          "--max-new-tokens", "400", "--prompt", "Once upon a time"});
    INFO(ended.output << ended.error);
    CHECK_THAT(ended.output, !Contains("mpirun: 0\n") && !Contains("mpirun: 124\n"));
    CHECK_THAT(ended.output, !Contains("stays:"));
    return ended.output + ended.error;
}

}  // namespace

TEST_CASE("two hosts have the tokens of one, and send what the plan says and little else",
          "[tools]") {
    if (const std::string why = TwoHosts::absent(); !why.empty()) CLEAVE_SKIP(why);
    const TwoHosts hosts;
    TwoHosts::call({"rate", hosts.dir(), "1gbit"});
    const std::string model = bundled_model().string(), plan = hosts.dir() + "/two.plan";
    const CommandResult planned = hosts.run({CLEAVE_BINARY, "plan", model, "--devices",
                                             "host[0]@a,host[0]@b", "--tp", "2", "-o", plan});
    INFO(planned.error);
    REQUIRE(planned.exit_code == 0);
    // Which interface each host has, by its own name.
    CHECK_THAT(planned.error, Contains("rank 0 (a) by net0 (10.77.0.1/24") &&
                                  Contains("rank 1 (b) by net0 (10.77.0.2/24"));
    const Json alone = json_of(
        run_program(cleave_run(model, "120") + Words{"--devices", "host[0-1]", "--tp", "2"}));
    // What a run needs beside its tokens is in both.
    std::array<int64_t, 2> wire{}, payload{}, messages{};
    const std::array<const char*, 2> tokens{"20", "120"};
    Json last;
    for (size_t i = 0; i < 2; ++i) {
        const int64_t before = hosts.bytes_sent();
        last = json_of(hosts.run(cleave_run(plan, tokens[i])));
        wire[i] = hosts.bytes_sent() - before;
        payload[i] = last["network"]["payload_bytes"];
        messages[i] = last["network"]["message_bytes"];
        CHECK(payload[i] == last["transferred_bytes"]);
    }
    CHECK(last["token_ids"] == alone["token_ids"]);
    const Json shown = json_of(run_cleave({"plan", plan, "--json"}));
    int64_t sends = 0, link_bytes = 0;
    for (const Json& step : shown["steps"])
        if (step["phase"] == "decode" && step["kind"] != "compute" && step["link_bytes"] > 0) {
            sends += 2;
            link_bytes += step["link_bytes"].get<int64_t>();
        }
    const int64_t all = wire[1] - wire[0], payloads = payload[1] - payload[0];
    INFO(all << " on the wire for " << payloads << " of payloads and " << messages[1] - messages[0]
             << " of messages in 100 tokens of " << sends << " sends");
    CHECK(payloads == 100 * link_bytes);
    CHECK(all >= payloads);
    // No weights travel: a whole run, its start among it, is a part of what they are.
    CHECK(wire[0] < static_cast<int64_t>(std::filesystem::file_size(bundled_model())) / 4);
    // Headers of MPI, TCP, IP and Ethernet, and what acknowledges: 250 bytes a send. Two messages a
    // pass, signs of life and what mpirun says: 2,000 bytes a token.
    CHECK(all <= payloads + 100 * (250 * sends + 2000));
}

TEST_CASE("where the network breaks, both ways or one way, both hosts say so and nothing stays",
          "[tools]") {
    if (const std::string why = TwoHosts::absent(); !why.empty()) CLEAVE_SKIP(why);
    for (const char* where : {"both", "a", "b"}) {
        INFO("cut: " << where);
        const TwoHosts hosts;
        const std::string said = ended_by(hosts, where);
        INFO(said);
        CHECK_THAT(read_file(hosts.dir() + "/err.0"),
                   Contains("cleave:") && Contains("rank 1 (b)"));
        CHECK_THAT(read_file(hosts.dir() + "/err.1"),
                   Contains("cleave:") && Contains("rank 0 (a)"));
    }
}

TEST_CASE("where mpirun's daemon on a host dies, ranks on all hosts say why they end", "[tools]") {
    if (const std::string why = TwoHosts::absent(); !why.empty()) CLEAVE_SKIP(why);
    const TwoHosts hosts;
    const std::string said = ended_by(hosts, "daemon");
    INFO(said);
    // As mpirun ends rank 0, or as rank 1 is gone, whichever it hears of first.
    CHECK_THAT(read_file(hosts.dir() + "/err.0"),
               Contains("cleave: mpirun") || Contains("cleave: rank 1 (b)") ||
                   Contains("cleave: the connection to rank 1 (b)"));
    CHECK_THAT(read_file(hosts.dir() + "/err.1"),
               Contains("cleave: mpirun, or its daemon on this host, has ended") ||
                   Contains("cleave: rank 0 (a)") ||
                   Contains("cleave: the connection to rank 0 (a)"));
}

TEST_CASE("a network with 100 ms of delay is slow, and no error", "[tools]") {
    if (const std::string why = TwoHosts::no_delay(); !why.empty()) CLEAVE_SKIP(why);
    const TwoHosts hosts(100'000);
    const std::string model = bundled_model().string();
    const Json alone =
        json_of(run_program(cleave_run(model, "6") + Words{"--devices", "host[0-1]", "--pp", "2"}));
    const Json slow = json_of(
        hosts.run(cleave_run(model, "6") + Words{"--devices", "host[0]@a,host[0]@b", "--pp", "2"}));
    CHECK(slow["token_ids"] == alone["token_ids"]);
    // A transfer there and a token back: no token takes less than both.
    CHECK(slow["decode_ms_per_token"] >= 200.0);
}

TEST_CASE("a trace has the steps of both hosts by one clock: nothing comes before it was sent",
          "[tools]") {
    if (const std::string why = TwoHosts::no_delay(); !why.empty()) CLEAVE_SKIP(why);
    constexpr int kDelayUs = 20'000;
    const TwoHosts hosts(kDelayUs);
    const std::string file = hosts.dir() + "/trace.json";
    json_of(hosts.run(cleave_run(bundled_model().string(), "3") +
                      Words{"--devices", "host[0]@a,host[0]@b", "--tp", "2", "--trace", file}));
    const Json trace = Json::parse(read_file(file));
    const double error = trace["otherData"]["clock_error_us"].at(1);
    REQUIRE(error >= kDelayUs);
    // Each message took that long at least, and so did both ways by which the clocks were compared:
    // the offset cannot be off by more than what is left of its error.
    const double least = kDelayUs - (error - kDelayUs);
    INFO("clocks within " << error << " us");
    std::map<std::pair<int, int>, std::array<Json, 2>> exchanges;  // pass, step; by device
    for (const Json& event : trace["traceEvents"])
        if (event["ph"] == "X" && event["cat"] == "collective")
            exchanges[{event["args"]["pass"].get<int>(), event["args"]["step"].get<int>()}]
                     [event["tid"].get<size_t>()] = event;
    size_t seen = 0;
    for (const auto& [step, sides] : exchanges)
        for (const size_t from : {0, 1}) {
            const Json &sent = sides[from], &came = sides[1 - from];
            // A gather has one receiver.
            if (sent.is_null() || came.is_null() || came["args"]["received_bytes"] == 0) continue;
            ++seen;
            CHECK(came["ts"].get<double>() + came["dur"].get<double>() >=
                  sent["ts"].get<double>() + least);
        }
    CHECK(seen > 20);
}

TEST_CASE("two jobs on the same two hosts do not meet", "[tools]") {
    if (const std::string why = TwoHosts::absent(); !why.empty()) CLEAVE_SKIP(why);
    const TwoHosts hosts;
    const std::string model = bundled_model().string();
    const std::string both_at_once =
        "dir=$0 script=$1; shift; for job in 1 2; do timeout 600 \"$script\" mpirun \"$dir\" "
        "-np 2 --host a,b \"${@:2}\" > \"$dir/out.$job\" & jobs[job]=$!; done; "
        "wait ${jobs[1]} && wait ${jobs[2]}";
    const CommandResult both = run_program(
        Words{"bash", "-c", both_at_once, hosts.dir(), TwoHosts::script(), "-"} +
        cleave_run(model, "12") + Words{"--devices", "host[0]@a,host[0]@b", "--tp", "2"});
    INFO(both.error);
    REQUIRE(both.exit_code == 0);
    const Json alone = json_of(
        run_program(cleave_run(model, "12") + Words{"--devices", "host[0-1]", "--tp", "2"}));
    for (const char* job : {"1", "2"})
        CHECK(Json::parse(read_file(hosts.dir() + "/out." + job))["token_ids"] ==
              alone["token_ids"]);
}

TEST_CASE("a host that is not there ends mpirun with its name", "[tools]") {
    if (const std::string why = TwoHosts::absent(); !why.empty()) CLEAVE_SKIP(why);
    const TwoHosts hosts;
    const CommandResult result = run_program(Words{"timeout", "600", TwoHosts::script(), "mpirun",
                                                   hosts.dir(), "-np", "2", "--host", "a,c"} +
                                             cleave_run(bundled_model().string(), "2") +
                                             Words{"--devices", "host[0]@a,host[0]@c"});
    CHECK(result.exit_code != 0);
    CHECK(result.exit_code != 124);
    CHECK(result.output.empty());
    CHECK_THAT(result.error, Contains("c.uts"));  // by what stands for ssh here
}
