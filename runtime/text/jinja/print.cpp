// SPDX-License-Identifier: Apache-2.0
// How values are written: str(), repr() and json.dumps() of Python.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/strings.h"
#include "runtime/text/jinja/value.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime::jinja {

namespace {

// A namespace can hold itself; nothing else is nested as deep as this.
constexpr int kMaxPrintNesting = 400;

std::string repr_of(const Value& value, int nesting);

std::string float_text(double value, const char* infinity, const char* nan) {
    if (std::isnan(value)) return nan;
    if (std::isinf(value)) return (value < 0 ? "-" : "") + std::string(infinity);
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

std::string quoted(const std::string& text) {
    const bool has_single = text.find('\'') != std::string::npos;
    const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
    spend(text.size() / kBytesOfReading);
    std::string out(1, quote);
    for (const char c : text) {
        if (c == quote || c == '\\') {
            out += {'\\', c};
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
            out += fmt::format("\\x{:02x}", c);
        } else {
            out += c;
        }
    }
    return out + quote;
}

std::string list_repr(const List& list, int nesting) {
    std::string out;
    for (const Value& item : list.items) {
        if (!out.empty()) append_text(out, ", ");
        append_text(out, repr_of(item, nesting));
    }
    if (!list.tuple) return "[" + out + "]";
    return "(" + out + (list.items.size() == 1 ? ",)" : ")");
}

std::string repr_of(const Value& value, int nesting) {
    spend(1);
    if (nesting > kMaxPrintNesting) throw TemplateError("a value nested too deeply to print");
    if (value.string()) return quoted(*value.string());
    if (value.list()) return list_repr(*value.list(), nesting + 1);
    if (value.dict()) {
        std::string out;
        for (const auto& [key, item] : value.dict()->entries) {
            if (!out.empty()) append_text(out, ", ");
            append_text(out, repr_of(key, nesting + 1));
            append_text(out, ": ");
            append_text(out, repr_of(item, nesting + 1));
        }
        return value.dict()->is_namespace ? "<Namespace {" + out + "}>" : "{" + out + "}";
    }
    if (value.is_undefined()) return "Undefined";
    return value.str();
}

class JsonWriter {
public:
    explicit JsonWriter(const JsonStyle& style) : style_(style) {}

    std::string write(const Value& value) {
        append(value, 0);
        return std::move(out_);
    }

private:
    void append(const Value& value, int nesting) {
        spend(1);
        if (nesting > kMaxPrintNesting) throw TemplateError("tojson: a value nested too deeply");
        if (value.is_none()) {
            out_ += "null";
        } else if (const bool* boolean = value.get<bool>()) {
            out_ += *boolean ? "true" : "false";
        } else if (const double* number = value.get<double>()) {
            out_ += float_text(*number, "Infinity", "NaN");
        } else if (value.get<int64_t>()) {
            out_ += value.str();
        } else if (value.string()) {
            append_string(*value.string());
        } else if (value.list()) {
            append_list(*value.list(), nesting);
        } else if (value.dict() && !value.dict()->is_namespace) {
            append_dict(*value.dict(), nesting);
        } else {
            throw TemplateError(
                fmt::format("tojson: a value of type {} is no JSON", value.type_name()));
        }
    }

    void append_string(const std::string& text) {
        check_text_size(out_.size() + text.size());
        spend(text.size() / kBytesOfReading);
        out_ += '"';
        for (size_t at = 0; at < text.size();) {
            const Utf8Char c = next_char(text, at);
            append_char(c.code, std::string_view(text).substr(at, c.size));
            at += c.size;
        }
        out_ += '"';
    }

    void append_char(char32_t code, std::string_view bytes) {
        constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
        constexpr std::string_view kEscaped = "\"\\nrtbf";
        const size_t known =
            code < 0x80 ? kPlain.find(static_cast<char>(code)) : std::string_view::npos;
        if (known != std::string_view::npos) {
            out_ += {'\\', kEscaped[known]};
        } else if (code < 0x20 || (style_.ensure_ascii && code > 0x7E && code < 0x10000)) {
            out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
        } else if (style_.ensure_ascii && code >= 0x10000) {
            const auto offset = static_cast<uint32_t>(code) - 0x10000;
            out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10),
                                0xDC00 + (offset & 0x3FF));
        } else {
            out_ += bytes;
        }
    }

    void new_line(int nesting) {
        if (style_.indent < 0) return;
        out_ += '\n';
        append_text(out_, std::string(static_cast<size_t>(nesting * style_.indent), ' '));
    }

    void separate(bool first) {
        if (!first) append_text(out_, style_.item_separator);
    }

    void append_list(const List& list, int nesting) {
        out_ += '[';
        for (size_t i = 0; i < list.items.size(); ++i) {
            separate(i == 0);
            new_line(nesting + 1);
            append(list.items[i], nesting + 1);
        }
        if (!list.items.empty()) new_line(nesting);
        out_ += ']';
    }

    void append_dict(const Dict& dict, int nesting) {
        spend(dict.entries.size());
        auto entries = dict.entries;
        if (style_.sort_keys) {
            std::stable_sort(entries.begin(), entries.end(),
                             [](const auto& a, const auto& b) { return less(a.first, b.first); });
        }
        out_ += '{';
        for (size_t i = 0; i < entries.size(); ++i) {
            separate(i == 0);
            new_line(nesting + 1);
            append_key(entries[i].first);
            append_text(out_, style_.key_separator);
            append(entries[i].second, nesting + 1);
        }
        if (!entries.empty()) new_line(nesting);
        out_ += '}';
    }

    void append_key(const Value& key) {
        if (key.string()) return append_string(*key.string());
        append_string(JsonWriter(style_).write(key));
    }

    JsonStyle style_;
    std::string out_;
};

}  // namespace

std::string Value::str() const {
    if (is_undefined()) return "";
    if (is_none()) return "None";
    if (const bool* value = get<bool>()) return *value ? "True" : "False";
    if (const int64_t* value = get<int64_t>()) return fmt::format("{}", *value);
    if (const double* value = get<double>()) return float_text(*value, "inf", "nan");
    if (string()) {
        spend(string()->size() / kBytesOfWork);
        return *string();
    }
    if (callable()) return "<function " + callable()->name + ">";
    return repr();
}

std::string Value::repr() const { return repr_of(*this, 0); }

std::string to_json(const Value& value, const JsonStyle& style) {
    return JsonWriter(style).write(value);
}

}  // namespace cleave::runtime::jinja
