// SPDX-License-Identifier: Apache-2.0
// A program run to its end or to its time limit, with its output kept apart: a part that hangs or dies takes nothing with it.
#pragma once

#include <string>
#include <vector>

namespace cleave::gpu_check {

struct Outcome {
    int code = -1;           // its exit code; 128 + the signal that ended it
    bool timed_out = false;  // killed, with all that it started
    double seconds = 0;
    std::string output, errors;
};

// `environment`: "NAME=value" beside this process's own. UserError when the program cannot be started.
Outcome run(const std::vector<std::string>& command, int limit_seconds,
            const std::vector<std::string>& environment = {});

}  // namespace cleave::gpu_check
