// SPDX-License-Identifier: Apache-2.0
// What a device's limits may be: those of its architecture, or less of them. Drivers and the
// catalogue give nothing else; files can.
#pragma once

#include <string>

#include "planner/machine/machine.h"

namespace cleave::planner {

// Limits of a device by its kind and architecture alone.
DeviceLimits default_limits(DeviceKind kind, const std::string& arch);

// UserError names `where`, the field, the device, the value and what is supported.
void check_device_limits(const DeviceInfo& device, const std::string& where);

}  // namespace cleave::planner
