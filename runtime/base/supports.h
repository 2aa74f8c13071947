// SPDX-License-Identifier: Apache-2.0
// An expected absence with its reason, never a bare bool: `Supports{false, "needs AVX2"}`.
#pragma once

#include <string>

namespace cleave {

struct Supports {
    bool yes = false;
    std::string reason;  // empty when `yes`

    explicit operator bool() const { return yes; }
};

}  // namespace cleave
