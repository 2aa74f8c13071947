// SPDX-License-Identifier: Apache-2.0
// Files of the commands. Those that are written are checked before work starts, complete or absent
// afterwards.
#pragma once

#include <span>
#include <string>

namespace cleave::tools {

// All of standard input. UserError with the reason where it cannot be read, and above 256 MiB.
std::string read_standard_input();

// The bytes of a file, a pipe or a device; of "-" those of standard input. UserError naming the
// flag, the path and the reason.
std::string read_text_file(const std::string& flag, const std::string& path);

// UserError where `path` is a file that this process has read (runtime/base/inputs.h).
void refuse_input(const std::string& flag, const std::string& path);

// UserError naming the flag, the path and the reason when `path` cannot be written, or is one that
// was read. Leaves nothing behind.
void check_writable(const std::string& flag, const std::string& path);

// Writes as AtomicFile does. UserError as above.
void write_file(const std::string& flag, const std::string& path, std::span<const char> bytes);

}  // namespace cleave::tools
