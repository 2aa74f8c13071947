// SPDX-License-Identifier: Apache-2.0
// The page of page/, put together and embedded at build time (embed_page.cmake): nothing is looked
// up at run time.
#pragma once

#include <string_view>

namespace cleave::tools {

std::string_view page_template();

}  // namespace cleave::tools
