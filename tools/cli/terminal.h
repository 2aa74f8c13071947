// SPDX-License-Identifier: Apache-2.0
// What the command line knows of the terminal: whether there is one, its width, colours, a progress
// bar. Results go to standard output; messages and progress to standard error, and progress only to
// a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace cleave::tools {

bool stdout_is_terminal();
bool stderr_is_terminal();
// Colours are used on a terminal unless NO_COLOR is set (no-color.org).
bool use_color();
int terminal_width();  // of standard output; 100 when it is no terminal

std::string bold(const std::string& text);
std::string dim(const std::string& text);
std::string red(const std::string& text);

// "1.50 GB", "12.0 kB", "640 B": decimal units, three digits.
std::string format_bytes(int64_t bytes);

// "293 k", "1.16 M", "8.03 B": decimal, three digits.
std::string format_count(int64_t count);

// One line on standard error that is redrawn at most ten times a second and wiped when the object
// goes. Does nothing when standard error is no terminal. Any thread may update it.
class ProgressBar {
public:
    explicit ProgressBar(std::string label);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void update(int64_t done, int64_t total, bool as_bytes = false);

private:
    struct State;
    State* state_;
};

}  // namespace cleave::tools
