// SPDX-License-Identifier: Apache-2.0
// What lies beside a model and says how to use it: files of its folder, or what a GGUF file says in
// their stead (runtime/text/gguf_texts.h).
#pragma once

#include <filesystem>
#include <optional>

#include "runtime/text/json_view.h"

namespace cleave::runtime {

// Where the companions of a model are: in a folder itself, in a GGUF file itself, else in the
// folder that the file lies in.
std::filesystem::path place_of_companions(const std::filesystem::path& model);

// The companion of that name; nothing where there is none. UserError for one that is no JSON.
// `place`: of place_of_companions.
std::optional<JsonFile> find_companion(const std::filesystem::path& place, const char* name);

}  // namespace cleave::runtime
