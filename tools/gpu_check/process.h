// SPDX-License-Identifier: Apache-2.0
// A program run to its end or to its time limit, with its output kept apart: a part that hangs or
// dies takes nothing with it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace cleave::gpu_check {

struct Outcome {
    int code = -1;           // its exit code; 128 + the signal that ended it; -1: it does not end
    bool timed_out = false;  // killed, with all that it started
    bool lives_on = false;   // killed in vain: the system waits for the card in its name
    int limit = 0;           // seconds that it was given
    double seconds = 0;
    std::string output, errors;
};

// How a child ended (waitpid), or nothing if it has not within that time.
std::optional<int> end_of(int child, std::chrono::milliseconds patience);

// `environment`: "NAME=value" beside this process's own, "NAME" taken out of it. UserError when the
// program cannot be started.
Outcome run(const std::vector<std::string>& command, int limit_seconds,
            const std::vector<std::string>& environment = {});

}  // namespace cleave::gpu_check
