// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/generation_config.h"
#include "tests/runtime/text/cases.h"

using cleave::runtime::load_generation_config;
using cleave::runtime::stop_ids;
using namespace cleave::test;
using Ids = std::vector<int32_t>;

TEST_CASE("stop ids come from generation_config.json, then genai_config.json, then config.json",
          "[runtime][text]") {
    const TemporaryFolder folder;
    const auto write = [&](const char* name, const nlohmann::json& json) {
        write_file(folder.path() / name, json.dump());
    };
    CHECK(load_generation_config(folder.path()).eos_ids.empty());
    write("config.json", {{"eos_token_id", 5}, {"bos_token_id", 4}, {"pad_token_id", -1}});
    auto config = load_generation_config(folder.path() / "model.onnx");
    CHECK(config.eos_ids == Ids{5});
    CHECK(config.bos_id == 4);
    CHECK_FALSE(config.pad_id.has_value());
    write("genai_config.json", {{"model", {{"eos_token_id", {6, 7, 6}}, {"pad_token_id", 3}}}});
    config = load_generation_config(folder.path());
    CHECK(config.eos_ids == Ids{6, 7});
    CHECK(config.bos_id == 4);
    CHECK(config.pad_id == 3);
    CHECK(config.eos_source == (folder.path() / "genai_config.json").string());
    write("generation_config.json", {{"eos_token_id", nullptr}, {"bos_token_id", 9}});
    config = load_generation_config(folder.path());
    CHECK(config.eos_ids == Ids{6, 7});
    CHECK(config.bos_id == 9);
    write("generation_config.json", {{"eos_token_id", 8}});
    CHECK(load_generation_config(folder.path()).eos_ids == Ids{8});
}

TEST_CASE("ids of a model inside a larger configuration are found", "[runtime][text]") {
    const TemporaryFolder folder;
    write_file(folder.path() / "config.json", R"({"text_config": {"eos_token_id": [1, 106]}})");
    CHECK(load_generation_config(folder.path()).eos_ids == Ids{1, 106});
}

TEST_CASE("without ids of the model the tokenizer's end-of-sequence token stops",
          "[runtime][text]") {
    const auto tokenizer = cleave::runtime::load_tokenizer(text_data() / "bpe.model");
    CHECK(stop_ids({}, tokenizer.get()) == Ids{2});
    CHECK(stop_ids({}, nullptr).empty());
    cleave::runtime::GenerationConfig config;
    config.eos_ids = {7};
    CHECK(stop_ids(config, tokenizer.get()) == Ids{7});
}

TEST_CASE("malformed generation files are refused by name", "[runtime][text]") {
    const TemporaryFolder folder;
    for (const char* text : {"", "[]", R"({"eos_token_id": "x"})", R"({"eos_token_id": [1.5]})",
                             R"({"eos_token_id": 99999999999})", R"({"bos_token_id": {}})"}) {
        CAPTURE(text);
        write_file(folder.path() / "generation_config.json", text);
        const std::string message = user_error([&] { load_generation_config(folder.path()); });
        CHECK(message.find("generation_config.json") != std::string::npos);
    }
}

TEST_CASE("the ids of real models are read", "[runtime][text]") {
    CLEAVE_NEEDS_SHARED_DATA();
    CHECK(load_generation_config(shared_data() / "hf" / "hf260K").eos_ids == Ids{2});
    CHECK(load_generation_config(shared_data() / "models" / "rand_gqa16" / "genai0114_fp32_cpu")
              .eos_ids == Ids{2});
    CHECK(load_generation_config(shared_data() / "models" / "stories15M" / "model.onnx").eos_ids ==
          Ids{2});
}
