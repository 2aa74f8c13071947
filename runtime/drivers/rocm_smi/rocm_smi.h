// SPDX-License-Identifier: Apache-2.0
// ROCm SMI (librocm_smi64, opened at run time) as LinkFacts: whether two of AMD's cards are joined
// by Infinity Fabric (XGMI) directly, over how many of its links, or by PCI Express. It has no rate
// for cards with other cards between them, nor for slots in a form that all its versions share:
// those count as 4.0 x16.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/drivers/gpu/link_facts.h"

namespace cleave::runtime {

FoundLinkFacts open_rocm_smi(std::span<const std::string> names);

// "librocm_smi64.so.8" and older, where ROCm is installed, then as the loader finds them.
std::vector<std::string> rocm_smi_library_names();

}  // namespace cleave::runtime
