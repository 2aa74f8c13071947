// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "runtime/text/normalizer.h"
#include "runtime/text/token_decoder.h"
#include "tests/runtime/text/cases.h"

using cleave::runtime::load_tokenizer;
using namespace cleave::test;
using nlohmann::json;

namespace {

/// The message of loading `document`, which must be refused.
std::string refused(const json& document) {
    return user_error([&] { make_tokenizer(document); });
}

/// Loads a file with these bytes and encodes with it: it works or it is a UserError. Anything else
/// escapes.
void survives(const std::string& bytes) {
    const TemporaryFolder folder;
    write_file(folder.path() / "tokenizer.json", bytes);
    try {
        const auto tokenizer = load_tokenizer(folder.path());
        tokenizer->decode(tokenizer->encode("Anna likes 3 caf\u00e9s <|eot|>\n"));
    } catch (const cleave::UserError& error) {
        CHECK(std::string(error.what()).size() > 10);
    }
}

/// Every place of a document but the insides of the vocabulary and the merges.
void collect(const json& value, const json::json_pointer& at,
             std::vector<json::json_pointer>& out) {
    out.push_back(at);
    const std::string name = at.empty() ? "" : at.back();
    if (!value.is_structured() || name == "vocab" || name == "merges") return;
    for (const auto& [key, child] : value.items()) collect(child, at / key, out);
}

}  // namespace

TEST_CASE("a missing tokenizer is an error that says what is looked for", "[runtime][text]") {
    const TemporaryFolder folder;
    const std::string absent = (folder.path() / "absent.json").string();
    CHECK(contains(user_error([&] { load_tokenizer(absent); }), absent + ": no such file"));
    CHECK(contains(user_error([&] { load_tokenizer(folder.path()); }),
                   "holds neither tokenizer.json nor"));
    write_file(folder.path() / "vocab.txt", "a");
    CHECK(contains(user_error([&] { load_tokenizer(folder.path() / "vocab.txt"); }),
                   "not a tokenizer by its name"));
    write_file(folder.path() / "tokenizer.json", "{\"model\": ");
    CHECK(contains(user_error([&] { load_tokenizer(folder.path()); }), "no JSON: "));
}

TEST_CASE("what a tokenizer.json asks for and we do not support is refused by name",
          "[runtime][text]") {
    const json base = named_document("llama 3");
    struct Change {
        const char* where;
        json value;
        const char* message;
    };
    const Change changes[] = {
        {"/model/type", "Unigram", "the model 'Unigram' is not supported"},
        {"/model/type", "WordPiece", "the model 'WordPiece' is not supported"},
        {"/model/dropout", 0.1, "model.dropout: random merges"},
        {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix: is not supported"},
        {"/model/unk_token", "<nope>", "'<nope>' is not in model.vocab"},
        {"/model/merges/3", "abc", "model.merges[3]: expected a merge of two tokens"},
        {"/model/merges/0", json::array({"a", "\u4e2d"}), "is not in model.vocab"},
        {"/model/vocab/!", -1, "token id -1 is outside"},
        {"/model/vocab/!", "x", "model.vocab.!: expected an integer, found string"},
        {"/normalizer",
         {{"type", "BertNormalizer"}},
         "normalizer 'BertNormalizer' is not supported"},
        {"/pre_tokenizer",
         {{"type", "UnicodeScripts"}},
         "pre-tokenizer 'UnicodeScripts' is not supported"},
        {"/pre_tokenizer/pretokenizers/0/behavior", "Sideways",
         "split behaviour 'Sideways' is not supported"},
        {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a",
         "regular expression '(a' is not supported"},
        {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "[a&&b]",
         "a class inside a class or '&&'"},
        {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "[\\W]", "uses \\W inside a class"},
        {"/pre_tokenizer",
         {{"type", "Metaspace"}, {"prepend_scheme", "last"}},
         "'last' is not supported"},
        {"/decoder", {{"type", "WordPiece"}}, "decoder 'WordPiece' is not supported"},
        {"/post_processor",
         {{"type", "RobertaProcessing"}},
         "post-processor 'RobertaProcessing' is not supported"},
        {"/added_tokens/0/content", 5, "added_tokens[0].content: expected a string, found number"},
    };
    for (const Change& change : changes) {
        CAPTURE(change.where);
        json document = base;
        document[json::json_pointer(change.where)] = change.value;
        const std::string message = refused(document);
        CAPTURE(message);
        CHECK(contains(message, change.message));
        CHECK(contains(message, "tokenizer.json"));
    }
    const json after_fuse = {{"type", "Sequence"},
                             {"decoders", {{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}}};
    json document = base;
    document["decoder"] = after_fuse;
    CHECK(contains(refused(document), "decoder 'ByteFallback' after Fuse"));
    // A text would pass each of them: 200,000 took minutes.
    json steps = {{"type", "Sequence"}, {"normalizers", json::array()}};
    for (int i = 0; i < 63; ++i) steps["normalizers"].push_back({{"type", "NFC"}});
    document = base;
    document["normalizer"] = steps;
    CHECK_NOTHROW(make_tokenizer(document));
    document["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
    CHECK(contains(refused(document), "normalizer.normalizers[63]: is more than 64 steps"));
    document.erase("model");
    CHECK(contains(refused(document), "the field 'model' is missing"));
}

TEST_CASE("a tokenizer.json with any part replaced or missing never crashes", "[runtime][text]") {
    const json replacements[] = {
        nullptr, 3, -1.5, "x", "", json::array(), json::object(), true, json::array({"a"})};
    for (const char* name : {"llama 3", "metaspace first", "llama 2"}) {
        const json base = named_document(name);
        std::vector<json::json_pointer> places;
        collect(base, json::json_pointer(), places);
        CHECK(places.size() > 40);
        for (size_t i = 0; i < places.size(); ++i) {
            CAPTURE(name, places[i].to_string());
            json document = base;
            document[places[i]] = replacements[i % std::size(replacements)];
            survives(document.dump());
            if (places[i].empty()) continue;
            document = base;
            json& parent = document[places[i].parent_pointer()];
            if (parent.is_object()) parent.erase(places[i].back());
            survives(document.dump());
        }
    }
}

TEST_CASE("a damaged tokenizer.json never crashes", "[runtime][text]") {
    const std::string good = named_document("llama 2").dump();
    std::mt19937 draw(11);
    for (int i = 0; i < 60; ++i) {
        std::string bytes = good;
        for (int k = 0; k < 3; ++k) bytes[draw() % bytes.size()] = static_cast<char>(draw());
        if (i % 3 == 0) bytes.resize(draw() % bytes.size());
        survives(bytes);
    }
    survives("");
    survives(std::string(100'000, '['));
}

TEST_CASE("replacements of a tokenizer that grow without end are stopped", "[runtime][text]") {
    json steps = json::array();
    for (int i = 0; i < 60; ++i)
        steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "n"}}}, {"content", "nn"}});
    const json all{{"type", "Sequence"}, {"normalizers", steps}, {"decoders", steps}};
    const auto normalize = cleave::runtime::read_normalizer({all, "t.json", "normalizer"});
    std::string text = "n";
    CHECK(contains(user_error([&] { normalize(text); }), "make more than 67108864 bytes"));
    // Nor do two steps that each stay below that: a step makes 64 bytes of one, and a megabyte.
    json two = json::array();
    for (const auto& [from, size] : {std::pair{"a", 3000}, {"b", 99}})
        two.push_back({{"type", "Replace"},
                       {"pattern", {{"String", from}}},
                       {"content", std::string(static_cast<size_t>(size), 'b')}});
    const auto twice = cleave::runtime::read_normalizer(
        {{{"type", "Sequence"}, {"normalizers", two}}, "t.json", "normalizer"});
    text = std::string(200, 'a');
    CHECK(contains(user_error([&] { twice(text); }), "make more than 39448576 bytes"));
    const auto decoder = cleave::runtime::read_token_decoder({all, "t.json", "decoder"});
    CHECK(contains(user_error([&] { decoder.bytes_of("n", false); }), "more than 65536 bytes"));
}
