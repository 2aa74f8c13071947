// SPDX-License-Identifier: Apache-2.0
// The flags that say how tokens are chosen (tools/CLI.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/generate/sampling.h"

namespace cleave::tools {

struct SamplingFlags {
    runtime::SamplingOptions options;
    std::vector<std::string> logit_bias;  // "ID=VALUE"
    std::optional<uint64_t> seed;
    bool is_seed_drawn = false;  // by draw_seed

    // Whether a flag here makes a difference to the tokens.
    bool given() const;
};

void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

// A seed for tokens that are drawn where none is given, another one each time.
void draw_seed(SamplingFlags& flags);
// Says on standard error which seed was drawn, and how to have it again.
void say_seed(const SamplingFlags& flags);

// The options; UserError for a bias that is no ID=VALUE, and for a flag that would do nothing.
runtime::SamplingOptions sampling_options(const SamplingFlags& flags);

}  // namespace cleave::tools
