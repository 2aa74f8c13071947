// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/utf8.h"
#include "tests/runtime/text/cases.h"

using cleave::runtime::StreamDecoder;
using namespace cleave::test;

TEST_CASE("streamed text is whole characters only, and holds back what is incomplete",
          "[runtime][text]") {
    const auto tokenizer = make_tokenizer(named_document("gemma"));
    StreamDecoder decoder(*tokenizer);
    const auto push = [&](const char* token) {
        return decoder.push(tokenizer->token_id(token).value());
    };
    CHECK(push("<0xF0>").empty());
    CHECK(push("<0x9F>").empty());
    CHECK(push("<0x99>").empty());
    CHECK(push("<0x82>") == "\U0001F642");
    CHECK(push("<0xE6>").empty());
    CHECK(push("a") == "\uFFFDa");
    CHECK(push("<0xC3>").empty());
    CHECK(decoder.finish() == "\uFFFD");
    CHECK(decoder.finish().empty());
}

TEST_CASE("every piece of a stream is valid UTF-8, and the pieces make the whole text",
          "[runtime][text]") {
    for (const auto& entry : text_cases().at("tokenizers")) {
        CAPTURE(entry.at("name").get<std::string>());
        const auto tokenizer = make_tokenizer(tokenizer_document(entry));
        for (int32_t start = 0; start < 40; ++start) {
            std::vector<int32_t> ids;
            for (int32_t i = 0; i < 50; ++i)
                ids.push_back((start * 97 + i * i * 31) % tokenizer->vocab_size());
            StreamDecoder decoder(*tokenizer);
            std::string text;
            for (const int32_t id : ids) {
                const std::string piece = decoder.push(id);
                CHECK(cleave::runtime::valid_prefix(piece) == piece.size());
                text += piece;
            }
            CHECK(text + decoder.finish() == tokenizer->decode(ids));
        }
    }
}

TEST_CASE("a leading space is removed once, at the beginning of the text only", "[runtime][text]") {
    const auto tokenizer = make_tokenizer(named_document("llama 2"));
    const auto ids = tokenizer->encode("  a a");
    CHECK(tokenizer->decode(ids) == "  a a");
    StreamDecoder decoder(*tokenizer);
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    CHECK(text == "  a a");
    decoder.finish();
    CHECK(decoder.push(tokenizer->token_id("\u2581a").value()) == "a");
}

TEST_CASE("a decoder primed with a prompt gives the text that follows the prompt's",
          "[runtime][text]") {
    const auto tokenizer = make_tokenizer(named_document("llama 2"));
    const int32_t word = tokenizer->token_id("\u2581a").value();
    StreamDecoder fresh(*tokenizer), primed(*tokenizer), begun(*tokenizer);
    primed.prime(tokenizer->encode("a"));
    CHECK(fresh.push(word) == "a");
    CHECK(primed.push(word) == " a");
    begun.prime(
        tokenizer->encode(""));  // special tokens alone are no text: its beginning is still to come
    CHECK(begun.push(word) == "a");
}

TEST_CASE("a prompt's streamed text and its continuation's make the whole text, wherever they part",
          "[runtime][text]") {
    for (const auto& entry : text_cases().at("tokenizers")) {
        CAPTURE(entry.at("name").get<std::string>());
        const auto tokenizer = make_tokenizer(tokenizer_document(entry));
        std::vector<int32_t> ids;
        for (int32_t i = 0; i < 40; ++i) ids.push_back((i * i * 31 + 7) % tokenizer->vocab_size());
        for (size_t part = 0; part <= ids.size(); ++part) {
            const std::span<const int32_t> prompt(ids.data(), part);
            StreamDecoder before(*tokenizer), after(*tokenizer);
            std::string text;
            for (const int32_t id : prompt) text += before.push(id);
            after.prime(prompt);
            for (const int32_t id : std::span(ids).subspan(part)) text += after.push(id);
            CHECK(text + after.finish() == tokenizer->decode(ids));
        }
    }
}

TEST_CASE("ill-formed sequences are found as Unicode's table 3-7 says", "[runtime][text]") {
    using cleave::runtime::incomplete_tail;
    using cleave::runtime::replace_invalid_utf8;
    // The example of The Unicode Standard 15, section 3.9, table 3-11.
    CHECK(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") ==
          "\uFFFD\uFFFD\uFFFD\uFFFD\u0041");
    CHECK(replace_invalid_utf8("\xC0\xAF") == "\uFFFD\uFFFD");            // overlong
    CHECK(replace_invalid_utf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");  // surrogate
    CHECK(replace_invalid_utf8("\xF4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");
    CHECK(incomplete_tail("a") == 0);
    CHECK(incomplete_tail("a\xE6") == 1);
    CHECK(incomplete_tail("a\xE6\x97") == 2);
    CHECK(incomplete_tail("a\xE6\x97\xA5") == 0);
    CHECK(incomplete_tail("\xF0\x9F\x99") == 3);
    CHECK(incomplete_tail("a\x80") == 0);
    CHECK(incomplete_tail("\xF5") == 0);
}
