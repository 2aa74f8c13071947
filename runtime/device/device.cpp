// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device.h"

#include "runtime/base/errors.h"

namespace cleave::runtime {

void Device::enable_peer_access(Device& other) {
    throw InternalError(fmt::format("{} cannot reach {}'s memory: {}", info().name,
                                    other.info().name, supports_peer_copy(other).reason));
}

}  // namespace cleave::runtime
