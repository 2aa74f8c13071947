// SPDX-License-Identifier: Apache-2.0
// AMD: libamdhip64, RCCL and ROCm SMI, which are looked for where ROCm is installed first.
#include "runtime/drivers/hip/hip_driver.h"
#include "runtime/drivers/nccl/collective_library.h"
#include "runtime/drivers/rocm_smi/rocm_smi.h"
#include "runtime/drivers/vendors.h"

namespace cleave::runtime {

namespace {

std::vector<std::string> collectives_names() {
    return rocm_library_names(std::vector<std::string>{"librccl.so.1", "librccl.so"});
}

// "6.4", of major * 10^7 + minor * 10^5 + patch (HIP_VERSION).
std::string hip_version(const DynamicLibrary& library) {
    auto* get = library.function<int(int*)>("hipRuntimeGetVersion");
    int v = 0;
    return get && get(&v) == 0 ? fmt::format("{}.{}", v / 10'000'000, v / 100'000 % 100) : "";
}

}  // namespace

const DriverEntry& hip_entry() {
    static const DriverEntry kEntry{
        planner::Vendor::kAmd,
        {"HIP runtime", "AMD GPUs", "CLEAVE_HIP_LIBRARY", hip_library_names, "hipRuntimeGetVersion",
         hip_version, "install ROCm's HIP runtime"},
        {"RCCL", "collectives of AMD GPUs", "CLEAVE_RCCL_LIBRARY", collectives_names,
         "ncclGetVersion", collectives_version,
         "install RCCL; without it collectives are staged through the host"},
        {"ROCm SMI", "links of AMD GPUs", "CLEAVE_ROCM_SMI_LIBRARY", rocm_smi_library_names,
         "rsmi_init", nullptr, "install ROCm SMI; without it links have the catalogue's rates"},
        open_hip_driver,
        open_collectives,
        open_rocm_smi};
    return kEntry;
}

}  // namespace cleave::runtime
