// SPDX-License-Identifier: Apache-2.0
// Published configurations by name, for families whose Shape is more than a Llama's. In: a shape
// name, "qwen3-8b". Out: what the model's config.json says of its sizes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cleave::models {

// JSON; empty for a name that is not here.
std::string_view named_config(std::string_view name);
std::vector<std::string> config_names();

}  // namespace cleave::models
