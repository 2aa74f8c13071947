// SPDX-License-Identifier: Apache-2.0
// What a message says of an exception. std::bad_alloc's own text is its name in C++.
#pragma once

#include <exception>
#include <new>
#include <string>

namespace cleave {

inline std::string reason_of(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory on this host";
    return error.what();
}

}  // namespace cleave
