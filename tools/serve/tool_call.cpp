// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/tool_call.h"

#include <utility>

namespace cleave::serve {
namespace {

constexpr std::string_view kBeforeName = "{\"name\": \"", kBehindName = "\", \"parameters\": ";

}  // namespace

std::string tool_call_head(const std::string& name) {
    return std::string(kBeforeName) + name + std::string(kBehindName);
}

void ToolCallReader::follow(std::string_view text) {
    for (const char c : text) {
        if (std::exchange(is_escaped_, false)) continue;
        if (in_text_) {
            is_escaped_ = c == '\\';
            in_text_ = c != '"';
        } else if (c == '"') {
            in_text_ = true;
        } else if (c == '{' || c == '}') {
            depth_ += c == '{' ? 1 : -1;
            is_whole_ = depth_ == 0;
        }
    }
}

ToolCallReader::Piece ToolCallReader::push(std::string_view text) {
    follow(text);
    waiting_ += text;
    Piece piece;
    if (!has_name_) {
        const size_t end = waiting_.find(kBehindName);
        if (end == std::string::npos) return piece;
        piece.name = waiting_.substr(kBeforeName.size(), end - kBeforeName.size());
        waiting_.erase(0, end + kBehindName.size());
        has_name_ = true;
    }
    // The last character may be the tail.
    if (waiting_.size() <= kToolCallTail.size()) return piece;
    const size_t sure = waiting_.size() - kToolCallTail.size();
    piece.arguments = waiting_.substr(0, sure);
    waiting_.erase(0, sure);
    return piece;
}

}  // namespace cleave::serve
