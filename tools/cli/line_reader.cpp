// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/base/errors.h"

namespace cleave::tools {

struct LineReader::State {
    std::string prompt;
    bool is_dropped = false;  // by Ctrl-C
    EditLine* editor = nullptr;
    History* history = nullptr;
    HistEvent event{};
};

namespace {

using State = LineReader::State;

char* prompt_of(EditLine* editor) {
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return state->prompt.data();
}

unsigned char drop_line(EditLine* editor, int) {
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    state->is_dropped = true;
    return CC_NEWLINE;
}

}  // namespace

LineReader::LineReader(std::string prompt) : state_(std::make_unique<State>()) {
    State& s = *state_;
    s.prompt = std::move(prompt);
    if (isatty(STDIN_FILENO) == 0) return;
    std::setlocale(LC_CTYPE, "");  // what a character is
    s.editor = el_init("cleave", stdin, stdout, stderr);
    if (!s.editor) return;
    s.history = history_init();
    history(s.history, &s.event, H_SETSIZE, 1000);
    el_set(s.editor, EL_CLIENTDATA, &s);
    el_set(s.editor, EL_PROMPT, prompt_of);
    el_set(s.editor, EL_EDITOR, "emacs");
    el_set(s.editor, EL_HIST, history, s.history);
    // Ctrl-C is a key while a line is typed, and a signal else.
    el_set(s.editor, EL_SETTY, "-d", "-isig", nullptr);
    el_set(s.editor, EL_ADDFN, "drop-line", "begin anew", drop_line);
    el_set(s.editor, EL_BIND, "^C", "drop-line", nullptr);
}

LineReader::~LineReader() {
    if (state_->editor) el_end(state_->editor);
    if (state_->history) history_end(state_->history);
}

std::optional<std::string> LineReader::next() {
    State& s = *state_;
    std::string line;
    if (!s.editor) {
        // Of a device without end no line is kept for ever.
        constexpr size_t kMostLine = size_t{1} << 20;
        for (int c = 0; (c = std::getchar()) != EOF && c != '\n';) {
            line += static_cast<char>(c);
            if (line.size() > kMostLine)
                throw UserError("standard input: a line of more than {} bytes", kMostLine);
        }
        if (std::ferror(stdin) != 0 && errno != EINTR)
            throw UserError("standard input cannot be read: {}", std::strerror(errno));
        if (line.empty() && (std::feof(stdin) != 0 || std::ferror(stdin) != 0)) return std::nullopt;
        return line;
    }
    do {
        s.is_dropped = false;
        int size = 0;
        const char* typed = el_gets(s.editor, &size);
        if (!typed || size <= 0) return std::nullopt;
        line.assign(typed, static_cast<size_t>(size));
    } while (s.is_dropped);
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (!line.empty()) history(s.history, &s.event, H_ENTER, line.c_str());
    return line;
}

}  // namespace cleave::tools
