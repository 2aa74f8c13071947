// SPDX-License-Identifier: Apache-2.0
// What is at a path. Absent is what the system says is not there (ENOENT, ENOTDIR); any other error
// of its is UserError with the path and the reason, as what is there is then not known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace cleave {

// Of what a link leads to. file_type::not_found for nothing.
std::filesystem::file_type type_at(const std::filesystem::path& path);

bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
// Not a pipe, of which a reader would wait for a writer.
bool is_file(const std::filesystem::path& path);

// The path past its links, as far as it is there; of a pipe that has a number for a name, that.
std::filesystem::path real_path(const std::filesystem::path& path);

// The bytes of a regular file; nothing where none is.
std::optional<uint64_t> size_at(const std::filesystem::path& path);

}  // namespace cleave
