// SPDX-License-Identifier: Apache-2.0
// The names in the libraries' texts, spelled for their reader. A library knows no flag: its texts
// name an option `$kv_dtype`, and what the caller can do `$save_plan`. In: such a text. Out: the
// text with flags and commands, or with the fields and functions of libcleave. Invariants: a name
// that the table lacks stays as it is; every name in a library's text is in the table (tested).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace cleave::tools {

struct Spelling {
    std::string_view name;     // "kv_dtype"
    std::string_view command;  // "--kv-dtype"
    std::string_view api = name;
};

// Sorted by name.
std::span<const Spelling> spellings();

std::string spell_for_command_line(std::string_view text);
std::string spell_for_api(std::string_view text);

}  // namespace cleave::tools
