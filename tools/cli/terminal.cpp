// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/terminal.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <fmt/color.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base/errors.h"
#include "tools/cli/progress_text.h"

namespace cleave::tools {

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
bool use_color() {
    const char* no_color = std::getenv("NO_COLOR");
    return stdout_is_terminal() && !(no_color && *no_color);
}

namespace {

bool may_color_errors() {
    const char* no_color = std::getenv("NO_COLOR");
    return stderr_is_terminal() && !(no_color && *no_color);
}

}  // namespace

int terminal_width() {
    if (const char* columns = std::getenv("COLUMNS")) {
        int width = 0;
        const char* end = columns + std::strlen(columns);
        const auto [behind, error] = std::from_chars(columns, end, width);
        if (error == std::errc() && behind == end && width > 0) return width;
    }
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 0;  // into a file or a pipe
}

int prose_width() {
    const int width = terminal_width();
    return width > 0 ? std::max(60, width) : 120;
}

namespace {

// Bytes of a control character beyond ASCII (U+0080 to U+009F), or of one that turns the direction
// of text (U+202A to U+202E, U+2066 to U+2069), at the beginning; 0: none.
size_t steering_bytes(std::string_view text) {
    const auto at = [&](size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    };
    if (at(0) == 0xc2 && at(1) >= 0x80 && at(1) <= 0x9f) return 2;
    const bool embeds = at(1) == 0x80 && at(2) >= 0xaa && at(2) <= 0xae;
    const bool isolates = at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9;
    return at(0) == 0xe2 && (embeds || isolates) ? 3 : 0;
}

}  // namespace

std::string printable(std::string_view text, bool may_color, size_t longest_word) {
    constexpr std::string_view kSequences[] = {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"};
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t word = std::min(text.find_first_of(" \n\t", at), text.size());
        size_t kept = word - at > longest_word ? at + longest_word / 2 : word;
        while (kept < word && (text[kept] & 0xc0) == 0x80) ++kept;  // between characters of UTF-8
        while (at < kept) {
            const auto sequence = std::find_if(
                std::begin(kSequences), std::end(kSequences),
                [&](std::string_view s) { return may_color && text.substr(at).starts_with(s); });
            if (sequence != std::end(kSequences)) {
                out += *sequence;
                at += sequence->size();
                continue;
            }
            if (const size_t bytes = steering_bytes(text.substr(at)); bytes > 0) {
                for (const size_t end = at + bytes; at < end; ++at)
                    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
                continue;
            }
            const auto c = static_cast<unsigned char>(text[at++]);
            if (c < 0x20 || c == 0x7f)
                out += fmt::format("\\x{:02x}", c);
            else
                out += static_cast<char>(c);
        }
        if (at < word) out += fmt::format("[{} more bytes]", word - at);
        at = word;
        if (at < text.size()) out += text[at++];
    }
    return out;
}

namespace {

[[noreturn]] void refuse_output(int error) {
    throw UserError("writing to standard output failed: {}",
                    error != 0 ? std::strerror(error) : "what was printed before did not arrive");
}

}  // namespace

void show_exactly(const std::string& text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) refuse_output(errno);
}

void show_text(const std::string& text) { show_exactly(printable(text, use_color())); }

void show_generated(const std::string& text) {
    show_exactly(stdout_is_terminal() ? printable(text, use_color(), std::string::npos) : text);
}

void say_text(const std::string& text) {
    const std::string shown = printable(text, may_color_errors());
    std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void redraw_line(const std::string& text) {
    if (!stderr_is_terminal()) return;
    fmt::print(stderr, "\r{}\x1b[K", printable(text, true));
    std::fflush(stderr);
}

void flush_output() {
    errno = 0;
    // The error of a write before this one stays in the stream.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) refuse_output(errno);
}

void close_output() {
    flush_output();
    if (::close(STDOUT_FILENO) != 0 && errno != EBADF) refuse_output(errno);
}

std::string bold(const std::string& text) {
    return use_color() ? fmt::format(fmt::emphasis::bold, "{}", text) : text;
}
std::string dim(const std::string& text) {
    return use_color() ? fmt::format(fmt::emphasis::faint, "{}", text) : text;
}
std::string red(const std::string& text) {
    return may_color_errors() ? fmt::format(fmt::fg(fmt::terminal_color::red), "{}", text) : text;
}

std::string format_bytes(int64_t bytes) {
    static constexpr std::array<const char*, 6> kUnits{"B", "kB", "MB", "GB", "TB", "PB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < kUnits.size()) {
        value /= 1000.0;
        ++unit;
    }
    if (unit == 0) return fmt::format("{} B", bytes);
    return fmt::format("{:.{}f} {}", value,
                       value < 9.995   ? 2
                       : value < 99.95 ? 1
                                       : 0,
                       kUnits[unit]);
}

std::string format_count(int64_t count) {
    const double n = static_cast<double>(count);
    auto text = [](double value, const char* unit) {
        return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit);
    };
    if (n >= 999.5e6) return text(n / 1e9, "B");
    if (n >= 999.5e3) return text(n / 1e6, "M");
    return n >= 1e3 ? text(n / 1e3, "k") : std::to_string(count);
}

struct ProgressBar::State {
    using Clock = std::chrono::steady_clock;
    std::mutex mutex;
    std::string label;
    Clock::time_point start{};  // of the first update, which has what was done by then
    int64_t done_at_start = 0;
    Clock::time_point drawn{};
    bool visible = false;
};

ProgressBar::ProgressBar(std::string label) : state_(new State) {
    state_->label = std::move(label);
}

ProgressBar::~ProgressBar() {
    if (state_->visible) redraw_line("");
    delete state_;
}

void ProgressBar::update(int64_t done, int64_t total, bool as_bytes) {
    if (!stderr_is_terminal() || total <= 0) return;
    std::lock_guard lock(state_->mutex);
    const auto now = State::Clock::now();
    if (state_->start == State::Clock::time_point{}) {
        state_->start = now;
        state_->done_at_start = done;
    }
    if (state_->visible && now - state_->drawn < std::chrono::milliseconds(100) && done < total)
        return;
    state_->drawn = now;
    state_->visible = true;
    const double seconds = std::chrono::duration<double>(now - state_->start).count();
    redraw_line(
        progress_text(state_->label, {done, total, as_bytes, state_->done_at_start, seconds}));
}

}  // namespace cleave::tools
