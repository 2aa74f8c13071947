// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/inspection.h"
#include "tools/inspect/inspection_tree.h"
#include "tools/inspect/page.h"

namespace cleave::tools {

using Json = nlohmann::ordered_json;

std::string inspection_page(const Inspection& inspection) {
    constexpr std::string_view kPlace = "@DATA@";
    std::string page(page_template());
    // Lists of a line for each step, link and kernel of each device repeat themselves.
    Json tree = inspection_tree(inspection);
    for (Json* rows : {&tree["plan"]["steps"], &tree["plan"]["links"], &tree["kernels"]})
        *rows = packed_rows(*rows);
    for (Json& pass : tree["passes"]) pass["start_us"] = packed_list(pass["start_us"]);
    const std::string data = tree.dump(-1, ' ', false, Json::error_handler_t::replace);
    // "</script" and "<!--" inside of it would end or change the element: JSON lets a slash and any
    // letter be escaped.
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
