// SPDX-License-Identifier: Apache-2.0
// Fields of a client's JSON object. Null counts as absent; a wrong type or value is an ApiError
// (400) that names the field.
#pragma once

#include <string>
#include <type_traits>

#include <fmt/format.h>

#include "tools/serve/api_calls.h"

namespace cleave::serve {

[[noreturn]] inline void refuse(const std::string& param, const std::string& message) {
    ApiError error;
    error.message = message;
    error.param = param;
    throw error;
}

// Null where it is absent.
inline const Json* field(const Json& body, const std::string& name) {
    const auto at = body.find(name);
    return at == body.end() || at->is_null() ? nullptr : &*at;
}

template <class T>
T number(const Json& body, const std::string& name, T fallback, double least, double most) {
    const Json* value = field(body, name);
    if (!value) return fallback;
    const bool fits = std::is_integral_v<T> ? value->is_number_integer() : value->is_number();
    if (!fits || value->get<double>() < least || value->get<double>() > most)
        refuse(name, fmt::format("{}: expected a {}number from {} to {}", name,
                                 std::is_integral_v<T> ? "whole " : "", least, most));
    return value->get<T>();
}

inline bool flag(const Json& body, const std::string& name, bool fallback) {
    const Json* value = field(body, name);
    if (!value) return fallback;
    if (!value->is_boolean()) refuse(name, fmt::format("{}: expected true or false", name));
    return value->get<bool>();
}

}  // namespace cleave::serve
