// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/inspection.h"
#include "tools/inspect/page.h"

namespace cleave::tools {

std::string inspection_page(const Inspection& inspection) {
    constexpr std::string_view kPlace = "@DATA@";
    std::string page(page_template());
    std::string data = inspection_json(inspection, -1);
    // "</script" and "<!--" inside of it would end or change the element: JSON lets a slash and any letter be escaped.
    std::string safe;
    safe.reserve(data.size());
    for (char c : data) {
        if (c == '<')
            safe += "\\u003c";
        else
            safe += c;
    }
    return page.replace(page.find(kPlace), kPlace.size(), safe);
}

}  // namespace cleave::tools
