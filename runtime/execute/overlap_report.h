// SPDX-License-Identifier: Apache-2.0
// What became of launches that may begin before those before them have ended
// (codegen::Launch::overlaps), on a session's GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace cleave::runtime {

struct OverlapReport {
    int64_t launches = 0;  // that were put on streams so; those of a captured graph count once, not
                           // with each replay
    std::map<std::string, std::string> reasons;  // by the name of a device on which none are: why
};

}  // namespace cleave::runtime
