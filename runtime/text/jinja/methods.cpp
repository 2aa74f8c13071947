// SPDX-License-Identifier: Apache-2.0
// Methods of str, list and dict, by name. Those of Python that we leave out are errors when called.
#include <utf8proc.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/strings.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime::jinja {

namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);
struct MethodEntry {
    std::string_view name;
    Method call;
};

Value as_list(const std::vector<std::string>& parts) {
    return Value::list({parts.begin(), parts.end()});
}

std::string required_text(const std::optional<Value>& value, const char* what) {
    const auto text = text_of(value, what);
    if (!text) throw TemplateError(fmt::format("{} is missing", what));
    return *text;
}

template <bool left, bool right>
Value strip_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "strip", {"chars"});
    return strip(*self.string(), text_of(bound[0], "strip: chars"), left, right);
}

template <auto cut>
Value split_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "split", {"sep", "maxsplit"});
    return as_list(cut(*self.string(), text_of(bound[0], "split: sep"),
                       integer_of(bound[1], -1, "split: maxsplit")));
}

Value split_lines_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "splitlines", {"keepends"});
    return as_list(split_lines(*self.string(), truth_of(bound[0], false)));
}

// startswith and endswith take one text or a tuple of them.
template <bool at_end>
Value affix_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, at_end ? "endswith" : "startswith", {"text"});
    const std::vector<Value> options = bound[0] && bound[0]->list()
                                           ? iterate(*bound[0])
                                           : std::vector<Value>{bound[0].value_or(Value())};
    spend(kItem * options.size());
    return std::any_of(options.begin(), options.end(), [&](const Value& option) {
        const std::string text =
            required_text(option, at_end ? "endswith: the text" : "startswith: the text");
        return at_end ? self.string()->ends_with(text) : self.string()->starts_with(text);
    });
}

template <auto map>
Value map_method(const Value& self, const Arguments& arguments) {
    bind(arguments, "this method", {});
    return map(*self.string());
}

Value replace_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "replace", {"old", "new", "count"});
    return replace(*self.string(), required_text(bound[0], "replace: old"),
                   required_text(bound[1], "replace: new"),
                   integer_of(bound[2], -1, "replace: count"));
}

template <bool last, bool must_exist>
Value find_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "find", {"text"});
    const std::string& text = *self.string();
    const std::string wanted = required_text(bound[0], "find: the text");
    const size_t at = last ? find_last_text(text, wanted) : find_text(text, wanted);
    if (at != std::string::npos) return length_of(std::string_view(text).substr(0, at));
    if (must_exist) throw TemplateError("index: the text does not occur");
    return -1;
}

Value count_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "count", {"text"});
    const std::string wanted = required_text(bound[0], "count: the text");
    if (wanted.empty()) return length_of(*self.string()) + 1;
    return static_cast<int64_t>(split(*self.string(), wanted, -1).size()) - 1;
}

Value join_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "join", {"items"});
    std::string out;
    bool first = true;
    for (const Value& part : iterate(bound[0].value_or(Value()))) {
        if (!part.string())
            throw TemplateError(
                fmt::format("join: an item is of type {}, not str", part.type_name()));
        if (!std::exchange(first, false)) append_text(out, *self.string());
        append_text(out, *part.string());
    }
    return out;
}

template <bool suffix>
Value remove_method(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, suffix ? "removesuffix" : "removeprefix", {"text"});
    const std::string affix = required_text(bound[0], "the text to remove");
    const std::string& text = *self.string();
    if (suffix && text.ends_with(affix)) return text.substr(0, text.size() - affix.size());
    if (!suffix && text.starts_with(affix)) return text.substr(affix.size());
    return text;
}

Value format_method(const Value& self, const Arguments& arguments) {
    return format_braces(*self.string(), arguments);
}

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool is_alphabetic(char32_t c) {
    return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_decimal(c); }

template <auto test>
Value all_method(const Value& self, const Arguments& arguments) {
    bind(arguments, "this method", {});
    return all_characters(*self.string(), test);
}

template <bool upper>
Value case_method(const Value& self, const Arguments& arguments) {
    bind(arguments, "this method", {});
    const std::string& text = *self.string();
    return (upper ? to_upper(text) : to_lower(text)) == text && to_upper(text) != to_lower(text);
}

constexpr MethodEntry kStrMethods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<split>},
    {"rsplit", split_method<rsplit>},
    {"splitlines", split_lines_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"upper", map_method<to_upper>},
    {"lower", map_method<to_lower>},
    {"title", map_method<to_title>},
    {"capitalize", map_method<to_capitalized>},
    {"replace", replace_method},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"join", join_method},
    {"removeprefix", remove_method<false>},
    {"removesuffix", remove_method<true>},
    {"format", format_method},
    {"isspace", all_method<is_python_space>},
    {"isalpha", all_method<is_alphabetic>},
    {"isdigit", all_method<is_decimal>},
    {"isdecimal", all_method<is_decimal>},
    {"isnumeric", all_method<is_decimal>},
    {"isalnum", all_method<is_alphanumeric>},
    {"isupper", case_method<true>},
    {"islower", case_method<false>},
};

Value dict_items(const Value& self, const Arguments& arguments) {
    bind(arguments, "items", {});
    spend(self.dict()->entries.size());
    std::vector<Value> out;
    for (const auto& [key, value] : self.dict()->entries)
        out.push_back(Value::list({key, value}, true));
    return Value::list(std::move(out));
}

template <bool values>
Value dict_column(const Value& self, const Arguments& arguments) {
    bind(arguments, values ? "values" : "keys", {});
    spend(self.dict()->entries.size());
    std::vector<Value> out;
    for (const auto& [key, value] : self.dict()->entries) out.push_back(values ? value : key);
    return Value::list(std::move(out));
}

Value dict_get(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "get", {"key", "default"});
    const Value* found = self.dict()->find(bound[0].value_or(Value()));
    return found ? *found : bound[1].value_or(Value());
}

Value dict_copy(const Value& self, const Arguments& arguments) {
    bind(arguments, "copy", {});
    spend(kItem * self.dict()->entries.size());
    return std::make_shared<Dict>(*self.dict());
}

constexpr MethodEntry kDictMethods[] = {
    {"items", dict_items}, {"keys", dict_column<false>}, {"values", dict_column<true>},
    {"get", dict_get},     {"copy", dict_copy},
};

Value list_index(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "index", {"value"});
    const std::vector<Value>& items = self.list()->items;
    for (size_t i = 0; i < items.size(); ++i) {
        if (equal(items[i], bound[0].value_or(Value()))) return static_cast<int64_t>(i);
    }
    throw TemplateError("index: the value is not in the list");
}

Value list_count(const Value& self, const Arguments& arguments) {
    const auto bound = bind(arguments, "count", {"value"});
    const std::vector<Value>& items = self.list()->items;
    return static_cast<int64_t>(std::count_if(
        items.begin(), items.end(),
        [&](const Value& element) { return equal(element, bound[0].value_or(Value())); }));
}

constexpr MethodEntry kListMethods[] = {{"index", list_index}, {"count", list_count}};

// Methods that Python has: those that change their object (the sandbox of Hugging Face's templates
// refuses them too) and those that no template is known to use.
constexpr std::string_view kRefused[] = {
    "append",    "extend",     "insert",    "pop",        "remove",     "clear",
    "sort",      "reverse",    "update",    "setdefault", "popitem",    "encode",
    "partition", "rpartition", "casefold",  "swapcase",   "center",     "ljust",
    "rjust",     "zfill",      "translate", "expandtabs", "format_map", "fromkeys"};

bool python_has(const Value& object, std::string_view name) {
    constexpr std::string_view kOfList = "append extend insert pop remove clear sort reverse";
    constexpr std::string_view kOfDict = "pop clear update setdefault popitem fromkeys";
    if (std::find(std::begin(kRefused), std::end(kRefused), name) == std::end(kRefused))
        return false;
    const bool of_list = kOfList.find(name) != std::string_view::npos;
    const bool of_dict = kOfDict.find(name) != std::string_view::npos;
    if (object.list()) return of_list && !object.list()->tuple;
    if (object.dict()) return of_dict;
    return !of_list && !of_dict;
}

template <size_t N>
std::optional<Value> find_method_in(const MethodEntry (&table)[N], const Value& object,
                                    const std::string& name) {
    for (const MethodEntry& entry : table) {
        if (entry.name == name) {
            return make_function(
                name, [object, call = entry.call](const Arguments& a) { return call(object, a); });
        }
    }
    if (!python_has(object, name)) return std::nullopt;
    return make_function(
        name,
        [text = fmt::format("the method {}.{}() is not supported", object.type_name(), name)](
            const Arguments&) -> Value { throw TemplateError(text); });
}

}  // namespace

std::optional<Value> method_of(const Value& object, const std::string& name) {
    if (object.string()) {
        spend(object.string()->size() / kBytesOfWork);  // most read it once
        return find_method_in(kStrMethods, object, name);
    }
    if (object.list()) return find_method_in(kListMethods, object, name);
    if (object.dict() && !object.dict()->is_namespace)
        return find_method_in(kDictMethods, object, name);
    return std::nullopt;
}

}  // namespace cleave::runtime::jinja
