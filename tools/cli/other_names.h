// SPDX-License-Identifier: Apache-2.0
// Options by the names that other tools have for the same thing, taken for those here. A name is in
// the table only where a user who types it gets what it means there.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"
#include "tools/cli/command_tree.h"

namespace cleave::tools {

struct OtherName {
    std::string_view name;   // "--tensor-parallel-size"
    std::string_view whose;  // "vLLM"
    std::string_view here;   // "--tp"; "MODEL" for the positional
};

std::span<const OtherName> other_names();

// Whether the command has the option that the name stands for, and none of that name itself.
bool is_taken_by(const OtherName& name, const CommandFacts& command);

// Types by the names that other tools have for them: "fp16", "bfloat16", "q4_0".
struct OtherType {
    std::string_view name, whose;
    DType dtype;
};
std::span<const OtherType> other_types();

}  // namespace cleave::tools
