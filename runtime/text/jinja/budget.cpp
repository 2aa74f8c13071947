// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/budget.h"

#include <algorithm>
#include <limits>

#include "runtime/text/jinja/value.h"

namespace cleave::runtime::jinja {

namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
thread_local int64_t left = kUnlimited;

}  // namespace

Budget::Budget() { left = kMostWork; }
Budget::~Budget() { left = kUnlimited; }

void spend(size_t work) {
    if (left == kUnlimited) return;
    left -= static_cast<int64_t>(std::min(work, size_t{Budget::kMostWork}));
    if (left < 0) throw TemplateError("the template does too much work");
}

}  // namespace cleave::runtime::jinja
