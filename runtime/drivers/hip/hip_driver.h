// SPDX-License-Identifier: Apache-2.0
// AMD's HIP runtime, libamdhip64, behind runtime/drivers/gpu_driver.h. Devices are the ones that HIP_VISIBLE_DEVICES leaves, in
// its order; HIP's contexts are its devices' own.
#pragma once

#include <span>

#include "runtime/drivers/gpu_driver.h"

namespace cleave::runtime {

// What the loader is asked for: libamdhip64.so.7 down to .5, and libamdhip64.so.
std::span<const std::string> hip_library_names();

FoundDriver open_hip_driver(std::span<const std::string> names = hip_library_names());

}  // namespace cleave::runtime
