// SPDX-License-Identifier: Apache-2.0
// How a vendor's cards are joined, as its library of management says (nvml/, rocm_smi/), opened at
// run time. In: PCI addresses
// ("0000:3b:00.0"). Out: what the library knows; nothing where it does not know the cards or has no
// answer. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace cleave::runtime {

class LinkFacts {
public:
    virtual ~LinkFacts() = default;

    // Bytes/s one way over the links of the cards' own (NVLink, Infinity Fabric) from one to the
    // other.
    virtual std::optional<int64_t> fabric_bandwidth(const std::string& from,
                                                    const std::string& to) const = 0;
    // Bytes/s one way by PCI Express, as the slower slot has it.
    virtual std::optional<int64_t> pcie_bandwidth(const std::string& from,
                                                  const std::string& to) const = 0;
};

// Facts, or why there are none: every name tried, the symbol that is missing, the library's error.
struct FoundLinkFacts {
    std::shared_ptr<const LinkFacts> facts;
    std::string reason;
};

// Of "0000:3b:00.0"; nothing of another text.
struct PciPlace {
    unsigned domain = 0, bus = 0, device = 0;
    bool operator==(const PciPlace&) const = default;
};
std::optional<PciPlace> pci_place(const std::string& address);

// Usable bytes/s of a PCI Express slot: the specification's rate of a lane after encoding, and the
// share of it that large packets leave (the 25 GB/s of a 4.0 x16 slot). 0 for a generation that
// does not exist.
int64_t pcie_bytes_per_second(unsigned generation, unsigned width);

}  // namespace cleave::runtime
