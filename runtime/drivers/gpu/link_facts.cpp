// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/link_facts.h"

#include <array>

namespace cleave::runtime {

std::optional<PciPlace> pci_place(const std::string& address) {
    PciPlace place;
    if (std::sscanf(address.c_str(), "%x:%x:%x", &place.domain, &place.bus, &place.device) != 3)
        return std::nullopt;
    return place;
}

int64_t pcie_bytes_per_second(unsigned generation, unsigned width) {
    // GB/s of a lane one way: 2.5, 5, 8, 16, 32, 64 GT/s (PCI Express Base Specification) by
    // 8b/10b, 128b/130b and, from 6.0 on, 242 of 256 bytes of a flit.
    constexpr std::array<double, 7> kLane{0, 0.25, 0.5, 0.9846, 1.9692, 3.9385, 7.5625};
    constexpr double kUsable = 25 / (16 * 1.9692);
    if (generation >= kLane.size()) return 0;
    return static_cast<int64_t>(kLane[generation] * width * kUsable * 1e9);
}

}  // namespace cleave::runtime
