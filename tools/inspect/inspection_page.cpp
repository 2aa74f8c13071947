// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/inspection.h"
#include "tools/inspect/inspection_tree.h"
#include "tools/inspect/page.h"
#include "tools/inspect/page_data.h"

namespace cleave::tools {

using Json = nlohmann::ordered_json;

namespace {

// Lists of a line for each step, link and kernel of each device repeat themselves.
Json packed_tree(const Inspection& inspection) {
    Json tree = inspection_tree(inspection);
    for (Json* rows : {&tree["plan"]["steps"], &tree["plan"]["links"], &tree["kernels"]})
        *rows = packed_rows(*rows);
    for (Json& pass : tree["passes"]) pass["start_us"] = packed_list(pass["start_us"]);
    return tree;
}

}  // namespace

std::string inspection_page(const Inspection& inspection) {
    return inspection_page(inspection, PageExtras{});
}

std::string inspection_page(const Inspection& inspection, const PageExtras& extras) {
    constexpr std::string_view kPlace = "@DATA@";
    std::string page(page_template());
    Json tree = packed_tree(inspection);
    tree["page"] = page_data(inspection);
    if (extras.against) tree["against"] = packed_tree(*extras.against);
    if (!extras.difference.is_null()) tree["difference"] = extras.difference;
    if (!extras.sweep.is_null()) tree["sweep"] = extras.sweep;
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
