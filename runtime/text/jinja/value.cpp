// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/strings.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime::jinja {

namespace {

// Values are printed and freed by recursion.
constexpr int kMaxNesting = 200;

// The depth of a container around `inner`.
int depth_around(const Value& inner, int at_least) {
    const int depth = inner.list() ? inner.list()->depth : inner.dict() ? inner.dict()->depth : 0;
    if (depth >= kMaxNesting) throw TemplateError("lists and dicts are nested too deeply");
    return std::max(at_least, depth + 1);
}

}  // namespace

Value::Value(std::string value) {
    check_text_size(value.size());
    spend(kItem + value.size() / kBytesOfWork);
    storage_ = std::make_shared<const std::string>(std::move(value));
}

Value Value::undefined(std::string name) {
    constexpr size_t kShown = 200;
    if (name.size() > kShown) name.replace(previous_char(name, kShown), std::string::npos, "...");
    Value value;
    value.storage_ = Undefined{std::move(name)};
    return value;
}

Value Value::list(std::vector<Value> items, bool tuple) {
    if (items.size() > kMaxItems) throw TemplateError("a list is too long");
    spend(kItem * items.size());
    int depth = 1;
    for (const Value& item : items) depth = depth_around(item, depth);
    return std::make_shared<List>(List{std::move(items), tuple, depth});
}

Value Value::from_json(const nlohmann::ordered_json& json) {
    if (json.is_boolean()) return json.get<bool>();
    if (json.is_number_integer()) return json.get<int64_t>();
    if (json.is_number()) return json.get<double>();
    if (json.is_string()) return json.get<std::string>();
    if (json.is_array()) {
        std::vector<Value> items;
        for (const auto& item : json) items.push_back(from_json(item));
        return list(std::move(items));
    }
    if (json.is_object()) {
        auto dict = std::make_shared<Dict>();
        for (const auto& [key, item] : json.items()) {
            dict->entries.emplace_back(key, from_json(item));  // keys of JSON are unique
            dict->depth = depth_around(dict->entries.back().second, dict->depth);
        }
        return dict;
    }
    return {};
}

const std::string* Value::string() const {
    const auto* pointer = get<std::shared_ptr<const std::string>>();
    return pointer ? pointer->get() : nullptr;
}

const List* Value::list() const {
    const auto* pointer = get<std::shared_ptr<List>>();
    return pointer ? pointer->get() : nullptr;
}

const Dict* Value::dict() const {
    const auto* pointer = get<std::shared_ptr<Dict>>();
    return pointer ? pointer->get() : nullptr;
}

const Callable* Value::callable() const {
    const auto* pointer = get<std::shared_ptr<Callable>>();
    return pointer ? pointer->get() : nullptr;
}

bool Value::as_integer(int64_t& out) const {
    if (const bool* value = get<bool>()) {
        out = *value ? 1 : 0;
        return true;
    }
    if (const int64_t* value = get<int64_t>()) {
        out = *value;
        return true;
    }
    return false;
}

double Value::as_double() const {
    if (const double* value = get<double>()) return *value;
    int64_t integer = 0;
    if (!as_integer(integer))
        throw TemplateError(fmt::format("expected a number, found {}", type_name()));
    return static_cast<double>(integer);
}

bool Value::truthy() const {
    if (is_undefined() || is_none()) return false;
    if (is_number()) return as_double() != 0;
    if (string()) return !string()->empty();
    if (list()) return !list()->items.empty();
    if (dict()) return dict()->is_namespace || !dict()->entries.empty();
    return true;
}

const char* Value::type_name() const {
    constexpr const char* kNames[] = {"undefined", "None", "bool", "int",     "float",
                                      "str",       "list", "dict", "function"};
    if (list() && list()->tuple) return "tuple";
    if (dict() && dict()->is_namespace) return "namespace";
    return kNames[storage_.index()];
}

const Value* Dict::find(const Value& key) const {
    for (const auto& [name, value] : entries) {
        if (equal(name, key)) return &value;
    }
    return nullptr;
}

const Value* Dict::find(const std::string& key) const {
    spend(entries.size());
    for (const auto& [name, value] : entries) {
        if (name.string() && *name.string() == key) return &value;
    }
    return nullptr;
}

void Dict::set(const Value& key, Value value) {
    depth = depth_around(value, depth_around(key, depth));
    for (auto& [name, old] : entries) {
        if (equal(name, key)) {
            old = std::move(value);
            return;
        }
    }
    entries.emplace_back(key, std::move(value));
}

bool equal(const Value& a, const Value& b) {
    spend(1);
    if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
    if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
    if (a.is_number() && b.is_number()) {
        int64_t x = 0;
        int64_t y = 0;
        if (a.as_integer(x) && b.as_integer(y)) return x == y;
        return a.as_double() == b.as_double();
    }
    if (a.string() && b.string()) {
        if (a.string()->size() != b.string()->size()) return false;
        spend(a.string()->size() / kBytesOfWork);
        return *a.string() == *b.string();
    }
    if (a.list() && b.list()) {
        const auto& x = a.list()->items;
        const auto& y = b.list()->items;
        return a.list()->tuple == b.list()->tuple &&
               std::equal(x.begin(), x.end(), y.begin(), y.end(), equal);
    }
    if (a.dict() && b.dict()) {
        if (a.dict() == b.dict()) return true;
        if (a.dict()->is_namespace || a.dict()->entries.size() != b.dict()->entries.size())
            return false;
        return std::all_of(a.dict()->entries.begin(), a.dict()->entries.end(),
                           [&](const auto& entry) {
                               const Value* other = b.dict()->find(entry.first);
                               return other && equal(entry.second, *other);
                           });
    }
    return a.callable() && a.callable() == b.callable();
}

bool less(const Value& a, const Value& b) {
    spend(1);
    if (a.is_number() && b.is_number()) {
        int64_t x = 0;
        int64_t y = 0;
        if (a.as_integer(x) && b.as_integer(y)) return x < y;
        return a.as_double() < b.as_double();
    }
    if (a.string() && b.string()) {
        spend(std::min(a.string()->size(), b.string()->size()) / kBytesOfWork);
        return *a.string() < *b.string();
    }
    if (a.list() && b.list()) {
        const auto& x = a.list()->items;
        const auto& y = b.list()->items;
        return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), less);
    }
    throw TemplateError(fmt::format("{} and {} cannot be ordered", a.type_name(), b.type_name()));
}

bool contains(const Value& haystack, const Value& needle) {
    if (const std::string* text = haystack.string()) {
        if (!needle.string()) {
            throw TemplateError(
                fmt::format("'in' of a str needs a str on its left, found {}", needle.type_name()));
        }
        return find_text(*text, *needle.string()) != std::string_view::npos;
    }
    if (haystack.dict() && !haystack.dict()->is_namespace)
        return haystack.dict()->find(needle) != nullptr;
    const std::vector<Value> items = iterate(haystack);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& item) { return equal(item, needle); });
}

std::vector<Value> iterate(const Value& value) {
    if (value.is_undefined()) return {};
    if (value.list()) {
        spend(value.list()->items.size());
        return value.list()->items;
    }
    std::vector<Value> items;
    if (value.dict() && !value.dict()->is_namespace) {
        spend(value.dict()->entries.size());
        for (const auto& [key, item] : value.dict()->entries) items.push_back(key);
        return items;
    }
    if (value.string()) {
        for (std::string& character : characters(*value.string()))
            items.emplace_back(std::move(character));
        return items;
    }
    throw TemplateError(
        fmt::format("a value of type {} cannot be iterated over", value.type_name()));
}

}  // namespace cleave::runtime::jinja
