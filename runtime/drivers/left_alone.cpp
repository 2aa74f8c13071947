// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/left_alone.h"

#include <algorithm>

#include "runtime/drivers/gpu_driver.h"

namespace cleave::runtime {

namespace {

bool has_ended(GpuContext& context) {
    try {
        return context.is_idle();
    } catch (const DeviceError&) {
        return true;  // after a fault nothing runs any more
    }
}

}  // namespace

void LeftAlone::add(int ordinal, GpuContext& context) {
    const std::lock_guard lock(mutex_);
    contexts_.emplace_back(ordinal, &context);
}

bool LeftAlone::works_on(int ordinal) {
    const std::lock_guard lock(mutex_);
    std::erase_if(contexts_, [](const auto& one) { return has_ended(*one.second); });
    return std::any_of(contexts_.begin(), contexts_.end(),
                       [&](const auto& one) { return one.first == ordinal; });
}

bool LeftAlone::works() {
    const std::lock_guard lock(mutex_);
    std::erase_if(contexts_, [](const auto& one) { return has_ended(*one.second); });
    return !contexts_.empty();
}

}  // namespace cleave::runtime
