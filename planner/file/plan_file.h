// SPDX-License-Identifier: Apache-2.0
// Plans as files: planner/file/plan.proto (package cleave.plan.v1). No floats in decisions, no
// maps; the same plan gives the same bytes. Text and JSON views are in planner/view/plan_text.h.
#pragma once

#include <string>

#include "planner/plan/plan.h"

namespace cleave::planner {

// The plan's bytes. Of weights they have path, offset and length, and the digest of the graph.
std::string serialize_plan(const Plan& plan);

// UserError for bytes that are no plan, or of another format_version.
Plan parse_plan(const std::string& bytes, const std::string& origin);

void save_plan(const Plan& plan, const std::string& path);  // written beside, then renamed
Plan load_plan(const std::string& path);
// Whether a file begins as plans do, whatever it is called. False for what is no regular file.
bool is_plan_file(const std::string& path);

}  // namespace cleave::planner
