// SPDX-License-Identifier: Apache-2.0
// Tables as CSV: those of the JSON, a row an element, that Python's reader takes apart.
#include <filesystem>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kPlan = {
    "llama-3-8b", "--devices", "sim:h100[0-1],sim:a40[0]", "--pp", "2", "--batch", "2"};

std::vector<std::string> with_plan(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, kPlan.begin(), kPlan.end());
    return arguments;
}

std::string output_of(const std::vector<std::string>& arguments) {
    const CommandResult r = run_cleave(with_plan(arguments));
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return r.output;
}

// As a reader that is not ours has it: a list of objects.
Json read_csv(const std::string& text) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "table.csv";
    std::ofstream(path, std::ios::binary) << text;
    const CommandResult r =
        run_program({"python3", "-c",
                     "import csv, json, sys\n"
                     "print(json.dumps(list(csv.DictReader(open(sys.argv[1], newline='')))))",
                     path.string()});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return Json::parse(r.output);
}

double number(const Json& field) { return std::stod(field.get<std::string>()); }

}  // namespace

TEST_CASE("the tables of a plan are those of its JSON", "[tools]") {
    const Json plan = Json::parse(output_of({"plan", "--json"}));
    const Json devices = read_csv(output_of({"plan", "--csv", "-"}));
    REQUIRE(devices.size() == plan["devices"].size());
    for (size_t i = 0; i < devices.size(); ++i) {
        CHECK(devices[i]["device"] == plan["devices"][i]["name"]);
        for (const char* key : {"memory_bytes", "weights_bytes", "kv_bytes", "activation_bytes",
                                "staging_bytes", "scratch_bytes", "reserved_bytes", "free_bytes"})
            CHECK(devices[i][key] == std::to_string(plan["devices"][i][key].get<int64_t>()));
    }
    const Json steps = read_csv(output_of({"plan", "--csv", "-", "--table", "steps"}));
    REQUIRE(steps.size() == plan["steps"].size());
    for (size_t i = 0; i < steps.size(); ++i) {
        for (const char* key : {"phase", "kind", "implementation", "value"})
            CHECK(steps[i][key] == plan["steps"][i][key]);
        for (const char* key : {"id", "bytes", "link_bytes", "predicted_us"})
            CHECK(number(steps[i][key]) == plan["steps"][i][key].get<double>());
        CHECK(steps[i]["source"] == plan["steps"][i].value("source", ""));
    }
    const Json links = read_csv(output_of({"plan", "--csv", "-", "--table", "links"}));
    REQUIRE(links.size() == plan["links"].size());
    for (size_t i = 0; i < links.size(); ++i) {
        CHECK(links[i]["from"] == plan["links"][i]["from"]);
        CHECK(number(links[i]["bytes_per_token"]) ==
              Approx(plan["links"][i]["bytes_per_token"].get<double>()));
    }
}

TEST_CASE("a folder gets every table of inspect, and no text is printed", "[tools]") {
    const TemporaryFolder folder;
    const std::string tables = (folder.path() / "new" / "tables/").string();
    CHECK(output_of({"inspect", "--csv", tables}).empty());
    std::map<std::string, size_t> rows;
    for (const auto& entry : fs::directory_iterator(tables))
        rows[entry.path().filename().string()] = read_csv(read_file(entry.path())).size();
    const Json json = Json::parse(output_of({"inspect", "--json"}));
    CHECK(rows.size() == 6);
    size_t shares = 0, items = 0;
    for (const Json& run : json["layers"]) shares += run["devices"].size();
    for (const Json& device : json["memory"]) items += device["items"].size();
    CHECK(rows["layers.csv"] == shares);
    CHECK(rows["memory.csv"] == items);
    CHECK(rows["kernels.csv"] == json["kernels"].size());
    CHECK(rows["steps.csv"] == json["plan"]["steps"].size());
    // One of them, into a file.
    const std::string file = (folder.path() / "k.csv").string();
    output_of({"inspect", "--csv", file, "--table", "kernels"});
    CHECK(read_file(file) == read_file(tables + "kernels.csv"));
}

TEST_CASE("all replicas are rows of the devices' table", "[tools]") {
    const CommandResult r =
        run_cleave({"plan", "llama-3-8b", "--devices", "sim:h100[0-3]", "--objective", "throughput",
                    "--replicas", "2", "--csv", "-"});
    REQUIRE(r.exit_code == 0);
    const Json devices = read_csv(r.output);
    REQUIRE(devices.size() == 4);
    CHECK(devices[0]["replica"] == "0");
    CHECK(devices[3]["replica"] == "1");
    CHECK(devices[3]["device"] == "sim:h100[3]");
}

TEST_CASE("CSV flags that do nothing, and tables that are not there, are refused", "[tools]") {
    const auto refused = [](const std::vector<std::string>& arguments) {
        const CommandResult r = run_cleave(with_plan(arguments));
        CHECK(r.exit_code == 1);
        CHECK(r.output.empty());
        return r.error;
    };
    CHECK_THAT(refused({"plan", "--table", "steps"}), Contains("it chooses what --csv writes"));
    CHECK_THAT(refused({"plan", "--csv", "-", "--json"}),
               Contains("both want standard output; give --csv a file"));
    CHECK_THAT(refused({"plan", "--csv", "-", "--table", "kernels"}), Contains("--table"));
    CHECK_THAT(refused({"inspect", "--csv", "-", "--table", "measured"}),
               Contains("it has no such table; it has layers") &&
                   Contains("--trace FILE gives what a run measured"));
    CHECK_THAT(refused({"plan", "--csv", "-", "--serve", "rate=1,prompt=1,output=1"}),
               Contains("--csv: what --serve predicts has no table"));
    CHECK_THAT(refused({"plan", "--csv", "/dev/null/x.csv"}), Contains("--csv"));
    const CommandResult graph = run_cleave({"plan", "--cost-graph", "x.json", "--csv", "-"});
    CHECK(graph.exit_code == 1);
    CHECK_THAT(graph.error, Contains("--csv: a cost graph has no tables"));
}

TEST_CASE("the tables of questions are the lists of their JSON", "[tools]") {
    const auto asked = [](std::vector<std::string> question, const std::string& table) {
        std::vector<std::string> as_json = question;
        as_json.emplace_back("--json");
        question.insert(question.end(), {"--csv", "-", "--table", table});
        return std::pair(Json::parse(output_of(as_json)), read_csv(output_of(question)));
    };
    const auto [limits, further] = asked({"limits"}, "limits");
    REQUIRE(further.size() == 1 + limits["further"].size());
    CHECK(number(further[0]["room_kv_tokens"]) == limits["now"]["room"]["kv_tokens"].get<double>());
    for (size_t i = 0; i < limits["further"].size(); ++i) {
        const Json& then = limits["further"][i]["then"];
        CHECK(further[i + 1]["plan"] ==
              "with " + limits["further"][i]["change"].get<std::string>());
        if (!then.is_null())
            CHECK(number(further[i + 1]["objective_ms"]) == then["objective_ms"].get<double>());
    }
    const auto [why, holdings] = asked({"why", "layers.3"}, "holdings");
    REQUIRE(holdings.size() == why["holdings"].size());
    for (size_t i = 0; i < holdings.size(); ++i) {
        CHECK(holdings[i]["device"] == why["holdings"][i]["device"]);
        CHECK(number(holdings[i]["bytes"]) == why["holdings"][i]["bytes"].get<double>());
    }
    const auto [link, links] = asked({"why", "links"}, "links");
    CHECK(links.size() == link["links"].size());
    CHECK(links.size() > 0);
    const auto [what, figures] = asked({"what-if", "--remove", "sim:a40[0]"}, "figures");
    REQUIRE(figures.size() == 2);
    CHECK(figures[0]["shape"] == what["before"]["shape"]);
    CHECK(figures[1]["shape"] == what["after"]["shape"]);
    const auto [worse, forced] = asked({"why-not", "pp=3"}, "figures");
    CHECK(forced[1]["shape"] == worse["forced"]["shape"]);
    const CommandResult none =
        run_cleave(with_plan({"why", "layers.3", "--csv", "-", "--table", "links"}));
    CHECK(none.exit_code == 1);
    CHECK_THAT(none.error,
               Contains("--table links: it has no such table; it has holdings, places"));
}
