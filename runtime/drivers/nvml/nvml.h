// SPDX-License-Identifier: Apache-2.0
// NVML (libnvidia-ml, opened at run time) as LinkFacts: all active NVLinks of a pair of NVIDIA's
// cards, direct or through switches that both are on, and their slots' generation and width.
#pragma once

#include <span>
#include <string>

#include "runtime/drivers/gpu/link_facts.h"

namespace cleave::runtime {

FoundLinkFacts open_nvml(std::span<const std::string> names);

}  // namespace cleave::runtime
