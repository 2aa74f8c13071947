// SPDX-License-Identifier: Apache-2.0
// What the two vendors of GPUs call the same thing, for tests that are the same for both.
#pragma once

#include "planner/machine/machine.h"

namespace cleave::runtime::test {

struct Vendor {
    planner::DeviceKind kind;
    const char *list, *init, *allocate, *free, *pinned, *fill, *copy, *stream, *wait, *load, *find,
        *launch, *pool, *plain, *destroy;
};
inline constexpr Vendor kVendors[] = {
    {planner::DeviceKind::kCuda, "cuda", "cuInit", "cuMemAllocFromPoolAsync", "cuMemFree_v2",
     "cuMemHostAlloc", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2", "cuStreamCreate", "cuStreamQuery",
     "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuMemPoolCreate",
     "cuMemAlloc_v2", "cuMemPoolDestroy"},
    {planner::DeviceKind::kHip, "hip", "hipInit", "hipMallocFromPoolAsync", "hipFree",
     "hipHostMalloc", "hipMemsetAsync", "hipMemcpyAsync", "hipStreamCreateWithFlags",
     "hipStreamQuery", "hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel",
     "hipMemPoolCreate", "hipMalloc", "hipMemPoolDestroy"}};

}  // namespace cleave::runtime::test
