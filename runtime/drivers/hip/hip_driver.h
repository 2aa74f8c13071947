// SPDX-License-Identifier: Apache-2.0
// AMD's HIP runtime, libamdhip64, behind runtime/drivers/gpu/gpu_driver.h. Devices are the ones
// that HIP_VISIBLE_DEVICES leaves, in its order; HIP's contexts are its devices' own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

// What is opened, the first that loads: libamdhip64.so.7 down to .5 and libamdhip64.so where ROCm
// is installed, then what the loader finds by these names (runtime/base/dynamic_library.h).
std::vector<std::string> hip_library_names();

FoundDriver open_hip_driver(std::span<const std::string> names = hip_library_names());

}  // namespace cleave::runtime
