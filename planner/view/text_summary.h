// SPDX-License-Identifier: Apache-2.0
// The head of a plan's text as labelled lines: first what its reader wants to know (whether it
// fits, how fast it is, what limits it, what room is left), then what was asked for, and at the end
// of the text how the plan was found.
#pragma once

#include <string>
#include <vector>

#include "planner/ask/basis.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct Line {
    std::string label, text;  // an empty label goes on
};

// "2 stages x 2 shards (tp 2 x pp 2)", or the shards of each stage where they differ. Of the first
// make alone.
std::string shape_text(const Plan& plan);

std::string title_text(const Plan& plan);
std::vector<Line> answer_lines(const Plan& plan);
std::vector<Line> request_lines(const Plan& plan);
// Of other shapes and of cuts between stages at most so many.
std::vector<Line> why_lines(const Plan& plan, Speller spell, size_t shapes, size_t cuts);
std::vector<Line> machinery_lines(const Plan& plan);

}  // namespace cleave::planner
