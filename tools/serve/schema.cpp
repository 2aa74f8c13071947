// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::serve {
namespace {

constexpr size_t kMostBytes = 65536;           // of a schema's text
constexpr int kMostDepth = 32;                 // of schemas in schemas
constexpr double kMostItems = 1024;            // that minItems and maxItems may name
constexpr double kMostLength = 4096;           // that minLength and maxLength may name
constexpr size_t kMostPattern = 512;           // characters
constexpr int64_t kMostRepeats = 128;          // of one {m,n}: the library fails beyond
constexpr int64_t kMostAllRepeats = 1024;      // that all of a pattern may multiply to
constexpr double kLargestInteger = 1ll << 53;  // JSON's numbers are doubles to most readers

constexpr std::array<std::string_view, 14> kAnnotations{
    "title", "description", "default",       "examples",   "example",  "$comment",  "$schema",
    "$defs", "definitions", "discriminator", "deprecated", "readOnly", "writeOnly", "nullable"};
constexpr std::array<std::string_view, 9> kFormats{"date", "time", "date-time", "duration", "ipv4",
                                                   "ipv6", "uuid", "hostname",  "email"};
constexpr std::string_view kEscapes = "dws.-+*?()[]{}|^$/";  // of patterns, behind a backslash
constexpr std::array<std::string_view, 4> kChoices{"$ref", "anyOf", "oneOf", "allOf"};

using Types = std::set<std::string>;
using Keys = std::initializer_list<std::string_view>;

std::string step(const std::string& key) {
    std::string text = "/";
    for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return text;
}

template <class List>
bool has(const List& list, std::string_view key) {
    return std::find(list.begin(), list.end(), key) != list.end();
}

const Json* get(const Json& schema, const std::string& key) {
    const auto at = schema.find(key);
    return at == schema.end() ? nullptr : &*at;
}

bool has_type(const Json& value, const std::string& type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    if (!value.is_number()) return false;
    return type == "number" || value.get<double>() == std::floor(value.get<double>());
}

bool has_large_integer(const Json& value) {
    if (value.is_structured()) return std::ranges::any_of(value, has_large_integer);
    constexpr auto kLargest = static_cast<int64_t>(kLargestInteger);
    if (value.is_number_unsigned()) return value.get<uint64_t>() > uint64_t{kLargest};
    return value.is_number_integer() && value.get<int64_t>() < -kLargest;
}

// Walks a schema and what it refers to, and narrows a copy of it in place.
class Keeper {
public:
    Keeper(const Json& root, const std::string& param) : root_(root), param_(param), kept_(root) {}

    void keep(const Json& schema, const std::string& path, int depth);
    Json kept();

private:
    [[noreturn]] void refuse(const std::string& path, const std::string& why) const {
        ApiError error;
        error.param = param_ + path;
        error.message = fmt::format("{}{}: {}", param_, path, why);
        throw error;
    }
    Json& narrowed(const std::string& path) { return kept_.at(Json::json_pointer(path)); }
    double number(const Json& schema, const char* key, double fallback, double most, bool whole,
                  const std::string& path) const;
    void check_only(const Json& schema, Keys keys, const std::string& path,
                    const std::string& why) const;
    Types types_of(const Json& schema, const std::string& path) const;
    std::string referred(const Json& schema, const std::string& path) const;
    const Json& resolved(const Json& schema, const std::string& path) const;
    bool differ(const Json& first, const Json& second, const std::string& path, int depth) const;
    bool differ_by_property(const Json& a, const Json& b, const std::string& path, int depth) const;

    void reach(const Json& schema, const std::string& path, std::set<std::string>& reached) const;

    void keep_choice(const Json& schema, const std::string& path, int depth);
    void keep_values(const Json& schema, const std::string& path) const;
    void keep_object(const Json& schema, const std::string& path, int depth);
    void keep_array(const Json& schema, const std::string& path, int depth);
    void keep_string(const Json& schema, const std::string& path) const;
    void keep_number(const Json& schema, bool whole, const std::string& path) const;
    void check_pattern(const Json& pattern, const std::string& path) const;

    const Json& root_;
    const std::string& param_;
    Json kept_;
    std::set<std::string> seen_;         // what references name
    std::vector<std::string> disjoint_;  // schemas of a "oneOf" whose options differ
};

double Keeper::number(const Json& schema, const char* key, double fallback, double most, bool whole,
                      const std::string& path) const {
    const Json* value = get(schema, key);
    if (!value) return fallback;
    const double least = whole && most != kLargestInteger ? 0 : -most;
    if (!value->is_number() || value->get<double>() < least || value->get<double>() > most ||
        (whole && !has_type(*value, "integer")))
        refuse(path + "/" + key, fmt::format("expected a {}number from {} to {}",
                                             whole ? "whole " : "", least, most));
    return value->get<double>();
}

void Keeper::check_only(const Json& schema, Keys keys, const std::string& path,
                        const std::string& why) const {
    for (const auto& [key, value] : schema.items())
        if (!has(keys, key) && !has(kAnnotations, key) && !key.starts_with("x-"))
            refuse(path + step(key), why);
}

Types Keeper::types_of(const Json& schema, const std::string& path) const {
    const Json* type = get(schema, "type");
    if (!type) return {};
    const Types known{"null", "boolean", "string", "array", "object", "number", "integer"};
    Types types;
    for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
        if (!one.is_string() || !known.contains(one.get<std::string>()))
            refuse(path + "/type",
                   fmt::format("expected one of {}, or a list of them", fmt::join(known, ", ")));
        types.insert(one.get<std::string>());
    }
    if (types.empty()) refuse(path + "/type", "an empty list allows nothing");
    return types;
}

// The pointer that "$ref" names; it is there.
std::string Keeper::referred(const Json& schema, const std::string& path) const {
    const Json& ref = schema.at("$ref");
    if (!ref.is_string()) refuse(path + "/$ref", "expected a text");
    const std::string& text = ref.get_ref<const std::string&>();
    if (text == "#") return "";
    // The grammar library splits at slashes and leaves the rest as it is.
    if (!text.starts_with("#/") || text.find_first_of("~%") != std::string::npos ||
        text.find("//") != std::string::npos || text.back() == '/')
        refuse(path + "/$ref", "only \"#\" and \"#/PATH\" into the same schema, without ~ and %");
    const Json* at = &root_;
    for (size_t begin = 2; begin < text.size();) {
        const size_t end = std::min(text.find('/', begin), text.size());
        at = at->is_object() ? get(*at, text.substr(begin, end - begin)) : nullptr;
        if (!at) refuse(path + "/$ref", fmt::format("{} is not there", text));
        begin = end + 1;
    }
    return text.substr(1);
}

const Json& Keeper::resolved(const Json& schema, const std::string& path) const {
    const Json* at = &schema;
    for (int i = 0; i < kMostDepth && at->is_object() && at->contains("$ref"); ++i)
        at = &root_.at(Json::json_pointer(referred(*at, path)));
    return *at;
}

// Options that differ are written as "anyOf", for the library sees it of fewer; inner ones first,
// while the paths to them hold.
Json Keeper::kept() {
    std::ranges::sort(disjoint_, std::greater(), &std::string::size);
    for (const std::string& path : disjoint_) {
        Json& schema = narrowed(path);
        if (!schema.contains("oneOf")) continue;  // reached twice
        schema["anyOf"] = std::move(schema["oneOf"]);
        schema.erase("oneOf");
    }
    return std::move(kept_);
}

// Whether no value is valid for both, as far as types, constants, and properties that both require
// show it.
bool Keeper::differ(const Json& first, const Json& second, const std::string& path,
                    int depth) const {
    const Json& a = resolved(first, path);
    const Json& b = resolved(second, path);
    if (!a.is_object() || !b.is_object() || depth > kMostDepth) return false;
    const auto values = [](const Json& schema) {
        if (const Json* one = get(schema, "const")) return Json::array({*one});
        const Json* list = get(schema, "enum");
        return list ? *list : Json();
    };
    const auto has_no_type = [](const Json& list, const Types& types) {
        return !types.empty() && std::ranges::none_of(list, [&](const Json& value) {
            return std::ranges::any_of(types, [&](const auto& t) { return has_type(value, t); });
        });
    };
    const Json in_a = values(a), in_b = values(b);
    const Types of_a = types_of(a, path), of_b = types_of(b, path);
    if (in_a.is_array() && in_b.is_array())
        return std::ranges::none_of(in_a, [&](const Json& value) {
            return std::find(in_b.begin(), in_b.end(), value) != in_b.end();
        });
    if (in_a.is_array()) return has_no_type(in_a, of_b);
    if (in_b.is_array()) return has_no_type(in_b, of_a);
    if (of_a.empty() || of_b.empty()) return false;
    const auto in_both = [&](const std::string& type) {
        return of_b.contains(type) || (type == "integer" && of_b.contains("number")) ||
               (type == "number" && of_b.contains("integer"));
    };
    for (const std::string& type : of_a)
        if (in_both(type) && (type != "object" || !differ_by_property(a, b, path, depth)))
            return false;
    return true;
}

bool Keeper::differ_by_property(const Json& a, const Json& b, const std::string& path,
                                int depth) const {
    const auto member = [](const Json& schema, const char* list, const Json& key) -> const Json* {
        const Json* all = get(schema, list);
        if (!all || !key.is_string()) return nullptr;
        if (all->is_object()) return get(*all, key.get<std::string>());
        const auto at = std::find(all->begin(), all->end(), key);
        return at == all->end() ? nullptr : &*at;
    };
    const Json* required = get(a, "required");
    if (!required || !required->is_array()) return false;
    return std::ranges::any_of(*required, [&](const Json& key) {
        const Json *in_a = member(a, "properties", key), *in_b = member(b, "properties", key);
        return in_a && in_b && member(b, "required", key) && differ(*in_a, *in_b, path, depth + 1);
    });
}

// What is referred to without a value in between.
void Keeper::reach(const Json& schema, const std::string& path,
                   std::set<std::string>& reached) const {
    if (!schema.is_object()) return;
    if (schema.contains("$ref")) {
        const std::string target = referred(schema, path);
        if (reached.insert(target).second)
            reach(root_.at(Json::json_pointer(target)), path, reached);
        return;
    }
    for (const std::string_view key : kChoices)
        if (const Json* list = get(schema, std::string(key)); list && list->is_array())
            for (const Json& one : *list) reach(one, path, reached);
}

void Keeper::keep_choice(const Json& schema, const std::string& path, int depth) {
    const auto* const key =
        std::ranges::find_if(kChoices, [&](auto name) { return schema.contains(name); });
    check_only(schema, {*key}, path, fmt::format("is not supported beside {}", *key));
    if (*key == "$ref") {
        const std::string target = referred(schema, path);
        if (!seen_.insert(target).second) return;
        const Json& named = root_.at(Json::json_pointer(target));
        std::set<std::string> reached;
        reach(named, path, reached);
        if (reached.contains(target))
            refuse(path + "/$ref", "what it names refers to itself without a value in between");
        return keep(named, target, depth + 1);
    }
    if (*key == "oneOf") disjoint_.push_back(path);
    const std::string at = path + "/" + std::string(*key);
    const Json& list = schema.at(std::string(*key));
    if (!list.is_array() || list.empty()) refuse(at, "expected a list of schemas");
    if (*key == "allOf" && list.size() > 1)
        refuse(at, "more than one schema is not supported: write them as one");
    for (size_t i = 0; i < list.size(); ++i) {
        for (size_t j = 0; *key == "oneOf" && j < i; ++j)
            if (!differ(list[i], list[j], at, 0))
                refuse(fmt::format("{}/{}", at, i),
                       fmt::format("an answer might be valid for this and for {} too: give each a "
                                   "type or a required constant of its own, or use anyOf",
                                   j));
        keep(list[i], fmt::format("{}/{}", at, i), depth + 1);
    }
}

void Keeper::keep_values(const Json& schema, const std::string& path) const {
    const bool is_const = schema.contains("const");
    const std::string key = is_const ? "const" : "enum";
    check_only(schema, {"type", key}, path, fmt::format("is not supported beside {}", key));
    const Json list = is_const ? Json::array({schema.at(key)}) : schema.at(key);
    if (!list.is_array() || list.empty()) refuse(path + "/enum", "expected a list of values");
    const Types types = types_of(schema, path);
    const std::string at = fmt::format("{}/{}", path, key);
    for (const Json& value : list) {
        const bool fits = types.empty() ||
                          std::ranges::any_of(types, [&](auto& t) { return has_type(value, t); });
        if (!fits) refuse(at, fmt::format("{} is not of the type", value.dump()));
        if (has_large_integer(value)) refuse(at, "whole numbers beyond 2^53 are not supported");
    }
}

void Keeper::keep_object(const Json& schema, const std::string& path, int depth) {
    for (const char* key : {"patternProperties", "propertyNames", "minProperties", "maxProperties",
                            "dependentRequired", "dependentSchemas", "dependencies"})
        if (schema.contains(key)) refuse(path + "/" + key, "is not supported");
    if (const Json* rest = get(schema, "unevaluatedProperties"); rest && *rest != false)
        refuse(path + "/unevaluatedProperties", "only false is supported");
    const Json* properties = get(schema, "properties");
    if (properties && !properties->is_object()) refuse(path + "/properties", "expected an object");
    const Json none = Json::object();
    for (const auto& [key, value] : (properties ? *properties : none).items()) {
        const std::string at = path + "/properties" + step(key);
        if (std::ranges::any_of(key,
                                [](unsigned char c) { return c < 32 || c == '"' || c == '\\'; }))
            refuse(at, "a name with quotes, backslashes or control characters is not supported");
        keep(value, at, depth + 1);
    }
    if (const Json* required = get(schema, "required")) {
        if (!required->is_array()) refuse(path + "/required", "expected a list of names");
        for (const Json& name : *required)
            if (!name.is_string() || !properties || !properties->contains(name.get<std::string>()))
                refuse(path + "/required",
                       fmt::format("{} is not among the properties", name.dump()));
    }
    const Json* more = get(schema, "additionalProperties");
    Json& kept = narrowed(path);
    if (properties) {
        kept.erase("additionalProperties");  // a second one of a name would stand for the first
    } else if (!more) {
        kept["additionalProperties"] = true;
    } else if (!more->is_boolean()) {
        keep(*more, path + "/additionalProperties", depth + 1);
    }
}

void Keeper::keep_array(const Json& schema, const std::string& path, int depth) {
    if (const Json* unique = get(schema, "uniqueItems"); unique && *unique != false)
        refuse(path + "/uniqueItems", "only false is supported");
    for (const char* key : {"contains", "minContains", "maxContains"})
        if (schema.contains(key)) refuse(path + "/" + key, "is not supported");
    if (const Json* rest = get(schema, "unevaluatedItems"); rest && *rest != false)
        refuse(path + "/unevaluatedItems", "only false is supported");
    const double least = number(schema, "minItems", 0, kMostItems, true, path);
    const double most = number(schema, "maxItems", kMostItems, kMostItems, true, path);
    if (least > most) refuse(path + "/maxItems", "is less than minItems");
    const Json *first = get(schema, "prefixItems"), *items = get(schema, "items");
    if (first) {
        if (!first->is_array()) refuse(path + "/prefixItems", "expected a list of schemas");
        for (size_t i = 0; i < first->size(); ++i)
            keep((*first)[i], fmt::format("{}/prefixItems/{}", path, i), depth + 1);
        const auto count = static_cast<double>(first->size());
        if (count > most) refuse(path + "/maxItems", "is less than the number of prefixItems");
        if ((!items || *items == false) && count < least)
            refuse(path + "/minItems", "is more than prefixItems, and items has no schema");
    }
    if (items && !items->is_boolean()) keep(*items, path + "/items", depth + 1);
    if (items && *items == false && !first && least > 0)
        refuse(path + "/minItems", "is more than items allows");
    if (!items && !first) narrowed(path)["items"] = true;
}

void Keeper::keep_string(const Json& schema, const std::string& path) const {
    const double least = number(schema, "minLength", 0, kMostLength, true, path);
    if (least > number(schema, "maxLength", kMostLength, kMostLength, true, path))
        refuse(path + "/maxLength", "is less than minLength");
    const Json *pattern = get(schema, "pattern"), *format = get(schema, "format");
    if (pattern && format) refuse(path + "/format", "is not supported beside pattern");
    for (const char* key : {"minLength", "maxLength"})
        if ((pattern || format) && schema.contains(key))
            refuse(path + "/" + key, "is not supported beside pattern and format");
    if (pattern) check_pattern(*pattern, path + "/pattern");
    if (format && !(format->is_string() && has(kFormats, format->get_ref<const std::string&>())))
        refuse(path + "/format", fmt::format("expected one of {}", fmt::join(kFormats, ", ")));
}

// What the library compiles to an automaton of a JSON string's characters, and what is the same to
// every reader: \d, \w and \s are ASCII in ECMA 262 and more elsewhere, so they are not negated.
void Keeper::check_pattern(const Json& pattern, const std::string& path) const {
    if (!pattern.is_string() || pattern.get_ref<const std::string&>().size() > kMostPattern)
        refuse(path, fmt::format("expected a text of at most {} characters", kMostPattern));
    const std::string& text = pattern.get_ref<const std::string&>();
    int64_t repeats = 1;
    bool is_negated = false;  // within [^...]
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] < 32 || text[i] > 126 || text[i] == '"')
            refuse(path, "expected printable ASCII without quotes");
        if (text[i] == '\\') {
            ++i;
            const size_t known = i < text.size() ? kEscapes.find(text[i]) : 0;
            if (known == kEscapes.npos || (known < 3 && is_negated))
                refuse(path, fmt::format("\\{} is not supported", text[i]));
            continue;
        }
        if (text[i] == '[') is_negated = text.substr(i + 1, 1) == "^";
        if (text[i] == ']') is_negated = false;
        if (text[i] != '{') continue;
        int64_t most = 0, bound = 0;
        for (++i; i < text.size() && text[i] != '}'; ++i) {
            if (text[i] != ',' && (text[i] < '0' || text[i] > '9'))
                refuse(path, "expected {m}, {m,} or {m,n}");
            bound = text[i] == ',' ? 0 : std::min(bound * 10 + (text[i] - '0'), kMostRepeats + 1);
            most = std::max(most, bound);
        }
        if (most > kMostRepeats)
            refuse(path,
                   fmt::format("more than {} repetitions; minLength and maxLength may say more",
                               kMostRepeats));
        repeats = std::min(repeats * std::max<int64_t>(1, most), kMostAllRepeats + 1);
    }
    if (repeats > kMostAllRepeats)
        refuse(path, fmt::format("its repetitions multiply to more than {}", kMostAllRepeats));
}

void Keeper::keep_number(const Json& schema, bool whole, const std::string& path) const {
    if (schema.contains("multipleOf")) refuse(path + "/multipleOf", "is not supported");
    const double far = whole ? kLargestInteger : 1e9;
    const double least = number(schema, "minimum", -far, far, whole, path);
    const double above = number(schema, "exclusiveMinimum", -far - 1, far, whole, path);
    const double most = number(schema, "maximum", far, far, whole, path);
    const double below = number(schema, "exclusiveMaximum", far + 1, far, whole, path);
    const double gap = whole ? 1 : 0;
    if (least > most || above + gap > most || least > below - gap || above + gap >= below)
        refuse(path, "no number is within its bounds");
    if (!whole && (least == below || above == most)) refuse(path, "no number is within its bounds");
}

void Keeper::keep(const Json& schema, const std::string& path, int depth) {
    if (depth > kMostDepth) refuse(path, fmt::format("more than {} schemas deep", kMostDepth));
    if (schema.is_boolean() && schema.get<bool>()) return;
    if (schema.is_boolean()) refuse(path, "false allows nothing");
    if (!schema.is_object()) refuse(path, "expected an object, or true");
    for (const char* key : {"not", "if", "then", "else", "$id", "$anchor", "$dynamicRef"})
        if (schema.contains(key)) refuse(path + "/" + key, "is not supported");
    if (std::ranges::any_of(kChoices, [&](auto key) { return schema.contains(key); }))
        return keep_choice(schema, path, depth);
    if (schema.contains("const") || schema.contains("enum")) return keep_values(schema, path);
    Types types = types_of(schema, path);
    if (types.empty() && schema.contains("properties")) types = {"object"};
    if (types.empty() && (schema.contains("items") || schema.contains("prefixItems")))
        types = {"array"};
    if (types.empty()) check_only(schema, {}, path, "needs a type beside it");
    check_only(schema,
               {"type",
                "properties",
                "required",
                "additionalProperties",
                "patternProperties",
                "propertyNames",
                "minProperties",
                "maxProperties",
                "dependentRequired",
                "dependentSchemas",
                "dependencies",
                "unevaluatedProperties",
                "items",
                "prefixItems",
                "minItems",
                "maxItems",
                "uniqueItems",
                "contains",
                "minContains",
                "maxContains",
                "unevaluatedItems",
                "minLength",
                "maxLength",
                "pattern",
                "format",
                "minimum",
                "maximum",
                "exclusiveMinimum",
                "exclusiveMaximum",
                "multipleOf"},
               path, "is not a keyword that is supported");
    if (types.contains("object")) keep_object(schema, path, depth);
    if (types.contains("array")) keep_array(schema, path, depth);
    if (types.contains("string")) keep_string(schema, path);
    if (types.contains("number") || types.contains("integer"))
        keep_number(schema, !types.contains("number"), path);
}

}  // namespace

Json kept_schema(const Json& schema, const std::string& param) {
    if (schema.dump(-1, ' ', false, Json::error_handler_t::replace).size() > kMostBytes) {
        ApiError error{.param = param};
        error.message = fmt::format("{}: more than {} bytes", param, kMostBytes);
        throw error;
    }
    Keeper keeper(schema, param);
    keeper.keep(schema, "", 0);
    return keeper.kept();
}

}  // namespace cleave::serve
