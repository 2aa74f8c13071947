// SPDX-License-Identifier: Apache-2.0
// What `cleave inspect --json` prints, before it is text; and the same with its long lists packed,
// as the page carries it.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/inspect/inspection.h"

namespace cleave::tools {

nlohmann::ordered_json inspection_tree(const Inspection& inspection);

// A list as runs, [first, step, count, first, step, count, ...]: of the elements themselves where
// all are integers, else of places in "values", which has each element once.
nlohmann::ordered_json packed_list(const nlohmann::ordered_json& list);
// A list of objects as {"rows": their number, "columns": a packed list for each key}; place -1: the
// row lacks it.
nlohmann::ordered_json packed_rows(const nlohmann::ordered_json& rows);

}  // namespace cleave::tools
