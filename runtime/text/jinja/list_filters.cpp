// SPDX-License-Identifier: Apache-2.0
// Filters that go through the items of a value.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/strings.h"

namespace cleave::runtime::jinja {

namespace {

// value.a.b for "a.b"; a part of digits is an index.
Value follow(Value value, const std::string& path) {
    for (const std::string& part : split(path, ".", -1)) {
        int64_t index = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
        const bool is_index = error == std::errc() && end == part.data() + part.size();
        value = is_index ? item(value, Value(index)) : item(value, Value(part));
    }
    return value;
}

Value key_of(const Value& value, const std::optional<std::string>& path) {
    return path ? follow(value, *path) : value;
}

// Sorting and comparing ignore case unless told otherwise.
Value folded(Value value, bool case_sensitive) {
    if (!case_sensitive && value.string()) return to_lower(*value.string());
    return value;
}

Value first_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "first", {});
    const std::vector<Value> items = iterate(value);
    return items.empty() ? Value::undefined("first of nothing") : items.front();
}

Value last_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "last", {});
    const std::vector<Value> items = iterate(value);
    return items.empty() ? Value::undefined("last of nothing") : items.back();
}

Value list_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "list", {});
    return Value::list(iterate(value));
}

Value join_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "join", {"d", "attribute"});
    const std::string separator = bound[0] ? bound[0]->str() : "";
    const auto path = text_of(bound[1], "join: attribute");
    std::string out;
    bool first = true;
    for (const Value& part : iterate(value)) {
        if (!std::exchange(first, false)) append_text(out, separator);
        append_text(out, key_of(part, path).str());
    }
    return out;
}

Value reverse_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "reverse", {});
    return slice(value.string() || value.list() ? value : Value::list(iterate(value)), std::nullopt,
                 std::nullopt, -1);
}

Value sort_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
    const bool reverse = truth_of(bound[0], false);
    const bool case_sensitive = truth_of(bound[1], false);
    const auto path = text_of(bound[2], "sort: attribute");
    std::vector<Value> items = iterate(value);
    const auto key = [&](const Value& v) { return folded(key_of(v, path), case_sensitive); };
    std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
        return reverse ? less(key(b), key(a)) : less(key(a), key(b));
    });
    return Value::list(std::move(items));
}

Value unique_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "unique", {"case_sensitive", "attribute"});
    const auto path = text_of(bound[1], "unique: attribute");
    std::vector<Value> keys;
    std::vector<Value> out;
    for (const Value& element : iterate(value)) {
        Value key = folded(key_of(element, path), truth_of(bound[0], false));
        if (std::any_of(keys.begin(), keys.end(),
                        [&](const Value& seen) { return equal(seen, key); }))
            continue;
        keys.push_back(std::move(key));
        out.push_back(element);
    }
    return Value::list(std::move(out));
}

template <bool largest>
Value extreme_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
    const auto path = text_of(bound[1], "attribute");
    Value best = Value::undefined("extreme of nothing");
    bool first = true;
    for (const Value& element : iterate(value)) {
        const Value a = folded(key_of(element, path), truth_of(bound[0], false));
        const Value b = folded(first ? a : key_of(best, path), truth_of(bound[0], false));
        if (std::exchange(first, false) || (largest ? less(b, a) : less(a, b))) best = element;
    }
    return best;
}

Value sum_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "sum", {"attribute", "start"});
    const auto path = text_of(bound[0], "sum: attribute");
    Value total = bound[1].value_or(Value(0));
    for (const Value& element : iterate(value)) total = binary("+", total, key_of(element, path));
    return total;
}

Value items_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "items", {});
    if (value.is_undefined()) return Value::list({});
    if (!value.dict())
        throw TemplateError(fmt::format("items: expected a dict, found {}", value.type_name()));
    return attribute(value, "items").callable()->call({});
}

Value dictsort_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
    const std::string by = text_of(bound[1], "dictsort: by").value_or("key");
    if (by != "key" && by != "value") throw TemplateError("dictsort: by must be 'key' or 'value'");
    Arguments sort_arguments;
    sort_arguments.positional = {Value(truth_of(bound[2], false)), Value(truth_of(bound[0], false)),
                                 Value(by == "key" ? "0" : "1")};
    return sort_filter(items_filter(value, {}), sort_arguments);
}

// The lazy filters (map, select, ...) give nothing for anything that is false, None too.
std::vector<Value> items_if_true(const Value& value) {
    return value.truthy() ? iterate(value) : std::vector<Value>();
}

Arguments rest_of(const Arguments& arguments, size_t from) {
    Arguments rest = arguments;
    const auto count = static_cast<std::ptrdiff_t>(std::min(from, rest.positional.size()));
    rest.positional.erase(rest.positional.begin(), rest.positional.begin() + count);
    return rest;
}

// map('filter', ...) or map(attribute='a.b', default=...).
Value map_filter(const Value& value, const Arguments& arguments) {
    std::vector<Value> out;
    if (arguments.positional.empty()) {
        const auto bound = bind(arguments, "map", {"attribute", "default"});
        if (!bound[0]) throw TemplateError("map needs the name of a filter or an attribute");
        for (const Value& element : items_if_true(value)) {
            const Value found = bound[0]->string() ? follow(element, *bound[0]->string())
                                                   : item(element, *bound[0]);
            out.push_back(found.is_undefined() && bound[1] ? *bound[1] : found);
        }
        return Value::list(std::move(out));
    }
    const std::string name = arguments.positional[0].str();
    const Arguments rest = rest_of(arguments, 1);
    for (const Value& element : items_if_true(value))
        out.push_back(apply_filter(name, element, rest));
    return Value::list(std::move(out));
}

// select, reject, selectattr, rejectattr: by a test, of the item or of its attribute; without one,
// by truth.
template <bool by_attribute, bool keep>
Value choose_filter(const Value& value, const Arguments& arguments) {
    const auto& given = arguments.positional;
    if (by_attribute && given.empty())
        throw TemplateError("selectattr and rejectattr need an attribute's name");
    const size_t test = by_attribute ? 1 : 0;
    const Arguments rest = rest_of(arguments, test + 1);
    std::vector<Value> out;
    for (const Value& element : items_if_true(value)) {
        const Value key = by_attribute ? follow(element, given[0].str()) : element;
        const bool holds =
            given.size() > test ? apply_test(given[test].str(), key, rest) : key.truthy();
        if (holds == keep) out.push_back(element);
    }
    return Value::list(std::move(out));
}

}  // namespace

const std::vector<FilterEntry>& list_filters() {
    static const std::vector<FilterEntry> kTable = {
        {"first", first_filter},
        {"last", last_filter},
        {"list", list_filter},
        {"join", join_filter},
        {"reverse", reverse_filter},
        {"sort", sort_filter},
        {"unique", unique_filter},
        {"min", extreme_filter<false>},
        {"max", extreme_filter<true>},
        {"sum", sum_filter},
        {"items", items_filter},
        {"dictsort", dictsort_filter},
        {"map", map_filter},
        {"select", choose_filter<false, true>},
        {"reject", choose_filter<false, false>},
        {"selectattr", choose_filter<true, true>},
        {"rejectattr", choose_filter<true, false>},
    };
    return kTable;
}

}  // namespace cleave::runtime::jinja
