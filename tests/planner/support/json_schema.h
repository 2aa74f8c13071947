// SPDX-License-Identifier: Apache-2.0
// The part of JSON Schema that the schemas in tools/schema/ use: type, enum, minimum, properties,
// required, additionalProperties (false), items. Keywords it does not know are reported, so that
// none is passed over.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace cleave::test {

// What is wrong with `value`, a line each, with its path; empty: valid.
std::vector<std::string> schema_errors(const nlohmann::json& schema, const nlohmann::json& value,
                                       const std::string& path = "$");

}  // namespace cleave::test
