// SPDX-License-Identifier: Apache-2.0
// Reads what `cleave plan --sweep AXIS=VALUES --json` printed (tools/schema/sweep.schema.json). In:
// the file. Out: its JSON, in which everything that the page draws is there, of its type.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace cleave::tools {

// UserError with the path, and the place in it, of what is missing or of another type.
nlohmann::ordered_json read_sweep(const std::string& path);

}  // namespace cleave::tools
