// SPDX-License-Identifier: Apache-2.0
// What a message says of an exception (std::bad_alloc's own text is its name in C++), and of a call
// to the system that failed.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <system_error>

namespace cleave {

inline std::string reason_of(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory on this host";
    return error.what();
}

// Of errno.
inline std::error_code last_error() { return {errno, std::generic_category()}; }

}  // namespace cleave
