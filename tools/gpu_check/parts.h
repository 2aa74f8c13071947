// SPDX-License-Identifier: Apache-2.0
// The parts of gpu-check, in their order: which are left out and why, and what each runs.
#pragma once

#include <string>
#include <vector>

#include "tools/gpu_check/devices.h"
#include "tools/gpu_check/runner.h"
#include "tools/gpu_check/texts.h"

namespace cleave::gpu_check {

class Parts {
public:
    // `device`: "cuda[0]", on which they run.
    Parts(Runner& runner, Cards cards, std::string device)
        : runner_(runner),
          report_(runner.report()),
          texts_(runner),
          cards_(std::move(cards)),
          device_(std::move(device)) {}

    // False where time ran out before one of them.
    bool run();

private:
    std::vector<std::string> order() const;
    // Why a part is left out; empty: it runs.
    std::string reason_against(const std::string& part);
    void take(const std::string& part);
    std::string stories15m() const;
    void two_cards(const std::string& part, const std::string& model);
    void test(const std::string& part, const char* name, const char* tag);
    void bench(const std::string& part);

    Runner& runner_;
    Report& report_;
    Texts texts_;
    Cards cards_;
    std::string device_;
    bool left_out_ = false;  // a part, for want of time
};

}  // namespace cleave::gpu_check
