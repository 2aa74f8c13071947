// SPDX-License-Identifier: Apache-2.0
// `--format text` and `--format json`: the plan's own views.
#include "planner/export/formats.h"
#include "planner/view/plan_text.h"

namespace cleave::planner {

ExportResult export_text(const Plan& plan) {
    TextOptions options;
    options.all_steps = true;
    return {.files = {{"plan.txt", plan_to_text(plan, options)}}};
}

ExportResult export_json(const Plan& plan) {
    return {.files = {{"plan.json", plan_to_json(plan)}}};
}

}  // namespace cleave::planner
