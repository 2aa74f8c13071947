// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/json_file.h"
#include "runtime/base/protobuf_wire.h"
#include "runtime/text/sentencepiece_check.h"
#include "tests/runtime/text/cases.h"

using cleave::runtime::load_tokenizer;
using namespace cleave::test;

namespace {

// Units of a trie (Darts-clone): the node at p has its transition by byte c at p ^ c.
using Units = std::vector<uint32_t>;

// bpe.model with a normaliser's table of these units and texts.
std::string model_with_table(const Units& units, std::string_view texts) {
    std::string table;
    const auto append = [&](uint32_t value) {
        for (int i = 0; i < 4; ++i) table += static_cast<char>(value >> (8 * i));
    };
    append(static_cast<uint32_t>(4 * units.size()));
    for (uint32_t unit : units) append(unit);
    table += texts;
    std::string normalizer, model = cleave::read_regular_file(text_data() / "bpe.model");
    cleave::append_bytes(normalizer, 2, table);
    cleave::append_bytes(model, 3, normalizer);  // Protobuf merges both
    return model;
}

constexpr uint32_t kHasValue = 1 << 8, kIsValue = uint32_t{1} << 31;

uint32_t transition(char byte, uint32_t from, uint32_t to, bool has_value) {
    return static_cast<unsigned char>(byte) | (has_value ? kHasValue : 0) | (from ^ to) << 10;
}

// "A" becomes the text at `place`.
Units one_rule(uint32_t place) {
    Units units(256, kIsValue);  // no transition
    units[0] = transition(0, 0, 1, false);
    units[1 ^ 'A'] = transition('A', 1 ^ 'A', 0x80, true);
    units[0x80] = kIsValue | place;
    return units;
}

}  // namespace

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

TEST_CASE("a SentencePiece model's table of normalisation is followed where it leads to its texts",
          "[runtime][text]") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "tokenizer.model";
    write_file(path, model_with_table(one_rule(0), std::string("once\0", 5)));
    const auto tokenizer = load_tokenizer(path), plain = load_tokenizer(text_data() / "bpe.model");
    CHECK(tokenizer->encode("A") == plain->encode("once"));
}

TEST_CASE("a SentencePiece model whose table of normalisation leads out of it is refused",
          "[runtime][text]") {
    const std::string texts("once\0", 5);
    const auto refusal = [&](const Units& units, std::string_view behind) {
        return user_error([&] {
            cleave::runtime::check_sentencepiece_model(model_with_table(units, behind), "a.model");
        });
    };
    CHECK_NOTHROW(
        cleave::runtime::check_sentencepiece_model(model_with_table(one_rule(4), texts), "a"));
    std::vector<Units> broken{one_rule(5), one_rule(0x7fffffff)};
    for (const uint32_t to : {uint32_t{256}, uint32_t{1} << 20, uint32_t{0}}) {
        Units units = one_rule(0);
        units[1 ^ 'A'] = transition('A', 1 ^ 'A', to, false);  // the last: to the root's own unit
        if (to == 0) units['A'] = transition('A', 'A', 0, true);  // "AAA..." ends nowhere
        broken.push_back(units);
    }
    broken.push_back(one_rule(0));
    broken.back().resize(200);
    // A byte more, a value more: 33 of one text.
    Units deep(256 * 40, kIsValue);
    deep[0] = transition(0, 0, 256, false);
    for (uint32_t i = 1; i <= 33; ++i) {
        const uint32_t at = 256 * i ^ 'A';
        deep[at] = transition('A', at, 256 * (i + 1), true);
        deep[256 * (i + 1)] = kIsValue;
    }
    broken.push_back(deep);
    for (size_t i = 0; i < broken.size(); ++i) {
        CAPTURE(i);
        CHECK(refusal(broken[i], texts).find("precompiled_charsmap") != std::string::npos);
    }
    deep[256 * 33 ^ 'A'] = kIsValue;
    CHECK_NOTHROW(
        cleave::runtime::check_sentencepiece_model(model_with_table(deep, texts), "a.model"));
    CHECK(refusal({}, texts).find("precompiled_charsmap") != std::string::npos);
    CHECK(refusal(one_rule(0), "").find("precompiled_charsmap") != std::string::npos);
}
