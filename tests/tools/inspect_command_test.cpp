// SPDX-License-Identifier: Apache-2.0
// `cleave inspect`: its parts agree with the plan that they show.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kPlan = {
    "llama-3-8b", "--devices", "sim:h100[0-2],sim:mi300x[0]", "--tp", "2", "--pp", "2"};

std::vector<std::string> with_plan(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, kPlan.begin(), kPlan.end());
    return arguments;
}

Json inspected() {
    CommandResult r = run_cleave(with_plan({"inspect", "--json"}));
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return Json::parse(r.output);
}

Json schema(const char* name) {
    return Json::parse(std::ifstream(source_root() / "tools" / "schema" / name));
}

std::string contents(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("what inspect says of layers, memory and time adds up to the plan", "[tools]") {
    const Json json = inspected();
    CHECK(schema_errors(schema("inspect.schema.json"), json) == std::vector<std::string>());
    CHECK(schema_errors(schema("plan.schema.json"), json["plan"]) == std::vector<std::string>());
    CommandResult plan = run_cleave(with_plan({"plan", "--json"}));
    CHECK(json["plan"] == Json::parse(plan.output));

    // Every layer once, and each of its 32 query heads, 8 KV heads and 14336 features on one
    // device.
    std::map<int, std::map<std::string, int64_t>> of_layer;
    std::map<std::string, int64_t> weights, kv;
    for (const Json& run : json["layers"])
        for (int layer = run["first_layer"]; layer <= run["last_layer"]; ++layer)
            for (const Json& share : run["devices"]) {
                for (const char* what : {"query_heads", "kv_heads", "mlp_features"})
                    if (!share[what].is_null())
                        of_layer[layer][what] +=
                            share[what][1].get<int64_t>() - share[what][0].get<int64_t>();
                weights[share["device"]] += share["weights_bytes"].get<int64_t>();
                kv[share["device"]] += share["kv_bytes"].get<int64_t>();
            }
    for (int layer = 0; layer < 32; ++layer)
        CHECK(of_layer[layer] == std::map<std::string, int64_t>{{"query_heads", 32},
                                                                {"kv_heads", 8},
                                                                {"mlp_features", 14336}});

    for (size_t d = 0; d < json["plan"]["devices"].size(); ++d) {
        const Json& device = json["plan"]["devices"][d];
        INFO(device["name"]);
        std::map<std::string, int64_t> items, buffers;
        for (const Json& item : json["memory"][d]["items"]) {
            items[item["arena"]] += item["bytes"].get<int64_t>();
            buffers[item["arena"]] += item["buffers"].get<int64_t>();
        }
        const auto fills = [&](const char* arena, const char* key) {
            const int64_t bytes = device[key];
            CHECK(items[arena] <= bytes);
            CHECK(bytes < items[arena] + 256 * buffers[arena] + 1);  // aligned
        };
        fills("weights", "weights_bytes");
        fills("kv", "kv_bytes");
        fills("staging", "staging_bytes");
        CHECK(items["activations"] <= device["activation_bytes"].get<int64_t>());
        CHECK(items["activations"] > 0);
        CHECK(kv[device["name"]] == items["kv"]);
        // What layers do not have: rope tables.
        CHECK(weights[device["name"]] <= items["weights"]);
        CHECK(weights[device["name"]] > items["weights"] * 99 / 100);
        for (const char* phase : {"decode", "prefill"}) {
            const Json& time = json["passes"][phase]["devices"][d];
            CHECK(time["compute_us"].get<double>() + time["exchange_us"].get<double>() +
                      time["waiting_us"].get<double>() ==
                  Approx(json["passes"][phase]["predicted_us"].get<double>()));
        }
    }
}

TEST_CASE("inspect counts a launch for each compute step of a device, and those that prepare",
          "[tools]") {
    const Json json = inspected();
    std::map<std::string, int64_t> steps, launches;
    int64_t prepared = 0;
    for (const Json& step : json["plan"]["steps"])
        if (step["kind"] == "compute")
            ++steps[step["phase"].get<std::string>() + step["devices"][0].get<std::string>()];
    for (const Json& kernel : json["kernels"]) {
        const std::string first = kernel["fused"][0];
        if (first == "send" || first == "receive" || first == "all_reduce") continue;  // exchanges
        if (kernel["fused"].back() == "narrow") {
            CHECK(kernel["phase"] == "prefill");
            CHECK(kernel["predicted_us"] == 0);  // the product's
            prepared += kernel["launches"].get<int64_t>();
            continue;
        }
        launches[kernel["phase"].get<std::string>() + kernel["device"].get<std::string>()] +=
            kernel["launches"].get<int64_t>();
    }
    CHECK(steps == launches);
    CHECK(prepared > 0);
    CHECK(json["without_kernels"].empty());
    for (const char* phase : {"decode", "prefill"}) {
        size_t count = 0;
        for (const Json& step : json["plan"]["steps"]) count += step["phase"] == phase;
        CHECK(json["passes"][phase]["start_us"].size() == count);
    }
}

namespace {

// What the page's script makes of a packed list (tools/inspect/inspection_tree.h); discarded: the
// row lacks it.
Json unpacked(const Json& packed) {
    Json list = Json::array();
    const Json& runs = packed["runs"];
    for (size_t i = 0; i < runs.size(); i += 3)
        for (int64_t n = 0; n < runs[i + 2]; ++n) {
            const int64_t number = runs[i].get<int64_t>() + n * runs[i + 1].get<int64_t>();
            if (!packed.contains("values"))
                list.push_back(number);
            else
                list.push_back(number < 0 ? Json(Json::value_t::discarded)
                                          : packed["values"].at(number));
        }
    return list;
}
void unpack_rows(Json& packed) {
    std::vector<Json> rows(packed["rows"].get<size_t>(), Json::object());
    for (const auto& [key, column] : packed["columns"].items()) {
        const Json list = unpacked(column);
        REQUIRE(list.size() == rows.size());
        for (size_t i = 0; i < rows.size(); ++i)
            if (!list[i].is_discarded()) rows[i][key] = list[i];
    }
    packed = rows;
}

}  // namespace

TEST_CASE("inspect's page carries its JSON and asks nothing of the network", "[tools]") {
    TemporaryFolder folder;
    const fs::path page = folder.path() / "plan.html";
    CommandResult r = run_cleave(with_plan({"inspect", "--html", page.string(), "--json"}));
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    const std::string html = contents(page);
    const std::string opening = "id=\"data\">";
    const size_t begin = html.find(opening) + opening.size();
    const std::string data = html.substr(begin, html.find("</script>", begin) - begin);
    const std::string page_itself = html.substr(0, begin) + html.substr(begin + data.size());
    for (const char* outside : {"http:", "https:", "src=", "@import", "url(", "<link", "fetch("})
        CHECK(page_itself.find(outside) == std::string::npos);
    CHECK(data.find('<') == std::string::npos);
    Json carried = Json::parse(data);
    // What only the page has (tools/inspect/page_data.h): of decode every value and weight.
    const Json page_alone = carried["page"];
    carried.erase("page");
    for (Json* rows : {&carried["plan"]["steps"], &carried["plan"]["links"], &carried["kernels"]})
        unpack_rows(*rows);
    for (Json& pass : carried["passes"]) pass["start_us"] = unpacked(pass["start_us"]);
    CHECK(carried == Json::parse(r.output));
    std::map<std::string, int64_t> weights;
    Json shards = page_alone["weights"]["rows"];
    unpack_rows(shards);
    for (const Json& shard : shards)
        weights[carried["plan"]["devices"][shard["device"].get<size_t>()]["name"]] +=
            shard["bytes"].get<int64_t>();
    for (const Json& device : carried["plan"]["devices"]) {
        // What no shard has: tables of rotary positions, alignment.
        CHECK(weights[device["name"]] <= device["weights_bytes"].get<int64_t>());
        CHECK(weights[device["name"]] > device["weights_bytes"].get<int64_t>() * 99 / 100);
    }
    for (const char* phase : {"decode", "prefill"}) {
        const Json texts = unpacked(page_alone["step_kernels"][phase]);
        size_t at = 0;
        for (const Json& step : carried["plan"]["steps"]) {
            if (step["phase"] != phase) continue;
            const int text = texts.at(at++);
            if (step["kind"] != "compute") continue;
            REQUIRE(text >= 0);
            const Json& kernel = page_alone["texts"]["kernels"].at(static_cast<size_t>(text));
            std::string source;
            for (const Json& place : unpacked(kernel["source"]))
                source += page_alone["texts"]["paragraphs"].at(place.get<size_t>());
            CHECK(source.size() > 100);
        }
        CHECK(at == texts.size());
    }
}

TEST_CASE("inspect's page of many equal devices is a small part of its JSON", "[tools]") {
    TemporaryFolder folder;
    const fs::path page = folder.path() / "plan.html";
    const CommandResult r = run_cleave({"inspect", "llama-3-70b", "--devices", "sim:h100[0-31]",
                                        "--tp", "32", "--html", page.string(), "--json"});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    CHECK(contents(page).size() * 10 < r.output.size());
}

TEST_CASE("an operator's name cannot end the script of inspect's page", "[tools]") {
    TemporaryFolder folder;
    const fs::path page = folder.path() / "plan.html";
    // The folder names the model.
    const fs::path named = folder.path() / "<img onerror=alert(1)>";
    fs::create_directory(named);
    std::ofstream(named / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
               "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
               "vocab_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-5})";
    CommandResult r = run_cleave({"inspect", (named / "config.json").string(), "--devices",
                                  "sim:h100[0]", "--html", page.string()});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    CHECK(r.output.empty());
    CHECK(contents(page).find("<img") == std::string::npos);
}

TEST_CASE("inspect's text has every part, equal devices once, and fits 120 columns", "[tools]") {
    CommandResult r =
        run_cleave({"inspect", "llama-3-8b", "--devices", "sim:h100[0-3]", "--show", "all"});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    for (const char* part :
         {"llama-3-8b on 4 devices", "Decode pass: ", "Prefill: ", "\nLayers: ", "\nMemory",
          "\nTime of a pass", "\nKernels: ", "fullest in ", "{gate,up}_proj", "{q,k,v}_proj",
          " o_proj", "down_proj", "- sim:h100[0-3], each", "gate_up_", "narrow_"})
        CHECK_THAT(r.output, Catch::Matchers::Contains(part));
    std::istringstream text(
        run_program({"env", "COLUMNS=120", CLEAVE_BINARY, "inspect", "llama-3-8b", "--devices",
                     "sim:h100[0-3]", "--show", "all"})
            .output);
    for (std::string line; std::getline(text, line);) CHECK(line.size() <= 120);
}

TEST_CASE("inspect names the parts that 100 lines have no room for, and --show gives them",
          "[tools]") {
    const std::vector<std::string> on{"inspect", "llama-3-8b", "--devices", "sim:h100[0-3]"};
    const auto shown = [&](const std::string& parts) {
        std::vector<std::string> command = on;
        if (!parts.empty()) command.insert(command.end(), {"--show", parts});
        return run_cleave(command).output;
    };
    const std::string text = shown(""), all = shown("all");
    const std::string left = text.substr(text.find("Left out"));
    std::string joined;
    for (const std::string part : {"plan", "layers", "memory", "time", "prefill", "kernels"}) {
        INFO(part);
        const std::string alone = shown(part);
        const bool is_left = left.find(part + " (") != std::string::npos;
        CHECK((text.find(alone) == std::string::npos) == is_left);
        joined += (joined.empty() ? "" : "\n") + alone;
    }
    CHECK(joined == all);
    CHECK(shown("memory,plan") == shown("plan") + "\n" + shown("memory"));
    CHECK_THAT(left, Catch::Matchers::Contains("kernels ("));
    CHECK_THAT(run_cleave({"inspect", "llama-3-8b", "--show", "kernels", "--json"}).error,
               Catch::Matchers::Contains("--show kernels: it is of the text"));
    CHECK_THAT(run_cleave({"inspect", "llama-3-8b", "--show", "steps"}).error,
               Catch::Matchers::Contains("--show"));
}

TEST_CASE("a page that cannot be written is refused before anything is planned", "[tools]") {
    CommandResult r = run_cleave(with_plan({"inspect", "--html", "/no/such/folder/plan.html"}));
    CHECK(r.exit_code == 1);
    CHECK(r.output.empty());
    CHECK_THAT(r.error, Catch::Matchers::Contains("--html"));
    CHECK_THAT(r.error, Catch::Matchers::Contains("/no/such/folder"));
}
