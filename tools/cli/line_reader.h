// SPDX-License-Identifier: Apache-2.0
// Lines of standard input as people type them: with editing and a history, by libedit, where it is
// a terminal; else as they are.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace cleave::tools {

class LineReader {
public:
    explicit LineReader(std::string prompt);  // shown on a terminal alone
    ~LineReader();
    LineReader(const LineReader&) = delete;
    LineReader& operator=(const LineReader&) = delete;

    // Without its end. Nothing at the end of the input. Ctrl-C drops what was typed and begins
    // anew.
    std::optional<std::string> next();

    struct State;

private:
    std::unique_ptr<State> state_;
};

}  // namespace cleave::tools
