// SPDX-License-Identifier: Apache-2.0
// The one way in which files of others become text and JSON: regular files alone, of bounded size
// and depth, and errors in plain words with line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace cleave {

inline constexpr int64_t kMostJsonBytes = int64_t{256} << 20;
inline constexpr size_t kMostJsonDepth = 64;
inline constexpr size_t kMostJsonValues = size_t{8} << 20;

// The whole file. UserError with the path and the reason: absent, a folder, a pipe or a device,
// more than `most_bytes`, not readable.
std::string read_regular_file(const std::filesystem::path& path,
                              int64_t most_bytes = kMostJsonBytes);

// The same of a file of any size, to a stream. UserError also where it has not so many bytes (-1:
// as many as at the beginning).
void copy_regular_file(const std::filesystem::path& path, std::ostream& to, int64_t bytes = -1);

// UserError "ORIGIN: line 3, column 5: no JSON: unexpected '}'; expected string literal"; so, too,
// for numbers that no double holds, for values more than kMostJsonDepth inside each other, for more
// than kMostJsonValues, and for a name that the outermost object has twice. Takes time by the
// text's length. `fix` follows where it is no JSON.
nlohmann::json parse_json(std::string_view text, const std::string& origin,
                          std::string_view fix = {});

// The same, with the names of objects in the order in which they are written; an object has at
// most kMostOrderedNames.
inline constexpr size_t kMostOrderedNames = 4096;
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& origin);

nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace cleave
