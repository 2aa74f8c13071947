// SPDX-License-Identifier: Apache-2.0
// tools/gpu-check as far as it goes without a GPU: what it says and writes, how it runs its parts,
// all of them on a fake of the driver. Its bundle: gpu_bundle_test.cpp.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/support/test.h"
#include "tests/tools/support/gpu_bundle.h"
#include "tools/gpu_check/logits.h"
#include "tools/gpu_check/process.h"

using namespace cleave;
using Catch::Matchers::Contains;
using cleave::test::Bundle;
using cleave::test::kFakeGpu;
using cleave::test::kNoGpu;
namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST_CASE(
    "a part of gpu-check gives its output and exit code, and ends at its limit with all that it "
    "started",
    "[tools]") {
    const gpu_check::Outcome ran =
        gpu_check::run({"sh", "-c", "echo $WORD; echo two >&2; exit 3"}, 60, {"WORD=one"});
    CHECK(ran.output == "one\n");
    CHECK(ran.errors == "two\n");
    CHECK(ran.code == 3);
    CHECK_FALSE(ran.timed_out);
    CHECK(gpu_check::run({"sh", "-c", "kill -SEGV $$"}, 60).code == 128 + 11);
    CHECK(gpu_check::run({"/no/such/program"}, 60).code == 127);
    const gpu_check::Outcome hung = gpu_check::run({"sh", "-c", "echo here; sleep 600 & wait"}, 1);
    CHECK(hung.timed_out);
    CHECK(hung.output == "here\n");
}

TEST_CASE("a process that does not end is waited for as long as told, no longer", "[tools]") {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    CHECK_FALSE(gpu_check::end_of(child, std::chrono::milliseconds(20)));
    ::kill(child, SIGKILL);
    const std::optional<int> status = gpu_check::end_of(child, std::chrono::minutes(1));
    REQUIRE(status);
    CHECK(WTERMSIG(*status) == SIGKILL);
}

TEST_CASE("gpu-check without a GPU says so in its report and fails", "[tools]") {
    for (const char* state : {"clean", "dirty"}) {
        const Bundle bundle(state);
        const gpu_check::Outcome outcome = bundle.run({}, kNoGpu);
        CHECK(outcome.code == 1);
        CHECK_THAT(outcome.errors, Contains("no GPU was found") && Contains("libno-cuda.so"));
        const Json json = bundle.report();
        CHECK(json["commit"] == "0123abcd");
        CHECK(json["dirty"] == (state == std::string("dirty")));
        CHECK(json["passed"] == false);
        CHECK(json["devices"].empty());
        CHECK(json["parts"].empty());
        CHECK(json["drivers"].size() == 2);
        CHECK_THAT(json["errors"][0]["error"].get<std::string>(),
                   Contains("libno-cuda.so") && Contains("libno-hip.so"));
    }
}

TEST_CASE("gpu-check refuses, before anything runs, what a part would refuse later", "[tools]") {
    const Bundle bundle("clean");
    const auto refusal = [&](std::vector<std::string> flags) {
        const gpu_check::Outcome outcome = bundle.run(std::move(flags), kNoGpu);
        CHECK(outcome.code == 1);
        CHECK_FALSE(fs::exists(bundle.report_path()));
        return outcome.errors;
    };
    CHECK_THAT(refusal({"--no-such-flag"}), Contains("--no-such-flag") && Contains("usage"));
    CHECK_THAT(refusal({"--copy-mib", "0"}), Contains("--copy-mib 0") && Contains("from 1 to"));
    CHECK_THAT(refusal({"--tokens", "many"}), Contains("--tokens many: takes a whole number"));
    CHECK_THAT(refusal({"--tokens"}), Contains("--tokens wants a value"));
    CHECK_THAT(refusal({"--time-limit", "0"}), Contains("--time-limit 0: takes a whole number"));
    CHECK_THAT(refusal({"--shape", "llama-9"}), Contains("llama-9") && Contains("llama-3-8b"));
    CHECK_THAT(refusal({"--parts", "benchmark,speed"}), Contains("'speed' is no part"));
    CHECK_THAT(refusal({"--nvrtc", "/no/such"}), Contains("--nvrtc /no/such: no such file"));
    CHECK_THAT(refusal({"--stories15m", "/no/such"}), Contains("--stories15m /no/such"));
    CHECK_THAT(refusal({"-o", "/no/such/report.json"}), Contains("-o /no/such/report.json"));
    const gpu_check::Outcome outcome =
        bundle.run({"--parts", "conformance"}, {"TMPDIR=/no/such/folder"});
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.errors,
               Contains("TMPDIR") && Contains("/no/such/folder") && !Contains("filesystem error"));
    CHECK_FALSE(fs::exists(bundle.report_path()));
}

TEST_CASE(
    "what a part of gpu-check says reaches the report, and a text that fails is run again step by "
    "step",
    "[tools]") {
    const Bundle bundle("clean");
    const std::string nvrtc = bundle.folder() / "libnvrtc.so";
    std::ofstream(nvrtc) << "";
    bundle.script("cleave_test_runtime", "echo compiler=$CLEAVE_NVRTC gpu=$CLEAVE_TEST_GPU");
    bundle.script("cleave_test_simt", "echo 'skipped: nothing to do'");
    bundle.script(
        "cleave",
        "case \"$*\" in --version) ;; doctor*) echo '{}' ;; *step-by-step*) echo the attention of "
        "layer 3 >&2; exit 2 ;; "
        "*) echo a fault >&2; exit 2 ;; esac");
    bundle.script("cleave_bench_gpu", "echo no JSON");
    const gpu_check::Outcome outcome = bundle.run(
        {"--nvrtc", nvrtc, "--parts", "conformance,kernel_table,bundled_model,random_model"},
        kFakeGpu);
    CHECK(outcome.code == 1);
    const Json json = bundle.report();
    CHECK(json["passed"] == false);
    CHECK(json["parts"]["conformance"]["status"] == "passed");
    CHECK(json["parts"]["conformance"]["summary"] == "compiler=" + nvrtc + " gpu=cuda[0]\n");
    const Json& errors = json["errors"];
    REQUIRE(errors.size() == 3);
    CHECK_THAT(errors[0].dump(), Contains("kernel_table") && Contains("it left tests out"));
    CHECK_THAT(errors[1].dump(), Contains("bundled_model") && Contains("exit code 2: a fault"));
    CHECK_THAT(errors[2].dump(), Contains("random_model") && Contains("no JSON"));
    CHECK_THAT(json["parts"]["bundled_model"]["step_by_step"].get<std::string>(),
               Contains("the attention of layer 3"));
    CHECK(json["parts"]["bundled_model"]["status"] == "failed");
    // The six parts that were not chosen, and the comparison with the host, whose compiler this
    // folder lacks.
    CHECK(json["skipped"].size() == 7);
    CHECK_THAT(json["skipped"].dump(),
               Contains("not in --parts") && Contains("bundled_model on the host"));
}

TEST_CASE("a part of gpu-check that gives what cannot be read fails alone, and the next ones run",
          "[tools]") {
    const Bundle bundle("clean");
    bundle.link_libraries();
    bundle.script("cleave_bench_gpu", "echo '{\"tokens\": []}'");
    const auto errors_of = [&](const std::string& printed, const std::string& dump) {
        bundle.script("cleave",
                      "case \"$*\" in --version) ;; doctor*) echo '{}' ;; *) for word; do "
                      "if [ \"$last\" = --dump-logits ]; then " +
                          dump + "; fi; last=$word; done; echo '" + printed + "' ;; esac");
        const gpu_check::Outcome outcome =
            bundle.run({"--parts", "bundled_model,tp4_logical_devices,random_model"}, kFakeGpu);
        INFO(printed << " " << dump << " " << outcome.errors);
        CHECK(outcome.code == 1);
        Json json = bundle.report();
        CHECK(json["finished"] == true);
        CHECK(json["passed"] == false);
        CHECK(json["parts"]["bundled_model"]["status"] == "failed");
        CHECK(json["parts"]["tp4_logical_devices"]["status"] == "failed");
        CHECK(json["parts"]["random_model"]["status"] == "passed");
        std::string errors;
        for (const Json& error : json["errors"])
            if (error["part"] == "bundled_model")
                errors += error["error"].get<std::string>() + "\n";
        return errors;
    };
    // Two rows of two logits; two more words, and none of them.
    const std::string dump = "head -c 16 /dev/zero >$word", no_dump = "true";
    const std::string good =
        R"({"token_ids":[1,1],"prompt_ids":[1],"check_max_difference":null,"check_reason":"NaN!"})";
    CHECK_THAT(errors_of(good, dump), Contains("no finite number") && Contains("NaN!"));
    CHECK_THAT(errors_of(R"({"token_ids":[1,1],"prompt_ids":[1]})", dump),
               Contains("no finite number"));
    CHECK_THAT(errors_of(R"({"token_ids":[1],"check_max_difference":0})", dump),
               Contains("prompt_ids"));
    CHECK_THAT(errors_of(R"({"token_ids":"x","prompt_ids":[1],"check_max_difference":0})", dump),
               Contains("type"));
    CHECK_THAT(errors_of(good, no_dump), Contains("no logits"));
}

TEST_CASE("a card that does not say what it is leaves the others to gpu-check", "[tools]") {
    const Bundle bundle("clean");
    bundle.script("cleave_test_runtime", "true");
    std::vector<std::string> environment = kFakeGpu;
    environment.emplace_back("CLEAVE_FAKE_FAIL=cuDeviceTotalMem_v2 2 999");
    const gpu_check::Outcome outcome = bundle.run({"--parts", "conformance"}, environment);
    INFO(outcome.errors);
    CHECK(outcome.code == 1);
    const Json json = bundle.report();
    CHECK(json["finished"] == true);
    CHECK(json["parts"]["conformance"]["status"] == "passed");
    REQUIRE(json["devices"].size() == 2);
    CHECK(json["devices"][0]["device"] == "cuda[0]");
    CHECK(json["devices"][1]["device"] == "cuda[2]");
    REQUIRE(json["errors"].size() == 1);
    CHECK_THAT(json["errors"][0]["error"].get<std::string>(),
               Contains("cuda[1]") && Contains("cuDeviceTotalMem"));
}

TEST_CASE("gpu-check's report is whole while a part runs, and says which", "[tools]") {
    const Bundle bundle("clean");
    const std::string seen = bundle.folder() / "seen.json";
    bundle.script("cleave_test_runtime", "true");
    bundle.script("cleave_test_simt", "cp " + bundle.report_path().string() + " " + seen);
    const gpu_check::Outcome outcome =
        bundle.run({"--parts", "conformance,kernel_table"}, kFakeGpu);
    CHECK(outcome.code == 0);
    const Json then = Json::parse(std::ifstream(seen)), now = bundle.report();
    CHECK(then["finished"] == false);
    CHECK(then["passed"] == false);
    CHECK(then["parts"]["conformance"]["status"] == "passed");
    CHECK(then["parts"]["conformance"]["seconds"] >= 0);
    CHECK(then["parts"]["kernel_table"]["status"] == "running");
    CHECK(now["finished"] == true);
    CHECK(now["parts"]["kernel_table"]["status"] == "passed");
    CHECK(now["seconds"] >= now["parts"]["kernel_table"]["seconds"]);
    CHECK_THAT(outcome.errors,
               Contains("conformance: passed, ") && Contains("kernel_table: passed, "));
}

TEST_CASE("gpu-check ends within its time limit, and names what it cut and what it left out",
          "[tools]") {
    const Bundle bundle("clean");
    bundle.script("cleave_test_runtime", "sleep 600 & wait");
    const gpu_check::Outcome outcome =
        bundle.run({"--parts", "conformance,kernel_table", "--time-limit", "2"}, kFakeGpu);
    const Json json = bundle.report();
    CHECK(json["finished"] == true);
    CHECK(json["time_limit"] == 2);
    CHECK(outcome.code == 1);  // what was left out has not passed
    CHECK(json["passed"] == false);
    // The first is ended where it was begun at all, which a slow machine may leave no time for.
    if (json["parts"].contains("conformance")) {
        REQUIRE(json["errors"].size() == 1);
        CHECK_THAT(json["errors"][0].dump(), Contains("conformance") && Contains("not done after"));
        CHECK(json["parts"]["conformance"]["status"] == "failed");
    }
    CHECK_FALSE(json["parts"].contains("kernel_table"));
    CHECK_THAT(json["skipped"].dump(), Contains("--time-limit 2: 0 s are left"));
}

TEST_CASE("what a benchmark measured before it was ended is in gpu-check's report", "[tools]") {
    const Bundle bundle("clean");
    bundle.script(
        "cleave_bench_gpu",
        R"(echo '{"copy": 1}'; echo '{"copy": 1, "decode": 2}'; echo '{"co'; kill -9 $$)");
    const gpu_check::Outcome outcome = bundle.run({"--parts", "benchmark"}, kFakeGpu);
    CHECK(outcome.code == 1);
    const Json json = bundle.report();
    CHECK(json["parts"]["benchmark"]["status"] == "failed");
    REQUIRE(json["parts"]["benchmark"].contains("result"));
    CHECK(json["parts"]["benchmark"]["result"] == Json({{"copy", 1}, {"decode", 2}}));
}

TEST_CASE("with a time limit the benchmark comes before the table of kernels", "[tools]") {
    const Bundle bundle("clean");
    bundle.script("cleave_bench_gpu", R"(echo '{"copy": 1}')");
    bundle.script("cleave_test_simt", "sleep 600 & wait");
    const gpu_check::Outcome outcome = bundle.run(
        {"--parts", "kernel_table,checked_model,benchmark", "--time-limit", "10"}, kFakeGpu);
    INFO(outcome.errors);
    CHECK(outcome.code == 1);
    const Json json = bundle.report();
    REQUIRE(json["parts"].contains("benchmark"));
    CHECK(json["parts"]["benchmark"]["status"] == "passed");
    CHECK(json["passed"] == false);
}

TEST_CASE("tokens agree with logits that choose them, or lie within the bound where they part",
          "[tools]") {
    const cleave::test::TemporaryFolder folder;
    const std::string path = folder.path() / "logits";
    // Two tokens of a prompt and two new ones, of a vocabulary of 3: the choices are in rows 1
    // and 2.
    const float rows[] = {0, 0, 0, 1, 2, 1.9f, -5, 1, 0};
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(rows), sizeof rows);
    const gpu_check::Logits logits(path, 2, 2);
    CHECK(logits.largest() == 5);
    CHECK(logits.disagreement({1, 1}, {1, 1}, 0) == "");
    CHECK(logits.disagreement({1, 1}, {2, 0}, 0.2) == "");
    CHECK_THAT(logits.disagreement({1, 1}, {2, 1}, 0.05),
               Contains("token 0 is 2 here and 1 there"));
    CHECK_THAT(logits.disagreement({1, 1}, {1, 0}, 0.2), Contains("token 1"));
    CHECK_THAT(logits.disagreement({1, 1}, {1, 7}, 9), Contains("token 1"));
    CHECK_THAT(logits.disagreement({1, 1}, {1}, 9), Contains("1 tokens here, 2 there"));
    CHECK_THAT(cleave::test::user_error([&] { gpu_check::Logits(path, 2, 3); }),
               Contains("4 rows"));
}

TEST_CASE("logits that are no finite numbers are refused with their place", "[tools]") {
    const cleave::test::TemporaryFolder folder;
    const std::string path = folder.path() / "logits";
    for (float no_number : {NAN, INFINITY, -INFINITY}) {
        const float rows[] = {0, 0, 0, 1, 2, 1.9f, -5, no_number, 0};
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(rows), sizeof rows);
        CHECK_THAT(cleave::test::user_error([&] { gpu_check::Logits(path, 2, 2); }),
                   Contains("row 2, column 1 is"));
    }
}

TEST_CASE("every part of gpu-check passes on a recording fake whose cards compute",
          "[tools][slow]") {
    const Bundle bundle("clean");
    bundle.link_programs();
    const gpu_check::Outcome outcome =
        bundle.run({"--shape", "stories-260k", "--checked-shape", "stories-260k", "--copy-mib", "2",
                    "--tokens", "4", "--python", "/no/such/python"},
                   kFakeGpu);
    INFO(outcome.errors);
    CHECK(outcome.code == 0);
    const Json json = bundle.report();
    CHECK(json["passed"] == true);
    CHECK(json["errors"].empty());
    CHECK(json["device"] == "cuda[0]");
    CHECK(json["devices"].size() == 3);
    REQUIRE(json["skipped"].size() == 2);
    CHECK(json["skipped"][0]["part"] == "stories15m");
    CHECK_THAT(json["skipped"][0]["reason"].get<std::string>(), Contains("packed without it"));
    CHECK(json["skipped"][1]["part"] == "benchmark against PyTorch");
    CHECK_THAT(json["skipped"][1]["reason"].get<std::string>(), Contains("/no/such/python"));
    for (const char* part :
         {"conformance", "kernel_table", "bundled_model", "bundled_model_bf16",
          "tp4_logical_devices", "tp2_cards", "checked_model", "random_model", "benchmark"}) {
        INFO(part);
        CHECK(json["parts"][part]["status"] == "passed");
    }
    for (const char* part :
         {"bundled_model", "bundled_model_bf16", "tp4_logical_devices", "tp2_cards"}) {
        const Json& text = json["parts"][part];
        CHECK(text["result"]["check_max_difference"] < text["bound"]);
        CHECK(text["own_choice"]["result"]["token_ids"].size() == 64);
    }
    CHECK(json["parts"]["bundled_model_bf16"]["result"]["prompt_ids"].size() >= 128);
    CHECK(json["parts"]["tp4_logical_devices"]["result"]["devices"].size() == 4);
    const char* home = std::getenv("HOME");
    if (home && *home)
        CHECK(json["doctor"].dump().find(std::string(home) + "/") == std::string::npos);
    const Json& bench = json["parts"]["benchmark"]["result"];
    for (const char* figure : {"ms_per_token", "ms_per_token_host_clock", "ms_of_graph",
                               "of_copy_bandwidth", "launches"})
        CHECK(bench["decode"][figure] > 0);
    CHECK(bench["copy"]["mib"] == 2);
    CHECK(bench["copy"]["kernel_gb_per_s"] > 0);
    CHECK(bench["copy"]["driver_gb_per_s"] > 0);
    CHECK(bench["copy"]["gb_per_s"] ==
          std::max(bench["copy"]["kernel_gb_per_s"], bench["copy"]["driver_gb_per_s"]));
    CHECK(bench["prefill"]["of_matmul"].is_null());
    CHECK(bench["decode"]["launch_gaps"]["token_less_traced_steps_ms"].is_number());
    CHECK(bench["decode"]["launch_gaps"]["empty_launches_of_token"] > 0);
    CHECK(bench["prefill"]["ms"] > 0);
    for (const char* phase : {"decode", "prefill"}) {
        INFO(phase);
        CHECK(bench[phase]["predicted_ms"] > 0);
        bool has_product = false;
        for (const Json& row : bench[phase]["steps"]) {
            CHECK(row["ms"] > 0);
            CHECK(row["predicted_ms"] > 0);
            has_product |= row["step"].get<std::string>().find("down_proj") != std::string::npos;
        }
        CHECK(has_product);
    }
}
