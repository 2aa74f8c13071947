// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "runtime/text/stop_matcher.h"
#include "runtime/text/utf8.h"
#include "tests/runtime/text/cases.h"
#include "tests/support/failures.h"

using cleave::runtime::StopMatcher;
using namespace cleave::test;
using Stops = std::vector<std::string>;

namespace {

// Where the text ends by the definition, without an automaton.
std::string text_before(const std::string& text, const Stops& stops) {
    for (size_t end = 1; end <= text.size(); ++end) {
        size_t longest = 0;
        for (const std::string& stop : stops)
            if (std::string_view(text).substr(0, end).ends_with(stop))
                longest = std::max(longest, stop.size());
        if (longest > 0) return text.substr(0, end - longest);
    }
    return text;
}

}  // namespace

TEST_CASE("text that may begin a stop text waits, and is given when it does not",
          "[runtime][text]") {
    StopMatcher matcher({"</end>", "<stop"});
    CHECK(matcher.push("one <") == "one ");
    CHECK(matcher.push("st") == "");
    CHECK(matcher.push("</e") == "<st");
    CHECK(matcher.push("nt") == "</ent");
    CHECK(matcher.push("</") == "");
    CHECK_FALSE(matcher.found());
    CHECK(matcher.finish() == "</");
    CHECK(matcher.finish() == "");
}

TEST_CASE("nothing of a stop text and nothing behind it is given", "[runtime][text]") {
    StopMatcher matcher({"\n\n", "END"});
    CHECK(matcher.push("a\n") == "a");
    CHECK(matcher.push("b E") == "\nb ");
    CHECK(matcher.push("NDc") == "");
    REQUIRE(matcher.found());
    CHECK(*matcher.found() == 1);
    CHECK(matcher.push("more") == "");
    CHECK(matcher.finish() == "");
}

TEST_CASE("of stop texts that end at one place the longest counts, else the first to end",
          "[runtime][text]") {
    CHECK(StopMatcher({"b", "ab"}).push("xab") == "x");
    CHECK(StopMatcher({"abc", "b"}).push("xabc") == "xa");
    CHECK(StopMatcher(Stops{}).push("xab") == "xab");
}

TEST_CASE("the text before a stop text does not depend on where the pieces part",
          "[runtime][text]") {
    std::mt19937 random(11);
    const Stops letters{"a", "b", "é", "\U0001F642"};
    const auto word = [&](size_t most) {
        std::string text;
        for (size_t n = 1 + random() % most; n > 0; --n) text += letters[random() % letters.size()];
        return text;
    };
    for (int round = 0; round < 3000; ++round) {
        Stops stops;
        for (size_t n = random() % 4; n > 0; --n) stops.push_back(word(5));
        const std::string text = word(60);
        StopMatcher matcher(stops);
        std::string given;
        for (size_t at = 0; at < text.size();) {
            // Whole characters, as a decoder gives them.
            size_t end = at;
            for (size_t n = random() % 4; n > 0 && end < text.size(); --n)
                end += cleave::runtime::next_char(text, end).size;
            const std::string piece = matcher.push(text.substr(at, end - at));
            CHECK(cleave::runtime::valid_prefix(piece) == piece.size());
            given += piece;
            at = end;
        }
        given += matcher.finish();
        CAPTURE(text, stops);
        CHECK(given == text_before(text, stops));
        CHECK(matcher.found().has_value() == (given.size() < text.size()));
    }
}

TEST_CASE("a stop text is found across tokens that part its characters", "[runtime][text]") {
    const auto tokenizer = make_tokenizer(named_document("gemma"));
    cleave::runtime::StreamDecoder decoder(*tokenizer);
    StopMatcher matcher({"a\U0001F642"});
    std::string text;
    for (const char* token : {"a", "a", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "a"})
        text += matcher.push(decoder.push(tokenizer->token_id(token).value()));
    CHECK(matcher.found().has_value());
    CHECK(text == "a");
}

TEST_CASE("stop texts that could never be met are refused", "[runtime][text]") {
    using Catch::Matchers::Contains;
    CHECK_THAT(failure_of<cleave::UserError>([] { StopMatcher({"a", ""}); }),
               Contains("a stop text is empty; give one or more characters"));
    CHECK_THAT(failure_of<cleave::UserError>([] { StopMatcher({"\xF0\x9F"}); }),
               Contains("a stop text is not UTF-8"));
}
