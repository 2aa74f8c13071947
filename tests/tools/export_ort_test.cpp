// SPDX-License-Identifier: Apache-2.0
// `cleave export --format ort`: what it writes runs in the stock onnxruntime package and gives the
// logits and tokens of the whole model there, on every shape of devices.
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "models/onnx_writer.h"
#include "tests/support/command.h"
#include "tests/support/onnx_quantize.h"
#include "tests/support/onnxruntime.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kOrtNewTokens = "8";

CommandResult export_ort(const std::string& model, const Devices& devices, const fs::path& out) {
    std::vector<std::string> arguments{"export", model, "--format", "ort", "-o", out.string()};
    arguments.emplace_back("--devices");
    arguments.insert(arguments.end(), devices.begin(), devices.end());
    return run_cleave(arguments);
}

// Exports and runs with the folder's own runner.
Peer run_exported(const char* python, const fs::path& model, const Devices& devices,
                  const fs::path& folder) {
    const fs::path out = folder / "exported";
    fs::remove_all(out);
    const CommandResult exported = export_ort(model.string(), devices, out);
    INFO(exported.error);
    REQUIRE(exported.exit_code == 0);
    return run_folder(python, out, kPeerPrompt, kOrtNewTokens, folder);
}

}  // namespace

TEST_CASE("exported stages and ranks give ONNX Runtime's logits and tokens of the whole model",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    const Peer peer =
        run_onnxruntime(python, bundled_model(), kPeerPrompt, kOrtNewTokens, folder.path());
    for (const Devices& devices :
         {Devices{"host[0-1]", "--pp", "2"}, Devices{"host[0-1]", "--tp", "2"},
          Devices{"host[0-2]", "--tp", "3"}, Devices{"host[0-3]", "--tp", "2", "--pp", "2"}}) {
        INFO(devices[0] << " " << devices[1] << devices[2]);
        const Peer ours = run_exported(python, bundled_model(), devices, folder.path());
        check_same(ours, peer);
    }
}

TEST_CASE("a KV head lies on every rank that has one of its queries, in exported models too",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    models::Shape shape;
    shape.name = "one-kv-head";
    shape.dtype = DType::kF32;
    shape.qkv_bias = shape.mlp_bias = shape.o_bias = true;
    shape.sliding_window = 7;
    shape.config.vocab_size = 1000;
    shape.config.hidden_size = 40;
    shape.config.intermediate_size = 50;
    shape.config.num_layers = 2;
    shape.config.num_heads = 5;
    shape.config.num_kv_heads = 1;
    shape.config.head_dim = 8;
    shape.config.max_positions = 64;
    shape.config.rope_theta = 10000.0;
    const fs::path model = models::write_onnx_llama(shape, (folder.path() / "model").string(), {});
    const Peer peer = run_onnxruntime(python, model, kPeerPrompt, kOrtNewTokens, folder.path());
    for (const Devices& devices :
         {Devices{"host[0-3]", "--tp", "4"}, Devices{"host[0-5]", "--tp", "6"}}) {
        INFO(devices[0]);
        const Peer ours = run_exported(python, model, devices, folder.path());
        check_same(ours, peer);
    }
}

TEST_CASE("quantised and narrow weights keep their values in exported models", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    const fs::path model = folder.path() / "quantized.onnx";
    using Form = test::QuantizeOptions::Form;
    using Zeros = test::QuantizeOptions::ZeroPoints;
    test::quantize_onnx(bundled_model().string(), model.string(),
                        {Form::kMatMulNBits, DType::kUInt4, 32, Zeros::kInteger});
    const Peer peer = run_onnxruntime(python, model, kPeerPrompt, kOrtNewTokens, folder.path());
    const Peer ours = run_exported(python, model, {"host[0-2]", "--tp", "3"}, folder.path());
    check_same(ours, peer);

    const Devices narrow{"host[0-1]", "--pp", "2", "--dtype", "f16", "--kv-dtype", "f16"};
    const Peer cleave =
        run_ours(bundled_model(), narrow, kPeerPrompt, kOrtNewTokens, folder.path());
    const Peer exported = run_exported(python, bundled_model(), narrow, folder.path());
    check_same(exported, cleave, 1e-2);

    // Weights quantised as shards are cut are exported as what they are then: the values of their
    // codes.
    const Devices rounded{"host[0-1]", "--tp", "2", "--dtype", "int4", "--kv-dtype", "f32"};
    check_same(run_exported(python, bundled_model(), rounded, folder.path()),
               run_ours(bundled_model(), rounded, kPeerPrompt, kOrtNewTokens, folder.path()));
}

TEST_CASE("exported models take a batch of unequal prompts", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    const fs::path out = folder.path() / "exported";
    REQUIRE(export_ort(bundled_model().string(), {"host[0-1]", "--pp", "2"}, out).exit_code == 0);
    const std::string ids[] = {"1,40,7,99,3", "5,77,31,200,513,17,800,45"};
    const Peer both =
        run_folder(python, out, ids[0] + " --input-ids " + ids[1], kOrtNewTokens, folder.path());
    const Peer first = run_folder(python, out, ids[0], kOrtNewTokens, folder.path());
    const Peer second = run_folder(python, out, ids[1], kOrtNewTokens, folder.path());
    CHECK(both.tokens == first.tokens + "\n" + second.tokens);
    std::vector<float> alone = first.logits;
    alone.insert(alone.end(), second.logits.begin(), second.logits.end());
    CHECK(largest_difference(both.logits, alone) < 1e-3);
}

TEST_CASE("onnxruntime-genai runs the stages as its own pipeline", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    const fs::path out = folder.path() / "exported";
    REQUIRE(export_ort(bundled_model().string(), {"host[0-2]", "--pp", "3"}, out).exit_code == 0);
    const Peer peer =
        run_onnxruntime(python, bundled_model(), kPeerPrompt, kOrtNewTokens, folder.path());
    CHECK(run_genai(python, out, kPeerPrompt, kOrtNewTokens, folder.path()) == peer.tokens);
}

TEST_CASE(
    "ranks with com.microsoft's collectives give our logits and tokens, and stock builds refuse "
    "nothing else in them",
    "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    const fs::path out = folder.path() / "ranks", logits = folder.path() / "logits.f32";
    const Peer peer = run_ours(bundled_model(), {"host"}, "1,40,7,99,3", "3", folder.path());
    const auto exported = [&](const Devices& devices) {
        std::vector<std::string> words{
            "export",   bundled_model().string(), "--format", "ort-collectives", "-o", out.string(),
            "--devices"};
        words.insert(words.end(), devices.begin(), devices.end());
        return run_cleave(words);
    };
    const CommandResult made = exported({"sim:h100[0-1]", "--tp", "2"});
    INFO(made.error);
    REQUIRE(made.exit_code == 0);
    REQUIRE(std::system(fmt::format("'{}' '{}' '{}' 1,40,7,99,3 3 '{}' >'{}'", python,
                                    (source_root() / "tests/tools/ort_ranks.py").string(),
                                    out.string(), logits.string(), (out / "seen").string())
                            .c_str()) == 0);
    const auto seen = nlohmann::json::parse(read_file(out / "seen"));
    CHECK(seen["refused"].get<std::string>().find("AllReduce") != std::string::npos);
    CHECK(seen["loads_without"] == true);
    CHECK(seen["tokens"] == peer.tokens);
    std::vector<float> found(fs::file_size(logits) / sizeof(float));
    std::ifstream(logits, std::ios::binary)
        .read(reinterpret_cast<char*>(found.data()),
              static_cast<std::streamsize>(found.size() * sizeof(float)));
    REQUIRE(found.size() == peer.logits.size());
    CHECK(largest_difference(found, peer.logits) < 1e-3);
    for (const auto& [devices, message] :
         {std::pair(Devices{"sim:h100[0-3]", "--tp", "2", "--pp", "2"}, "2 stages of 2 devices"),
          std::pair(Devices{"host[0-1]", "--tp", "2"}, "no NVIDIA GPU"),
          std::pair(Devices{"sim:h100[0-2]", "--tp", "3"}, "all-gather takes equal")}) {
        const CommandResult refused = exported(devices);
        CHECK(refused.exit_code == 1);
        CHECK_THAT(refused.error, Catch::Matchers::Contains(message));
    }
}

TEST_CASE("an export to ONNX Runtime that could not give the model's results is refused",
          "[tools]") {
    TemporaryFolder folder;
    const CommandResult shape = export_ort("stories-260k", {"host"}, folder.path() / "a");
    CHECK(shape.exit_code == 1);
    CHECK(shape.error.find("has no data") != std::string::npos);
    CHECK(!fs::exists(folder.path() / "a"));
}

TEST_CASE("token ids beside the model come into genai_config.json, or are refused by name",
          "[tools]") {
    TemporaryFolder folder;
    const fs::path model = folder.path() / "model", out = folder.path() / "exported";
    fs::copy(bundled_model().parent_path(), model);
    const auto exported = [&](const std::string& ids) {
        fs::remove_all(out);
        std::ofstream(model / "generation_config.json") << R"({"eos_token_id": )" + ids + "}";
        return export_ort((model / "model.onnx").string(), {"host[0-1]", "--pp", "2"}, out);
    };
    const auto written = [&] {
        const json genai = json::parse(std::ifstream(out / "genai_config.json"));
        return genai["model"]["eos_token_id"];
    };
    const json of_model = json::parse(std::ifstream(model / "config.json"))["eos_token_id"];
    REQUIRE(exported("[7, 9]").exit_code == 0);
    CHECK(written() == json::array({7, 9}));
    for (const char* none : {"[]", "null"}) {  // then config.json's
        REQUIRE(exported(none).exit_code == 0);
        CHECK(written() == of_model);
    }
    const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
    for (const auto& [ids, message] : std::vector<std::pair<std::string, std::string>>{
             {R"("7")", "generation_config.json: eos_token_id: expected a token id or a list"},
             {"[7, {}]", "generation_config.json: eos_token_id: expected a token id or a list"},
             {deep,
              "generation_config.json: line 1, column 81: values are more than 64 levels inside "
              "each other"},
             {"[7", "generation_config.json: line 1, column"}}) {
        const CommandResult refused = exported(ids);
        INFO(ids.substr(0, 20) << ": " << refused.error);
        CHECK(refused.exit_code == 1);
        CHECK_THAT(refused.error, Catch::Matchers::Contains(message));
        CHECK(!fs::exists(out));
    }
}
