// SPDX-License-Identifier: Apache-2.0
// What the command line knows of the terminal: whether there is one, its width, colours, a progress
// bar. Results go to standard output; messages and progress to standard error, and progress only to
// a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace cleave::tools {

bool stdout_is_terminal();
bool stderr_is_terminal();
// Colours are used on a terminal unless NO_COLOR is set (no-color.org).
bool use_color();
// Of standard output in columns: $COLUMNS, else the terminal's; 0, no bound, into a file or a pipe.
int terminal_width();
int prose_width();  // the same for lines of prose, 60 at least; 120 where there is no bound

// The text as a terminal may have it, whatever names of files are in it: control characters but
// line feeds and tabs as \\x1b, and the first half of what would be the longest word. Escape
// sequences of bold, dim and red stay where `may_color`.
std::string printable(std::string_view text, bool may_color, size_t longest_word = 2000);

// Text on standard output. Names and texts from files are printable; JSON is so by itself.
void show_text(const std::string& text);
template <class... T>
void show(fmt::format_string<T...> text, T&&... values) {
    show_text(fmt::format(text, std::forward<T>(values)...));
}

// JSON, of which no word is cut.
void show_exactly(const std::string& text);

// What a model wrote or was asked: byte for byte, but on a terminal without control characters.
void show_generated(const std::string& text);

// Text on standard error. Where that is closed or full, the text is lost and nothing else happens.
void say_text(const std::string& text);
template <class... T>
void say(fmt::format_string<T...> text, T&&... values) {
    say_text(fmt::format(text, std::forward<T>(values)...));
}
// One line on a terminal at standard error, in place of the one that was there; nothing elsewhere.
// An empty text wipes it.
void redraw_line(const std::string& text);
// Hands what was printed to standard output on. UserError where it, or anything before, was lost.
void flush_output();
// The same at the end, where a file on a network may be refused. Nothing is printed any more.
void close_output();

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
