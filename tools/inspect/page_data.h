// SPDX-License-Identifier: Apache-2.0
// The page, and what it carries beside the JSON of `cleave inspect --json`, for what its reader may
// click: who holds each value and weight, what each step reads, the bytes of each link, kernels'
// texts, facts of the model and the devices. Long lists are packed (inspection_tree.h); devices,
// names and dtypes in them are places.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/inspect/inspection.h"

namespace cleave::tools {

nlohmann::ordered_json page_data(const Inspection& inspection);

// What a page shows beside one plan.
struct PageExtras {
    const Inspection* against = nullptr;  // another plan; not owned
    nlohmann::ordered_json difference;    // from this to that (tools/schema/diff.schema.json)
    nlohmann::ordered_json sweep;         // tools/schema/sweep.schema.json, or null
};

std::string inspection_page(const Inspection& inspection, const PageExtras& extras);

}  // namespace cleave::tools
