// SPDX-License-Identifier: Apache-2.0
// A sequence's new text on standard output while its tokens come. In: tokens, stop texts. Out: the
// text before the first stop text; a character that is not whole yet is held back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/stop_matcher.h"
#include "runtime/text/stream_decoder.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {

class TextStream {
public:
    // `prompt`: what the text continues. Nothing is printed without `print`.
    TextStream(const runtime::Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
               const std::vector<std::string>& stops, bool print)
        : decoder_(tokenizer), matcher_(stops), print_(print) {
        decoder_.prime(prompt);
    }

    // False once a stop text was found: the sequence ends there.
    bool push(int32_t token) {
        take(matcher_.push(decoder_.push(token)));
        return !matcher_.found();
    }
    // After the last token.
    void finish() {
        take(matcher_.push(decoder_.finish()));
        take(matcher_.finish());
    }
    const std::string& text() const { return text_; }

private:
    void take(const std::string& piece) {
        text_ += piece;
        if (!print_ || piece.empty()) return;
        show_generated(piece);
        flush_output();
    }

    runtime::StreamDecoder decoder_;
    runtime::StopMatcher matcher_;
    bool print_;
    std::string text_;
};

}  // namespace cleave::tools
