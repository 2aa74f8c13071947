// SPDX-License-Identifier: Apache-2.0
// Machine files: JSON, schema tools/schema/machine.schema.json. Errors are UserErrors that name the
// file and the field.
#pragma once

#include <string>

#include "planner/machine/host_facts.h"
#include "planner/machine/machine.h"

namespace cleave::planner {

Machine load_machine(const std::string& path);
// The same from text; messages name `origin` as the file.
Machine parse_machine(const std::string& text, const std::string& origin);
std::string machine_to_json(const Machine& machine);

// What a file that `cleave devices --measure` saved says of the host. UserError when it holds no
// two host devices, or none that was measured.
HostCalibration calibration_of(const Machine& machine, const std::string& path);

}  // namespace cleave::planner
