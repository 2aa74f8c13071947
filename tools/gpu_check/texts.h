// SPDX-License-Identifier: Apache-2.0
// Parts that let a trained model write, by the command itself: once with its logits, which are
// compared with the host's, and once as users run it, where the GPU chooses the tokens.
#pragma once

#include <string>
#include <vector>

#include "tools/gpu_check/logits.h"
#include "tools/gpu_check/runner.h"

namespace cleave::gpu_check {

struct TextPart {
    std::string name;
    std::string model;
    std::string devices;
    int tp = 1;
    bool bf16 = false;
};

class Texts {
public:
    explicit Texts(Runner& runner) : runner_(runner), report_(runner.report()) {}
    void run(const TextPart& part);

private:
    static std::vector<std::string> command_of(const TextPart& part, const std::string& program);
    void check_own_choice(const TextPart& part, const std::vector<std::string>& command,
                          const Json& with_logits, const Logits& logits, double bound);
    // Launches that begin early change no number: `overlap` of the results counts them.
    void compare_without_overlap(const TextPart& part, const std::vector<std::string>& command,
                                 const std::vector<int32_t>& chosen);
    // In f32 the tokens are the same on any number of devices, unless two logits are so near that
    // the order of a sum decides.
    void compare_with_one_device(const TextPart& part, const Logits& logits,
                                 const std::vector<int32_t>& tokens, double bound);
    // Runs a text that failed or is wrong again, step by step and without captured graphs, so that
    // the report names the step.
    void explain(const std::string& part, std::vector<std::string> command);

    Runner& runner_;
    Report& report_;
    std::vector<int32_t> one_device_;  // tokens of the bundled model
};

}  // namespace cleave::gpu_check
