// SPDX-License-Identifier: Apache-2.0
// Python's two ways to put values into a text.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/strings.h"

namespace cleave::runtime::jinja {

namespace {

// The value of one {field}; `automatic` counts the fields without a name.
Value field_value(const std::string& field, const Arguments& arguments, size_t& automatic) {
    if (field.find_first_of(":!.[") != std::string::npos) {
        throw TemplateError(fmt::format(
            "format: the field '{{{}}}' is not supported (supported: {{}}, {{0}}, {{name}})",
            field));
    }
    size_t index = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), index);
    const bool is_index = error == std::errc() && end == field.data() + field.size();
    if (field.empty()) index = automatic++;
    if (field.empty() || is_index) {
        if (index < arguments.positional.size()) return arguments.positional[index];
        throw TemplateError(fmt::format("format: there is no argument {}", index));
    }
    for (const auto& [name, value] : arguments.named) {
        if (name == field) return value;
    }
    throw TemplateError(fmt::format("format: there is no argument '{}'", field));
}

std::string integer_text(const Value& value) {
    if (!value.is_number()) {
        throw TemplateError(fmt::format("%d needs a number, found {}", value.type_name()));
    }
    int64_t integer = 0;
    if (!value.as_integer(integer)) {
        const double number = value.as_double();
        if (!(std::abs(number) < 9.2e18))
            throw TemplateError("%d: the number does not fit in 64 bits");
        integer = static_cast<int64_t>(number);
    }
    return fmt::format("{}", integer);
}

}  // namespace

std::string format_braces(const std::string& format, const Arguments& arguments) {
    spend(format.size() / kBytesOfReading);
    std::string out;
    size_t automatic = 0;
    for (size_t i = 0; i < format.size(); ++i) {
        const char c = format[i];
        const bool twice = i + 1 < format.size() && format[i + 1] == c;
        if ((c == '{' || c == '}') && twice) {
            out += c;
            ++i;
        } else if (c == '{') {
            const size_t end = format.find('}', i);
            if (end == std::string::npos) throw TemplateError("format: a '{' has no '}'");
            append_text(out,
                        field_value(format.substr(i + 1, end - i - 1), arguments, automatic).str());
            i = end;
        } else if (c == '}') {
            throw TemplateError("format: a '}' has no '{'");
        } else {
            out += c;
        }
    }
    return out;
}

std::string format_percent(const std::string& format, const std::vector<Value>& values) {
    spend(format.size() / kBytesOfReading);
    std::string out;
    size_t used = 0;
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%') {
            out += format[i];
            continue;
        }
        const char kind = ++i < format.size() ? format[i] : ' ';
        if (kind == '%') {
            out += '%';
            continue;
        }
        if (kind != 's' && kind != 'd' && kind != 'r') {
            throw TemplateError(
                fmt::format("'%{}' in a text is not supported (supported: %s, %d, %r, %%)", kind));
        }
        if (used >= values.size())
            throw TemplateError("a text has more % fields than there are values");
        const Value& value = values[used++];
        append_text(out, kind == 's'   ? value.str()
                         : kind == 'r' ? value.repr()
                                       : integer_text(value));
    }
    if (used != values.size())
        throw TemplateError("a text has fewer % fields than there are values");
    return out;
}

}  // namespace cleave::runtime::jinja
