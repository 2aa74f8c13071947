// SPDX-License-Identifier: Apache-2.0
// The page of `cleave inspect --html` in a real browser: Chromium of the distribution, driven by
// its own protocol (tests/tools/page/browser.py); what is expected of it is in page_checks.py.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tools/gpu_check/process.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

std::string find_program(const char* name) {
    std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
    for (size_t at = 0; at <= path.size();) {
        const size_t end = std::min(path.find(':', at), path.size());
        const fs::path file = fs::path(path.substr(at, end - at)) / name;
        if (end > at && fs::exists(file)) return file.string();
        at = end + 1;
    }
    return "";
}

// Where there is no browser, or none that starts (a container without namespaces, say), the test
// skips with the reason.
const char* why_not() {
    static const std::string kReason = [] {
        const std::string chromium = find_program("chromium");
        if (chromium.empty())
            return std::string("no chromium: install the distribution's package `chromium`");
        if (find_program("python3").empty()) return std::string("no python3");
        const gpu_check::Outcome outcome = gpu_check::run({chromium, "--version"}, 60);
        return outcome.code == 0 ? std::string() : "chromium --version: " + outcome.errors;
    }();
    return kReason.empty() ? nullptr : kReason.c_str();
}

std::string page_of(const TemporaryFolder& folder, std::vector<std::string> arguments) {
    const std::string page = (folder.path() / "plan.html").string();
    arguments.insert(arguments.begin(), "inspect");
    arguments.insert(arguments.end(), {"--html", page});
    const CommandResult made = run_cleave(arguments);
    INFO(made.error);
    REQUIRE(made.exit_code == 0);
    return page;
}

std::string small_page(const TemporaryFolder& folder) {
    return page_of(folder,
                   {"stories-260k", "--devices", "sim:h100[0-3]", "--tp", "2", "--pp", "2"});
}

void check_page(const std::string& check, const std::string& page,
                const std::vector<std::string>& more = {}) {
    const fs::path script = source_root() / "tests" / "tools" / "page" / "page_checks.py";
    std::vector<std::string> arguments{find_program("python3"),  "-B",  script.string(),
                                       find_program("chromium"), check, page};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const gpu_check::Outcome outcome = gpu_check::run(arguments, 500);
    INFO(outcome.output << outcome.errors);
    CHECK(outcome.code == 0);
}

}  // namespace

TEST_CASE("inspect's page draws in a browser at three widths in two themes, with a silent console",
          "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    check_page("draws", small_page(folder));
}

TEST_CASE("what is clicked on inspect's page filters the rest of it", "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    const std::string page = small_page(folder);
    check_page("clicks", page);
    check_page("timelines", page);
}

TEST_CASE("an address of inspect's page is a view, and all of it goes by keys", "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    const std::string page = small_page(folder);
    check_page("addresses", page);
    check_page("keyboard", page);
}

TEST_CASE("what can be clicked on inspect's page has a name in the accessibility tree",
          "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    check_page("named", small_page(folder));
}

TEST_CASE("names from a file are text in inspect's page, whatever is clicked", "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    const fs::path named = folder.path() / "<img src=x onerror=\"window.hit=1\">\u202e\"'&amp;";
    fs::create_directory(named);
    std::ofstream(named / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
               "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
               "vocab_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-5})";
    check_page("hostile",
               page_of(folder, {(named / "config.json").string(), "--devices", "sim:h100[0-1]"}));
}

TEST_CASE("inspect's SVG pictures are XML, with names of a file as text", "[tools][page]") {
    TemporaryFolder folder;
    const fs::path named = folder.path() / "<img src=x>&\"\x1b";
    fs::create_directory(named);
    std::ofstream(named / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
               "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
               "vocab_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-5})";
    std::vector<std::string> arguments{"inspect", (named / "config.json").string(), "--devices",
                                       "sim:h100[0-2]"};
    for (const char* which : {"", "grid=", "machine="})
        arguments.insert(
            arguments.end(),
            {"--svg", which + (folder.path() / (std::string("of_") +
                                                (*which ? std::string(which, 4) : "all") + ".svg"))
                                  .string()});
    const CommandResult r = run_cleave(arguments);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    CHECK(r.output.empty());
    for (const char* which : {"all", "grid", "mach"}) {
        const fs::path file = folder.path() / (std::string("of_") + which + ".svg");
        const std::string svg = read_file(file);
        INFO(which << ": " << svg.substr(0, 400));
        CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        CHECK(svg.find("<img") == std::string::npos);
        CHECK_THAT(svg, Catch::Matchers::Contains("&lt;img src=x&gt;&amp;&quot;\\x1b"));
        size_t opened = 0, closed = 0;
        for (size_t at = svg.find("<g>"); at != std::string::npos; at = svg.find("<g>", at + 1))
            ++opened;
        for (size_t at = svg.find("</g>"); at != std::string::npos; at = svg.find("</g>", at + 1))
            ++closed;
        CHECK(opened > 0);
        CHECK(opened == closed);
    }
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    check_page("svg", (folder.path() / "of_all.svg").string());
}

TEST_CASE("inspect refuses other plans, sweeps and pictures that are none, or have no effect",
          "[tools]") {
    TemporaryFolder folder;
    const std::string page = (folder.path() / "plan.html").string();
    const std::string text = (folder.path() / "sweep.json").string();
    std::ofstream(text) << R"({"model": "m", "axes": [{"name": "tp"}], "rows": []})";
    const std::string uneven = (folder.path() / "uneven.json").string();
    std::ofstream(uneven) << R"({"model": "m", "axes": [], "rows": [{"values": ["1"]}]})";
    const std::string figures = (folder.path() / "figures.json").string();
    std::ofstream(figures) << R"({"model": "m", "axes": [], "rows": [{"values": [],
        "refusal": "", "lacks_memory": false, "figures": {"shape": 5}}]})";
    const std::string deep = (folder.path() / "deep.json").string();
    std::ofstream(deep) << std::string(100'000, '[') << std::string(100'000, ']');
    const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
        {{"--against", "stories-260k"}, "it is of the page and of JSON"},
        {{"--against", "stories-260k", "--json"}, "no .plan file"},
        {{"--sweep", text}, "it is of the page"},
        {{"--sweep", "/no/such.json", "--html", page}, "No such file"},
        {{"--sweep", (source_root() / "README.md").string(), "--html", page}, "no JSON"},
        {{"--sweep", text, "--html", page}, "axes[0].values' is missing"},
        {{"--sweep", uneven, "--html", page}, "rows[0].values: expected a value for each of 0"},
        {{"--sweep", figures, "--html", page}, "rows[0].figures.shape: expected a string"},
        {{"--sweep", deep, "--html", page}, "more than 64 levels"},
        {{"--svg", "grid=/no/such/folder/x.svg"}, "--svg"}};
    for (const auto& [more, message] : bad) {
        std::vector<std::string> arguments{"inspect", "stories-260k", "--devices", "sim:h100[0]"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const CommandResult r = run_cleave(arguments);
        INFO(r.error << r.output.substr(0, 200));
        CHECK(r.exit_code == 1);
        CHECK(r.output.empty());
        CHECK_THAT(r.error, Catch::Matchers::Contains(message));
        CHECK(!fs::exists(page));
    }
}

TEST_CASE("inspect's page prints, in light colours and whole", "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    check_page("printed", small_page(folder));
}

TEST_CASE("inspect's page draws a kept plan as its kept pictures have it", "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    check_page("pictures", small_page(folder),
               {(source_root() / "tests" / "tools" / "page" / "kept").string()});
}

TEST_CASE("a layer of inspect's page has its weights, whatever an exporter calls them",
          "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    check_page("weights",
               page_of(folder, {bundled_model().string(), "--devices", "host[0-1]", "--tp", "2"}));
}

TEST_CASE("inspect's page has what a run measured under its prediction", "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    const std::string plan = (folder.path() / "p.plan").string();
    const std::string trace = (folder.path() / "t.json").string();
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"plan", bundled_model().string(), "--devices", "host[0-3]",
                                   "--tp", "2", "--pp", "2", "--prompt-tokens", "8", "--context",
                                   "64", "-o", plan},
          {"run", plan, "--prompt", "Once upon a time", "--ignore-eos", "--max-new-tokens", "5",
           "--trace", trace}}) {
        const CommandResult r = run_cleave(arguments);
        INFO(r.error);
        REQUIRE(r.exit_code == 0);
    }
    check_page("measured", page_of(folder, {plan, "--trace", trace}));
}

TEST_CASE("inspect's page shows two plans side by side, and many alike devices as one",
          "[tools][page]") {
    if (const char* reason = why_not()) CLEAVE_SKIP(reason);
    TemporaryFolder folder;
    const std::string other = (folder.path() / "other.plan").string();
    const CommandResult saved = run_cleave(
        {"plan", "stories-260k", "--devices", "sim:h100[0-1]", "--pp", "2", "-o", other});
    INFO(saved.error);
    REQUIRE(saved.exit_code == 0);
    check_page("pair", page_of(folder, {"stories-260k", "--devices", "sim:h100[0-3]", "--tp", "2",
                                        "--pp", "2", "--against", other}));
    // The JSON that `cleave plan --sweep` prints.
    const CommandResult swept =
        run_cleave({"plan", "stories-260k", "--devices", "sim:h100[0-3]", "--sweep", "devices=1,4",
                    "--sweep", "batch=1,64,16777216", "--json"});
    INFO(swept.error);
    REQUIRE(swept.exit_code == 0);
    const std::string sweep = (folder.path() / "sweep.json").string();
    std::ofstream(sweep) << swept.output;
    check_page("swept",
               page_of(folder, {"stories-260k", "--devices", "sim:h100[0-3]", "--sweep", sweep}));
    check_page("many", page_of(folder, {"llama-3-8b", "--devices", "sim:h100[0-23]", "--tp", "8",
                                        "--pp", "3"}));
}
