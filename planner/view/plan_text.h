// SPDX-License-Identifier: Apache-2.0
// Views of a plan: a summary for people (what runs where, bytes, predicted time, every transfer and
// collective), and the JSON of CLI.md (schema tools/schema/plan.schema.json). Deterministic.
#pragma once

#include <string>

#include "planner/ask/basis.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

class DoesNotFit;

struct TextOptions {
    bool color = false;
    bool all_steps = false;  // every step instead of one layer's pattern with repeats
    int64_t lines = 100;     // what there is very many of is folded until there are no more
    int width = 0;  // of tables and lines in columns; 0: tables have no bound, prose has 100
    Speller spell = nullptr;  // for what would make predictions better
};

std::string plan_to_text(const Plan& plan, const TextOptions& options = {});
std::string plan_to_json(const Plan& plan, Speller spell = nullptr);

// Schema tools/schema/does_not_fit.schema.json.
std::string does_not_fit_to_json(const DoesNotFit& error);

}  // namespace cleave::planner
