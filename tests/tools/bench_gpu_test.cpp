// SPDX-License-Identifier: Apache-2.0
// `tools/bench gpu` on a fake of the driver: what it refuses, what it reports beside what it fails
// at, and what of PyTorch's rates it takes.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/support/test.h"
#include "tests/tools/support/gpu_bundle.h"
#include "tools/gpu_check/process.h"

using namespace cleave;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using cleave::test::kFakeGpu;
using cleave::test::kNoGpu;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

// The benchmark's report on a fake where nothing compiles, so that its rates are PyTorch's alone,
// with a Python that runs `script`.
Json benchmark_with_python(const std::string& script, const std::string& shape = "stories-260k") {
    const cleave::test::TemporaryFolder folder;
    const fs::path python = folder.path() / "python";
    std::ofstream(python) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(python, fs::perms::owner_all);
    std::vector<std::string> environment = kFakeGpu;
    environment.back() = "CLEAVE_COMPILE_WORKER=/no/such/worker";
    const gpu_check::Outcome outcome =
        gpu_check::run({std::string(CLEAVE_BUILD_DIR) + "/bin/cleave_bench_gpu", "--device",
                        "cuda[0]", "--shape", shape, "--tokens", "16", "--python", python},
                       60, environment);
    INFO(outcome.errors);
    REQUIRE_FALSE(outcome.output.empty());
    return Json::parse(outcome.output.substr(0, outcome.output.find('\n')));
}

std::string said(const std::string& name) {
    return R"(echo '{"name": ")" + name +
           R"(", "version": "2.9.1", "square": 6e14, "model": 5e14, "copy": 3e12}')";
}

}  // namespace

TEST_CASE("bench gpu refuses numbers and devices that it cannot measure with", "[tools]") {
    const auto refusal = [](const std::vector<std::string>& flags) {
        std::vector<std::string> command{CLEAVE_BUILD_DIR "/bin/cleave_bench_gpu"};
        command.insert(command.end(), flags.begin(), flags.end());
        const gpu_check::Outcome outcome = gpu_check::run(command, 60, kNoGpu);
        CHECK(outcome.code == 1);
        CHECK(outcome.output.empty());
        return outcome.errors;
    };
    CHECK_THAT(refusal({"--copy-mib", "0"}), Contains("--copy-mib 0: takes a whole number"));
    CHECK_THAT(refusal({"--tokens", "abc"}), Contains("--tokens abc: takes a whole number"));
    CHECK_THAT(refusal({"--tokens", "12x"}), Contains("--tokens 12x: takes a whole number"));
    CHECK_THAT(refusal({"--shape"}), Contains("--shape wants a value"));
    CHECK_THAT(refusal({"--device", "host[0]"}), Contains("takes one GPU"));
    CHECK_THAT(refusal({"--device", "cuda[0-1]"}), Contains("takes one GPU"));
    CHECK_THAT(refusal({"--fast"}), Contains("--fast is no flag"));
}

TEST_CASE("what bench gpu fails at stands beside what it measured", "[tools]") {
    std::vector<std::string> environment = kFakeGpu;
    environment.back() = "CLEAVE_COMPILE_WORKER=/no/such/worker";  // so that nothing compiles
    const gpu_check::Outcome outcome =
        gpu_check::run({std::string(CLEAVE_BUILD_DIR) + "/bin/cleave_bench_gpu", "--device",
                        "cuda[0]", "--shape", "stories-260k", "--python", "/no/such/python"},
                       60, environment);
    CHECK(outcome.code == 1);
    // A line after each figure.
    std::istringstream lines(outcome.output);
    Json json;
    for (size_t figures = 1; figures <= 3; ++figures) {
        std::string line;
        REQUIRE(std::getline(lines, line));
        json = Json::parse(line);
        CHECK(json["errors"].size() == figures);
    }
    CHECK(json["device"] == "cuda[0]");
    REQUIRE(json["errors"].size() == 3);
    for (size_t i = 0; i < 3; ++i) {
        const char* const kFigures[] = {"copy", "decode", "prefill"};
        CHECK_THAT(json["errors"][i].get<std::string>(),
                   StartsWith(kFigures[i]) && Contains("/no/such/worker"));
        CHECK_THAT(outcome.errors, Contains(json["errors"][i].get<std::string>()));
    }
}

TEST_CASE("PyTorch is measured in the user's environment, without what Cleave sets for itself",
          "[tools]") {
    const cleave::test::TemporaryFolder folder;
    const fs::path python = folder.path() / "python", seen = folder.path() / "seen";
    std::ofstream(python) << "#!/bin/sh\nenv >" << seen.string() << "\n";
    fs::permissions(python, fs::perms::owner_all);
    std::vector<std::string> environment = kFakeGpu;
    environment.back() = "CLEAVE_COMPILE_WORKER=/no/such/worker";  // so that nothing compiles
    environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=7");
    gpu_check::run({std::string(CLEAVE_BUILD_DIR) + "/bin/cleave_bench_gpu", "--device", "cuda[0]",
                    "--shape", "stories-260k", "--python", python},
                   60, environment);
    std::stringstream text;
    text << std::ifstream(seen).rdbuf();
    CHECK_THAT(text.str(), Contains("CUDA_DEVICE_MAX_CONNECTIONS=7\n"));
    CHECK_THAT(text.str(), !Contains("CUDA_MODULE_LOADING"));
}

TEST_CASE("bench gpu names the PyTorch that it compares with, and both rates of its matmul",
          "[tools]") {
    const Json json = benchmark_with_python(said("NVIDIA H100 80GB HBM3"));
    CHECK(json["pytorch"]["version"] == "2.9.1");
    CHECK(json["pytorch"]["matmul_8192_tflops"] == 600);
    CHECK(json["pytorch"]["matmul_of_model_tflops"] == 500);
    CHECK_FALSE(json["pytorch"].contains("reason"));
}

TEST_CASE("PyTorch multiplies the model's own products of a prompt", "[tools]") {
    const cleave::test::TemporaryFolder folder;
    const fs::path seen = folder.path() / "seen";
    // After -c and the script: card, bytes of a copy, tokens, products.
    benchmark_with_python(
        "shift 2; echo $@ >" + seen.string() + "; " + said("NVIDIA H100 80GB HBM3"), "llama-3-8b");
    std::stringstream text;
    text << std::ifstream(seen).rdbuf();
    CHECK(text.str() == "0 4294967296 64 4096x6144,4096x4096,4096x28672,14336x4096\n");
}

TEST_CASE("rates of PyTorch count for its own card alone, and why there are none is told",
          "[tools]") {
    const Json other = benchmark_with_python(said("NVIDIA T4"));
    CHECK(other["pytorch"] ==
          Json({{"reason", "PyTorch's card 0 is NVIDIA T4, not NVIDIA H100 80GB HBM3"}}));
    CHECK_THAT(benchmark_with_python("echo no module torch >&2; exit 1")["pytorch"]["reason"]
                   .get<std::string>(),
               Contains("no module torch"));
    CHECK_THAT(benchmark_with_python("echo done")["pytorch"]["reason"].get<std::string>(),
               Contains("done"));
    CHECK_THAT(benchmark_with_python("echo '{}'")["pytorch"]["reason"].get<std::string>(),
               Contains("{}"));
}

TEST_CASE("gpu-check says that the benchmark was compared with no PyTorch, and why", "[tools]") {
    const cleave::test::Bundle bundle("clean");
    bundle.script("cleave_bench_gpu", R"(echo '{"pytorch": {"reason": "no such program"}}')");
    const gpu_check::Outcome outcome = bundle.run({"--parts", "benchmark"}, kFakeGpu);
    CHECK(outcome.code == 0);
    CHECK_THAT(bundle.report()["skipped"].dump(),
               Contains("benchmark against PyTorch") && Contains("no such program"));
}
