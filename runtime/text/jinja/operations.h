// SPDX-License-Identifier: Apache-2.0
// What templates can do with values: operators, attributes, methods, filters, tests, functions.
// Each takes values and gives a value; none knows about the template. All throw TemplateError.
// To add a filter, a test or a method: a function and a line in the table of its file.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace cleave::runtime::jinja {

// Python's a op b for op one of + - * / // % **.
Value binary(const std::string& op, const Value& a, const Value& b);

// object.name: a method, an item, or undefined; TemplateError on an undefined object.
Value attribute(const Value& object, const std::string& name);
// object[key]: an item or undefined.
Value item(const Value& object, const Value& key);
Value slice(const Value& object, const std::optional<int64_t>& start,
            const std::optional<int64_t>& stop, int64_t step);
// A bound method of a str, list or dict; nothing when the type has none of that name.
std::optional<Value> method_of(const Value& object, const std::string& name);

// "...".format(...): {} and {0} and {name}, without format specifications.
std::string format_braces(const std::string& format, const Arguments& arguments);
// format % values: %s, %d, %r and %%.
std::string format_percent(const std::string& format, const std::vector<Value>& values);

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);

// The namespaces that a template made. One may hold itself, so they are emptied when the rendering
// is over.
struct Namespaces {
    Namespaces() = default;
    ~Namespaces();
    Namespaces(const Namespaces&) = delete;
    Namespaces& operator=(const Namespaces&) = delete;

    std::vector<std::weak_ptr<Dict>> made;
};

// range, namespace, dict, joiner, raise_exception, strftime_now. `namespaces` must outlive them.
std::vector<std::pair<std::string, Value>> builtin_functions(
    std::function<std::string(const std::string& format)> strftime_now, Namespaces& namespaces);

// Arguments matched to parameter names; what was not given is nothing. TemplateError on too many
// or unknown ones.
std::vector<std::optional<Value>> bind(const Arguments& arguments, const std::string& function,
                                       std::initializer_list<const char*> parameters);

// Readers of one bound argument.
int64_t integer_of(const std::optional<Value>& value, int64_t otherwise, const std::string& what);
std::optional<std::string> text_of(const std::optional<Value>& value, const std::string& what);
bool truth_of(const std::optional<Value>& value, bool otherwise);

Value make_function(std::string name, std::function<Value(const Arguments&)> call);

using FilterFunction = Value (*)(const Value& value, const Arguments& arguments);
struct FilterEntry {
    std::string_view name;
    FilterFunction apply;
};
// The two halves of the filter table: of one value, and of many.
const std::vector<FilterEntry>& scalar_filters();
const std::vector<FilterEntry>& list_filters();

}  // namespace cleave::runtime::jinja
