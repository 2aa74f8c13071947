// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver library, libcuda, behind runtime/drivers/gpu/gpu_driver.h. Devices are the ones
// that CUDA_VISIBLE_DEVICES leaves, in its order; contexts are primary contexts, retained while a
// GpuContext lives.
#pragma once

#include <span>

#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

// What the loader is asked for: libcuda.so.1, libcuda.so.
std::span<const std::string> cuda_library_names();

FoundDriver open_cuda_driver(std::span<const std::string> names = cuda_library_names());

}  // namespace cleave::runtime
