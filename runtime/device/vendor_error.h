// SPDX-License-Identifier: Apache-2.0
// A call of a vendor's driver library failed. After some failures, such as a kernel's fault, every
// later call fails, too.
#pragma once

#include "runtime/base/errors.h"

namespace cleave::runtime {

class VendorError : public DeviceError {
public:
    using DeviceError::DeviceError;
};

}  // namespace cleave::runtime
