// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/prices.h"

#include <charconv>
#include <set>

#include <fmt/ranges.h>

#include "runtime/base/errors.h"

namespace cleave::planner {

void set_price(Machine& machine, const std::string& text) {
    const size_t equals = text.rfind('=');
    const std::string what = text.substr(0, equals);
    const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
    double price = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), price);
    if (what.empty() || error != std::errc() || end != number.data() + number.size() ||
        !is_price(price))
        throw UserError("$price {}: write MODEL=PRICE, for example $price h100=2.5; {}", text,
                        kPrices);
    std::set<std::string> known;
    bool any = false;
    for (DeviceInfo& d : machine.devices) {
        const std::string kind(device_kind_name(d.kind));
        known.insert(d.model.empty() ? kind : d.model);
        if (what != d.model && what != kind && what != d.name) continue;
        d.price_micros = price_micros(price);
        any = true;
    }
    if (!any)
        throw UserError("$price {}: no device is a '{}'; there are {}", text, what,
                        fmt::join(known, ", "));
}

}  // namespace cleave::planner
