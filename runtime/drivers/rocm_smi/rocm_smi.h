// SPDX-License-Identifier: Apache-2.0
// ROCm SMI (librocm_smi64, opened at run time) as LinkFacts: whether two of AMD's cards are joined
// by Infinity Fabric (XGMI) directly, over how many of its links, or by PCI Express. Of cards that
// other cards lie between it tells no rate, nor of a slot in a form that all its versions share:
// those are 4.0 x16.
#pragma once

#include <span>
#include <string>

#include "runtime/drivers/gpu/link_facts.h"

namespace cleave::runtime {

FoundLinkFacts open_rocm_smi(std::span<const std::string> names);

// "librocm_smi64.so.7" and its like, or the file that CLEAVE_ROCM_SMI_LIBRARY names.
FoundLinkFacts find_rocm_smi();

}  // namespace cleave::runtime
