// SPDX-License-Identifier: Apache-2.0
// Text through the command: which tokenizer it takes, and the text it prints.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "models/onnx_writer.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

// A model of a moment with a vocabulary of this size and no tokenizer beside it.
std::string write_model(const TemporaryFolder& folder, int64_t vocab_size) {
    cleave::models::Shape shape = *cleave::models::find_shape("stories-260k");
    shape.name = "tiny";
    shape.config.hidden_size = 32;
    shape.config.intermediate_size = 48;
    shape.config.num_layers = 1;
    shape.config.num_heads = 4;
    shape.config.num_kv_heads = 2;
    shape.config.head_dim = 8;
    shape.config.vocab_size = vocab_size;
    shape.config.max_positions = 64;
    return cleave::models::write_onnx_llama(
        shape, (folder.path() / std::to_string(vocab_size)).string(), {});
}

// The bundled model's tokenizer.json, of 1024 tokens.
fs::path bundled_tokenizer() { return source_root() / "models" / "bundled" / "tokenizer.json"; }

CommandResult run_text(const std::string& model, const fs::path& tokenizer) {
    return run_cleave({"run", model, "--tokenizer", tokenizer.string(), "--prompt", "Once upon",
                       "--max-new-tokens", "2", "--json"});
}

}  // namespace

TEST_CASE("the space between a prompt and its continuation is kept, as text and as JSON",
          "[tools]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const fs::path model = shared_data() / "models" / "stories15M";
    const std::vector<std::string> line = {"run",       model.string(),     "--prompt",
                                           "Once upon", "--max-new-tokens", "2"};
    std::vector<std::string> json = line;
    json.push_back("--json");
    CommandResult r = run_cleave(json);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    CHECK(Json::parse(r.output).at("text") == " a time");
    CHECK_THAT(run_cleave(line).output,
               Catch::Matchers::Contains("Once upon") && Catch::Matchers::Contains(" a time"));
}

TEST_CASE("a SentencePiece tokenizer.model gives what the tokenizer.json of the same model gives",
          "[tools]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const fs::path model = shared_data() / "models" / "stories15M";
    Json results[2];
    for (int i = 0; i < 2; ++i) {
        const fs::path tokenizer = model / (i == 0 ? "tokenizer.model" : "tokenizer.json");
        CommandResult r = run_cleave({"run", model.string(), "--tokenizer", tokenizer.string(),
                                      "--prompt", "Once upon", "--max-new-tokens", "8", "--json"});
        INFO(r.error);
        REQUIRE(r.exit_code == 0);
        results[i] = Json::parse(r.output);
    }
    for (const char* key : {"prompt_ids", "token_ids", "text"})
        CHECK(results[0].at(key) == results[1].at(key));
    CHECK_THAT(results[0].at("text").get<std::string>(), Catch::Matchers::StartsWith(" a time"));
}

TEST_CASE("a tokenizer whose vocabulary is not the model's is refused with its path and both sizes",
          "[tools]") {
    TemporaryFolder folder;
    const fs::path text = folder.path() / "text.txt";
    std::ofstream(text) << "Once upon a time there was a text.";
    for (const int64_t vocab_size : {64, 1000, 2050, 32000}) {
        const std::string model = write_model(folder, vocab_size);
        const CommandResult results[] = {
            run_text(model, bundled_tokenizer()),
            run_cleave({"run", model, "--tokenizer", bundled_tokenizer().string(), "--score",
                        text.string()})};
        for (const CommandResult& r : results) {
            INFO(vocab_size << r.error);
            CHECK(r.exit_code == 1);
            CHECK(r.output.empty());
            for (const std::string& piece :
                 {bundled_tokenizer().string(), std::string("1024"), std::to_string(vocab_size),
                  std::string("another model")})
                CHECK_THAT(r.error, Catch::Matchers::Contains(piece));
        }
    }
}

TEST_CASE("a model's vocabulary may be padded beyond its tokenizer's", "[tools]") {
    TemporaryFolder folder;
    for (const int64_t vocab_size : {1024, 1088, 2048}) {
        const CommandResult r = run_text(write_model(folder, vocab_size), bundled_tokenizer());
        INFO(vocab_size << r.error);
        CHECK(r.exit_code == 0);
    }
}

TEST_CASE("special tokens beyond a model's vocabulary are refused in the text only", "[tools]") {
    TemporaryFolder folder;
    std::ifstream file(bundled_tokenizer());
    Json tokenizer = Json::parse(file);
    tokenizer["added_tokens"].push_back({{"id", 1024},
                                         {"content", "<pad>"},
                                         {"special", true},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false}});
    const fs::path path = folder.path() / "tokenizer.json", text = folder.path() / "text.txt";
    std::ofstream(path) << tokenizer.dump();
    std::ofstream(text) << "Once upon <pad> a time";
    const std::string model = write_model(folder, 1024);
    const CommandResult plain = run_text(model, path);
    INFO(plain.error);
    CHECK(plain.exit_code == 0);
    for (const std::vector<std::string>& what :
         {std::vector<std::string>{"--prompt", "a<pad>"}, {"--score", text.string()}}) {
        const CommandResult r =
            run_cleave({"run", model, "--tokenizer", path.string(), what[0], what[1]});
        CHECK(r.exit_code == 1);
        CHECK(r.output.empty());
        CHECK_THAT(r.error,
                   Catch::Matchers::Contains("1024") && Catch::Matchers::Contains("vocabulary"));
    }
}

TEST_CASE("a tokenizer of another model beside a model does not keep its token ids from running",
          "[tools]") {
    TemporaryFolder folder;
    const std::string model = write_model(folder, 64);
    fs::copy_file(bundled_tokenizer(), fs::path(model).parent_path() / "tokenizer.json");
    CHECK(run_cleave({"run", model, "--input-ids", "1,2", "--max-new-tokens", "2"}).exit_code == 0);
    const CommandResult r = run_cleave({"run", model, "--prompt", "Once", "--max-new-tokens", "2"});
    CHECK(r.exit_code == 1);
    CHECK_THAT(r.error,
               Catch::Matchers::Contains("another model") && Catch::Matchers::Contains("1024"));
}
