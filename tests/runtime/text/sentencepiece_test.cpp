// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/text/cases.h"

using cleave::runtime::load_tokenizer;
using namespace cleave::test;

TEST_CASE("SentencePiece models give the ids and texts of the library itself", "[runtime][text]") {
    for (const auto& [name, cases] : text_cases().at("sentencepiece").items()) {
        CAPTURE(name);
        check_cases(*load_tokenizer(text_data() / name), cases, false);
    }
}

TEST_CASE("a SentencePiece model's control symbols are recognised in text", "[runtime][text]") {
    const auto tokenizer = load_tokenizer(text_data() / "bpe.model");
    CHECK(tokenizer->bos_id() == 1);
    CHECK(tokenizer->eos_id() == 2);
    const auto ids = tokenizer->encode("</s>");
    CHECK(ids == std::vector<int32_t>{1, 2});
    CHECK(tokenizer->decode(ids).empty());
    CHECK(tokenizer->is_special(1));
    CHECK(tokenizer->token_id("<tool>").has_value());
}

TEST_CASE("added tokens beside a SentencePiece model extend its vocabulary", "[runtime][text]") {
    const TemporaryFolder folder;
    std::filesystem::copy_file(text_data() / "bpe.model", folder.path() / "tokenizer.model");
    const int32_t size = load_tokenizer(folder.path())->vocab_size();
    const nlohmann::json config = {
        {"bos_token", "<s>"},
        {"added_tokens_decoder",
         {{std::to_string(size), {{"content", "<|end|>"}, {"special", true}, {"rstrip", true}}}}}};
    write_file(folder.path() / "tokenizer_config.json", config.dump());
    write_file(folder.path() / "added_tokens.json", nlohmann::json{{"<|more|>", size + 1}}.dump());
    const auto tokenizer = load_tokenizer(folder.path());
    CHECK(tokenizer->vocab_size() == size + 2);
    CHECK(tokenizer->encode("<|end|> \n<|more|>", false) == std::vector<int32_t>{size, size + 1});
    CHECK(tokenizer->decode(std::vector<int32_t>{size}, false) == "<|end|>");
}

TEST_CASE("a file that is no SentencePiece model is refused by name", "[runtime][text]") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "tokenizer.model";
    for (const std::string text : {"", "not a model", "{}"}) {
        write_file(path, text);
        const std::string message = user_error([&] { load_tokenizer(path); });
        CHECK(message.find(path.string()) != std::string::npos);
        CHECK(message.find("is not a SentencePiece model") != std::string::npos);
    }
}
