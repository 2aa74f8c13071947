// SPDX-License-Identifier: Apache-2.0
// The escapes of a string literal (\n, \t, \\, \', \", \xHH, \uHHHH, \UHHHHHHHH, octal, ...), as
// Python reads them; an unknown escape stays as it is.
#pragma once

#include <string>
#include <string_view>

namespace cleave::runtime::jinja {

// `text`: the inside of the quotes. Throws TemplateError on a cut-off \x, \u or \U.
std::string unescape(std::string_view text, int line);

}  // namespace cleave::runtime::jinja
