// SPDX-License-Identifier: Apache-2.0
// tools/gpu-check as far as it goes without a GPU: what it says and writes, how it runs its parts, and that its bundle takes
// along every library that the programs are linked with but the system's.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/support/test.h"
#include "tools/gpu_check/process.h"

using namespace cleave;
using Catch::Matchers::Contains;

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

TEST_CASE("gpu-check without a GPU says so in its report and fails", "[tools]") {
    const cleave::test::TemporaryFolder folder;
    const std::string report = folder.path() / "report.json";
    const gpu_check::Outcome outcome =
        gpu_check::run({CLEAVE_BUILD_DIR "/bin/cleave_gpu_check", "-o", report}, 60,
                       {"CLEAVE_CUDA_LIBRARY=libno-cuda.so", "CLEAVE_HIP_LIBRARY=libno-hip.so"});
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.errors, Contains("no GPU was found") && Contains("libno-cuda.so"));
    std::ifstream file(report);
    const nlohmann::json json = nlohmann::json::parse(file);
    CHECK(json["passed"] == false);
    CHECK(json["devices"].empty());
    CHECK(json["parts"].empty());
    CHECK(json["drivers"].size() == 2);
    CHECK_THAT(json["errors"][0]["error"].get<std::string>(),
               Contains("libno-cuda.so") && Contains("libno-hip.so"));
    const gpu_check::Outcome wrong =
        gpu_check::run({CLEAVE_BUILD_DIR "/bin/cleave_gpu_check", "--no-such-flag"}, 60);
    CHECK(wrong.code == 1);
    CHECK_THAT(wrong.errors, Contains("--no-such-flag") && Contains("usage"));
}

TEST_CASE("the bundle of gpu-check takes along every library that is not the system's", "[tools]") {
    const std::string program = CLEAVE_BINARY;
    const gpu_check::Outcome all = gpu_check::run({"ldd", program}, 60);
    const gpu_check::Outcome packed = gpu_check::run(
        {(cleave::test::source_root() / "tools" / "gpu-check").string(), "--libraries", program},
        60);
    REQUIRE(all.code == 0);
    REQUIRE(packed.code == 0);
    std::istringstream lines(all.output);
    int taken = 0;
    for (std::string name, arrow, path, address; lines >> name;) {
        std::getline(lines, address);
        const std::string stem = name.substr(name.rfind('/') + 1);
        bool system = false;
        for (const char* known :
             {"linux-vdso.so", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so",
              "librt.so", "libresolv.so", "libstdc++.so", "libgcc_s.so"})
            system = system || stem.starts_with(known);
        INFO(stem);
        CHECK((packed.output.find(stem + " /") != std::string::npos) == !system);
        taken += !system;
    }
    CHECK(taken >= 5);  // fmt, METIS, hwloc, PCRE2, utf8proc at least
}
