// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/vendor.h"

#include "runtime/base/errors.h"

namespace cleave::planner {

namespace {

constexpr std::string_view kNvidiaCompilers[] = {"nvrtc"}, kAmdCompilers[] = {"hiprtc", "clang"};

constexpr const char* kCudaVisible[] = {"CUDA_VISIBLE_DEVICES"};
// ROCm, "GPU isolation techniques".
constexpr const char* kHipVisible[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                       "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"};

constexpr const char* kCudaBlocking[] = {"CUDA_LAUNCH_BLOCKING"};
constexpr const char* kHipBlocking[] = {"HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"};

constexpr const char* kNvidiaNodes[] = {"/dev/nvidiactl", "/dev/dxg"};  // dxg: in WSL 2
constexpr const char* kAmdNodes[] = {"/dev/kfd"};

// Channels: 32 over NVLink (NVIDIA/nccl#1685 and #1646, on eight H100 and B200), 64 over Infinity
// Fabric (ROCm/rocm-systems#9764).
constexpr VendorFacts kVendors[] = {
    {.vendor = Vendor::kNvidia,
     .kind = DeviceKind::kCuda,
     .kind_name = "cuda",
     .arch_prefix = "sm_",
     .arch_macro = "CLEAVE_SM={}",
     .compilers = kNvidiaCompilers,
     .platform = "CUDA",
     .collectives = "NCCL",
     .collectives_channels = 32,
     .own_link = LinkKind::kNvlink,
     .own_link_name = "nvlink",
     .links_form_a_mesh = false,
     .registers_of_block = true,
     .counts_small_blocks = true,
     .grid_of_threads = false,
     .explicit_caches = false,
     .visible_variable = "CUDA_VISIBLE_DEVICES",
     .visible_variables = kCudaVisible,
     .blocking_variables = kCudaBlocking,
     .queues_variable = "CUDA_DEVICE_MAX_CONNECTIONS",
     .device_nodes = kNvidiaNodes},
    {.vendor = Vendor::kAmd,
     .kind = DeviceKind::kHip,
     .kind_name = "hip",
     .arch_prefix = "gfx",
     .arch_macro = "CLEAVE_GFX={:#x}",
     .compilers = kAmdCompilers,
     .platform = "ROCm",
     .collectives = "RCCL",
     .collectives_channels = 64,
     .own_link = LinkKind::kXgmi,
     .own_link_name = "xgmi",
     .links_form_a_mesh = true,
     // Its compilers know the block's size and keep to its share of the registers.
     .registers_of_block = false,
     // Its blocks are bounded by barriers, which a block of one warp does without.
     .counts_small_blocks = false,
     .grid_of_threads = true,  // HIP's manual, hipModuleLaunchKernel
     .explicit_caches = true,
     .visible_variable = "HIP_VISIBLE_DEVICES",
     .visible_variables = kHipVisible,
     .blocking_variables = kHipBlocking,
     .queues_variable = "GPU_MAX_HW_QUEUES",
     .device_nodes = kAmdNodes},
};

template <class Matches>
const VendorFacts* row_where(Matches matches) {
    for (const VendorFacts& vendor : kVendors)
        if (matches(vendor)) return &vendor;
    return nullptr;
}

}  // namespace

std::span<const VendorFacts> vendors() { return kVendors; }

const VendorFacts& vendor_facts(Vendor vendor) {
    const VendorFacts* facts = row_where([&](const VendorFacts& v) { return v.vendor == vendor; });
    CLEAVE_CHECK(facts) << "a vendor without a row in the table";
    return *facts;
}

const VendorFacts* vendor_of(DeviceKind kind) {
    return row_where([&](const VendorFacts& v) { return v.kind == kind; });
}

const VendorFacts* vendor_of(LinkKind kind) {
    return row_where([&](const VendorFacts& v) { return v.own_link == kind; });
}

const VendorFacts* vendor_of(const DeviceInfo& device) {
    if (const VendorFacts* facts = vendor_of(device.kind)) return facts;
    return row_where([&](const VendorFacts& v) { return device.arch.starts_with(v.arch_prefix); });
}

}  // namespace cleave::planner
