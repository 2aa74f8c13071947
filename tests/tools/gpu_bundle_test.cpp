// SPDX-License-Identifier: Apache-2.0
// The bundle of tools/gpu-check: how it unpacks itself, that it takes along every library that the
// programs are linked with but the system's, and that it is refused where one of its files needs
// what a machine with glibc 2.36 may lack.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "tests/support/test.h"
#include "tools/gpu_check/process.h"

using namespace cleave;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

gpu_check::Outcome script(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment = {}) {
    std::vector<std::string> command{cleave::test::source_root() / "tools" / "gpu-check"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return gpu_check::run(command, 60, environment);
}

// What `--requirements` says of a bundle's folder that holds, beside an honest program, `files` in
// lib/.
gpu_check::Outcome requirements(const std::vector<fs::path>& files) {
    const cleave::test::TemporaryFolder made;
    for (const char* folder : {"bin", "lib", "fallback", "models"})
        fs::create_directories(made.path() / folder);
    fs::copy(CLEAVE_BUILD_DIR "/bin/cleave_gpu_check_pack", made.path() / "bin");
    std::ofstream(made.path() / "models" / "config.json") << "{}\n";
    for (const fs::path& file : files) fs::copy(file, made.path() / "lib");
    return script({"--requirements", made.path()});
}

}  // namespace

TEST_CASE("a bundle whose files need glibc 2.36 at most and each other is accepted", "[tools]") {
    const fs::path absent = fs::path(CLEAVE_NEEDS_ABSENT).parent_path();
    const gpu_check::Outcome outcome = requirements(
        {CLEAVE_NEEDS_GLIBC_2_36, CLEAVE_NEEDS_ABSENT, absent / "libcleave_absent_library.so"});
    CHECK(outcome.errors.empty());
    CHECK(outcome.output.empty());
    CHECK(outcome.code == 0);
}

TEST_CASE("a bundle with a file that needs a newer glibc is refused by file, version and symbol",
          "[tools]") {
    const gpu_check::Outcome outcome =
        requirements({CLEAVE_NEEDS_GLIBC_2_36, CLEAVE_NEEDS_GLIBC_2_99});
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.errors,
               Contains("lib/" + fs::path(CLEAVE_NEEDS_GLIBC_2_99).filename().string() +
                        ": GLIBC_2.99 of libc.so.6, which glibc 2.36 lacks (symbols: "
                        "of_another_library)") &&
                   !Contains(fs::path(CLEAVE_NEEDS_GLIBC_2_36).filename().string()));
}

TEST_CASE(
    "a bundle with a file that needs a library which is neither packed nor glibc's is refused",
    "[tools]") {
    const gpu_check::Outcome outcome = requirements({CLEAVE_NEEDS_ABSENT});
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.errors,
               Contains(fs::path(CLEAVE_NEEDS_ABSENT).filename().string() +
                        ": libcleave_absent_library.so is neither in the bundle nor a part of "
                        "glibc"));
    CHECK_THAT(script({"--requirements", "/no/such/folder"}).errors,
               Contains("/no/such/folder: no folder of a bundle"));
}

TEST_CASE("a bundle that cannot be written is refused before anything is built for it", "[tools]") {
    const auto refusal = [](const std::string& file, const std::vector<std::string>& environment) {
        const gpu_check::Outcome outcome = script({"--bundle", file}, environment);
        CHECK(outcome.code == 1);
        CHECK_FALSE(outcome.timed_out);
        CHECK_THAT(outcome.errors, !Contains("ninja"));
        return outcome.errors;
    };
    const cleave::test::TemporaryFolder folder;
    CHECK_THAT(refusal("/no/such/card.tar.gz", {}),
               Contains("/no/such/card.tar.gz: cannot be written"));
    CHECK_THAT(refusal(folder.path(), {}), Contains("cannot be written"));
    CHECK_THAT(refusal(folder.path() / "card.tar.gz", {"CLEAVE_STORIES15M=/no/such"}),
               Contains("CLEAVE_STORIES15M=/no/such: no .onnx with its .onnx.data and "
                        "tokenizer.model there"));
    CHECK_FALSE(fs::exists(folder.path() / "card.tar.gz"));
}

TEST_CASE("a bundle in a folder that cannot be written says so", "[tools]") {
    const cleave::test::TemporaryFolder folder;
    fs::copy(cleave::test::source_root() / "tools/lib/gpu_check_launcher.sh",
             folder.path() / "gpu-check");
    std::ofstream(folder.path() / "payload.tar.zst") << "";
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
    std::vector<std::string> command{"/bin/sh", folder.path() / "gpu-check"};
    if (::geteuid() == 0)  // who else may write everywhere
        command.insert(command.begin(),
                       {"setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override"});
    const gpu_check::Outcome outcome = gpu_check::run(command, 60);
    fs::permissions(folder.path(), fs::perms::owner_all);
    CHECK(outcome.code == 1);
    CHECK(outcome.errors == "gpu-check: " + folder.path().string() +
                                " cannot be written: the bundle unpacks itself there, once; move "
                                "it to a folder that can be\n");
}

TEST_CASE(
    "a bundle unpacks itself once, widens the weights it took along, and says what is damaged",
    "[tools]") {
    const cleave::test::TemporaryFolder made;
    const fs::path& folder = made.path();
    const std::string pack = CLEAVE_BUILD_DIR "/bin/cleave_gpu_check_pack";
    const auto shell = [&](const std::string& line) {
        return gpu_check::run({"/bin/sh", "-c", "cd " + folder.string() + " && " + line}, 60);
    };
    // Blocks of many sizes, of zeros, and of one value alone.
    std::vector<float> weights(32 * 40);
    for (size_t i = 0; i < weights.size(); ++i)
        weights[i] =
            std::ldexp(std::sin(static_cast<float>(i) * 0.7f), static_cast<int>(i / 32) - 20);
    std::fill(weights.begin(), weights.begin() + 32, 0.0f);
    std::fill(weights.begin() + 32, weights.begin() + 63, 0.0f);
    fs::create_directories(folder / "models/stories15M");
    fs::create_directories(folder / "bin");
    std::ofstream(folder / "weights", std::ios::binary)
        .write(reinterpret_cast<const char*>(weights.data()),
               static_cast<std::streamsize>(weights.size() * sizeof(float)));
    fs::copy(cleave::test::source_root() / "tools/lib/gpu_check_launcher.sh", folder / "gpu-check");
    std::ofstream(folder / "bin/cleave") << "#!/bin/sh\n";
    std::ofstream(folder / "bin/cleave_gpu_check") << "#!/bin/sh\necho started with $1\n";
    const gpu_check::Outcome packed =
        shell("chmod +x gpu-check bin/* && cp " + pack +
              " pack && ./pack narrow <weights >models/stories15M/m.onnx.data.narrow && "
              "tar -cf - bin models | ./pack compress >payload.tar.zst && rm -r bin models");
    INFO(packed.errors);
    REQUIRE(packed.code == 0);
    // A payload that is cut short is an error, and what was unpacked stays.
    REQUIRE(shell("cp payload.tar.zst whole && head -c 200 whole >payload.tar.zst").code == 0);
    const gpu_check::Outcome damaged = shell("./gpu-check one");
    CHECK(damaged.code == 1);
    CHECK_THAT(damaged.errors, Contains("ends before its time") && Contains("unpacking into"));
    CHECK_FALSE(fs::exists(folder / "payload.tar"));
    CHECK(fs::exists(folder / "payload.tar.zst"));
    REQUIRE(shell("mv whole payload.tar.zst").code == 0);
    for (int start = 0; start < 2; ++start) {
        const gpu_check::Outcome outcome = shell("./gpu-check one");
        INFO(outcome.errors);
        CHECK(outcome.code == 0);
        CHECK(outcome.output == "started with one\n");
        CHECK_FALSE(fs::exists(folder / "payload.tar.zst"));
        CHECK_FALSE(fs::exists(folder / "models/stories15M/m.onnx.data.narrow"));
    }
    std::vector<float> got(weights.size());
    std::ifstream data(folder / "models/stories15M/m.onnx.data", std::ios::binary);
    data.read(reinterpret_cast<char*>(got.data()),
              static_cast<std::streamsize>(got.size() * sizeof(float)));
    REQUIRE(data.gcount() == static_cast<std::streamsize>(got.size() * sizeof(float)));
    CHECK(data.peek() == EOF);
    for (size_t block = 0; block < weights.size(); block += 32) {
        float largest = 0;
        for (size_t i = block; i < block + 32; ++i)
            largest = std::max(largest, std::fabs(weights[i]));
        for (size_t i = block; i < block + 32; ++i)
            CHECK(std::fabs(got[i] - weights[i]) <= largest / 127 * 0.505f);
    }
    CHECK_THAT(shell("printf abc | ./pack narrow").errors, Contains("whole blocks of 32"));
    CHECK_THAT(shell("./pack widen <weights").errors, Contains("pack narrow"));
}

TEST_CASE("the bundle of gpu-check takes along every library that is not the system's", "[tools]") {
    const std::string program = CLEAVE_BINARY;
    const gpu_check::Outcome all = gpu_check::run({"ldd", program}, 60);
    const gpu_check::Outcome packed = script({"--libraries", program});
    REQUIRE(all.code == 0);
    REQUIRE(packed.code == 0);
    // A program that is not there adds nothing, and is no error.
    const gpu_check::Outcome whole =
        script({"--libraries", CLEAVE_BUILD_DIR "/bin/cleave_gpu_check_pack", "/no/such/program"});
    CHECK(whole.output.empty());
    CHECK_THAT(whole.errors, !Contains("not a dynamic executable") && Contains("/no/such/program"));
    std::istringstream lines(all.output);
    int taken = 0;
    for (std::string name, rest; lines >> name;) {
        std::getline(lines, rest);
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
