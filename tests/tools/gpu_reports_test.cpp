// SPDX-License-Identifier: Apache-2.0
// Reports of gpu-check that are kept in tests/reports, and what README.md quotes of them
// (tools/lib/gpu_reports.py).
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/test.h"
#include "tests/tools/support/gpu_bundle.h"
#include "tools/gpu_check/process.h"

using namespace cleave;
using Catch::Matchers::Contains;
using cleave::test::Bundle;
using cleave::test::kFakeGpu;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const char* const kBegin =
    "<!-- Figures of GPUs: tools/check --fix writes them from tests/reports/gpu_*.json. -->";
const char* const kEnd = "<!-- End of the figures of GPUs. -->";

gpu_check::Outcome reports_program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"python3", cleave::test::source_root() / "tools/lib/gpu_reports.py"});
    return gpu_check::run(arguments, 60);
}

// As gpu-check writes it on a fake whose parts are scripts.
Json report_of_fakes() {
    const Bundle bundle("clean");
    bundle.script("cleave_test_runtime", "true");
    bundle.script("cleave_bench_gpu",
                  R"(echo '{"shape": "llama-3-8b", "dtype": "bf16",
                      "decode": {"ms_per_token": 4.321, "of_copy_bandwidth": 0.9123,
                                 "launch_gaps": {"token_less_traced_steps_of_token": -0.01,
                                                 "empty_launches_of_token": 0.0312}},
                      "prefill": {"tflops": 512.3, "of_matmul": null}}' | tr '\n' ' ')");
    const gpu_check::Outcome outcome = bundle.run({"--parts", "conformance,benchmark"}, kFakeGpu);
    INFO(outcome.errors);
    REQUIRE(outcome.code == 0);
    return bundle.report();
}

// What the same report would be of a card.
Json as_of_a_card(Json report) {
    report["commit"] = "0123456789abcdef0123456789abcdef01234567";
    report["variables"] = Json::object();
    for (Json& driver : report["drivers"])
        if (driver.contains("fake")) driver["fake"] = false;
    return report;
}

void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
}
std::string read(const fs::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

// What is wrong with a report; empty: nothing.
std::string refusal(const Json& report) {
    const cleave::test::TemporaryFolder folder;
    write(folder.path() / "gpu_card_0123456.json", report.dump());
    const gpu_check::Outcome outcome =
        reports_program({"--report", folder.path() / "gpu_card_0123456.json"});
    CHECK(outcome.errors.empty());
    CHECK(outcome.code == (outcome.output.empty() ? 0 : 1));
    return outcome.output;
}

}  // namespace

TEST_CASE("README.md and the reports that are kept agree, and each report is as its schema says",
          "[tools]") {
    const gpu_check::Outcome outcome = reports_program({cleave::test::source_root()});
    CHECK(outcome.output.empty());
    CHECK(outcome.errors.empty());
    CHECK(outcome.code == 0);
    const Json schema = Json::parse(
        std::ifstream(cleave::test::source_root() / "tools/schema/gpu_check.schema.json"));
    for (const auto& entry :
         fs::directory_iterator(cleave::test::source_root() / "tests/reports")) {
        const std::string name = entry.path().filename();
        if (!name.starts_with("gpu_") || !name.ends_with(".json")) continue;
        INFO(name);
        CHECK(cleave::test::schema_errors(schema, Json::parse(std::ifstream(entry.path()))) ==
              std::vector<std::string>());
    }
}

TEST_CASE("a report that was made on a fake is never kept as one of a real GPU", "[tools]") {
    const Json fakes = report_of_fakes();
    CHECK_THAT(refusal(fakes), Contains("is a fake") && Contains("CLEAVE_CUDA_LIBRARY") &&
                                   Contains("CLEAVE_GPU_COMPILER"));
    CHECK(refusal(as_of_a_card(fakes)).empty());
    Json fake = as_of_a_card(fakes);
    fake["drivers"][0]["fake"] = true;
    CHECK_THAT(refusal(fake), Contains("is a fake"));
    fake["drivers"][0].erase("fake");
    CHECK_THAT(refusal(fake), Contains("does not say that it is none"));
    Json chosen = as_of_a_card(fakes);
    chosen["variables"]["CLEAVE_GPU_COMPILER"] = "simt";
    CHECK_THAT(refusal(chosen), Contains("CLEAVE_GPU_COMPILER"));
}

TEST_CASE("a fake that bears the name of a driver's own library is told as a fake", "[tools]") {
    const cleave::test::TemporaryFolder folder;
    fs::copy(CLEAVE_FAKE_CUDA, folder.path() / "libcuda.so.1");
    const Bundle bundle("clean");
    bundle.script("cleave_test_runtime", "true");
    bundle.run({"--parts", "conformance"},
               {"LD_LIBRARY_PATH=" + folder.path().string(), "CLEAVE_CUDA_LIBRARY",
                "CLEAVE_HIP_LIBRARY=libno-hip.so"});
    const Json report = bundle.report();
    INFO(report.dump());
    REQUIRE(report["drivers"][0].contains("library"));
    CHECK(report["drivers"][0]["fake"] == true);
}

TEST_CASE("a report of a real GPU has its device, driver, date and commit, and ran to its end",
          "[tools]") {
    const Json whole = as_of_a_card(report_of_fakes());
    REQUIRE(refusal(whole).empty());
    for (const char* field : {"format", "commit", "dirty", "date", "finished", "variables",
                              "device", "devices", "drivers", "parts"}) {
        INFO(field);
        Json report = whole;
        report.erase(field);
        CHECK_THAT(refusal(report), Contains("no report of a real GPU"));
        report[field] = nullptr;
        CHECK_THAT(refusal(report), Contains("no report of a real GPU"));
    }
    const auto with = [&](const char* path, const Json& value) {
        Json report = whole;
        report[Json::json_pointer(path)] = value;
        return refusal(report);
    };
    CHECK_THAT(with("/commit", "0123abcd"), Contains("0123abcd"));
    CHECK_THAT(with("/dirty", true), Contains("dirty"));
    CHECK_THAT(with("/finished", false), Contains("cut off"));
    CHECK_THAT(with("/date", "yesterday"), Contains("yesterday"));
    CHECK_THAT(with("/device", "cuda[7]"), Contains("cuda[7]"));
    CHECK_THAT(with("/devices/0/name", ""), Contains("no name"));
    CHECK_THAT(with("/drivers/0/version", ""), Contains("no driver of cuda"));
    CHECK_THAT(with("/parts", Json::object()), Contains("no part"));
}

TEST_CASE("README.md states no figure of a GPU that no report holds", "[tools]") {
    const cleave::test::TemporaryFolder root;
    const fs::path readme = root.path() / "README.md",
                   kept = root.path() / "tests/reports/gpu_nvidia_h100_0123456.json";
    const auto findings = [&](std::vector<std::string> flags = {}) {
        flags.insert(flags.begin(), root.path());
        const gpu_check::Outcome outcome = reports_program(flags);
        CHECK(outcome.errors.empty());
        CHECK(outcome.code == (outcome.output.empty() ? 0 : 1));
        return outcome.output;
    };
    const auto readme_of = [&](const std::string& block, const std::string& around = "") {
        write(readme, "# A project\n\n" + around + "\n\n" + kBegin + "\n" + block + kEnd + "\n");
    };
    write(readme, "# A project\n");
    CHECK_THAT(findings(), Contains("it wants one block"));
    readme_of("");
    CHECK_THAT(findings(), Contains("are not those of"));
    CHECK_THAT(findings({"--fix"}), Contains(""));
    CHECK(findings().empty());
    CHECK_THAT(read(readme), Contains("Nothing has run on a card yet"));
    readme_of("An H100 decodes llama-3-8b at 95 % of its copy bandwidth.\n");
    CHECK_THAT(findings(), Contains("are not those of"));

    // Figures outside the block, with any reports.
    for (const char* claim :
         {"On an H100 decode reaches 93 % of the copy bandwidth.",
          "A token of 8B takes 5.1 ms on one card.", "`cuda[0]` does 210 tokens a second.",
          "Prefill on NVIDIA's cards\nruns at 600 TFLOPS.", "```\nMI300X: 4.1 TB/s\n```"}) {
        INFO(claim);
        readme_of("", claim);
        findings({"--fix"});
        CHECK_THAT(findings(), Contains("is a figure about GPUs that no report holds"));
    }
    readme_of("", "One CPU device takes 5.1 ms. `--devices sim:h100[0-3]` plans 70B on 4 GPUs.");
    findings({"--fix"});
    CHECK_THAT(findings(), Contains("5.1 ms"));  // one paragraph is one claim
    readme_of("", "One CPU device takes 5.1 ms.\n\n`--devices sim:h100[0-3]` plans on 4 GPUs.");
    findings({"--fix"});
    CHECK(findings().empty());

    const Json fakes = report_of_fakes();
    write(kept, fakes.dump());
    CHECK_THAT(findings(), Contains("is a fake"));
    write(kept, as_of_a_card(fakes).dump());
    CHECK_THAT(findings(), Contains("are not those of"));
    findings({"--fix"});
    CHECK(findings().empty());
    const std::string date = fakes["date"].get<std::string>().substr(0, 10),
                      name = fakes["devices"][0]["name"], version = fakes["drivers"][0]["version"];
    CHECK_THAT(read(readme), Contains(name) && Contains("cuda " + version) && Contains(date) &&
                                 Contains("`012345678`") && Contains("2 of 2 passed") &&
                                 Contains("4.32 ms a token, 91.2 % of copy bandwidth") &&
                                 Contains("| 3.1 % |") &&
                                 Contains("512 TFLOPS, not measured of PyTorch's matmul") &&
                                 !Contains("Nothing has run"));
    fs::rename(kept, root.path() / "tests/reports/gpu_card_fedcba9.json");
    CHECK_THAT(findings(), Contains("its name is not gpu_DEVICE_COMMIT.json"));
    fs::remove(root.path() / "tests/reports/gpu_card_fedcba9.json");
    CHECK_THAT(findings(), Contains("are not those of"));  // what no report holds any more
}
