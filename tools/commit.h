// SPDX-License-Identifier: Apache-2.0
// The commit that this program was built from (tools/cmake/write_commit.cmake).
#pragma once

namespace cleave::tools {

// Twelve digits, with "+" where a file differed from it; "unknown".
const char* commit();

}  // namespace cleave::tools
