// SPDX-License-Identifier: Apache-2.0
// Visits every field of a plain struct without naming one, so that a field added to plan.h or
// graph.h and forgotten by the plan's file format fails a test. Structs are aggregates of at most
// 20 fields.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::test {

namespace detail {

struct Anything {
    template <class T>
    operator T() const;
};

template <class T, class... Fields>
constexpr size_t count_fields() {
    if constexpr (sizeof...(Fields) < 21 && requires { T{Fields{}..., Anything{}}; })
        return count_fields<T, Fields..., Anything>();
    else
        return sizeof...(Fields);
}

template <class T>
struct IsIndex : std::false_type {};
template <class Tag>
struct IsIndex<Index<Tag>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsArray : std::false_type {};
template <class T, size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};
template <class T>
struct IsVariant : std::false_type {};
template <class... T>
struct IsVariant<std::variant<T...>> : std::true_type {};

template <class Visit, class... Fields>
void visit_all(Visit&& visit, Fields&... fields) {
    (visit(fields), ...);
}

template <class T, class Visit>
void visit_fields(T& object, Visit&& visit) {
    constexpr size_t n = count_fields<std::remove_const_t<T>>();
    static_assert(n > 0 || std::is_empty_v<T>);
    if constexpr (n == 1) {
        auto& [f0] = object;
        visit_all(visit, f0);
    } else if constexpr (n == 2) {
        auto& [f0, f1] = object;
        visit_all(visit, f0, f1);
    } else if constexpr (n == 3) {
        auto& [f0, f1, f2] = object;
        visit_all(visit, f0, f1, f2);
    } else if constexpr (n == 4) {
        auto& [f0, f1, f2, f3] = object;
        visit_all(visit, f0, f1, f2, f3);
    } else if constexpr (n == 5) {
        auto& [f0, f1, f2, f3, f4] = object;
        visit_all(visit, f0, f1, f2, f3, f4);
    } else if constexpr (n == 6) {
        auto& [f0, f1, f2, f3, f4, f5] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5);
    } else if constexpr (n == 7) {
        auto& [f0, f1, f2, f3, f4, f5, f6] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6);
    } else if constexpr (n == 8) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7);
    } else if constexpr (n == 9) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8);
    } else if constexpr (n == 10) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9);
    } else if constexpr (n == 11) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10);
    } else if constexpr (n == 12) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11);
    } else if constexpr (n == 13) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12);
    } else if constexpr (n == 14) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13);
    } else if constexpr (n == 15) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14);
    } else if constexpr (n == 16) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15);
    } else if constexpr (n == 17) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16);
    } else if constexpr (n == 18) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17] =
            object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16,
                  f17);
    } else if constexpr (n == 19) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
               f18] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16,
                  f17, f18);
    } else if constexpr (n == 20) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18,
               f19] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16,
                  f17, f18, f19);
    } else if constexpr (n == 21) {
        auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18,
               f19, f20] = object;
        visit_all(visit, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16,
                  f17, f18, f19, f20);
    }
}

}  // namespace detail

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
        else if constexpr (detail::IsIndex<T>::value)
            field.value = static_cast<int32_t>(number());
        else if constexpr (std::is_same_v<T, importer::Dim>) {
            fill(field.value);
            fill(field.symbol);
        } else if constexpr (detail::IsVector<T>::value) {
            field.resize(2);
            for (auto& item : field) fill(item);
        } else if constexpr (detail::IsArray<T>::value) {
            for (auto& item : field) fill(item);
        } else if constexpr (detail::IsOptional<T>::value)
            fill(field.emplace());
        else if constexpr (detail::IsVariant<T>::value)
            fill_variant(field, std::make_index_sequence<std::variant_size_v<T>>());
        else
            detail::visit_fields(field, [&](auto& inner) { fill(inner); });
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

// Whether every field is equal.
template <class T>
bool same(const T& a, const T& b) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string> ||
                  detail::IsIndex<T>::value || std::is_same_v<T, importer::Dim>) {
        return a == b;
    } else if constexpr (detail::IsVector<T>::value || detail::IsArray<T>::value) {
        bool equal = a.size() == b.size();
        for (size_t i = 0; equal && i < a.size(); ++i) equal = same(a[i], b[i]);
        return equal;
    } else if constexpr (detail::IsOptional<T>::value) {
        return a.has_value() == b.has_value() && (!a || same(*a, *b));
    } else if constexpr (detail::IsVariant<T>::value) {
        return a.index() == b.index() &&
               std::visit(
                   [&](const auto& x) { return same(x, std::get<std::decay_t<decltype(x)>>(b)); },
                   a);
    } else {
        std::vector<const void*> fields;
        detail::visit_fields(b, [&](const auto& field) { fields.push_back(&field); });
        bool equal = true;
        size_t i = 0;
        detail::visit_fields(a, [&](const auto& field) {
            equal = equal &&
                    same(field, *static_cast<const std::decay_t<decltype(field)>*>(fields[i++]));
        });
        return equal;
    }
}

}  // namespace cleave::test
