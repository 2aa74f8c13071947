// SPDX-License-Identifier: Apache-2.0
// A call of a function in the form that Llama 3.1 is trained on ("JSON based tool calling" of
// Meta's prompt format): {"name": NAME, "parameters": OBJECT}. In: an answer that keeps the grammar
// of tools/serve/grammar.h, piece by piece. Out: the function's name, then its arguments.
// Invariants: pieces of arguments put together are OBJECT, whatever the pieces of the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::serve {

inline constexpr std::string_view kToolCallTail = "}";
// All that is before the arguments of a call of `name`.
std::string tool_call_head(const std::string& name);

class ToolCallReader {
public:
    // New parts of the call; both may be empty. `name`: in the first that has one alone.
    struct Piece {
        std::string name, arguments;
    };
    Piece push(std::string_view text);
    // The call's last brace was read: its arguments are an object.
    bool is_whole() const { return is_whole_; }

private:
    void follow(std::string_view text);

    std::string waiting_;  // the head, or what may be the tail
    bool has_name_ = false;
    // Where the text read so far ends.
    int64_t depth_ = 0;
    bool in_text_ = false, is_escaped_ = false, is_whole_ = false;
};

}  // namespace cleave::serve
