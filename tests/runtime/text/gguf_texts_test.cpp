// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat_template.h"
#include "runtime/text/generation_config.h"
#include "tests/runtime/text/cases.h"

using cleave::runtime::load_tokenizer;
using namespace cleave::test;

namespace {

std::filesystem::path gguf_file(const char* name) {
    return source_root() / "tests" / "files" / "gguf" / name;
}

std::filesystem::path bundled() { return source_root() / "models" / "bundled"; }

}  // namespace

TEST_CASE("the BPE tokenizer of a GGUF file gives the ids and texts of its tokenizer.json",
          "[runtime][text][gguf]") {
    const auto original = load_tokenizer(bundled());
    const auto tokenizer = load_tokenizer(gguf_file("tokenizer_gpt2.gguf"));
    REQUIRE(tokenizer->vocab_size() == original->vocab_size());
    CHECK(tokenizer->bos_id() == original->bos_id());
    CHECK(tokenizer->eos_id() == original->eos_id());
    for (const char* text :
         {"", "Once upon a time, there was a dog.", "  two  spaces\n\n tabs\t", "it's 1234 o'clock",
          "<|user|>\nhello</s>", "na\xc3\xafve \xe2\x98\x83", "\xff broken"}) {
        INFO(text);
        CHECK(tokenizer->encode(text) == original->encode(text));
        CHECK(tokenizer->encode(text, false) == original->encode(text, false));
        const auto ids = original->encode(text);
        CHECK(tokenizer->decode(ids) == original->decode(ids));
        CHECK(tokenizer->decode(ids, false) == original->decode(ids, false));
    }
}

TEST_CASE("the SentencePiece tokenizer of a GGUF file gives the ids and texts of the library",
          "[runtime][text][gguf]") {
    const auto tokenizer = load_tokenizer(gguf_file("tokenizer_llama.gguf"));
    check_cases(*tokenizer, text_cases().at("sentencepiece").at("bpe.model"), false);
    CHECK(tokenizer->bos_id() == 1);
    CHECK(tokenizer->encode("", true) == std::vector<int32_t>{1});
}

TEST_CASE("a GGUF file's chat template and stop tokens are used as those beside a model",
          "[runtime][text][gguf]") {
    const std::vector<cleave::runtime::ChatMessage> messages{{"user", "Tell me a story."}};
    const auto of_file = cleave::runtime::load_chat_template(gguf_file("tokenizer_gpt2.gguf"));
    const auto of_folder = cleave::runtime::load_chat_template(bundled());
    REQUIRE(of_file);
    CHECK(of_file->render(messages) == of_folder->render(messages));
    const auto config = cleave::runtime::load_generation_config(gguf_file("tokenizer_gpt2.gguf"));
    CHECK(config.eos_ids == std::vector<int32_t>{1});
    CHECK(config.bos_id == 0);
    CHECK_FALSE(cleave::runtime::load_chat_template(gguf_file("tokenizer_llama.gguf")));
    CHECK(contains(user_error([] { load_tokenizer(gguf_file("llama.gguf")); }), "no tokenizer"));
}
