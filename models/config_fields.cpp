// SPDX-License-Identifier: Apache-2.0
#include "models/config_fields.h"

#include <cmath>

#include "runtime/base/errors.h"

namespace cleave::models {

using Json = nlohmann::json;

const Json& Fields::value(const char* name) const {
    static const Json kNone;
    asked_.insert(name);
    const auto found = json_.find(name);
    return found == json_.end() ? kNone : *found;
}

void Fields::refuse(const char* name, const std::string& expected) const {
    throw UserError("{}: field \"{}{}\" is {}, but must be {}", path_, inside_, name,
                    value(name).dump(), expected);
}

bool Fields::has(const char* name) const { return !value(name).is_null(); }

bool Fields::is_text(const char* name) const { return value(name).is_string(); }

int64_t Fields::integer(const char* name, int64_t most) const {
    if (!has(name)) throw UserError("{}: field \"{}{}\" is missing", path_, inside_, name);
    return integer_or(name, 0, most);
}

int64_t Fields::integer_or(const char* name, int64_t fallback, int64_t most) const {
    if (!has(name)) return fallback;
    const Json& v = value(name);
    // Of a number beyond int64_t, too, get<uint64_t> is what the file says.
    if (!v.is_number_integer() || (!v.is_number_unsigned() && v.get<int64_t>() <= 0) ||
        v.get<uint64_t>() == 0 || v.get<uint64_t>() > static_cast<uint64_t>(most))
        refuse(name, fmt::format("an integer from 1 to {}", most));
    return v.get<int64_t>();
}

double Fields::number(const char* name) const {
    if (!has(name)) throw UserError("{}: field \"{}{}\" is missing", path_, inside_, name);
    return number_or(name, 0);
}

double Fields::number_or(const char* name, double fallback) const {
    if (!has(name)) return fallback;
    if (!value(name).is_number()) refuse(name, "a number");
    return value(name).get<double>();
}

bool Fields::boolean(const char* name, bool fallback) const {
    if (!has(name)) return fallback;
    if (!value(name).is_boolean()) refuse(name, "true or false");
    return value(name).get<bool>();
}

std::string Fields::text(const char* name, const std::string& fallback) const {
    if (!has(name)) return fallback;
    if (!value(name).is_string()) refuse(name, "a text");
    return value(name).get<std::string>();
}

const Json& Fields::list(const char* name, size_t size) const {
    if (!has(name)) throw UserError("{}: field \"{}{}\" is missing", path_, inside_, name);
    if (!value(name).is_array() || value(name).size() != size)
        throw UserError("{}: field \"{}{}\" must be a list of {} values", path_, inside_, name,
                        size);
    return value(name);
}

std::vector<double> Fields::numbers(const char* name, size_t size) const {
    std::vector<double> values;
    for (const Json& v : list(name, size)) {
        if (!v.is_number()) refuse(name, "a list of numbers");
        values.push_back(v.get<double>());
    }
    return values;
}

std::vector<std::string> Fields::texts(const char* name, size_t size) const {
    std::vector<std::string> values;
    for (const Json& v : list(name, size)) {
        if (!v.is_string()) refuse(name, "a list of texts");
        values.push_back(v.get<std::string>());
    }
    return values;
}

std::vector<std::string> Fields::texts(const char* name) const {
    if (!has(name)) return {};
    if (!value(name).is_array()) refuse(name, "a list of texts");
    return texts(name, value(name).size());
}

Fields Fields::object(const char* name) const {
    if (!value(name).is_object()) refuse(name, "an object");
    return {path_, value(name), inside_ + name + "."};
}

void Fields::check_all_known(const std::set<std::string>& ignored) const {
    for (const auto& [name, v] : json_.items())
        if (!v.is_null() && !asked_.contains(name) && !ignored.contains(name))
            throw UserError(
                "{}: field \"{}{}\" is not supported and may change what the model computes; "
                "if it does not, remove it from the file",
                path_, inside_, name);
}

}  // namespace cleave::models
