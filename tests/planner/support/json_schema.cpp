// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/support/json_schema.h"

#include <algorithm>
#include <set>

namespace cleave::test {

using nlohmann::json;

namespace {

bool has_type(const json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
}

bool has_one_of(const json& value, const json& types) {
    if (types.is_string()) return has_type(value, types.get<std::string>());
    return std::any_of(types.begin(), types.end(),
                       [&](const json& t) { return has_type(value, t.get<std::string>()); });
}

void check_object(const json& schema, const json& value, const std::string& path,
                  std::vector<std::string>& errors) {
    for (const json& key : schema.value("required", json::array()))
        if (!value.contains(key.get<std::string>()))
            errors.push_back(path + " lacks " + key.get<std::string>());
    const json properties = schema.value("properties", json::object());
    for (auto& [key, item] : value.items()) {
        if (properties.contains(key)) {
            auto inner = schema_errors(properties[key], item, path + "." + key);
            errors.insert(errors.end(), inner.begin(), inner.end());
        } else if (const json others = schema.value("additionalProperties", json(true));
                   others.is_object()) {
            auto inner = schema_errors(others, item, path + "." + key);
            errors.insert(errors.end(), inner.begin(), inner.end());
        } else if (!others.get<bool>()) {
            errors.push_back(path + " has " + key + ", which the schema does not");
        }
    }
}

}  // namespace

std::vector<std::string> schema_errors(const json& schema, const json& value,
                                       const std::string& path) {
    static const std::set<std::string> kKnown{
        "$schema",    "title",    "description",          "type", "enum", "minimum",
        "properties", "required", "additionalProperties", "items"};
    std::vector<std::string> errors;
    for (auto& [key, unused] : schema.items())
        if (!kKnown.count(key))
            errors.push_back(path + ": the schema's " + key + " is not checked");
    if (schema.contains("type") && !has_one_of(value, schema["type"])) {
        errors.push_back(path + " is " + value.type_name());
        return errors;
    }
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
        errors.push_back(path + " is " + value.dump());
    if (schema.contains("minimum") && value.is_number() &&
        value.get<double>() < schema["minimum"].get<double>())
        errors.push_back(path + " is " + value.dump());
    if (value.is_object()) check_object(schema, value, path, errors);
    if (value.is_array() && schema.contains("items"))
        for (size_t i = 0; i < value.size(); ++i) {
            auto inner =
                schema_errors(schema["items"], value[i], path + "[" + std::to_string(i) + "]");
            errors.insert(errors.end(), inner.begin(), inner.end());
        }
    return errors;
}

}  // namespace cleave::test
