// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/metaspace.h"

namespace cleave::runtime {

Metaspace read_metaspace(const JsonView& json) {
    Metaspace meta;
    meta.replacement = json.string_or("replacement", "\xE2\x96\x81");
    if (meta.replacement.empty()) json.at("replacement").fail("expected one character");
    meta.split = json.bool_or("split", true);
    if (json.has("prepend_scheme")) {
        const std::string& scheme = json.at("prepend_scheme").as_string();
        if (scheme == "always") {
            meta.scheme = Metaspace::Scheme::kAlways;
        } else if (scheme == "first") {
            meta.scheme = Metaspace::Scheme::kFirst;
        } else if (scheme == "never") {
            meta.scheme = Metaspace::Scheme::kNever;
        } else {
            json.at("prepend_scheme")
                .fail("'" + scheme + "' is not supported (supported: always, first, never)");
        }
    } else if (!json.bool_or("add_prefix_space", true)) {
        meta.scheme = Metaspace::Scheme::kNever;
    }
    return meta;
}

}  // namespace cleave::runtime
