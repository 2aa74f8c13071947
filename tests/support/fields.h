// SPDX-License-Identifier: Apache-2.0
// What plain structs are made of, found by the compiler: the fields of an aggregate, their names,
// the names of enumerators and of types. So a field added to plan.h or graph.h is seen by every
// test that walks over all fields. Structs are aggregates of at most 21 fields.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::test {

template <class T, template <class...> class Of>
inline constexpr bool is_a = false;
template <template <class...> class Of, class... Args>
inline constexpr bool is_a<Of<Args...>, Of> = true;
template <class T>
inline constexpr bool is_array = false;
template <class T, size_t N>
inline constexpr bool is_array<std::array<T, N>> = true;

namespace detail {

struct Anything {
    template <class T>
    operator T() const;
};

template <class T, class... Fields>
constexpr size_t count_fields() {
    if constexpr (sizeof...(Fields) < 25 && requires { T{Fields{}..., Anything{}}; })
        return count_fields<T, Fields..., Anything>();
    else
        return sizeof...(Fields);
}

template <class T>
struct Pointer {
    T* to;
};
template <class T>
struct Sample {
    T value;
    static inline Sample sample{};
};

template <auto P>
consteval std::string_view pointed_at() {
    // GCC: ".. P = Pointer<..>{(& Sample<..>::sample.Sample<..>::value.Buffer::name)}; ..",
    // Clang: ".. P = Pointer<..>{&sample.value.name}]".
    std::string_view text = __PRETTY_FUNCTION__;
    text = text.substr(0, std::min(text.find(")}"), text.rfind('}')));
    text = text.substr(0, text.find_last_not_of(')') + 1);
    return text.substr(text.find_last_of(".:") + 1);
}
template <class T>
consteval std::string_view type() {
    std::string_view text = __PRETTY_FUNCTION__;  // ".. [with T = cleave::importer::Op; .."
    text = text.substr(text.find("T = ") + 4);
    text = text.substr(0, text.find_first_of(";]"));
    return text.substr(text.rfind(':') + 1);
}
template <class E, E V>
consteval std::string_view enumerator() {
    std::string_view text =
        __PRETTY_FUNCTION__;  // ".. V = cleave::DType::kF32 .." or "(cleave::DType)77"
    text = text.substr(text.find("V = ") + 4);
    text = text.substr(0, text.find_first_of(";]"));
    return text.front() == '(' ? std::string_view()
                               : text.substr(text.rfind(':') + 2);  // without k
}

// "NormQkvAppend" -> "norm_qkv_append"; a type without what its kind is called: "Attrs", "Spec".
inline std::string snake_case(std::string_view name) {
    for (std::string_view suffix : {"Attrs", "Spec"})
        if (name.size() > suffix.size() && name.ends_with(suffix))
            name.remove_suffix(suffix.size());
    std::string text;
    for (size_t i = 0; i < name.size(); ++i) {
        if (i > 0 && std::isupper(name[i]) && std::islower(name[i - 1])) text += '_';
        text += static_cast<char>(std::tolower(name[i]));
    }
    return text;
}

}  // namespace detail

// Of a struct with constructors: specialised by who walks over it.
template <class T>
inline constexpr size_t num_fields = detail::count_fields<T>();

// The same as with_fields, of an aggregate without bases.
template <class T, class Visit>
constexpr auto with_own_fields(T& object, Visit&& visit) {
    constexpr size_t n = num_fields<std::remove_const_t<T>>;
    static_assert(n > 0 || std::is_empty_v<T>);
#define CLEAVE_FIELDS(...)            \
    {                                 \
        auto& [__VA_ARGS__] = object; \
        return visit(__VA_ARGS__);    \
    }
    // clang-format off
    if constexpr (n == 0) return visit();
    else if constexpr (n == 1) CLEAVE_FIELDS(a)
    else if constexpr (n == 2) CLEAVE_FIELDS(a, b)
    else if constexpr (n == 3) CLEAVE_FIELDS(a, b, c)
    else if constexpr (n == 4) CLEAVE_FIELDS(a, b, c, d)
    else if constexpr (n == 5) CLEAVE_FIELDS(a, b, c, d, e)
    else if constexpr (n == 6) CLEAVE_FIELDS(a, b, c, d, e, f)
    else if constexpr (n == 7) CLEAVE_FIELDS(a, b, c, d, e, f, g)
    else if constexpr (n == 8) CLEAVE_FIELDS(a, b, c, d, e, f, g, h)
    else if constexpr (n == 9) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i)
    else if constexpr (n == 10) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j)
    else if constexpr (n == 11) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k)
    else if constexpr (n == 12) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l)
    else if constexpr (n == 13) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m)
    else if constexpr (n == 14) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o)
    else if constexpr (n == 15) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p)
    else if constexpr (n == 16) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q)
    else if constexpr (n == 17) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r)
    else if constexpr (n == 18) CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s)
    else if constexpr (n == 19)
        CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t)
    else if constexpr (n == 20)
        CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u)
    else if constexpr (n == 21)
        CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v)
    else if constexpr (n == 22)
        CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w)
    else if constexpr (n == 23)
        CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, x)
    else if constexpr (n == 24)
        CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, x, y)
    else if constexpr (n == 25)
        CLEAVE_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, x, y, z)
    // clang-format on
#undef CLEAVE_FIELDS
}

// A Plan has the fields of its bases, and further plans, which are none of these.
template <class T>
concept IsPlan = std::is_same_v<std::remove_const_t<T>, planner::Plan>;
static_assert(sizeof(planner::Plan) == sizeof(planner::PlanRequest) + sizeof(planner::PlanBody) +
                                           sizeof(std::vector<planner::Plan>));

// visit(field, field, ...), all of them.
template <class T, class Visit>
constexpr auto with_fields(T& object, Visit&& visit) {
    if constexpr (IsPlan<T>) {
        using Request = std::conditional_t<std::is_const_v<T>, const planner::PlanRequest,
                                           planner::PlanRequest>;
        using Body =
            std::conditional_t<std::is_const_v<T>, const planner::PlanBody, planner::PlanBody>;
        return with_fields(static_cast<Request&>(object), [&](auto&... asked) {
            return with_fields(static_cast<Body&>(object),
                               [&](auto&... made) { return visit(asked..., made...); });
        });
    } else {
        return with_own_fields(object, std::forward<Visit>(visit));
    }
}

// visit(field), one after the other.
template <class T, class Visit>
void visit_fields(T& object, Visit&& visit) {
    with_fields(object, [&](auto&... fields) { (visit(fields), ...); });
}

namespace detail {

template <class T>
consteval auto make_field_names() {
    if constexpr (IsPlan<T>) {
        constexpr auto asked = make_field_names<planner::PlanRequest>();
        constexpr auto made = make_field_names<planner::PlanBody>();
        std::array<std::string_view, asked.size() + made.size()> all;
        std::copy(made.begin(), made.end(), std::copy(asked.begin(), asked.end(), all.begin()));
        return all;
    } else {
        constexpr auto pointers = with_fields(Sample<T>::sample.value, [](auto&... fields) {
            return std::tuple{Pointer{&fields}...};
        });
        return [&]<size_t... I>(std::index_sequence<I...>) {
            return std::array<std::string_view, sizeof...(I)>{
                pointed_at<std::get<I>(pointers)>()...};
        }(std::make_index_sequence<std::tuple_size_v<decltype(pointers)>>());
    }
}

}  // namespace detail

// In the order of the struct.
template <class T>
inline constexpr auto field_names = detail::make_field_names<T>();

// "linear" for LinearAttrs.
template <class T>
std::string type_name() {
    return detail::snake_case(detail::type<T>());
}

// In order, as "norm_gate_up"; at most 32.
template <class E>
const std::vector<std::string>& enumerators() {
    static const std::vector<std::string> kNames = []<int... I>(std::integer_sequence<int, I...>) {
        std::vector<std::string> all;
        auto add = [&](std::string_view name) {
            if (!name.empty()) all.push_back(detail::snake_case(name));
        };
        (add(detail::enumerator<E, static_cast<E>(I)>()), ...);
        return all;
    }(std::make_integer_sequence<int, 32>());
    return kNames;
}

// Whether every field is equal.
template <class T>
bool same(const T& a, const T& b) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string> ||
                  is_a<T, Index> || std::is_same_v<T, importer::Dim>) {
        return a == b;
    } else if constexpr (is_a<T, std::vector> || is_array<T>) {
        bool equal = a.size() == b.size();
        for (size_t i = 0; equal && i < a.size(); ++i) equal = same(a[i], b[i]);
        return equal;
    } else if constexpr (is_a<T, std::optional>) {
        return a.has_value() == b.has_value() && (!a || same(*a, *b));
    } else if constexpr (is_a<T, std::variant>) {
        return a.index() == b.index() &&
               std::visit(
                   [&](const auto& x) { return same(x, std::get<std::decay_t<decltype(x)>>(b)); },
                   a);
    } else if constexpr (is_a<T, std::pair>) {
        return same(a.first, b.first) && same(a.second, b.second);
    } else {
        return with_fields(a, [&](const auto&... of_a) {
            return with_fields(b, [&](const auto&... of_b) { return (same(of_a, of_b) && ...); });
        });
    }
}

}  // namespace cleave::test
