// SPDX-License-Identifier: Apache-2.0
// NVIDIA: libcuda, NCCL and NVML.
#include "runtime/drivers/cuda/cuda_driver.h"
#include "runtime/drivers/nccl/collective_library.h"
#include "runtime/drivers/nvml/nvml.h"
#include "runtime/drivers/vendors.h"

namespace cleave::runtime {

namespace {

std::vector<std::string> cuda_names() {
    const auto names = cuda_library_names();
    return {names.begin(), names.end()};
}

// "13.0", of major * 1000 + minor * 10.
std::string cuda_version(const DynamicLibrary& library) {
    auto* get = library.function<int(int*)>("cuDriverGetVersion");
    int v = 0;
    return get && get(&v) == 0 ? fmt::format("{}.{}", v / 1000, v % 1000 / 10) : "";
}

}  // namespace

const DriverEntry& cuda_entry() {
    static const DriverEntry kEntry{
        planner::Vendor::kNvidia,
        {"CUDA driver", "NVIDIA GPUs", "CLEAVE_CUDA_LIBRARY", cuda_names, "cuDriverGetVersion",
         cuda_version, "install the NVIDIA driver"},
        {"NCCL", "collectives of NVIDIA GPUs", "CLEAVE_NCCL_LIBRARY",
         [] { return std::vector<std::string>{"libnccl.so.2", "libnccl.so"}; }, "ncclGetVersion",
         collectives_version, "install NCCL; without it collectives are staged through the host"},
        {"NVML", "links of NVIDIA GPUs", "CLEAVE_NVML_LIBRARY",
         [] { return std::vector<std::string>{"libnvidia-ml.so.1"}; }, "nvmlInit_v2", nullptr,
         "install the NVIDIA driver; without it links have the catalogue's rates"},
        open_cuda_driver,
        open_collectives,
        open_nvml};
    return kEntry;
}

}  // namespace cleave::runtime
