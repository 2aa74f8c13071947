// SPDX-License-Identifier: Apache-2.0
// Python's operations on str, on UTF-8. Positions and lengths are in characters.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::runtime::jinja {

// A template that doubles a text or a list in a loop is stopped here.
inline constexpr size_t kMaxTextBytes = size_t{64} << 20, kMaxItems = size_t{1} << 20;

// These and those that make parts of a text: TemplateError for more than kMaxItems.
std::vector<std::string> characters(std::string_view text);
int64_t length_of(std::string_view text);
// Where character `index` begins; 0 <= index <= length.
size_t offset_of(std::string_view text, int64_t index);

// Removes characters at the ends: white space, or any of `chars`.
std::string strip(std::string_view text, const std::optional<std::string>& chars, bool left,
                  bool right);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);

// At most `limit` cuts, any number when negative. Without a separator: at runs of white space.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               int64_t limit);
std::vector<std::string> rsplit(std::string_view text, const std::optional<std::string>& separator,
                                int64_t limit);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

// TemplateError when a text is longer than a rendering may make it.
void check_text_size(size_t bytes);
// The same, before `out` grows.
void append_text(std::string& out, std::string_view text);

// Where `wanted` begins; npos: nowhere. Linear in the text.
size_t find_text(std::string_view text, std::string_view wanted);

size_t find_last_text(std::string_view text, std::string_view wanted);

// At most `limit` replacements, all when negative.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);

// Every line but the first (and blank ones, unless asked) gets `prefix`.
std::string indent(std::string_view text, std::string_view prefix, bool first, bool blank);

// Whether the text has a character and all of them satisfy `test`.
bool all_characters(std::string_view text, const std::function<bool(char32_t)>& test);
bool is_python_space(char32_t code);

// A slice's elements: Python's start:stop:step over `size` elements. From `begin` on, `count` of
// them, each `stride` behind the one before.
struct Slice {
    int64_t begin = 0, count = 0, stride = 1;
};
Slice slice_of(int64_t size, std::optional<int64_t> start, std::optional<int64_t> stop,
               int64_t step);

}  // namespace cleave::runtime::jinja
