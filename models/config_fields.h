// SPDX-License-Identifier: Apache-2.0
// Fields of a config.json, or of an object in it, with messages that name file and field. Remembers
// which fields were asked for, so that what nobody understands is found.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace cleave::models {

// Far beyond any model: the largest of 2026 have 128 layers, 16,384 features and 256 dimensions of
// a head.
inline constexpr int64_t kMostVocabulary = 1 << 24, kMostFeatures = 1 << 20, kMostLayers = 4096,
                         kMostHeads = 1 << 16, kMostHeadDim = 1 << 16, kMostPositions = 1 << 30;

class Fields {
public:
    // `json` is an object and outlives this; `inside`: "rope_scaling.", of one in the file's own.
    Fields(const std::string& path, const nlohmann::json& json, std::string inside = "")
        : path_(path), json_(json), inside_(std::move(inside)) {}

    bool stated(const char* name) const { return json_.contains(name); }  // null, too
    // There, and not null.
    bool has(const char* name) const;
    bool is_text(const char* name) const;
    // Sizes are bounded, so that nothing is built that no machine could hold.
    int64_t integer(const char* name, int64_t most) const;
    int64_t integer_or(const char* name, int64_t fallback, int64_t most) const;
    double number(const char* name) const;
    double number_or(const char* name, double fallback) const;
    bool boolean(const char* name, bool fallback) const;
    std::string text(const char* name, const std::string& fallback) const;
    // Lists of `size` values.
    std::vector<double> numbers(const char* name, size_t size) const;
    std::vector<std::string> texts(const char* name, size_t size) const;
    std::vector<std::string> texts(const char* name) const;  // of any length; absent: none
    Fields object(const char* name) const;

    // "FILE: field "rope_scaling.factor" is 3, but must be ..."
    [[noreturn]] void refuse(const char* name, const std::string& expected) const;
    // UserError for a field that was not asked for, is not null, and that `ignored` has not.
    void check_all_known(const std::set<std::string>& ignored) const;

    const std::string& path() const { return path_; }

private:
    const nlohmann::json& value(const char* name) const;
    const nlohmann::json& list(const char* name, size_t size) const;

    const std::string& path_;
    const nlohmann::json& json_;
    std::string inside_;
    mutable std::set<std::string> asked_;
};

}  // namespace cleave::models
