// SPDX-License-Identifier: Apache-2.0
// Plans and their parts as text, which is read back: what the goldens of passes are written in.
//
//     graph tiny dtype=f16            a line is a record: its kind, its name, FIELD=VALUE ..
//       value x shape=[num_tokens, 64]     two spaces more: a part of the record above
//       op q linear{has_bias=true} inputs=[x] outputs=[y] weights=[q.weight, q.bias]
//     # a comment; four spaces more than a line has: the line goes on
//
// VALUE: a number, a word, "text", BEGIN..END, [VALUE, ..], {FIELD=VALUE ..}; a variant is the name
// of its type, with {..} where a field is set, and its field is not named. A field that has its
// default value is left out.
// Operators, values, devices, buffers .. are referred to by name: x@host[0] is the value x on a
// device, +x@host[0] a summand of it, and #7 the eighth of its list where a name is not unique.
//
// Always: read(print(plan)) == plan, in every field; equal plans give equal text. Records follow
// the structs (tests/support/fields.h): a new field needs nothing here.
#pragma once

#include <string>

#include "planner/plan/plan.h"
#include "tests/support/notation_printer.h"
#include "tests/support/notation_reader.h"

namespace cleave::test {

// A whole plan.
std::string print(const planner::Plan& plan);
// UserError, with line and column, for text that is none.
planner::Plan read_plan(const std::string& text, const std::string& origin);

}  // namespace cleave::test
