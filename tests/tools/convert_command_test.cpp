// SPDX-License-Identifier: Apache-2.0
// `cleave convert`: what it writes is run by ONNX Runtime with the logits of transformers.
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/onnxruntime.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path converted_families() { return source_root() / "tests" / "files" / "families"; }

Json family_expectations() {
    std::ifstream file(converted_families() / "expectations.json");
    REQUIRE(file);
    return Json::parse(file);
}

std::vector<float> reference_of_family(const std::string& name) {
    std::ifstream file(converted_families() / "references" / (name + ".f32"), std::ios::binary);
    REQUIRE(file);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

std::string joined(const std::vector<int32_t>& ids) {
    return fmt::format("{}", fmt::join(ids, ","));
}

}  // namespace

TEST_CASE("ONNX Runtime gives transformers' logits of every converted family, in every form",
          "[tools][families]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    Json all = family_expectations();
    for (const char* name :
         {"llama_gptq", "llama_gptq8", "llama_awq", "llama_fp8", "llama_fp8_blocks",
          "llama_int4_zeros", "llama_int8_rows", "llama_int8_rows_zeros", "llama_mixed"}) {
        all.erase(name);
        TemporaryFolder folder;
        const CommandResult refused = run_cleave(
            {"convert", (converted_families() / name).string(), "-o", folder.path().string()});
        CHECK(refused.exit_code == 1);
        CHECK_THAT(refused.error, Catch::Matchers::Contains(name == std::string_view("llama_mixed")
                                                                ? "its weights are of several types"
                                                                : "ONNX has no words for"));
        CHECK(fs::is_empty(folder.path()));
    }
    for (const auto& [name, expected] : all.items())
        for (const char* form : {"attention", "decomposed", "gqa"}) {
            INFO(name << ", " << form);
            TemporaryFolder folder;
            const fs::path model = folder.path() / "model.onnx";
            const CommandResult made =
                run_cleave({"convert", (converted_families() / name).string(), "-o", model.string(),
                            "--form", form, "--copy"});
            INFO(made.error);
            REQUIRE(made.exit_code == 0);
            const Peer peer =
                run_onnxruntime(python, model, joined(expected["prompt"]), "5", folder.path());
            CHECK(peer.tokens == joined(expected["new_tokens"]));
            CHECK(largest_difference(peer.logits, reference_of_family(name)) < 1e-4);
            if (!expected.contains("long")) continue;
            const Peer behind =
                run_onnxruntime(python, model, joined(expected["long"]), "1", folder.path());
            CHECK(largest_difference(behind.logits, reference_of_family(name + "_long")) < 1e-4);
        }
}

TEST_CASE("what is converted elsewhere has the folder's own weights, as links, and its tokenizer",
          "[tools][families]") {
    TemporaryFolder folder;
    const fs::path source = folder.path() / "model", target = folder.path() / "out";
    fs::copy(converted_families() / "llama_sharded", source);
    std::ofstream(source / "tokenizer.json") << "{}\n";
    const CommandResult made = run_cleave({"convert", source.string(), "-o", target.string()});
    INFO(made.error);
    REQUIRE(made.exit_code == 0);
    CHECK(made.output == (target / "model.onnx").string() + "\n");
    int shards = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
        if (entry.path().extension() != ".safetensors") continue;
        CHECK(fs::equivalent(entry.path(), target / entry.path().filename()));
        ++shards;
    }
    CHECK(shards == 5);
    CHECK(fs::exists(target / "config.json"));
    CHECK(fs::exists(target / "tokenizer.json"));
    CHECK(fs::file_size(target / "model.onnx") < 40000);
    // The same once more is the same; a file of somebody else's in the way is not overwritten.
    CHECK(run_cleave({"convert", source.string(), "-o", target.string()}).exit_code == 0);
    std::ofstream(target / "tokenizer.json") << "mine\n";
    CHECK(run_cleave({"convert", source.string(), "-o", target.string()}).exit_code == 1);
    CHECK(read_file(target / "tokenizer.json") == "mine\n");
    // A file of the working folder has no folder in its name.
    const CommandResult here = run_program(
        {"sh", "-c", "mkdir \"$1\" && cd \"$1\" && exec \"$2\" convert \"$3\" -o m.onnx", "sh",
         folder.path() / "here", CLEAVE_BINARY, source.string()});
    INFO(here.error);
    CHECK(here.exit_code == 0);
    CHECK(fs::exists(folder.path() / "here" / "m.onnx"));
}

TEST_CASE("weights that are there are used, and nobody is sent to random ones without that word",
          "[tools][families]") {
    const std::string config = (bundled_model().parent_path() / "config.json").string();
    const CommandResult beside = run_cleave(
        {"run", config, "--devices", "host", "--input-ids", "1,40,7", "--max-new-tokens", "4"});
    INFO(beside.error);
    CHECK(beside.exit_code == 0);
    for (const char* command : {"run", "serve", "chat"}) {
        INFO(command);
        const CommandResult none = run_cleave({command, "llama-110m"});
        CHECK(none.exit_code == 1);
        CHECK_THAT(none.error, Catch::Matchers::Contains("give the model's folder, or its GGUF or "
                                                         ".onnx file"));
        CHECK((none.error.find("cleave model") == std::string::npos ||
               none.error.find("random weights") != std::string::npos));
    }
}

TEST_CASE("a conversion that fails leaves nothing", "[tools][families]") {
    TemporaryFolder folder;
    const fs::path source = folder.path() / "model", target = folder.path() / "out";
    fs::copy(converted_families() / "llama_sharded", source);
    fs::create_directory(target);
    std::ofstream(target / "model-00005-of-00005.safetensors") << "mine\n";
    const CommandResult made = run_cleave({"convert", source.string(), "-o", target.string()});
    CHECK(made.exit_code == 1);
    CHECK_THAT(made.error, Catch::Matchers::Contains("another file is there"));
    CHECK(std::distance(fs::directory_iterator(target), fs::directory_iterator()) == 1);
    CHECK(read_file(target / "model-00005-of-00005.safetensors") == "mine\n");
    // No file may have more than 4 KiB: none of a copy that does not fit stays.
    fs::remove(target / "model-00005-of-00005.safetensors");
    const CommandResult copied =
        run_program({"sh", "-c", "ulimit -f 8; exec \"$@\"", "sh", CLEAVE_BINARY, "convert",
                     source.string(), "--copy", "-o", target.string()});
    CHECK(copied.exit_code == 1);
    CHECK_THAT(copied.error, Catch::Matchers::Contains("File too large"));
    CHECK(fs::is_empty(target));
}

TEST_CASE("a pipe or a device in a model's folder is refused, and not copied",
          "[tools][families]") {
    const TemporaryFolder folder;
    const fs::path model = folder.path() / "model", out = folder.path() / "out";
    for (const char* name : {"tokenizer.json", "generation_config.json", "chat_template.jinja"}) {
        fs::remove_all(model);
        fs::copy(source_root() / "tests/files/families/llama", model);
        fs::remove(model / name);
        if (std::string(name) == "tokenizer.json")
            fs::create_symlink("/dev/zero", model / name);
        else
            REQUIRE(::mkfifo((model / name).c_str(), 0600) == 0);
        const CommandResult result =
            run_cleave({"convert", model.string(), "--copy", "-o", out.string()});
        INFO(name << ": " << result.error);
        CHECK(result.exit_code == 1);
        CHECK_THAT(result.error, Catch::Matchers::Contains(name) &&
                                     Catch::Matchers::Contains("is a pipe or a device"));
        CHECK_FALSE(fs::exists(out));
    }
}

TEST_CASE("a folder is run, planned and exported as it is, and its plan runs again",
          "[tools][families]") {
    TemporaryFolder folder;
    const fs::path source = folder.path() / "model", plan = folder.path() / "x.plan";
    fs::copy(converted_families() / "qwen3", source);
    const Json expected = family_expectations()["qwen3"];
    const std::vector<std::string> ids{"--input-ids",      joined(expected["prompt"]),
                                       "--max-new-tokens", "5",
                                       "--ignore-eos",     "--json"};
    const auto tokens_of = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), ids.begin(), ids.end());
        const CommandResult run = run_cleave(arguments);
        INFO(run.error);
        REQUIRE(run.exit_code == 0);
        return Json::parse(run.output)["token_ids"];
    };
    for (const fs::path& model : {source, source / "config.json"})
        CHECK(tokens_of({"run", model.string(), "--devices", "host[0-1]", "--tp", "2"}) ==
              expected["new_tokens"]);
    const CommandResult planned = run_cleave(
        {"plan", source.string(), "--devices", "host[0-1]", "--pp", "2", "-o", plan.string()});
    INFO(planned.error);
    REQUIRE(planned.exit_code == 0);
    CHECK(tokens_of({"run", plan.string()}) == expected["new_tokens"]);
    const CommandResult exported =
        run_cleave({"export", source.string(), "--devices", "host[0-1]", "--format", "onnx", "-o",
                    (folder.path() / "exported").string()});
    CHECK(exported.exit_code == 1);
    CHECK_THAT(exported.error, Catch::Matchers::Contains("converted in memory") &&
                                   Catch::Matchers::Contains("`cleave convert`"));
    // The written file says the same, and a second one does not replace it unasked.
    REQUIRE(run_cleave({"convert", source.string()}).exit_code == 0);
    CHECK(tokens_of({"run", source.string()}) == expected["new_tokens"]);
    const CommandResult again = run_cleave({"convert", source.string()});
    CHECK(again.exit_code == 1);
    CHECK_THAT(again.error, Catch::Matchers::Contains("has an ONNX file already"));
}

TEST_CASE("a folder of Hugging Face's cache, links into its blobs, is run and converted",
          "[tools][families]") {
    TemporaryFolder folder;
    const fs::path cache = folder.path() / "models--x", source = cache / "snapshots" / "1234";
    fs::create_directories(source);
    fs::create_directories(cache / "blobs");
    for (const char* name : {"config.json", "model.safetensors"}) {
        const fs::path blob = cache / "blobs" / (std::string("blob of ") + name);
        fs::copy(converted_families() / "gemma2" / name, blob);
        fs::create_symlink(fs::path("../../blobs") / blob.filename(), source / name);
    }
    const Json expected = family_expectations()["gemma2"];
    const fs::path target = folder.path() / "out";
    const CommandResult made = run_cleave({"convert", source.string(), "-o", target.string()});
    INFO(made.error);
    REQUIRE(made.exit_code == 0);
    CHECK(!fs::is_symlink(target / "model.safetensors"));
    for (const fs::path& model : {source, target}) {
        const CommandResult run = run_cleave({"run", model.string(), "--devices", "host",
                                              "--input-ids", joined(expected["prompt"]),
                                              "--max-new-tokens", "5", "--ignore-eos", "--json"});
        INFO(run.error);
        REQUIRE(run.exit_code == 0);
        CHECK(Json::parse(run.output)["token_ids"] == expected["new_tokens"]);
    }
}

TEST_CASE("a config.json of any family is planned without weights, and refused as a random model",
          "[tools][families]") {
    TemporaryFolder folder;
    for (const char* name : {"gemma3", "llama_yarn", "phi3_partial", "llama_int4"}) {
        INFO(name);
        const std::string config = (folder.path() / "config.json").string();
        fs::copy_file(converted_families() / name / "config.json", config,
                      fs::copy_options::overwrite_existing);
        const CommandResult planned =
            run_cleave({"plan", config, "--devices", "host[0-1]", "--tp", "2", "--context", "16"});
        INFO(planned.error);
        CHECK(planned.exit_code == 0);
        const CommandResult made =
            run_cleave({"model", config, "-o", (folder.path() / "out").string()});
        CHECK(made.exit_code == 1);
        CHECK_THAT(made.error, Catch::Matchers::Contains("only plain Llamas are written"));
    }
}

TEST_CASE("what is no model that runs is named for what it is, with the way on", "[tools]") {
    const std::pair<const char*, const char*> cases[] = {
        {"model.gguf", "no GGUF file, whatever its name says"},
        {"model.safetensors", "weights of a Hugging Face folder; give the folder"},
        {"pytorch_model.bin", "a PyTorch checkpoint, which is not supported"},
        {"tf_model.h5", "a file of TensorFlow or Flax"}};
    for (const auto& [name, expected] : cases) {
        TemporaryFolder folder;
        const fs::path file = folder.path() / name;
        std::ofstream(file) << "none";
        const CommandResult run = run_cleave({"plan", file.string(), "--devices", "host"});
        CHECK(run.exit_code == 1);
        CHECK_THAT(run.error, Catch::Matchers::Contains(expected));
        if (file.extension() == ".safetensors") continue;
        std::ofstream(folder.path() / "config.json") << "{}";
        const std::string path = folder.path().string();
        for (const CommandResult& of_folder :
             {run_cleave({"run", path, "--devices", "host", "--prompt", "x"}),
              run_cleave({"convert", path})}) {
            CHECK(of_folder.exit_code == 1);
            CHECK_THAT(of_folder.error, Catch::Matchers::Contains(expected) &&
                                            Catch::Matchers::Contains("neither an .onnx file nor"));
        }
    }
    const auto error_of = [](const std::string& model) {
        const CommandResult run = run_cleave({"run", model, "--devices", "host", "--prompt", "x"});
        CHECK(run.exit_code == 1);
        return run.error;
    };
    TemporaryFolder folder;
    std::ofstream(folder.path() / "config.json") << "{}";
    CHECK_THAT(error_of(folder.path().string()),
               Catch::Matchers::Contains("has config.json, but no weights"));
    const fs::path gguf = folder.path() / "model.gguf";
    std::ofstream(gguf) << "GGUF";
    CHECK_THAT(error_of(folder.path().string()),
               Catch::Matchers::Contains("model.gguf is a GGUF file; name the file itself"));
    CHECK_THAT(error_of(gguf.string()), Catch::Matchers::Contains("it was cut short"));
    const CommandResult of_onnx = run_cleave({"convert", bundled_model().parent_path().string()});
    CHECK(of_onnx.exit_code == 1);
    CHECK_THAT(of_onnx.error, Catch::Matchers::Contains("the folder has an .onnx file"));
}

}  // namespace cleave::test
