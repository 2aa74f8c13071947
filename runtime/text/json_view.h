// SPDX-License-Identifier: Apache-2.0
// Reading JSON files that others wrote: every access knows the file and the path of the value, so a
// missing field or a wrong type is a UserError such as
//   "models/x/tokenizer.json: model.merges[3]: expected a string, found a number".
// A JsonView does not own the document; JsonFile does and must outlive its views.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runtime/base/errors.h"

namespace cleave::runtime {

class JsonView {
public:
    JsonView(const nlohmann::json& value, std::string file, std::string path)
        : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

    // True when the value is an object that has `key` with anything but null.
    bool has(const char* key) const;
    JsonView at(const char* key) const;
    JsonView at(size_t index) const;
    size_t size() const;

    const std::string& as_string() const;
    int64_t as_integer() const;
    int32_t as_token_id() const;
    bool as_bool() const;

    std::string string_or(const char* key, const std::string& fallback) const;
    bool bool_or(const char* key, bool fallback) const;
    // The field "type", which every part of a tokenizer.json carries.
    const std::string& type() const { return at("type").as_string(); }

    const nlohmann::json& raw() const { return *value_; }
    // "file: path", the beginning of every message about this value.
    std::string where() const;
    [[noreturn]] void fail(const std::string& message) const;

private:
    [[noreturn]] void fail_type(const char* expected) const;

    const nlohmann::json* value_;
    std::string file_;
    std::string path_;
};

class JsonFile {
public:
    // Throws UserError when the file cannot be read or is no JSON.
    explicit JsonFile(const std::filesystem::path& path);
    // A document in memory; errors name `file`.
    JsonFile(nlohmann::json document, std::string file)
        : file_(std::move(file)), document_(std::move(document)) {}
    JsonView root() const { return {document_, file_, ""}; }

private:
    std::string file_;
    nlohmann::json document_;
};

}  // namespace cleave::runtime
