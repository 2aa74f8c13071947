// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <random>

#include "runtime/text/utf8.h"
#include "tests/runtime/text/cases.h"

using cleave::runtime::load_tokenizer;
using namespace cleave::test;
using nlohmann::json;

namespace {

std::string random_text(std::mt19937& draw, size_t characters) {
    std::string text;
    while (characters > 0) {
        const char32_t limit = std::array<char32_t, 4>{0x80, 0x300, 0x3100, 0x110000}[draw() % 4];
        const auto code = static_cast<char32_t>(draw() % limit);
        if (code >= 0xD800 && code < 0xE000) continue;
        cleave::runtime::append_utf8(text, code);
        --characters;
    }
    return text;
}

std::string random_bytes(std::mt19937& draw, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text.push_back(static_cast<char>(draw() % 4 ? draw() : 'a'));
    return text;
}

}  // namespace

TEST_CASE("every supported tokenizer.json gives the ids and texts of the library that wrote it",
          "[runtime][text]") {
    for (const auto& entry : text_cases().at("tokenizers")) {
        CAPTURE(entry.at("name").get<std::string>());
        check_cases(*make_tokenizer(tokenizer_document(entry)), entry.at("cases"), true);
    }
}

TEST_CASE("the tokenizers of real models give the ids of the library that wrote them",
          "[runtime][text]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const auto& [name, cases] : text_cases().at("shared").items()) {
        CAPTURE(name);
        check_cases(*load_tokenizer(shared_data() / name), cases, !name.ends_with(".model"));
    }
}

TEST_CASE("any valid UTF-8 survives encoding and decoding", "[runtime][text]") {
    std::mt19937 draw(7);
    for (const char* name : {"llama 3", "gpt2", "o200k, inverted", "llama 2", "gemma"}) {
        CAPTURE(name);
        const auto tokenizer = make_tokenizer(named_document(name));
        for (int i = 0; i < 200; ++i) {
            const std::string text = random_text(draw, draw() % 40);
            CAPTURE(text);
            const auto ids = tokenizer->encode(text, false);
            CHECK(tokenizer->decode(ids) == text);
            CHECK(stream(*tokenizer, ids) == text);
        }
    }
}

TEST_CASE(
    "bytes that are no UTF-8 keep their values as tokens and decode to replacement characters",
    "[runtime][text]") {
    std::mt19937 draw(8);
    for (const char* name : {"llama 3", "gpt2", "gemma"}) {
        CAPTURE(name);
        const auto tokenizer = make_tokenizer(named_document(name));
        for (int i = 0; i < 200; ++i) {
            const std::string text = random_bytes(draw, draw() % 30);
            const auto ids = tokenizer->encode(text, false);
            CHECK(raw_bytes(*tokenizer, ids) == text);
            CHECK(tokenizer->decode(ids) == cleave::runtime::replace_invalid_utf8(text));
            CHECK(stream(*tokenizer, ids) == tokenizer->decode(ids));
        }
    }
}

TEST_CASE("a token that cannot be expressed is an error only where nothing stands for it",
          "[runtime][text]") {
    json document = named_document("llama 2, no byte fallback");
    const auto with_unknown = make_tokenizer(document);
    const auto unknown = with_unknown->token_id("<unk>").value();
    CHECK(with_unknown->encode("\xFF", false) == std::vector<int32_t>{unknown});
    document["model"]["unk_token"] = nullptr;
    const auto without = make_tokenizer(document);
    CHECK(user_error([&] { without->encode("\u4e2d", false); }).find("U+4E2D") !=
          std::string::npos);
    CHECK(user_error([&] { without->encode("\xFF", false); }).find("0xFF") != std::string::npos);
}

TEST_CASE("a long text without a single cut is merged in one go", "[runtime][text]") {
    const auto tokenizer = make_tokenizer(named_document("llama 2"));
    std::string text;
    while (text.size() < 100'000) text += "Anna likes the old cat and ";
    const auto ids = tokenizer->encode(text, false);
    CHECK(tokenizer->decode(ids) == text);
    CHECK(ids.size() < text.size() / 2);
}

TEST_CASE(
    "special tokens are recognised in text, named, and left out of decoded text unless asked for",
    "[runtime][text]") {
    const auto tokenizer = make_tokenizer(named_document("llama 3"));
    const int32_t begin = tokenizer->token_id("<|begin|>").value();
    const int32_t eot = tokenizer->token_id("<|eot|>").value();
    const auto ids = tokenizer->encode("hi<|eot|>");
    CHECK(ids.front() == begin);
    CHECK(ids.back() == eot);
    CHECK(tokenizer->encode("hi<|eot|>", false).front() != begin);
    CHECK(tokenizer->decode(ids) == "hi");
    CHECK(tokenizer->decode(ids, false) == "<|begin|>hi<|eot|>");
    CHECK(tokenizer->bos_id() == begin);
    CHECK(tokenizer->token_text(eot) == "<|eot|>");
    CHECK(tokenizer->is_special(eot));
    CHECK_FALSE(tokenizer->is_special(0));
    CHECK_FALSE(tokenizer->token_id("no such token").has_value());
    CHECK(user_error([&] { tokenizer->token_text(tokenizer->vocab_size()); }).find("outside") !=
          std::string::npos);
}

TEST_CASE("ids without a token, as in a padded embedding table, decode to nothing",
          "[runtime][text]") {
    const auto tokenizer = make_tokenizer(named_document("llama 3"));
    const std::vector<int32_t> ids = {-1, tokenizer->vocab_size(), 1 << 30};
    CHECK(tokenizer->decode(ids).empty());
}

TEST_CASE("tokenizer_config.json decides which tokens surround a text", "[runtime][text]") {
    const TemporaryFolder folder;
    const json document = named_document("llama 2");
    write_file(folder.path() / "tokenizer.json", document.dump());
    const auto ids_with = [&](const json& config) {
        write_file(folder.path() / "tokenizer_config.json", config.dump());
        return load_tokenizer(folder.path())->encode("a");
    };
    const auto plain = load_tokenizer(folder.path())->encode("a", false);
    CHECK(plain.size() == 1);
    const int32_t a = plain[0];
    using Ids = std::vector<int32_t>;
    CHECK(ids_with(json::object()) == Ids{1, a});
    CHECK(ids_with({{"add_bos_token", false}, {"bos_token", "<s>"}}) == Ids{a});
    CHECK(ids_with({{"add_bos_token", true}, {"bos_token", {{"content", "<s>"}}}}) == Ids{1, a});
    CHECK(ids_with({{"add_bos_token", true},
                    {"add_eos_token", true},
                    {"bos_token", "<s>"},
                    {"eos_token", "</s>"}}) == Ids{1, a, 2});
    CHECK(load_tokenizer(folder.path())->eos_id() == 2);
}
