// SPDX-License-Identifier: Apache-2.0
// A PeerSpec -> the GPU kernel of one device's part in an exchange. Devices of a step have the same
// kernels but for the sizes of slices.
#pragma once

#include "codegen/kernel/peer_spec.h"
#include "codegen/kernel/program.h"

namespace cleave::codegen {

Kernel make_peer_kernel(const PeerSpec& spec, const GpuTarget& target);

}  // namespace cleave::codegen
