// SPDX-License-Identifier: Apache-2.0
// A card of AMD's for one device: a stream, and a pool of memory where pools are asked for, through
// libamdhip64.
#pragma once

#include <memory>
#include <string>

#include "runtime/drivers/gpu/gpu_driver.h"
#include "runtime/drivers/hip/hip_library.h"

namespace cleave::runtime {

// `name` is the device's in messages.
std::unique_ptr<GpuContext> open_hip_context(std::shared_ptr<const HipLibrary> library, int device,
                                             std::string name);

}  // namespace cleave::runtime
