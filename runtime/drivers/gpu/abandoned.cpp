// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/abandoned.h"

#include <utility>

#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

namespace {

bool is_over(GpuContext& context) {
    try {
        return context.is_idle();
    } catch (const DeviceError&) {
        return true;  // after a fault nothing runs any more
    }
}

}  // namespace

void LeftAlone::add(int ordinal, GpuContext& context) {
    const std::lock_guard lock(mutex_);
    all_.push_back({ordinal, false, [&context] { return is_over(context); }});
}

void LeftAlone::add(int ordinal, std::function<bool()> has_ended) {
    const std::lock_guard lock(mutex_);
    all_.push_back({ordinal, true, std::move(has_ended)});
}

bool LeftAlone::works_among(const std::function<bool(const One&)>& these) {
    for (const bool calls : {true, false}) {
        bool works = false;
        std::erase_if(all_, [&](const One& one) {
            if (one.is_call != calls || !these(one)) return false;
            const bool ended = one.has_ended();
            works = works || !ended;
            return ended;
        });
        if (works) return true;
    }
    return false;
}

bool LeftAlone::works_on(int ordinal) {
    const std::lock_guard lock(mutex_);
    return works_among([&](const One& one) { return one.ordinal == ordinal; });
}

bool LeftAlone::works() {
    const std::lock_guard lock(mutex_);
    return works_among([](const One&) { return true; });
}

}  // namespace cleave::runtime
