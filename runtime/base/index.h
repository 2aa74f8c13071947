// SPDX-License-Identifier: Apache-2.0
// Strong index types: an OpId cannot be used where a ValueId is wanted. An index is a position in
// one vector of one artefact; -1 (the default) means none. Trivially copyable, ordered, hashable,
// printable.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <fmt/format.h>

namespace cleave {

template <class Tag>
struct Index {
    int32_t value = -1;

    constexpr Index() = default;
    constexpr explicit Index(std::integral auto v) : value(static_cast<int32_t>(v)) {}
    constexpr bool valid() const { return value >= 0; }
    constexpr size_t index() const { return static_cast<size_t>(value); }
    friend constexpr auto operator<=>(Index, Index) = default;
};

}  // namespace cleave

template <class Tag>
struct std::hash<cleave::Index<Tag>> {
    size_t operator()(cleave::Index<Tag> i) const noexcept { return std::hash<int32_t>()(i.value); }
};

template <class Tag>
struct fmt::formatter<cleave::Index<Tag>> : fmt::formatter<int32_t> {
    template <class Context>
    auto format(cleave::Index<Tag> i, Context& context) const {
        return fmt::formatter<int32_t>::format(i.value, context);
    }
};
