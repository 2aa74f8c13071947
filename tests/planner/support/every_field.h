// SPDX-License-Identifier: Apache-2.0
// Fills every field of a plain struct without naming one, so that a field added to plan.h or
// graph.h and forgotten by the plan's file format fails a test.
#pragma once

#include <random>

#include "tests/support/fields.h"

namespace cleave::test {

// Gives every field a value other than its default, from a seed.
class Filler {
public:
    explicit Filler(uint32_t seed) : random_(seed) {}

    template <class T>
    void fill(T& field) {
        if constexpr (std::is_same_v<T, bool>)
            field = !field;
        else if constexpr (std::is_same_v<T, std::byte>)
            field = static_cast<std::byte>(number());
        else if constexpr (std::is_same_v<T, std::string>)
            field = "text \xff " + std::to_string(number());
        else if constexpr (std::is_enum_v<T>)
            field = static_cast<T>(1);
        else if constexpr (std::is_arithmetic_v<T>)
            field = static_cast<T>(number());
        else if constexpr (is_a<T, Index>)
            field.value = static_cast<int32_t>(number());
        else if constexpr (std::is_same_v<T, importer::Dim>) {
            fill(field.value);
            fill(field.symbol);
        } else if constexpr (is_a<T, std::vector>) {
            field.resize(2);
            for (auto& item : field) fill(item);
        } else if constexpr (is_array<T>) {
            for (auto& item : field) fill(item);
        } else if constexpr (is_a<T, std::optional>)
            fill(field.emplace());
        else if constexpr (is_a<T, std::variant>)
            fill_variant(field, std::make_index_sequence<std::variant_size_v<T>>());
        else
            visit_fields(field, [&](auto& inner) { fill(inner); });
    }

private:
    int64_t number() { return 1 + static_cast<int64_t>(random_() % 100); }

    // Alternatives in turn, so that two lists of eleven see each.
    template <class V, size_t... I>
    void fill_variant(V& variant, std::index_sequence<I...>) {
        const size_t chosen = next_alternative_++ % sizeof...(I);
        ((I == chosen ? fill(variant.template emplace<I>()) : void()), ...);
    }

    std::mt19937 random_;
    size_t next_alternative_ = 0;
};

}  // namespace cleave::test
