// SPDX-License-Identifier: Apache-2.0
// Starts programs as ranks of mpirun: over TCP on the loopback device, more of them than cores.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace cleave::test {

// Why there can be no ranks here; empty: there can.
inline std::string no_mpi() {
    const std::filesystem::path build =
        std::filesystem::path(CLEAVE_BINARY).parent_path().parent_path();
    if (!std::filesystem::exists(build / "lib/libcleave_mpi.so"))
        return "this build has no libcleave_mpi (package libopenmpi-dev)";
    if (run_program({"sh", "-c", "command -v mpirun"}).exit_code != 0)
        return "there is no mpirun (package openmpi-bin)";
    return "";
}

// The words in front of the program that each rank runs.
inline std::vector<std::string> mpirun(int ranks) {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    const std::string launcher = std::string(CLEAVE_SOURCE_DIR) + "/tools/mpirun";
    return {"timeout", "600",   launcher, "--oversubscribe", "--mca", "pml",
            "ob1",     "--mca", "btl",    "tcp,self",        "-np",   std::to_string(ranks)};
}

// The command line on so many ranks.
inline CommandResult run_ranks(int ranks, const std::vector<std::string>& arguments) {
    std::vector<std::string> command = mpirun(ranks);
    command.emplace_back(CLEAVE_BINARY);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command);
}

}  // namespace cleave::test
