// SPDX-License-Identifier: Apache-2.0
// The command line of gpu-check, checked before anything runs: a flag that a part would refuse an
// hour later is refused now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::gpu_check {

struct Arguments {
    std::string device;  // "cuda[0]"; empty: the first that is found
    std::string output = "gpu-check.json";
    std::string stories15m;                        // a folder or file of that model
    std::string python;                            // with PyTorch, for its rates; empty: python3
    std::string shape = "llama-3-8b";              // of the random model and the benchmark
    std::string checked_shape = "tinyllama-1.1b";  // of the random model compared with the host
    std::string nvrtc, copy_mib, tokens;
    std::vector<std::string> parts;  // empty: all
    bool quick = false;              // without random models and the benchmark
    int64_t time_limit = 0;          // seconds for all parts together; 0: each its own alone
    bool help = false;
};

// In the order in which they run.
const std::vector<std::string>& part_names();
// Seconds that each process of a part may take; a text takes up to four.
int seconds_of(const std::string& part);
std::string usage();

// UserError for a word that is no flag, a flag without its value, and a value that some part would
// refuse.
Arguments parse(int argc, char** argv);

}  // namespace cleave::gpu_check
