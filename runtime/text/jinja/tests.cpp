// SPDX-License-Identifier: Apache-2.0
// `value is name(arguments)`, by name.
#include <fmt/format.h>

#include <string_view>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/strings.h"

namespace cleave::runtime::jinja {

namespace {

using Test = bool (*)(const Value& value, const Value& other);
struct TestEntry {
    std::string_view name;
    size_t arguments;
    Test holds;
};

int64_t integer(const Value& value) { return integer_of(value, 0, "the value of this test"); }

int64_t modulo(const Value& value, int64_t by) {
    if (by == 0) throw TemplateError("division by zero");
    return by == -1 ? 0 : integer(value) % by;
}

bool is_integer(const Value& v, const Value&) { return v.get<int64_t>() != nullptr; }
bool is_iterable(const Value& v, const Value&) {
    return v.is_undefined() || v.string() || v.list() || (v.dict() && !v.dict()->is_namespace);
}
bool is_sequence(const Value& v, const Value&) {
    return v.is_undefined() || v.string() || v.list() || v.dict();
}
bool is_same(const Value& v, const Value& o) {
    if (v.list() || v.dict()) return v.list() == o.list() && v.dict() == o.dict();
    return std::string_view(v.type_name()) == o.type_name() && equal(v, o);
}
bool is_lower(const Value& v, const Value&) {
    return to_lower(v.str()) == v.str() && to_upper(v.str()) != v.str();
}
bool is_upper(const Value& v, const Value&) {
    return to_upper(v.str()) == v.str() && to_lower(v.str()) != v.str();
}

constexpr TestEntry kTests[] = {
    {"defined", 0, [](const Value& v, const Value&) { return !v.is_undefined(); }},
    {"undefined", 0, [](const Value& v, const Value&) { return v.is_undefined(); }},
    {"none", 0, [](const Value& v, const Value&) { return v.is_none(); }},
    {"string", 0, [](const Value& v, const Value&) { return v.string() != nullptr; }},
    {"number", 0, [](const Value& v, const Value&) { return v.is_number(); }},
    {"integer", 0, is_integer},
    {"float", 0, [](const Value& v, const Value&) { return v.get<double>() != nullptr; }},
    {"boolean", 0, [](const Value& v, const Value&) { return v.get<bool>() != nullptr; }},
    {"true", 0, [](const Value& v, const Value&) { return v.get<bool>() && *v.get<bool>(); }},
    {"false", 0, [](const Value& v, const Value&) { return v.get<bool>() && !*v.get<bool>(); }},
    {"mapping", 0,
     [](const Value& v, const Value&) { return v.dict() && !v.dict()->is_namespace; }},
    {"sequence", 0, is_sequence},
    {"iterable", 0, is_iterable},
    {"callable", 0,
     [](const Value& v, const Value&) { return v.callable() || v.is_undefined(); }},  // as in Jinja
    {"odd", 0, [](const Value& v, const Value&) { return modulo(v, 2) != 0; }},
    {"even", 0, [](const Value& v, const Value&) { return modulo(v, 2) == 0; }},
    {"divisibleby", 1, [](const Value& v, const Value& o) { return modulo(v, integer(o)) == 0; }},
    {"lower", 0, is_lower},
    {"upper", 0, is_upper},
    {"in", 1, [](const Value& v, const Value& o) { return contains(o, v); }},
    {"sameas", 1, is_same},
    {"eq", 1, [](const Value& v, const Value& o) { return equal(v, o); }},
    {"equalto", 1, [](const Value& v, const Value& o) { return equal(v, o); }},
    {"==", 1, [](const Value& v, const Value& o) { return equal(v, o); }},
    {"ne", 1, [](const Value& v, const Value& o) { return !equal(v, o); }},
    {"!=", 1, [](const Value& v, const Value& o) { return !equal(v, o); }},
    {"lt", 1, [](const Value& v, const Value& o) { return less(v, o); }},
    {"lessthan", 1, [](const Value& v, const Value& o) { return less(v, o); }},
    {"<", 1, [](const Value& v, const Value& o) { return less(v, o); }},
    {"gt", 1, [](const Value& v, const Value& o) { return less(o, v); }},
    {"greaterthan", 1, [](const Value& v, const Value& o) { return less(o, v); }},
    {">", 1, [](const Value& v, const Value& o) { return less(o, v); }},
    {"le", 1, [](const Value& v, const Value& o) { return less(v, o) || equal(v, o); }},
    {"<=", 1, [](const Value& v, const Value& o) { return less(v, o) || equal(v, o); }},
    {"ge", 1, [](const Value& v, const Value& o) { return less(o, v) || equal(v, o); }},
    {">=", 1, [](const Value& v, const Value& o) { return less(o, v) || equal(v, o); }},
};

}  // namespace

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
    spend(Budget::kNode);
    std::string supported;
    for (const TestEntry& entry : kTests) {
        if (entry.name == name) {
            if (arguments.positional.size() != entry.arguments || !arguments.named.empty()) {
                throw TemplateError(
                    fmt::format("the test '{}' takes {} arguments", name, entry.arguments));
            }
            return entry.holds(value, entry.arguments ? arguments.positional[0] : Value());
        }
        supported.append(supported.empty() ? "" : ", ").append(entry.name);
    }
    throw TemplateError(
        fmt::format("the test '{}' is not supported (supported: {})", name, supported));
}

}  // namespace cleave::runtime::jinja
