// SPDX-License-Identifier: Apache-2.0
// What lies in a folder. std::filesystem's directory_iterator ends the process where memory ends,
// in functions of its own that may not throw; these throw std::bad_alloc.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/descriptor.h"

namespace cleave {

// The names of a folder's entries in order of their bytes, without "." and "..". Where it cannot be
// read, `error` says why, and what was read until then is returned; else `error` is cleared.
std::vector<std::string> names_in(const std::filesystem::path& folder, std::error_code& error);

// Of a folder that may be missing or closed to us, which then counts as empty.
std::vector<std::string> names_in(const std::filesystem::path& folder);

// Of what may be no folder, and then has none. UserError where a folder cannot be read.
std::vector<std::string> names_if_folder(const std::filesystem::path& path);

// Of a folder that was opened to be read; with nothing open, `error` is what errno says.
std::vector<std::string> names_in(Descriptor folder, std::error_code& error);

}  // namespace cleave
