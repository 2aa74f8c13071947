// SPDX-License-Identifier: Apache-2.0
// Implemented by a file that embed_templates.cmake writes at build time.
#pragma once

#include <span>
#include <string_view>

namespace cleave::codegen {

struct EmbeddedFile {
    std::string_view name;  // "host/linear.h"
    std::string_view text;
};

std::span<const EmbeddedFile> embedded_templates();

}  // namespace cleave::codegen
