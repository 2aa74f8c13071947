// SPDX-License-Identifier: Apache-2.0
// What --sweep and sizes say, read; no planning is behind it.
#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "planner/ask/sweep.h"
#include "planner/search/check_sizes.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr std::array kAxes{"devices", "batch",    "context", "prompt",
                           "dtype",   "kv-dtype", "tp",      "pp"};

}  // namespace

std::optional<int64_t> parse_size(const std::string& text) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 1 || number > kMostPositions) return std::nullopt;
    const std::string unit(end, text.data() + text.size());
    const int shift = unit.empty()                 ? 0
                      : unit == "k" || unit == "K" ? 10
                      : unit == "m" || unit == "M" ? 20
                                                   : -1;
    if (shift < 0 || number > kMostPositions >> shift) return std::nullopt;
    return number << shift;
}

std::string sweep_axes() {
    std::string names;
    for (const char* axis : kAxes) names += fmt::format("{}{}", names.empty() ? "" : ", ", axis);
    return names;
}

SweepAxis parse_axis(const std::string& text) {
    const size_t equals = text.find('=');
    SweepAxis axis{text.substr(0, equals), {}};
    if (equals == std::string::npos ||
        std::ranges::find(kAxes, std::string_view(axis.name)) == kAxes.end())
        throw UserError("'{}': write AXIS=VALUE,VALUE,..., of {}", text, sweep_axes());
    for (size_t begin = equals + 1; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string value = text.substr(begin, end - begin);
        const bool types = axis.name.ends_with("dtype");
        if (types ? !parse_dtype(value) : !parse_size(value))
            throw UserError("{}: '{}' is no {}", text, value,
                            types ? "dtype, as bf16, f8e4m3, int8 and int4 are"
                                  : "whole number of 1 or more, such as 64 or 32k");
        axis.values.push_back(value);
        begin = end + 1;
    }
    return axis;
}

}  // namespace cleave::planner
