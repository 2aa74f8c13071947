// SPDX-License-Identifier: Apache-2.0
// The functions that a chat template can call.
#include <fmt/format.h>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/operations.h"

namespace cleave::runtime::jinja {

namespace {

// The limit of Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;

Value range(const Arguments& arguments) {
    const auto bound = bind(arguments, "range", {"start", "stop", "step"});
    if (!bound[0]) throw TemplateError("range needs one argument at least");
    const int64_t first = integer_of(bound[0], 0, "range: an argument");
    const int64_t begin = bound[1] ? first : 0;
    const int64_t end = bound[1] ? integer_of(bound[1], 0, "range: an argument") : first;
    const int64_t step = integer_of(bound[2], 1, "range: the step");
    if (step == 0) throw TemplateError("range: the step is 0");
    std::vector<Value> items;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
        if (static_cast<int64_t>(items.size()) >= kMaxRange) {
            throw TemplateError(
                fmt::format("a range of more than {} numbers is refused", kMaxRange));
        }
        spend(1);
        items.emplace_back(i);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return Value::list(std::move(items));
}

// dict(...) and namespace(...): a dict to copy, then named values.
std::shared_ptr<Dict> make_dict(const Arguments& arguments) {
    auto dict = std::make_shared<Dict>();
    for (const Value& source : arguments.positional) {
        if (!source.dict())
            throw TemplateError(fmt::format("expected a dict, found {}", source.type_name()));
        for (const auto& [key, value] : source.dict()->entries) dict->set(key, value);
    }
    for (const auto& [name, value] : arguments.named) dict->set(name, value);
    return dict;
}

Value make_namespace(const Arguments& arguments, Namespaces& namespaces) {
    std::shared_ptr<Dict> dict = make_dict(arguments);
    dict->is_namespace = true;
    namespaces.made.push_back(dict);
    return dict;
}

// A function that gives "" the first time and its text from then on.
Value joiner(const Arguments& arguments) {
    const auto bound = bind(arguments, "joiner", {"sep"});
    const std::string separator = text_of(bound[0], "joiner: sep").value_or(", ");
    auto used = std::make_shared<bool>(false);
    return make_function("joiner", [separator, used](const Arguments&) -> Value {
        return std::exchange(*used, true) ? separator : std::string();
    });
}

Value raise_exception(const Arguments& arguments) {
    const auto bound = bind(arguments, "raise_exception", {"message"});
    throw TemplateError("the template refuses this conversation: " +
                        bound[0].value_or(Value("no reason given")).str());
}

}  // namespace

Namespaces::~Namespaces() {
    for (const std::weak_ptr<Dict>& weak : made) {
        const std::shared_ptr<Dict> dict = weak.lock();
        if (dict) dict->entries.clear();
    }
}

std::vector<std::pair<std::string, Value>> builtin_functions(
    std::function<std::string(const std::string& format)> strftime_now, Namespaces& namespaces) {
    const auto now = [clock = std::move(strftime_now)](const Arguments& arguments) -> Value {
        const auto bound = bind(arguments, "strftime_now", {"format"});
        const std::string format = text_of(bound[0], "strftime_now: the format").value_or("%c");
        constexpr size_t kLongestFormat = 1000;
        if (format.size() > kLongestFormat)
            throw TemplateError("strftime_now: the format is too long");
        spend(format.size() * Budget::kNode);
        return clock(format);
    };
    return {
        {"range", make_function("range", range)},
        {"dict", make_function("dict", [](const Arguments& a) -> Value { return make_dict(a); })},
        {"namespace", make_function("namespace",
                                    [&namespaces](const Arguments& a) {
                                        return make_namespace(a, namespaces);
                                    })},
        {"joiner", make_function("joiner", joiner)},
        {"raise_exception", make_function("raise_exception", raise_exception)},
        {"strftime_now", make_function("strftime_now", now)},
    };
}

}  // namespace cleave::runtime::jinja
