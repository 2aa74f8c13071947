// SPDX-License-Identifier: Apache-2.0
// What a program printed, as the report takes it.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace cleave::gpu_check {

// The end of a long text.
std::string tail(const std::string& text);

// The output as a whole, or its last line that is JSON: one that was ended may have cut the very
// last. An empty value without one.
nlohmann::ordered_json last_json(const std::string& output);

// JSON has null for what is not finite.
std::optional<double> number_of(const nlohmann::ordered_json& json, const char* key);

}  // namespace cleave::gpu_check
