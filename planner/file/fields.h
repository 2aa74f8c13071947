// SPDX-License-Identifier: Apache-2.0
// Both directions of a type of the plan file, put and take, from one list of its fields. A field
// has the same name in the struct and in the message. What a field is decides how it is stored:
// numbers and text as they are, an Index by its value, an enumeration by its number, an optional
// as 1 + its number unless the message knows presence itself, a list item by item, and any other
// struct by its own put and take, which come first in the file.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/control_characters.h"
#include "runtime/base/errors.h"
#include "runtime/base/index.h"

// FIELDS(Tile, Tile, rows, tokens) defines put(const Tile&, pb::Tile*) and take(const pb::Tile&,
// Tile&); FIELDS_AS the same by other names, for a type that has more than its fields.
#define FIELDS(Type, Message, ...) FIELDS_AS(put, take, Type, Message, __VA_ARGS__)
#define FIELDS_AS(put_name, take_name, Type, Message, ...)     \
    static void put_name(const Type& from, pb::Message* to) {  \
        FIELDS_EXPAND(FIELDS_EACH(PUT_FIELD, __VA_ARGS__))     \
    }                                                          \
    static void take_name(const pb::Message& from, Type& to) { \
        FIELDS_EXPAND(FIELDS_EACH(TAKE_FIELD, __VA_ARGS__))    \
    }

// Applies a macro to each name: the preprocessor reads the list again for each name, and each
// EXPAND makes it read four times as often.
#define FIELDS_EACH(macro, name, ...) \
    macro(name) __VA_OPT__(FIELDS_AGAIN FIELDS_PARENTHESES(macro, __VA_ARGS__))
#define FIELDS_AGAIN() FIELDS_EACH
#define FIELDS_PARENTHESES ()
#define FIELDS_EXPAND(...) \
    FIELDS_EXPAND3(FIELDS_EXPAND3(FIELDS_EXPAND3(FIELDS_EXPAND3(__VA_ARGS__))))
#define FIELDS_EXPAND3(...) \
    FIELDS_EXPAND2(FIELDS_EXPAND2(FIELDS_EXPAND2(FIELDS_EXPAND2(__VA_ARGS__))))
#define FIELDS_EXPAND2(...) \
    FIELDS_EXPAND1(FIELDS_EXPAND1(FIELDS_EXPAND1(FIELDS_EXPAND1(__VA_ARGS__))))
#define FIELDS_EXPAND1(...) __VA_ARGS__

// Lambdas, because only a template may leave out what a field's type does not have. Protobuf 3.21's
// add of a text that it may move counts an element before it has memory for it: it is assigned.
#define PUT_FIELD(name)                                                       \
    [](const auto& s, auto* m) {                                              \
        if constexpr (kIsOptional<decltype(s.name)>) {                        \
            constexpr bool knows = requires { m->has_##name(); };             \
            if (s.name) m->set_##name(stored(*s.name) + (knows ? 0 : 1));     \
        } else if constexpr (kIsList<decltype(s.name)>) {                     \
            for (const auto& item : s.name)                                   \
                if constexpr (requires { m->add_##name()->assign(item); })    \
                    m->add_##name()->assign(stored(item));                    \
                else if constexpr (requires { m->add_##name(stored(item)); }) \
                    m->add_##name(stored(item));                              \
                else                                                          \
                    put(item, m->add_##name());                               \
        } else if constexpr (requires { m->set_##name(stored(s.name)); }) {   \
            m->set_##name(stored(s.name));                                    \
        } else {                                                              \
            put(s.name, m->mutable_##name());                                 \
        }                                                                     \
    }(from, to);
#define TAKE_FIELD(name)                                                         \
    [](const auto& m, auto& s) {                                                 \
        if constexpr (kIsOptional<decltype(s.name)>) {                           \
            if constexpr (requires { m.has_##name(); }) {                        \
                if (m.has_##name()) take(m.name(), s.name.emplace());            \
            } else {                                                             \
                if (m.name() > 0) take(m.name() - 1, s.name.emplace());          \
            }                                                                    \
        } else if constexpr (kIsList<decltype(s.name)>) {                        \
            for (const auto& item : m.name()) take(item, s.name.emplace_back()); \
        } else {                                                                 \
            take(m.name(), s.name);                                              \
        }                                                                        \
    }(from, to);

namespace cleave::planner::codec {

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

// A value as its field holds it.
template <class T>
auto stored(const T& value) {
    if constexpr (std::is_enum_v<T>)
        return static_cast<uint32_t>(value);
    else
        return value;
}
template <class Tag>
int32_t stored(Index<Tag> id) {
    return id.value;
}
// Names and paths: what would not be read again is not written.
inline std::string stored(std::string text) {
    if (has_control_characters(text))
        throw UserError(
            "'{}' has control characters, which no name or path in a plan file has; "
            "rename it",
            without_control_characters(text));
    return text;
}

// No quantity of a plan comes near; sums of some of them stay in 64 bits.
inline constexpr int64_t kLargestNumber = int64_t{1} << 56;

template <class In, class Out>
    requires std::is_arithmetic_v<Out>
void take(In value, Out& out) {
    if constexpr (std::is_same_v<In, int64_t>)
        if (value > kLargestNumber || value < -kLargestNumber)
            throw UserError("it holds {} where numbers end at {}", value, kLargestNumber);
    if constexpr (std::is_floating_point_v<In>)
        if (!std::isfinite(value)) throw UserError("it holds a number that is not finite");
    out = value;
}
// Names, which messages and tables show, each in its line.
inline void take(const std::string& text, std::string& out) {
    if (has_control_characters(text)) throw UserError("it holds a text with control characters");
    out = text;
}
template <class Tag>
void take(int32_t id, Index<Tag>& out) {
    out = Index<Tag>(id);
}

// The last of an enumeration's values; specialised for each that a plan holds.
template <class Enum>
constexpr auto kLast = nullptr;
template <class Enum>
    requires std::is_enum_v<Enum>
void take(uint32_t number, Enum& out) {
    constexpr auto kEnd = static_cast<uint32_t>(kLast<Enum>);
    if (number > kEnd) throw UserError("it holds {} where kinds end at {}", number, kEnd);
    out = static_cast<Enum>(number);
}

}  // namespace cleave::planner::codec
