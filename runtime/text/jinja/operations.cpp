// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/strings.h"

namespace cleave::runtime::jinja {

namespace {

[[noreturn]] void unsupported(const std::string& op, const Value& a, const Value& b) {
    const Undefined* missing = a.get<Undefined>() ? a.get<Undefined>() : b.get<Undefined>();
    if (missing)
        throw TemplateError(
            fmt::format("'{}' is undefined and cannot be an operand of '{}'", missing->name, op));
    throw TemplateError(
        fmt::format("'{}' does not work on {} and {}", op, a.type_name(), b.type_name()));
}

Value integer_operation(const std::string& op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    if (op == "+") {
        overflow = __builtin_add_overflow(a, b, &result);
    } else if (op == "-") {
        overflow = __builtin_sub_overflow(a, b, &result);
    } else if (op == "*") {
        overflow = __builtin_mul_overflow(a, b, &result);
    } else if (op == "**") {
        if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
        result = 1;
        if (b > 63 && a != 0 && a != 1 && a != -1) overflow = true;
        const int64_t times = a == 0 || a == 1 || a == -1 ? b % 2 + (b > 1 ? 2 : 0) : b;
        for (int64_t i = 0; i < times && !overflow; ++i)
            overflow = __builtin_mul_overflow(result, a, &result);
    } else {
        if (b == 0) throw TemplateError("division by zero");
        if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
        if (b == -1) {  // the one quotient that can overflow
            overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
            if (op == "%") return int64_t{0};
        } else {
            const int64_t remainder = a % b;
            const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
            result = op == "%" ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
        }
    }
    if (overflow) throw TemplateError(fmt::format("{} {} {} does not fit in 64 bits", a, op, b));
    return result;
}

Value float_operation(const std::string& op, double a, double b) {
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (op == "**") return std::pow(a, b);
    if (b == 0) throw TemplateError("division by zero");
    if (op == "/") return a / b;
    if (op == "//") return std::floor(a / b);
    return a - b * std::floor(a / b);
}

Value repeat(const Value& value, int64_t times) {
    const auto count = static_cast<size_t>(std::max<int64_t>(0, times));
    if (value.string()) {
        const std::string& text = *value.string();
        if (count > 0 && text.size() > kMaxTextBytes / count)
            throw TemplateError("a repeated text is too long");
        spend(count * text.size() / kBytesOfWork + (text.empty() ? 0 : count / kItem));
        std::string out;
        out.reserve(count * text.size());
        for (size_t i = 0; i < count && !text.empty(); ++i) out += text;
        return out;
    }
    const std::vector<Value>& items = value.list()->items;
    if (count > 0 && items.size() > kMaxItems / count)
        throw TemplateError("a repeated list is too long");
    spend(kItem * count * items.size());
    std::vector<Value> out;
    for (size_t i = 0; i < count && !items.empty(); ++i)
        out.insert(out.end(), items.begin(), items.end());
    return Value::list(std::move(out), value.list()->tuple);
}

std::string characters_of(std::string_view text, int64_t from, int64_t count) {
    const size_t begin = count > 0 ? offset_of(text, from) : 0;
    return std::string(text.substr(begin, offset_of(text.substr(begin), count)));
}

Value add_sequences(const Value& a, const Value& b) {
    if (a.string()) {
        std::string out;
        append_text(out, *a.string());
        append_text(out, *b.string());
        return out;
    }
    std::vector<Value> items = iterate(a);
    spend(b.list()->items.size());
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return Value::list(std::move(items), a.list()->tuple);
}

}  // namespace

Value binary(const std::string& op, const Value& a, const Value& b) {
    int64_t x = 0;
    int64_t y = 0;
    const bool x_integer = a.as_integer(x);
    const bool y_integer = b.as_integer(y);
    if (x_integer && y_integer) return integer_operation(op, x, y);
    if (a.is_number() && b.is_number()) return float_operation(op, a.as_double(), b.as_double());
    const bool lists = a.list() && b.list() && a.list()->tuple == b.list()->tuple;
    if (op == "+" && ((a.string() && b.string()) || lists)) return add_sequences(a, b);
    if (op == "*" && (a.string() || a.list()) && y_integer) return repeat(a, y);
    if (op == "*" && (b.string() || b.list()) && x_integer) return repeat(b, x);
    if (op == "%" && a.string()) {
        return format_percent(
            *a.string(), b.list() && b.list()->tuple ? b.list()->items : std::vector<Value>{b});
    }
    unsupported(op, a, b);
}

Value attribute(const Value& object, const std::string& name) {
    if (const Undefined* missing = object.get<Undefined>()) {
        throw TemplateError(
            fmt::format("'{}' is undefined, so it has no '{}'", missing->name, name));
    }
    if (const auto method = method_of(object, name)) return *method;
    if (object.dict()) {
        if (const Value* found = object.dict()->find(name)) return *found;
    }
    return Value::undefined(name);
}

Value item(const Value& object, const Value& key) {
    if (const Undefined* missing = object.get<Undefined>()) {
        throw TemplateError(
            fmt::format("'{}' is undefined, so it has no item {}", missing->name, key.repr()));
    }
    if (object.dict()) {
        if (const Value* found = object.dict()->find(key)) return *found;
    }
    int64_t index = 0;
    if (key.as_integer(index) && (object.list() || object.string())) {
        const auto size = object.list() ? static_cast<int64_t>(object.list()->items.size())
                                        : length_of(*object.string());
        if (index < -size || index >= size)
            return Value::undefined(fmt::format("element {}", index));
        const int64_t at = index < 0 ? index + size : index;
        if (object.list()) return object.list()->items[static_cast<size_t>(at)];
        return characters_of(*object.string(), at, 1);
    }
    if (key.string()) {
        if (const auto method = method_of(object, *key.string())) return *method;
    }
    return Value::undefined(key.str());
}

Value slice(const Value& object, const std::optional<int64_t>& start,
            const std::optional<int64_t>& stop, int64_t step) {
    if (object.is_undefined()) {
        throw TemplateError(
            fmt::format("'{}' is undefined and cannot be sliced", object.get<Undefined>()->name));
    }
    if (!object.list() && !object.string()) {
        throw TemplateError(fmt::format("a value of type {} cannot be sliced", object.type_name()));
    }
    const int64_t size = object.list() ? static_cast<int64_t>(object.list()->items.size())
                                       : length_of(*object.string());
    const Slice wanted = slice_of(size, start, stop, step);
    if (object.string() && wanted.stride == 1)
        return characters_of(*object.string(), wanted.begin, wanted.count);
    const std::vector<Value> items = iterate(object);
    std::vector<Value> out;
    std::string text;
    for (int64_t i = 0; i < wanted.count; ++i) {
        const Value& element = items[static_cast<size_t>(wanted.begin + i * wanted.stride)];
        if (object.string())
            text += *element.string();
        else
            out.push_back(element);
    }
    if (object.string()) return text;
    return Value::list(std::move(out), object.list()->tuple);
}

std::vector<std::optional<Value>> bind(const Arguments& arguments, const std::string& function,
                                       std::initializer_list<const char*> parameters) {
    std::vector<std::optional<Value>> bound(parameters.size());
    if (arguments.positional.size() > parameters.size()) {
        throw TemplateError(fmt::format("'{}' takes at most {} arguments, {} are given", function,
                                        parameters.size(), arguments.positional.size()));
    }
    std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
    for (const auto& [name, value] : arguments.named) {
        const auto it = std::find_if(parameters.begin(), parameters.end(),
                                     [&](const char* p) { return name == p; });
        if (it == parameters.end()) {
            throw TemplateError(fmt::format("'{}' has no argument '{}'", function, name));
        }
        bound[static_cast<size_t>(it - parameters.begin())] = value;
    }
    return bound;
}

int64_t integer_of(const std::optional<Value>& value, int64_t otherwise, const std::string& what) {
    int64_t integer = otherwise;
    if (value && !value->is_none() && !value->as_integer(integer)) {
        throw TemplateError(
            fmt::format("{} must be an integer, found {}", what, value->type_name()));
    }
    return integer;
}

std::optional<std::string> text_of(const std::optional<Value>& value, const std::string& what) {
    if (!value || value->is_none()) return std::nullopt;
    if (!value->string())
        throw TemplateError(fmt::format("{} must be a str, found {}", what, value->type_name()));
    spend(value->string()->size() / kBytesOfWork);
    return *value->string();
}

bool truth_of(const std::optional<Value>& value, bool otherwise) {
    return value ? value->truthy() : otherwise;
}

Value make_function(std::string name, std::function<Value(const Arguments&)> call) {
    return std::make_shared<Callable>(Callable{std::move(name), std::move(call)});
}

}  // namespace cleave::runtime::jinja
