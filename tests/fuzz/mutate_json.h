// SPDX-License-Identifier: Apache-2.0
// Changes a JSON value as a hostile or careless client might, so that it stays JSON: the readers
// behind the parser are reached, which random bytes hardly do. Same seed, same change, but for what
// libFuzzer makes of texts.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

namespace cleave::fuzz {

// One to four changes: values, names, places, and schemas around schemas.
void mutate_json(nlohmann::ordered_json& value, uint64_t seed);

}  // namespace cleave::fuzz
