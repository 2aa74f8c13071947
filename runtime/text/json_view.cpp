// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/json_view.h"

#include <fmt/format.h>

#include <limits>

#include "runtime/base/json_file.h"

namespace cleave::runtime {

bool JsonView::has(const char* key) const {
    if (!value_->is_object()) return false;
    const auto it = value_->find(key);
    return it != value_->end() && !it->is_null();
}

JsonView JsonView::at(const char* key) const {
    const std::string path = path_.empty() ? key : path_ + "." + key;
    if (!value_->is_object()) fail_type("an object");
    const auto it = value_->find(key);
    if (it == value_->end()) throw UserError("{}: the field '{}' is missing", file_, path);
    return {*it, file_, path};
}

JsonView JsonView::at(size_t index) const {
    if (!value_->is_array()) fail_type("a list");
    if (index >= value_->size()) fail(fmt::format("expected more than {} elements", index));
    return {(*value_)[index], file_, fmt::format("{}[{}]", path_, index)};
}

size_t JsonView::size() const {
    if (!value_->is_array()) fail_type("a list");
    return value_->size();
}

const std::string& JsonView::as_string() const {
    if (!value_->is_string()) fail_type("a string");
    return value_->get_ref<const std::string&>();
}

int64_t JsonView::as_integer() const {
    if (!value_->is_number_integer()) fail_type("an integer");
    if (value_->is_number_unsigned() &&
        value_->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail("the integer is too large");
    }
    return value_->get<int64_t>();
}

int32_t JsonView::as_token_id() const {
    // Far above any vocabulary, and low enough that a table indexed by id stays small.
    constexpr int64_t kMaxTokenId = (int64_t{1} << 21) - 1;
    const int64_t id = as_integer();
    if (id < 0 || id > kMaxTokenId) {
        fail(fmt::format("token id {} is outside 0 to {}", id, kMaxTokenId));
    }
    return static_cast<int32_t>(id);
}

bool JsonView::as_bool() const {
    if (!value_->is_boolean()) fail_type("true or false");
    return value_->get<bool>();
}

std::string JsonView::string_or(const char* key, const std::string& fallback) const {
    return has(key) ? at(key).as_string() : fallback;
}

bool JsonView::bool_or(const char* key, bool fallback) const {
    return has(key) ? at(key).as_bool() : fallback;
}

std::string JsonView::where() const { return path_.empty() ? file_ : file_ + ": " + path_; }

void JsonView::fail(const std::string& message) const {
    throw UserError("{}: {}", where(), message);
}

void JsonView::fail_type(const char* expected) const {
    fail(fmt::format("expected {}, found {}", expected, value_->type_name()));
}

JsonFile::JsonFile(const std::filesystem::path& path)
    : file_(path.string()), document_(read_json(path)) {}

}  // namespace cleave::runtime
