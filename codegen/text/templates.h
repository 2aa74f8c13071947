// SPDX-License-Identifier: Apache-2.0
// The template files of codegen/templates/, embedded at build time: nothing is looked up at run
// time. A kernel's source is the concatenation of the files it needs, each once, dependencies
// first, without their #include lines and comment heads.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "runtime/base/hash.h"

namespace cleave::codegen {

// Text of "host/linear.h"; InternalError for a name that was not embedded.
std::string_view template_file(std::string_view name);

// A text, and the digest that begins with it: a device's launches share few texts of a hundred
// kilobytes.
struct FlattenedTemplate {
    std::string text;
    Digest digest;
};

// `name` after everything that it includes but for `left_out`, as one text free of #include. Made
// once a process and combination; any thread.
const FlattenedTemplate& flattened_template(std::string_view name,
                                            const std::set<std::string>& left_out = {});
inline const std::string& flatten_template(std::string_view name) {
    return flattened_template(name).text;
}

// Where the files of gpu/ stand in a kernel's source, as they are embedded: [begin, prelude_end) is
// gpu/prelude.cuh with what it includes, [begin, end) all up to the first that was changed or is
// none. Empty where anything but comments goes before them.
struct TemplatePart {
    size_t begin = 0, prelude_end = 0, end = 0;
};
TemplatePart find_templates(std::string_view source);

}  // namespace cleave::codegen
