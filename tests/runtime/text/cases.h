// SPDX-License-Identifier: Apache-2.0
// The tokenizers and expected results of data/cases.json, which make_cases.py wrote with the real
// libraries (Hugging Face tokenizers 0.23.3, SentencePiece 0.2.3).
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/stream_decoder.h"
#include "runtime/text/tokenizer.h"
#include "tests/support/test.h"

namespace cleave::test {

inline std::filesystem::path text_data() {
    return source_root() / "tests" / "runtime" / "text" / "data";
}

inline const nlohmann::json& text_cases() {
    static const nlohmann::json kDocument =
        nlohmann::json::parse(std::ifstream(text_data() / "cases.json"));
    return kDocument;
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// The complete tokenizer.json of one entry of "tokenizers".
inline nlohmann::json tokenizer_document(const nlohmann::json& entry) {
    nlohmann::json document = entry.at("parts");
    document["version"] = "1.0";
    document["model"] = text_cases().at("bases").at(entry.at("base").get<std::string>());
    document["model"].update(entry.at("options"));
    return document;
}

inline nlohmann::json named_document(const std::string& name) {
    for (const auto& entry : text_cases().at("tokenizers")) {
        if (entry.at("name") == name) return tokenizer_document(entry);
    }
    throw std::runtime_error("no tokenizer named " + name);
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

inline std::unique_ptr<runtime::Tokenizer> make_tokenizer(const nlohmann::json& document) {
    const TemporaryFolder folder;
    write_file(folder.path() / "tokenizer.json", document.dump());
    return runtime::load_tokenizer(folder.path());
}

inline std::string stream(const runtime::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
    runtime::StreamDecoder decoder(tokenizer);
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    return text + decoder.finish();
}

/// The bytes of the ids with nothing replaced.
inline std::string raw_bytes(const runtime::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
    auto state = tokenizer.begin_decode();
    std::string bytes;
    for (const int32_t id : ids) tokenizer.append_token(id, false, state, bytes);
    return bytes;
}

/// Each case: encoding gives the ids, decoding them gives the text, streamed or not.
inline void check_cases(const runtime::Tokenizer& tokenizer, const nlohmann::json& cases,
                        bool add_special) {
    for (const auto& entry : cases) {
        const auto text = entry.at(0).get<std::string>();
        const auto ids = entry.at(1).get<std::vector<int32_t>>();
        CAPTURE(text);
        CHECK(tokenizer.encode(text, add_special) == ids);
        CHECK(tokenizer.decode(ids) == entry.at(2).get<std::string>());
        CHECK(stream(tokenizer, ids) == entry.at(2).get<std::string>());
    }
}

}  // namespace cleave::test
