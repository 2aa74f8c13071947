// SPDX-License-Identifier: Apache-2.0
// What devices cost an hour, in any one currency: given by model, by kind or one by one. A Machine
// keeps it as DeviceInfo::price_micros.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "planner/machine/machine.h"

namespace cleave::planner {

inline constexpr double kLeastPrice = 1e-6, kMostPrice = 1e6;  // of an hour
inline constexpr std::string_view kPrices = "prices of an hour are from 0.000001 to 1000000";

inline bool is_price(double price) { return price >= kLeastPrice && price <= kMostPrice; }
inline int64_t price_micros(double price) { return std::llround(price * 1e6); }

// "h100=2.5", "host=0.1" or "sim:h100[3]=2": of all devices of that model, of that kind, or of that
// name. UserError for one that no device is of, and for what is no price.
void set_price(Machine& machine, const std::string& text);

}  // namespace cleave::planner
