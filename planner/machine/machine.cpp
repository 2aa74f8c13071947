// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/machine.h"

#include <algorithm>
#include <utility>

namespace cleave::planner {

std::string_view device_kind_name(DeviceKind kind) {
    static constexpr std::array<std::string_view, 6> kNames{"host", "cuda", "hip",
                                                            "simt", "sim",  "null"};
    return kNames.at(static_cast<size_t>(kind));
}

std::string_view link_kind_name(LinkKind kind) {
    static constexpr std::array<std::string_view, 5> kNames{"same_memory", "nvlink", "xgmi", "pcie",
                                                            "network"};
    return kNames.at(static_cast<size_t>(kind));
}

int64_t DeviceInfo::flops(DType dtype) const {
    switch (dtype) {
        case DType::kF16:
        case DType::kBF16: return flops_f16;
        case DType::kF8E4M3: return flops_f8;
        case DType::kInt8:
        case DType::kUInt8:
        case DType::kInt4:
        case DType::kUInt4: return flops_int8;
        default: return flops_f32;
    }
}

const Link* Machine::link(DeviceId from, DeviceId to) const {
    auto before = [](const Link& l, std::pair<DeviceId, DeviceId> key) {
        return std::pair(l.from, l.to) < key;
    };
    auto found = std::lower_bound(links.begin(), links.end(), std::pair(from, to), before);
    if (found != links.end() && found->from == from && found->to == to) return &*found;
    for (const Link& l : links)  // links of a hand-made machine may be in any order
        if (l.from == from && l.to == to) return &l;
    return nullptr;
}

}  // namespace cleave::planner
