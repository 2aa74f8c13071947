// SPDX-License-Identifier: Apache-2.0
// Many users and replicas on the command line.
#include <fstream>
#include <future>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/serve_process.h"

using namespace cleave;
using namespace cleave::test;
using Json = nlohmann::json;
using Catch::Contains;

namespace {

Json json_output(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const CommandResult result = run_cleave(arguments);
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.output);
}

std::string refused_flags(const std::vector<std::string>& arguments) {
    const CommandResult result = run_cleave(arguments);
    CHECK(result.exit_code == 1);
    CHECK(result.output.empty());
    return result.error;
}

// Three devices of this host as a machine file has them: memory of their own, one of them slow.
std::string unlike_hosts(const TemporaryFolder& folder) {
    const std::string path = (folder.path() / "machine.json").string();
    REQUIRE(run_cleave({"devices", "--devices", "host[0-2]", "-o", path}).exit_code == 0);
    Json machine = Json::parse(read_file(path));
    for (Json& device : machine["devices"]) device["memory_domain"] = -1;
    for (const char* rate : {"memory_bandwidth", "flops_f32"})
        machine["devices"][2][rate] = machine["devices"][2][rate].get<int64_t>() / 3;
    std::ofstream(path) << machine.dump();
    return path;
}

}  // namespace

TEST_CASE("a batch on replicas has the tokens of one device, drawn ones too", "[tools]") {
    const std::string model = (source_root() / "models/bundled/model.onnx").string();
    for (const bool sampled : {false, true}) {
        std::vector<std::string> run{"run", model, "--max-new-tokens", "12", "--ignore-eos"};
        for (const char* prompt :
             {"Once upon a time", "The dog", "One day", "Tom and", "A red ball"})
            run.insert(run.end(), {"--prompt", prompt});
        if (sampled) run.insert(run.end(), {"--temperature", "0.9", "--seed", "7"});
        std::vector<std::string> replicas = run;
        run.insert(run.end(), {"--devices", "host"});
        replicas.insert(replicas.end(),
                        {"--devices", "host[0-2]", "--objective", "throughput", "--replicas", "3"});
        const Json alone = json_output(run), several = json_output(replicas);
        CHECK(several["replicas"] == 3);
        CHECK(several["devices"].size() == 3);
        REQUIRE(several["sequences"].size() == 5);
        for (size_t i = 0; i < 5; ++i)
            CHECK(several["sequences"][i]["token_ids"] == alone["sequences"][i]["token_ids"]);
    }
}

TEST_CASE("replicas of two makes have the tokens of one device, in a batch and served",
          "[tools][serve][makes]") {
    const TemporaryFolder folder;
    const std::string machine = unlike_hosts(folder), plan = (folder.path() / "a.plan").string();
    const std::string model = bundled_model().string();
    const Json made = json_output({"plan", model, "--machine", machine, "--objective", "throughput",
                                   "--concurrency", "40", "--context", "256", "-o", plan});
    REQUIRE(made["others"].size() == 1);
    CHECK(made["replicas"].size() == 3);
    CHECK(made["predicted"]["replicas"] == 3);
    CHECK(made["predicted"]["concurrency"] == 40);
    const Json schema = Json::parse(read_file(source_root() / "tools/schema/plan.schema.json"));
    CHECK(schema_errors(schema, made).empty());

    std::vector<std::string> run{"run", plan, "--max-new-tokens", "12"};
    std::vector<std::string> alone{"run", model, "--devices", "host", "--max-new-tokens", "12"};
    for (int i = 0; i < 17; ++i)
        for (auto* words : {&run, &alone})
            words->insert(words->end(), {"--prompt", "Number " + std::to_string(i) + " was"});
    const Json several = json_output(run), one = json_output(alone);
    CHECK(several["devices"] == Json({"host[0]", "host[1]", "host[2]"}));
    REQUIRE(several["sequences"].size() == 17);
    for (size_t i = 0; i < 17; ++i)
        CHECK(several["sequences"][i]["token_ids"] == one["sequences"][i]["token_ids"]);

    const ServeProcess server(
        "host[0-2]", {"--machine", machine, "--objective", "throughput", "--concurrency", "40"});
    std::vector<std::future<Json>> together;
    for (int i = 0; i < 17; ++i)
        together.push_back(std::async(std::launch::async, [&server, i] {
            return server.post("/v1/completions",
                               {{"prompt", "Number " + std::to_string(i) + " was"},
                                {"max_tokens", 12},
                                {"temperature", 0}});
        }));
    for (size_t i = 0; i < 17; ++i)
        CHECK(together[i].get()["choices"][0]["text"] == one["sequences"][i]["text"]);
    CHECK(server.get("/health")["replicas"] == 3);
    CHECK(server.get("/v1/plan")["others"].size() == 1);

    CHECK_THAT(refused_flags({"run", plan, "--prompt", "A", "--trace", folder.path() / "t.json"}),
               Contains("--trace"));
    const Json second = json_output({"inspect", plan, "--make", "2"});
    const Json& devices = made["others"][0]["devices"];
    REQUIRE(second["memory"].size() == devices.size());
    for (size_t d = 0; d < devices.size(); ++d)
        CHECK(second["memory"][d]["device"] == devices[d]["name"]);
    CHECK_FALSE(second["kernels"].empty());
    CHECK_THAT(refused_flags({"inspect", plan, "--make", "3"}),
               Contains("--make 3: the plan has 2 makes; --make takes 1 to 2"));
    CHECK_THAT(refused_flags({"limits", plan}), Contains("are not alike"));
    CHECK_THAT(refused_flags({"export", plan, "--format", "vllm", "-o", folder.path() / "vllm"}),
               Contains("are not alike"));
    const std::string exported = folder.path() / "llama";
    REQUIRE(run_cleave({"export", plan, "--format", "llama.cpp", "-o", exported}).exit_code == 0);
    CHECK_THAT(read_file(exported + "/serve.sh"), Contains("'--port' '8082'"));
}

TEST_CASE("servers of unequal replicas have GPUs of their own, or are refused", "[tools]") {
    const TemporaryFolder folder;
    const std::string plan = folder.path() / "v.plan", exported = folder.path() / "llama";
    const auto made_for = [&](const std::string& devices) {
        REQUIRE(run_cleave({"plan", "llama-3-8b", "--devices", devices, "--objective", "throughput",
                            "--concurrency", "200", "-o", plan})
                    .exit_code == 0);
    };
    made_for("sim:h100[0-3],sim:l40s[0-3]");
    CHECK_THAT(refused_flags({"export", plan, "--format", "llama.cpp", "-o", exported}),
               Contains("sim:h100[0] and sim:l40s[0] are both number 0"));
    made_for("sim:h100[0-3],sim:l40s[4-7]");
    REQUIRE(run_cleave({"export", plan, "--format", "llama.cpp", "-o", exported}).exit_code == 0);
    const std::string script = read_file(exported + "/serve.sh");
    CHECK_THAT(script, Contains("CUDA0,CUDA1,CUDA2,CUDA3") && Contains("CUDA4,CUDA5,CUDA6,CUDA7"));
}

TEST_CASE("the JSON of a plan for many users has what the objective is about", "[tools]") {
    const Json plan =
        json_output({"plan", "llama-3-8b", "--devices", "sim:h100[0-3]", "--objective",
                     "throughput", "--concurrency", "40", "--replicas", "2"});
    const Json schema = Json::parse(read_file(source_root() / "tools/schema/plan.schema.json"));
    CHECK(schema_errors(schema, plan).empty());
    const Json& p = plan["predicted"];
    CHECK(p["concurrency"] == 40);
    CHECK(p["replicas"] == 2);
    CHECK(plan["replicas"].size() == 2);
    CHECK(plan["replicas"][1] == Json({"sim:h100[2]", "sim:h100[3]"}));
    CHECK(p["kv_tokens"] == 40 * 4096);
    CHECK(p["tokens_per_second"].get<double>() ==
          Approx(40e3 / p["tpot_ms"].get<double>()).epsilon(1e-6));
}

TEST_CASE("flags of many users that contradict are refused with what to give", "[tools]") {
    const std::vector<std::string> plan{"plan", "llama-3-8b", "--devices", "sim:h100[0-1]"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), plan.begin(), plan.end());
        return refused_flags(more);
    };
    CHECK_THAT(with({"--concurrency", "4"}), Contains("--objective throughput"));
    CHECK_THAT(with({"--max-tpot", "4"}), Contains("--objective throughput"));
    CHECK_THAT(with({"--replicas", "2"}), Contains("--objective throughput"));
    CHECK_THAT(with({"--objective", "throughput", "--concurrency", "4", "--batch", "4"}),
               Contains("give one"));
    CHECK_THAT(with({"--objective", "throughput", "--concurrency", "64", "--max-tpot", "1"}),
               Contains("no plan keeps --max-tpot 1 for 64 users"));
}

TEST_CASE("a fleet on the command line is the fewest devices, with their cost", "[tools]") {
    const Json plan =
        json_output({"plan", "llama-3-8b", "--devices", "sim:l40s[0-7]", "--objective", "fleet",
                     "--concurrency", "40", "--price", "l40s=0.9"});
    const Json schema = Json::parse(read_file(source_root() / "tools/schema/plan.schema.json"));
    CHECK(schema_errors(schema, plan).empty());
    const Json& p = plan["predicted"];
    CHECK(p["concurrency"] == 40);
    const size_t devices = plan["devices"].size() * p["replicas"].get<size_t>();
    CHECK(devices < 8);
    CHECK(p["price_per_hour"] == Approx(0.9 * static_cast<double>(devices)));
    CHECK(p["cost_per_million_tokens"].get<double>() ==
          Approx(p["price_per_hour"].get<double>() / 3600 / p["tokens_per_second"].get<double>() *
                 1e6));
    CHECK_THAT(
        refused_flags({"plan", "llama-3-8b", "--devices", "sim:l40s[0-7]", "--objective", "fleet"}),
        Contains("with --concurrency"));
    CHECK_THAT(
        refused_flags({"plan", "llama-3-8b", "--devices", "sim:l40s[0-7]", "--price", "h100=1"}),
        Contains("--price h100=1: no device is a 'h100'; there are l40s"));
}

TEST_CASE("a Pareto list is a table, JSON of its schema, and CSV", "[tools]") {
    const std::vector<std::string> plan{"plan", "llama-3.2-1b", "--devices", "sim:h100[0-1]",
                                        "--pareto"};
    const Json list = json_output(plan);
    const Json schema = Json::parse(read_file(source_root() / "tools/schema/pareto.schema.json"));
    CHECK(schema_errors(schema, list).empty());
    REQUIRE(list["points"].size() > 2);
    std::vector<std::string> csv = plan;
    csv.insert(csv.end(), {"--csv", "-"});
    const CommandResult rows = run_cleave(csv);
    CHECK(rows.exit_code == 0);
    CHECK(std::count(rows.output.begin(), rows.output.end(), '\n') ==
          static_cast<std::ptrdiff_t>(list["points"].size()) + 1);
    for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
             {"--batch", "4"}, {"--concurrency", "4"}, {"--sweep", "batch=1,2"}, {"--steps"}}) {
        std::vector<std::string> both = plan;
        both.insert(both.end(), more.begin(), more.end());
        CHECK_THAT(refused_flags(both), Contains("leave"));
    }
    CHECK_THAT(refused_flags({"plan", "llama-3-70b", "--devices", "sim:t4[0]", "--pareto"}),
               Contains("no plan serves a user: lacks"));
}
