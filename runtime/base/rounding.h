// SPDX-License-Identifier: Apache-2.0
// Division and rounding to whole parts, of values that are not negative and parts that are
// positive.
#pragma once

#include <concepts>
#include <type_traits>

namespace cleave {

// How many parts of `part` hold `n`.
template <std::integral T>
constexpr T ceil_div(T n, std::type_identity_t<T> part) {
    return n / part + (n % part != 0 ? 1 : 0);
}

// `n` to the next multiple of `part`.
template <std::integral T>
constexpr T round_up(T n, std::type_identity_t<T> part) {
    return ceil_div(n, part) * part;
}

}  // namespace cleave
