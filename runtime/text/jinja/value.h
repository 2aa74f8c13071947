// SPDX-License-Identifier: Apache-2.0
// The values of a chat template: Python's, as far as templates can tell the difference.
// A list, dict or namespace is shared by whoever holds the Value, as in Python; only a namespace
// can change after it is made, so containers hold no cycles but through one. How deep they nest is
// bounded. Whatever goes wrong is a TemplateError; its line is filled in by the evaluator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/errors.h"

namespace cleave::runtime::jinja {

class TemplateError : public std::runtime_error {
public:
    explicit TemplateError(const std::string& message, int at_line = 0)
        : std::runtime_error(message), line(at_line) {}
    int line;  // 0: not known yet
};

class Value;
struct List;
struct Dict;
struct Callable;

struct None {};
struct Undefined {
    std::string name;  // what was looked for
};

class Value {
public:
    using Storage =
        std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
                     std::shared_ptr<List>, std::shared_ptr<Dict>, std::shared_ptr<Callable>>;

    Value() : storage_(None{}) {}
    Value(bool value) : storage_(value) {}
    Value(int value) : storage_(int64_t{value}) {}
    Value(int64_t value) : storage_(value) {}
    Value(double value) : storage_(value) {}
    // TemplateError for a text or list that is longer than a rendering may make it.
    Value(std::string value);
    Value(const char* value) : Value(std::string(value)) {}
    Value(std::shared_ptr<List> value) : storage_(std::move(value)) {}
    Value(std::shared_ptr<Dict> value) : storage_(std::move(value)) {}
    Value(std::shared_ptr<Callable> value) : storage_(std::move(value)) {}

    static Value undefined(std::string name);
    static Value list(std::vector<Value> items, bool tuple = false);
    static Value from_json(const nlohmann::ordered_json& json);

    template <class T>
    const T* get() const {
        return std::get_if<T>(&storage_);
    }
    bool is_undefined() const { return get<Undefined>() != nullptr; }
    bool is_none() const { return get<None>() != nullptr; }
    bool is_number() const { return get<bool>() || get<int64_t>() || get<double>(); }
    const std::string* string() const;
    const List* list() const;
    const Dict* dict() const;
    const Callable* callable() const;
    // Bools and integers; nothing else.
    bool as_integer(int64_t& out) const;
    double as_double() const;  // of a number

    bool truthy() const;
    std::string str() const;   // what {{ value }} prints
    std::string repr() const;  // what it is inside a printed list
    const char* type_name() const;

private:
    Storage storage_;
};

struct List {
    std::vector<Value> items;
    bool tuple = false;
    int depth = 1;  // of lists and dicts inside one another
};

struct Dict {
    std::vector<std::pair<Value, Value>> entries;  // in order of insertion
    bool is_namespace = false;
    int depth = 1;

    const Value* find(const Value& key) const;
    const Value* find(const std::string& key) const;
    void set(const Value& key, Value value);
};

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
    std::string name;
    std::function<Value(const Arguments&)> call;
};

bool equal(const Value& a, const Value& b);
// Python's < on numbers, strings and lists; TemplateError for other pairs.
bool less(const Value& a, const Value& b);
// Python's `needle in haystack`.
bool contains(const Value& haystack, const Value& needle);
// What a `for` goes through: items, keys, characters; nothing for an undefined value.
std::vector<Value> iterate(const Value& value);

struct JsonStyle {
    int64_t indent = -1;  // spaces a level; negative: one line
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};

// Python's json.dumps.
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace cleave::runtime::jinja
