// SPDX-License-Identifier: Apache-2.0
// How NVIDIA's cards are joined, as NVML (libnvidia-ml, opened at run time) says: links between two cards and what each
// carries, and a card's PCI Express. In: PCI addresses ("0000:3b:00.0"). Out: what the library knows; nothing where it does not
// know the card or has no answer, as for cards without NVLink. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace cleave::runtime {

class LinkFacts {
public:
    virtual ~LinkFacts() = default;

    // Bytes/s one way over all active NVLinks from one card to the other, direct or through switches that both are on.
    virtual std::optional<int64_t> nvlink_bandwidth(const std::string& from,
                                                    const std::string& to) const = 0;
    // What a card's slot carries one way, of its generation and width.
    virtual std::optional<int64_t> pcie_bandwidth(const std::string& card) const = 0;
};

struct FoundLinkFacts {
    std::shared_ptr<const LinkFacts> facts;
    std::string
        reason;  // why there is none: every name tried, the symbol that is missing, the library's error
};
FoundLinkFacts open_nvml(std::span<const std::string> names);

// "libnvidia-ml.so.1", or the file that CLEAVE_NVML_LIBRARY names.
FoundLinkFacts find_nvml();

// Usable bytes/s of a PCI Express slot: the specification's rate of a lane after encoding, and the share of it that large
// packets leave (the 25 GB/s of a 4.0 x16 slot). 0 for a generation that does not exist.
int64_t pcie_bytes_per_second(unsigned generation, unsigned width);

}  // namespace cleave::runtime
