// SPDX-License-Identifier: Apache-2.0
// The folder that a bundle of tools/gpu-check unpacks to, and the environments in which its program
// finds no GPU or fakes of them.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/test.h"
#include "tools/gpu_check/process.h"

namespace cleave::test {

inline const std::vector<std::string> kNoGpu{"CLEAVE_CUDA_LIBRARY=libno-cuda.so",
                                             "CLEAVE_HIP_LIBRARY=libno-hip.so"};
inline const std::vector<std::string> kFakeGpu{
    "CLEAVE_CUDA_LIBRARY=" CLEAVE_FAKE_CUDA, "CLEAVE_HIP_LIBRARY=libno-hip.so",
    "CLEAVE_NCCL_LIBRARY=libno-nccl.so", "CLEAVE_GPU_COMPILER=simt"};

// The folder that a bundle unpacks to; its programs are put there by hand.
class Bundle {
public:
    explicit Bundle(const std::string& state) {
        std::filesystem::create_directories(folder() / "bin");
        std::filesystem::copy(CLEAVE_BUILD_DIR "/bin/cleave_gpu_check", folder() / "bin");
        std::filesystem::copy(source_root() / "tools/lib/gpu_check_launcher.sh",
                              folder() / "gpu-check");
        std::filesystem::permissions(folder() / "gpu-check", std::filesystem::perms::owner_all);
        std::filesystem::create_directory_symlink(source_root() / "models", folder() / "models");
        std::ofstream(folder() / "COMMIT") << "0123abcd\n" << state << "\n";
        script("cleave", "");  // the launcher asks whether it starts
    }
    const std::filesystem::path& folder() const { return folder_.path(); }
    std::filesystem::path report_path() const { return folder() / "report.json"; }

    void script(const std::string& name, const std::string& text) const {
        const std::filesystem::path path = folder() / "bin" / name;
        std::filesystem::remove(path);
        std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    // The host's compiler is among them.
    void link_libraries() const {
        std::filesystem::create_directory_symlink(CLEAVE_BUILD_DIR "/lib", folder() / "lib");
    }
    void link_programs() const {
        link_libraries();
        for (const char* name :
             {"cleave", "cleave_bench_gpu", "cleave_test_runtime", "cleave_test_simt"}) {
            std::filesystem::remove(folder() / "bin" / name);
            std::filesystem::create_symlink(std::filesystem::path(CLEAVE_BUILD_DIR "/bin") / name,
                                            folder() / "bin" / name);
        }
    }
    gpu_check::Outcome run(std::vector<std::string> flags,
                           const std::vector<std::string>& environment) const {
        std::vector<std::string> command{folder() / "gpu-check", "-o", report_path()};
        command.insert(command.end(), flags.begin(), flags.end());
        return gpu_check::run(command, 3000, environment);
    }
    // As its schema says.
    nlohmann::json report() const {
        const nlohmann::json json = nlohmann::json::parse(std::ifstream(report_path()));
        const nlohmann::json schema = nlohmann::json::parse(
            std::ifstream(source_root() / "tools" / "schema" / "gpu_check.schema.json"));
        CHECK(schema_errors(schema, json) == std::vector<std::string>());
        return json;
    }

private:
    TemporaryFolder folder_;
};

}  // namespace cleave::test
