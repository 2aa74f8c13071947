// SPDX-License-Identifier: Apache-2.0
// Machine files as text (planner/machine/machine.h has them as files). `origin` stands in messages
// for the file's name.
#pragma once

#include <string>

#include "planner/machine/machine.h"

namespace cleave::planner {

// UserError names the origin and field.
Machine parse_machine(const std::string& text, const std::string& origin);

}  // namespace cleave::planner
