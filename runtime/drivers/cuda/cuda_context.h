// SPDX-License-Identifier: Apache-2.0
// A card of NVIDIA's for one device: its primary context, a stream and a pool of memory, through
// libcuda.
#pragma once

#include <memory>
#include <string>

#include "runtime/drivers/cuda/cuda_library.h"
#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

// `name` is the device's in messages.
std::unique_ptr<GpuContext> open_cuda_context(std::shared_ptr<const CudaLibrary> library,
                                              cuda::CUdevice device, std::string name);

}  // namespace cleave::runtime
