// SPDX-License-Identifier: Apache-2.0
// Predicted meets measured: what `run` prints beside its times, its traces, and what `inspect`
// makes of them. No test looks at how long anything took.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "planner/cost/published_classes.h"
#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

Json schema(const char* name) {
    Json schema = Json::parse(std::ifstream(source_root() / "tools" / "schema" / name));
    schema.erase("oneOf");  // one prompt or several; the keys of either are in "properties"
    return schema;
}

CommandResult succeeded(const std::vector<std::string>& arguments) {
    CommandResult r = run_cleave(arguments);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return r;
}

std::string refused(const std::vector<std::string>& arguments) {
    const CommandResult r = run_cleave(arguments);
    INFO(r.output << r.error);
    CHECK(r.exit_code == 1);
    CHECK(r.output.empty());
    return r.error;
}

// A saved plan of the bundled model over two stages of two shards, and the trace of a run of it.
struct Traced {
    TemporaryFolder folder;
    std::string plan = (folder.path() / "p.plan").string();
    std::string trace = (folder.path() / "t.json").string();
    Json run;

    Traced() {
        succeeded({"plan", bundled_model().string(), "--devices", "host[0-3]", "--tp", "2", "--pp",
                   "2", "--prompt-tokens", "8", "--context", "64", "-o", plan});
        run = Json::parse(succeeded({"run", plan, "--prompt", "Once upon a time", "--ignore-eos",
                                     "--max-new-tokens", "5", "--trace", trace, "--json"})
                              .output);
    }
    Json events() const { return Json::parse(read_file(trace)); }
};

// Of one plan of the bundled model on two hosts, with what `more` changes.
std::vector<std::string> run_of(const std::vector<std::string>& more) {
    std::vector<std::string> all{"run",         bundled_model().string(), "--input-ids",
                                 "1,17,230",    "--max-new-tokens",       "3",
                                 "--ignore-eos"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace

TEST_CASE("a run has its prediction beside its times, and what that rests on", "[tools]") {
    const CommandResult text = succeeded(run_of({"--devices", "host[0-1]", "--tp", "2"}));
    CHECK_THAT(text.error, Contains("tokens on 2 devices") && Contains("measured") &&
                               Contains("predicted") && Contains("tokens/s") &&
                               Contains("(host[0-1])"));
    const Json json =
        Json::parse(succeeded(run_of({"--devices", "host[0-1]", "--tp", "2", "--json"})).output);
    CHECK(schema_errors(schema("run.schema.json"), json) == std::vector<std::string>());
    for (const char* key : {"prefill_ms", "decode_ms_per_token", "tokens_per_second"})
        CHECK(json["predicted"][key] > 0);
    const Json basis = json["predicted"]["basis"];
    REQUIRE(basis.size() == 2);
    CHECK(
        schema_errors(schema("plan.schema.json")["properties"]["predicted"]["properties"]["basis"],
                      basis) == std::vector<std::string>());
    // A host that was never measured, or one that was.
    if (basis[0]["class"] == "host_assumed") {
        CHECK(basis[0]["fix"] == "`cleave devices --measure`");
        CHECK_THAT(text.error, Contains("`cleave devices --measure`"));
    } else {
        CHECK(basis[0]["class"] == "host_measured");
    }
    // One new token has no decode.
    const Json one = Json::parse(succeeded({"run", bundled_model().string(), "--input-ids", "1",
                                            "--max-new-tokens", "1", "--json"})
                                     .output);
    CHECK(one["predicted"]["decode_ms_per_token"] == 0);
}

TEST_CASE("a plan says in text and JSON what its predictions rest on", "[tools]") {
    const CommandResult text = succeeded({"plan", "llama-3-8b", "--devices", "sim:h100[0-1]"});
    CHECK_THAT(text.output, Contains("rests on") && Contains("data sheet") &&
                                Contains("times the published speed"));
    const Json plan = Json::parse(
        succeeded({"plan", "llama-3-8b", "--devices", "sim:h100[0-1]", "--tp", "2", "--json"})
            .output);
    const Json basis = plan["predicted"]["basis"];
    REQUIRE(basis.size() == 3);
    CHECK(basis[2]["of"] == "plan");
    const auto* published = cleave::planner::find_published_class("tensor parallel b1");
    CHECK(basis[2]["speed_ratio"] == Json{published->low, published->high});
    CHECK_THAT(succeeded({"plan", "stories-260k", "--devices", "sim:host[0]"}).output,
               Contains("the rates of a plain desktop"));
}

TEST_CASE("a run says which of the named devices its plan does not use", "[tools]") {
    const Json json = Json::parse(
        succeeded(run_of({"--devices", "host[0-2]", "--objective", "memory", "--json"})).output);
    CHECK(json["unused_devices"] == Json{"host[1]", "host[2]"});
    CHECK_THAT(succeeded(run_of({"--devices", "host[0-2]", "--objective", "memory"})).error,
               Contains("tokens on 1 of 3 devices (host[1-2] unused: the objective is "
                        "fewest devices)"));
}

TEST_CASE("a check refuses to compare the reference with itself", "[tools]") {
    CHECK_THAT(refused(run_of({"--check"})),
               Contains("--check: nothing to compare: the plan is the reference"));
    CHECK_THAT(refused(run_of({"--check=f32"})), Contains("nothing to compare"));
    // Three hosts are named and one is used.
    CHECK_THAT(refused(run_of({"--devices", "host[0-2]", "--objective", "memory", "--check"})),
               Contains("nothing to compare"));
    CHECK_THAT(refused(run_of({"--dtype", "int8", "--check"})), Contains("--check=f32"));
    CHECK_THAT(refused(run_of({"--check=f16"})), Contains("--check"));
}

TEST_CASE("a check against f32 says what narrow weights cost", "[tools]") {
    const CommandResult text = succeeded(run_of({"--dtype", "int4", "--check=f32"}));
    CHECK_THAT(
        text.output,
        Contains("check against the model in f32: with int4 weights and a KV cache in f32") &&
            Contains("nats a token") && Contains(" of 5 positions"));
    const Json json =
        Json::parse(succeeded(run_of({"--dtype", "int4", "--check=f32", "--json"})).output);
    CHECK(schema_errors(schema("run.schema.json"), json) == std::vector<std::string>());
    CHECK(json["check"]["against"] == "f32");
    CHECK(json["check"]["positions"] == 5);
    CHECK(json["check"]["divergence_nats"] > 0);
    CHECK(json["check_max_difference"] > 1e-3);
    // Of f32 weights on two devices nothing is lost, and the positions are as many.
    const Json same = Json::parse(
        succeeded(run_of({"--devices", "host[0-1]", "--pp", "2", "--check=f32", "--json"})).output);
    CHECK(same["check"]["same_choices"] == 5);
    CHECK(same["check"]["divergence_nats"] < 1e-6);
    CHECK(same["check_max_difference"] < 1e-3);
}

TEST_CASE("a prompt that is too long says how many new tokens there is room for", "[tools]") {
    CHECK_THAT(refused({"run", bundled_model().string(), "--input-ids", "1,2", "--context", "64",
                        "--max-new-tokens", "100"}),
               Contains("2 tokens and 100 new ones exceed the context of 64: give "
                        "--max-new-tokens 62 at most, or raise --context"));
}

TEST_CASE("more threads than cores are told, and run", "[tools]") {
    CHECK_THAT(succeeded(run_of({"--threads", "1000"})).error,
               Contains("note: --threads 1000 on "));
    CHECK_THAT(succeeded(run_of({"--threads", "1"})).error, !Contains("--threads"));
}

TEST_CASE("a trace has each step with its prediction, bytes and value, and flows between devices",
          "[tools]") {
    const Traced traced;
    const Json file = traced.events();
    const Json plan = Json::parse(succeeded({"plan", traced.plan, "--json"}).output);
    std::map<std::pair<std::string, int>, Json> steps;
    for (const Json& step : plan["steps"]) steps[{step["phase"], step["id"]}] = step;
    std::map<int, std::string> phases;
    for (const Json& pass : file["otherData"]["passes"]) phases[pass["pass"]] = pass["phase"];
    REQUIRE(phases.size() == 5);
    CHECK(phases[0] == "prefill");
    // Slices by device, and the two ends of each flow.
    std::map<int, std::vector<Json>> slices;
    std::map<int, std::map<std::string, Json>> flows;
    for (const Json& event : file["traceEvents"]) {
        if (event["ph"] == "s" || event["ph"] == "f")
            CHECK(flows[event["id"]].emplace(event["ph"], event).second);
        if (event["ph"] != "X") continue;
        const Json& args = event["args"];
        const Json& step = steps.at({phases.at(args["pass"]), args["step"]});
        CHECK(event["cat"] == step["kind"]);
        CHECK(args["value"] == step["value"]);
        CHECK(args["predicted_us"] > 0);
        CHECK(args["bytes"] > 0);
        slices[event["tid"]].push_back(event);
    }
    CHECK(slices.size() == 4);
    CHECK(flows.size() > 5);
    const auto around = [&](const Json& end) {
        for (const Json& slice : slices[end["tid"]]) {
            const double ts = slice["ts"], dur = slice["dur"], at = end["ts"];
            if (slice["cat"] == end["name"] && ts <= at && at <= ts + dur) return slice;
        }
        return Json();
    };
    int transfers = 0;
    for (auto& [id, ends] : flows) {
        REQUIRE(ends.size() == 2);
        CHECK(ends["s"]["tid"] != ends["f"]["tid"]);
        const Json from = around(ends["s"]), to = around(ends["f"]);
        REQUIRE(from.is_object());
        REQUIRE(to.is_object());
        if (ends["s"]["name"] != "transfer") continue;
        ++transfers;
        const Json& step = steps.at({phases.at(from["args"]["pass"]), from["args"]["step"]});
        const auto name = [](const Json& end) {
            return "host[" + std::to_string(end["tid"].get<int>()) + "]";
        };
        CHECK(step["source"] == name(ends["s"]));
        CHECK(step["destination"] == name(ends["f"]));
    }
    CHECK(transfers > 0);
}

TEST_CASE(
    "inspect puts a run's trace beside the prediction, step by step, and says why they "
    "differ",
    "[tools]") {
    const Traced traced;
    const Json json =
        Json::parse(succeeded({"inspect", traced.plan, "--trace", traced.trace, "--json"}).output);
    CHECK(schema_errors(schema("inspect.schema.json"), json) == std::vector<std::string>());
    const Json& measured = json["measured"];
    CHECK(measured["trace"] == traced.trace);
    CHECK(measured["decode"]["num_passes"] == 4);
    CHECK(measured["decode"]["compared_passes"] == 4);
    CHECK(measured["prefill"]["num_passes"] == 1);
    for (const char* phase : {"prefill", "decode"}) {
        std::map<std::string, std::set<int>> of_plan, seen;
        for (const Json& step : json["plan"]["steps"])
            if (step["phase"] == phase)
                for (const Json& device : step["devices"])
                    of_plan[device].insert(step["id"].get<int>());
        const Json& pass = measured[phase];
        CHECK(pass["predicted_us"] > 0);
        for (const Json& device : pass["devices"]) {
            for (const Json& step : device["steps"]) {
                seen[device["device"]].insert(step["id"].get<int>());
                CHECK(step["start_us"] <= step["end_us"]);
                CHECK(step["predicted_start_us"] <= step["predicted_end_us"]);
                CHECK(step["predicted_end_us"] <= pass["predicted_us"]);
            }
            double sum = 0;
            for (const auto& [key, us] : device["predicted"].items()) sum += us.get<double>();
            CHECK(sum == Approx(pass["predicted_us"].get<double>()).margin(0.01));
        }
        CHECK(seen == of_plan);
        REQUIRE(!pass["differences"].empty());
        double last = INFINITY;
        for (const Json& difference : pass["differences"]) {
            const double us = difference["difference_us"];
            CHECK(std::abs(us) <= last);
            last = std::abs(us);
        }
    }
    const std::string text = succeeded({"inspect", traced.plan, "--trace", traced.trace}).output;
    CHECK_THAT(text, Contains("Measured: a decode pass of 1 token") &&
                         Contains("where they differ most") && Contains("because of"));
    CHECK_FALSE(
        Json::parse(succeeded({"inspect", traced.plan, "--json"}).output).contains("measured"));
}

TEST_CASE("a trace of replicas has each of them, and inspect takes their passes together",
          "[tools]") {
    const TemporaryFolder folder;
    const std::string plan = (folder.path() / "p.plan").string();
    const std::string trace = (folder.path() / "t.json").string();
    succeeded({"plan", bundled_model().string(), "--devices", "host[0-3]", "--objective",
               "throughput", "--replicas", "2", "--concurrency", "4", "--prompt-tokens", "8",
               "--context", "64", "-o", plan});
    std::vector<std::string> run{"run",     plan, "--max-new-tokens", "5", "--ignore-eos",
                                 "--trace", trace};
    for (const char* prompt : {"Once upon", "The", "A dog", "One day"})
        run.insert(run.end(), {"--prompt", prompt});
    succeeded(run);
    const Json file = Json::parse(read_file(trace));
    REQUIRE(file["otherData"]["replicas"].size() == 2);
    std::map<int, std::map<std::string, std::set<int>>> passes;  // by replica and phase
    for (const Json& pass : file["otherData"]["passes"])
        passes[pass["replica"]][pass["phase"]].insert(pass["pass"].get<int>());
    REQUIRE(passes.size() == 2);
    std::set<std::pair<int, int>> seen;
    for (const Json& event : file["traceEvents"])
        if (event["ph"] == "X") seen.emplace(event["pid"], event["args"]["pass"]);
    for (const auto& [replica, phases] : passes)
        for (const auto& [phase, numbers] : phases)
            for (int number : numbers) CHECK(seen.contains({replica, number}));
    const Json measured =
        Json::parse(succeeded({"inspect", plan, "--trace", trace, "--json"}).output)["measured"];
    for (const char* phase : {"prefill", "decode"})
        CHECK(measured[phase]["num_passes"] == passes[0][phase].size() + passes[1][phase].size());
    CHECK_THAT(
        refused({"inspect", bundled_model().string(), "--devices", "host[0-1]", "--trace", trace}),
        Contains("it is a run on other devices"));
}

TEST_CASE("a trace that slowed one device says that device, and who waited for it", "[tools]") {
    const Traced traced;
    // What host[1] computes takes ten times as long, and all that follows comes later.
    Json file = traced.events();
    std::map<int, double> late;  // by pass
    std::vector<Json*> events;
    for (Json& event : file["traceEvents"])
        if (event["ph"] == "X") events.push_back(&event);
    std::stable_sort(events.begin(), events.end(), [](const Json* a, const Json* b) {
        return (*a)["ts"].get<double>() < (*b)["ts"].get<double>();
    });
    for (Json* event : events) {
        double& shift = late[(*event)["args"]["pass"]];
        const bool slow = (*event)["tid"] == 1 && (*event)["cat"] == "compute";
        const double more = slow ? 1e6 : 0;
        // Another's exchange that this one joins late ends late, too.
        (*event)["ts"] = (*event)["ts"].get<double>() + ((*event)["tid"] == 1 ? shift : 0);
        (*event)["dur"] = (*event)["dur"].get<double>() + more;
        if ((*event)["cat"] != "compute" && (*event)["tid"] != 1)
            (*event)["dur"] = (*event)["dur"].get<double>() + shift;
        shift += more;
    }
    std::ofstream(traced.trace) << file;
    const Json json =
        Json::parse(succeeded({"inspect", traced.plan, "--trace", traced.trace, "--json"}).output);
    const Json& differences = json["measured"]["decode"]["differences"];
    bool computes = false, waits = false;
    for (const Json& d : differences) {
        if (d["device"] == "host[1]" && d["cause"] != "waiting" && d["difference_us"] > 9e5)
            computes = true;
        if (d["device"] == "host[0]" && d["cause"] == "waiting" && d["difference_us"] > 9e5)
            waits |= d["says"].get<std::string>().find("for host[1], last in") == 0;
    }
    CHECK(computes);
    CHECK(waits);
}

TEST_CASE("a trace of another model, of other devices or steps, or none at all is refused",
          "[tools]") {
    const Traced traced;
    const std::string model = bundled_model().string();
    const auto inspected = [&](std::vector<std::string> what) {
        what.insert(what.begin(), "inspect");
        what.insert(what.end(), {"--trace", traced.trace});
        return refused(what);
    };
    CHECK_THAT(inspected({"stories-260k"}),
               Contains("it is a run of another model") && Contains("stories-260k"));
    CHECK_THAT(inspected({model, "--devices", "host[0-1]", "--tp", "2"}),
               Contains("it is a run on other devices") && Contains("host[3]"));
    CHECK_THAT(inspected({model, "--devices", "host[0-3]", "--tp", "4"}),
               Contains("it is a run of another plan, with other steps or types"));
    CHECK_THAT(
        inspected({model, "--devices", "host[0-3]", "--tp", "2", "--pp", "2", "--dtype", "bf16"}),
        Contains("it is a run of another plan, with other steps or types"));
    Json file = traced.events();
    const auto damaged = [&](const Json& now) {
        std::ofstream(traced.trace) << now;
        const std::string error = inspected({traced.plan});
        CHECK_THAT(error, Contains("no trace of a run: ") && Contains("cleave run --trace"));
        return error;
    };
    damaged(Json::array());
    damaged({{"traceEvents", Json::array()}});
    Json none = file;
    none["traceEvents"] = Json::array();
    CHECK_THAT(damaged(none), Contains("it has no step"));
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, Json>>{{"/args/step", 1000000},
                                                   {"/args/pass", 77},
                                                   {"/tid", 9},
                                                   {"/tid", "x"},
                                                   {"/ts", "soon"},
                                                   {"/args/step", -1},
                                                   {"/dur", 1e300}}) {
        Json other = file;
        for (Json& event : other["traceEvents"])
            if (event["ph"] == "X") {
                event[Json::json_pointer(key)] = value;
                break;
            }
        INFO(key << " " << value);
        damaged(other);
    }
    std::ofstream(traced.trace) << "no JSON";
    CHECK_THAT(inspected({traced.plan}), Contains("no JSON"));
}

TEST_CASE("a score's progress and trace leave its result as it is", "[tools]") {
    const TemporaryFolder folder;
    const std::string text = (folder.path() / "text").string();
    const std::string trace = (folder.path() / "t.json").string();
    std::ofstream(text) << "Once upon a time there was a little girl.";
    const std::vector<std::string> score{"run", bundled_model().string(), "--score", text,
                                         "--json"};
    std::vector<std::string> with_trace = score;
    with_trace.insert(with_trace.end(), {"--trace", trace});
    CHECK(succeeded(with_trace).output == succeeded(score).output);
    CHECK_THAT(read_file(trace), Contains("traceEvents"));
}
