// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/catalogue.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

namespace cleave::planner {
namespace {

// Each row names its sources, all public. f32 of AMD's: "peak FP32 matrix", by which products of
// many tokens go. mi250x is one GCD, half a card, joined to the other half by four links of 50 GB/s
// and direction (ROCm documentation, "AMD Instinct MI250 microarchitecture"). Limits of a block are
// its architecture's (planner/machine/gpu_arch.cpp). Peer rates: NVLink and Infinity Fabric per
// direction and pair, PCIe x16 effective, no NVLink bridges. Latencies are of one small peer copy,
// order of magnitude. Servers of data-centre cards are those that the row names; PCIe cards are
// joined by whatever their owner has.
// clang-format off
// Of the peer link: its kind, GB/s and ns. Of a server: devices, network adapters, fabric.
//                    name       arch      MiB     GB/s   f32   f16     f8      int8  CUs  peer
constexpr std::array kModels{
    CatalogueModel{"h100", "sm_90a", 81559, 3350, 67.0, 989.0, 1979.0, 1979.0, 132, LinkKind::kNvlink, 450, 2500, 8, 8, "ib400",
                   "NVIDIA H100 data sheet (SXM); DGX H100"},
    CatalogueModel{"h200", "sm_90a", 143771, 4800, 67.0, 989.0, 1979.0, 1979.0, 132, LinkKind::kNvlink, 450, 2500, 8, 8, "ib400",
                   "NVIDIA H200 data sheet (SXM); DGX H200"},
    CatalogueModel{"h20", "sm_90a", 97871, 4000, 44.0, 148.0, 296.0, 296.0, 78, LinkKind::kNvlink, 450, 2500, 8, 8, "ib400",
                   "NVIDIA H20 product brief; HGX"},
    CatalogueModel{"b200", "sm_100", 183359, 8000, 75.0, 2250.0, 4500.0, 4500.0, 148, LinkKind::kNvlink, 900, 2500, 8, 8, "ib400",
                   "NVIDIA HGX B200 data sheet, dense; DGX B200"},
    CatalogueModel{"gb200", "sm_100", 189471, 8000, 80.0, 2500.0, 5000.0, 5000.0, 152, LinkKind::kNvlink, 900, 2500, 72, 72, "racks400",
                   "NVIDIA GB200 NVL72 data sheet, dense; a node is a rack"},
    CatalogueModel{"a100-40", "sm_80", 40960, 1555, 19.5, 312.0, 312.0, 624.0, 108, LinkKind::kNvlink, 300, 2500, 8, 8, "ib200",
                   "NVIDIA A100 data sheet (SXM4); DGX A100"},
    CatalogueModel{"a100-80", "sm_80", 81920, 2039, 19.5, 312.0, 312.0, 624.0, 108, LinkKind::kNvlink, 300, 2500, 8, 8, "ib200",
                   "NVIDIA A100 data sheet (SXM4); DGX A100"},
    CatalogueModel{"a40", "sm_86", 46068, 696, 37.4, 149.7, 149.7, 299.3, 84, LinkKind::kPcie, 25, 8000, 8, 1, "",
                   "NVIDIA A40 data sheet, no bridge"},
    CatalogueModel{"a10", "sm_86", 23028, 600, 31.2, 125.0, 125.0, 250.0, 72, LinkKind::kPcie, 25, 8000, 8, 1, "",
                   "NVIDIA A10 data sheet"},
    CatalogueModel{"l40s", "sm_89", 46068, 864, 91.6, 362.0, 733.0, 733.0, 142, LinkKind::kPcie, 25, 8000, 8, 1, "",
                   "NVIDIA L40S data sheet"},
    CatalogueModel{"l4", "sm_89", 23034, 300, 30.3, 121.0, 242.0, 242.0, 58, LinkKind::kPcie, 25, 8000, 8, 1, "",
                   "NVIDIA L4 data sheet, dense"},
    CatalogueModel{"t4", "sm_75", 15360, 320, 8.1, 65.0, 65.0, 130.0, 40, LinkKind::kPcie, 12, 8000, 8, 1, "",
                   "NVIDIA T4 data sheet, PCIe 3.0"},
    CatalogueModel{"rtx3090", "sm_86", 24576, 936, 35.6, 71.0, 71.0, 284.0, 82, LinkKind::kPcie, 20, 10000, 8, 1, "",
                   "NVIDIA Ampere GA102 white paper, sums in f32"},
    CatalogueModel{"rtx4090", "sm_89", 24564, 1008, 82.6, 165.2, 330.3, 660.6, 128, LinkKind::kPcie, 20, 10000, 8, 1, "",
                   "NVIDIA Ada white paper, appendix A, sums in f32"},
    CatalogueModel{"rtx5090", "sm_120", 32607, 1792, 104.8, 209.5, 419.0, 838.0, 170, LinkKind::kPcie, 40, 10000, 8, 1, "",
                   "NVIDIA RTX Blackwell white paper, sums in f32, PCIe 5.0"},
    CatalogueModel{"rtx6000", "sm_89", 49140, 960, 91.1, 364.2, 728.5, 728.5, 142, LinkKind::kPcie, 25, 8000, 8, 1, "",
                   "NVIDIA RTX 6000 Ada data sheet, dense"},
    CatalogueModel{"mi210", "gfx90a", 65520, 1638, 45.3, 181.0, 181.0, 181.0, 104, LinkKind::kXgmi, 50, 4000, 8, 8, "ib200",
                   "AMD Instinct MI210 data sheet"},
    CatalogueModel{"mi250x", "gfx90a", 65520, 1638, 47.9, 191.5, 191.5, 191.5, 110, LinkKind::kXgmi, 50, 4000, 8, 4, "ib200",
                   "AMD Instinct MI250X data sheet, one die; HPE Cray EX235a", 2, 200},
    CatalogueModel{"mi300x", "gfx942", 196592, 5300, 163.4, 1307.4, 2614.9, 2614.9, 304, LinkKind::kXgmi, 64, 4000, 8, 8, "roce400",
                   "AMD Instinct MI300X data sheet; eight with 400 Gb/s Ethernet"},
    CatalogueModel{"mi325x", "gfx942", 262128, 6000, 163.4, 1307.4, 2614.9, 2614.9, 304, LinkKind::kXgmi, 64, 4000, 8, 8, "roce400",
                   "AMD Instinct MI325X data sheet; eight with 400 Gb/s Ethernet"},
    CatalogueModel{"mi350x", "gfx950", 294896, 8000, 144.2, 2306.9, 4613.7, 4613.7, 256, LinkKind::kXgmi, 76.8, 4000, 8, 8, "roce400",
                   "AMD Instinct MI350X data sheet, dense; eight with 400 Gb/s Ethernet"},
    CatalogueModel{"mi355x", "gfx950", 294896, 8000, 157.3, 2516.6, 5033.2, 5033.2, 256, LinkKind::kXgmi, 76.8, 4000, 8, 8, "roce400",
                   "AMD Instinct MI355X data sheet, dense; eight with 400 Gb/s Ethernet"},
    CatalogueModel{"7900xtx", "gfx1100", 24560, 960, 61.4, 122.8, 122.8, 122.8, 96, LinkKind::kPcie, 20, 10000, 4, 1, "",
                   "AMD Radeon RX 7900 XTX specifications"},
};
// clang-format on

constexpr CatalogueModel kHost{
    "host", "x86-64",
    65536,  40,
    0.5,    0.5,
    0.5,    0.5,
    8,      LinkKind::kSameMemory,
    20,     2000,
    8,      1,
    "",     "a plain desktop: two channels of DDR4-2666, 8 cores with AVX2"};

}  // namespace

const CatalogueModel* find_model(std::string_view name) {
    if (name == kHost.name) return &kHost;
    for (const CatalogueModel& model : kModels)
        if (model.name == name) return &model;
    return nullptr;
}

// A driver's name has the catalogue's as a word, or as two: "NVIDIA A100-SXM4-80GB", "NVIDIA
// GeForce RTX 4090". Cards that come with two sizes of memory have the size in the catalogue's
// name; the driver keeps a little of it, never a tenth.
const CatalogueModel* find_model_of(std::string_view name, int64_t memory_bytes) {
    std::vector<std::string> words(1);
    for (char c : name) {
        if (c == ' ' || c == '-' || c == '/')
            words.emplace_back();
        else
            words.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    for (size_t i = words.size() - 1; i-- > 0;) words.push_back(words[i] + words[i + 1]);
    for (const CatalogueModel& model : kModels) {
        const std::string_view family = model.name.substr(0, model.name.find('-'));
        const int64_t bytes = model.memory_mib << 20;
        if (std::find(words.begin(), words.end(), family) != words.end() &&
            std::abs(bytes - memory_bytes) <= bytes / 10)
            return &model;
    }
    return nullptr;
}

std::span<const CatalogueModel> catalogue() { return kModels; }

std::string catalogue_names() {
    std::string names;
    for (const CatalogueModel& model : kModels) names += std::string(model.name) + ", ";
    return names + "host";
}

void set_rates(const CatalogueModel& model, DeviceInfo& device) {
    const auto tera = [](double t) { return static_cast<int64_t>(t * 1e12); };
    device.memory_bandwidth = static_cast<int64_t>(model.bandwidth_gb * 1e9);
    device.flops_f32 = tera(model.tflops_f32);
    device.flops_f16 = tera(model.tflops_f16);
    device.flops_f8 = tera(model.tflops_f8);
    device.flops_int8 = tera(model.tops_int8);
}

DeviceLimits limits_of(const GpuArch& arch) {
    return {arch.shared_bytes, arch.registers, arch.max_threads, arch.warp_width, 1};
}

DeviceLimits limits_of(const CatalogueModel& model) {
    DeviceLimits limits{256 * 1024, 65536, 1024, 1, 0};  // a host's
    if (const GpuArch* arch = find_gpu_arch(model.arch)) limits = limits_of(*arch);
    limits.num_compute_units = model.compute_units;
    return limits;
}

}  // namespace cleave::planner
