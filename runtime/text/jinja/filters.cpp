// SPDX-License-Identifier: Apache-2.0
// `value | name(arguments)` for filters of one value; those of many are in list_filters.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/strings.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime::jinja {

namespace {

template <auto map>
Value map_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "this filter", {});
    return map(value.str());
}

Value trim_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "trim", {"chars"});
    return strip(value.str(), text_of(bound[0], "trim: chars"), true, true);
}

// Jinja's own: a letter is upper case after any of " -([{<", lower case elsewhere.
std::string title(std::string_view text) {
    std::string out;
    bool begins = true;
    for (const std::string& character : characters(text)) {
        out += begins ? to_upper(character) : to_lower(character);
        begins = std::string_view("-({[<").find(character) != std::string_view::npos ||
                 is_python_space(next_char(character, 0).code);
    }
    return out;
}

Value replace_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "replace", {"old", "new", "count"});
    if (!bound[0] || !bound[1]) throw TemplateError("replace needs the old and the new text");
    return replace(value.str(), bound[0]->str(), bound[1]->str(),
                   integer_of(bound[2], -1, "replace: count"));
}

Value indent_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "indent", {"width", "first", "blank"});
    std::string prefix;
    if (bound[0] && bound[0]->string()) {
        prefix = *bound[0]->string();
    } else {
        prefix = std::string(static_cast<size_t>(std::clamp<int64_t>(
                                 integer_of(bound[0], 4, "indent: width"), 0, 1000)),
                             ' ');
    }
    return indent(value.str(), prefix, truth_of(bound[1], false), truth_of(bound[2], false));
}

Value default_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "default", {"default_value", "boolean"});
    const bool missing = value.is_undefined() || (truth_of(bound[1], false) && !value.truthy());
    return missing ? bound[0].value_or(Value("")) : value;
}

Value tojson_filter(const Value& value, const Arguments& arguments) {
    const auto bound =
        bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = truth_of(bound[0], false);
    style.indent = std::min<int64_t>(integer_of(bound[1], -1, "tojson: indent"), 100);
    style.sort_keys = truth_of(bound[3], false);
    if (style.indent >= 0) style.item_separator.resize(1);  // the comma alone
    if (bound[2] && !bound[2]->is_none()) {
        const std::vector<Value> separators = iterate(*bound[2]);
        if (separators.size() != 2) throw TemplateError("tojson: separators must be two texts");
        style.item_separator = separators[0].str();
        style.key_separator = separators[1].str();
    }
    return to_json(value, style);
}

Value format_filter(const Value& value, const Arguments& arguments) {
    if (!arguments.named.empty()) throw TemplateError("format: named values are not supported");
    return format_percent(value.str(), arguments.positional);
}

Value string_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "string", {});
    return value.str();
}

Value safe_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "safe", {});
    return value;
}

std::string escape(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&': append_text(out, "&amp;"); break;
            case '<': append_text(out, "&lt;"); break;
            case '>': append_text(out, "&gt;"); break;
            case '"': append_text(out, "&#34;"); break;
            case '\'': append_text(out, "&#39;"); break;
            default: out += c;
        }
    }
    return out;
}

std::optional<double> parse_number(const std::string& text) {
    const std::string trimmed = strip(text, std::nullopt, true, true);
    double value = 0;
    const auto [end, error] =
        std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
    if (error != std::errc() || end != trimmed.data() + trimmed.size()) return std::nullopt;
    return value;
}

Value int_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "int", {"default"});
    int64_t integer = 0;
    if (value.as_integer(integer)) return integer;
    if (value.string()) {
        const std::string text = strip(*value.string(), std::nullopt, true, true);
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
        if (error == std::errc() && end == text.data() + text.size()) return integer;
    }
    const std::optional<double> number = value.is_number() ? value.as_double()
                                         : value.string()  ? parse_number(*value.string())
                                                           : std::nullopt;
    // Beyond 2^63 a double has no 64-bit integer.
    if (number && std::abs(*number) < 9.2e18) return static_cast<int64_t>(*number);
    return bound[0].value_or(Value(0));
}

Value float_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "float", {"default"});
    if (value.is_number()) return value.as_double();
    if (value.string()) {
        if (const auto number = parse_number(*value.string())) return *number;
    }
    return bound[0].value_or(Value(0.0));
}

Value abs_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "abs", {});
    int64_t integer = 0;
    if (value.as_integer(integer))
        return integer < 0 ? binary("-", Value(0), value) : Value(integer);
    return std::abs(value.as_double());
}

Value round_filter(const Value& value, const Arguments& arguments) {
    const auto bound = bind(arguments, "round", {"precision", "method"});
    const std::string method = text_of(bound[1], "round: method").value_or("common");
    const double scale =
        std::pow(10.0, static_cast<double>(integer_of(bound[0], 0, "round: precision")));
    const double scaled = value.as_double() * scale;
    if (method == "ceil") return std::ceil(scaled) / scale;
    if (method == "floor") return std::floor(scaled) / scale;
    if (method != "common") throw TemplateError(fmt::format("round: unknown method '{}'", method));
    if (int64_t integer = 0; value.as_integer(integer) && scale >= 1) return integer;
    return std::nearbyint(scaled) / scale;  // halves go to the even neighbour, as in Python
}

Value wordcount_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "wordcount", {});
    return static_cast<int64_t>(split(value.str(), std::nullopt, -1).size());
}

Value length_filter(const Value& value, const Arguments& arguments) {
    bind(arguments, "length", {});
    if (value.string()) return length_of(*value.string());
    if (value.list()) return static_cast<int64_t>(value.list()->items.size());
    if (value.dict()) return static_cast<int64_t>(value.dict()->entries.size());
    if (value.is_undefined()) return 0;
    throw TemplateError(fmt::format("a value of type {} has no length", value.type_name()));
}

}  // namespace

const std::vector<FilterEntry>& scalar_filters() {
    static const std::vector<FilterEntry> kTable = {
        {"trim", trim_filter},
        {"upper", map_filter<to_upper>},
        {"lower", map_filter<to_lower>},
        {"title", map_filter<title>},
        {"capitalize", map_filter<to_capitalized>},
        {"replace", replace_filter},
        {"indent", indent_filter},
        {"default", default_filter},
        {"d", default_filter},
        {"tojson", tojson_filter},
        {"string", string_filter},
        {"safe", safe_filter},
        {"escape", map_filter<escape>},
        {"e", map_filter<escape>},
        {"int", int_filter},
        {"float", float_filter},
        {"abs", abs_filter},
        {"round", round_filter},
        {"wordcount", wordcount_filter},
        {"length", length_filter},
        {"count", length_filter},
        {"format", format_filter},
    };
    return kTable;
}

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
    spend(Budget::kNode + (value.string() ? value.string()->size() / kBytesOfReading : 0));
    std::string supported;
    for (const auto* table : {&scalar_filters(), &list_filters()}) {
        for (const FilterEntry& entry : *table) {
            if (entry.name == name) return entry.apply(value, arguments);
            supported.append(supported.empty() ? "" : ", ").append(entry.name);
        }
    }
    throw TemplateError(
        fmt::format("the filter '{}' is not supported (supported: {})", name, supported));
}

}  // namespace cleave::runtime::jinja
