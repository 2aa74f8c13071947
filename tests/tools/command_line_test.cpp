// SPDX-License-Identifier: Apache-2.0
// The command line's contract: exit codes, messages, JSON alone on standard output.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>

#include <nlohmann/json.hpp>

#include "importer/onnx/import.h"
#include "models/onnx_writer.h"
#include "planner/machine/gpu_arch.h"
#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tools/cli/logit_check.h"
#include "tools/cli/progress_text.h"
#include "tools/cli/terminal.h"

using namespace cleave;
using namespace cleave::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

// A model small enough to run in a moment: 2 layers, hidden 32, 4 heads over 2 KV heads.
models::Shape tiny_shape() {
    models::Shape shape = *models::find_shape("stories-260k");
    shape.name = "tiny";
    shape.config.hidden_size = 32;
    shape.config.intermediate_size = 48;
    shape.config.num_layers = 2;
    shape.config.num_heads = 4;
    shape.config.num_kv_heads = 2;
    shape.config.head_dim = 8;
    shape.config.vocab_size = 64;
    shape.config.max_positions = 64;
    return shape;
}

std::string write_tiny(const TemporaryFolder& folder) {
    return models::write_onnx_llama(tiny_shape(), (folder.path() / "tiny").string(), {});
}

// Exit code 1, one message on standard error that has every piece, nothing on standard output.
void expect_refused(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& pieces) {
    CommandResult r = run_cleave(arguments);
    INFO(r.error << r.output);
    CHECK(r.exit_code == 1);
    CHECK(r.output.empty());
    CHECK(r.error.starts_with("cleave: "));
    for (const std::string& piece : pieces) CHECK_THAT(r.error, Catch::Matchers::Contains(piece));
}

}  // namespace

TEST_CASE("characters that steer a terminal are shown by their bytes", "[tools]") {
    using cleave::tools::printable;
    CHECK(printable("a\x1b[2J\x07\r", false) == "a\\x1b[2J\\x07\\x0d");
    CHECK(printable("a\xc2\x9b"
                    "2J",
                    false) == "a\\xc2\\x9b2J");  // U+009B begins sequences, too
    // U+202E and U+2066 turn the direction of what follows.
    CHECK(printable("\xe2\x80\xae"
                    "b \xe2\x81\xa6",
                    false) == "\\xe2\\x80\\xaeb \\xe2\\x81\\xa6");
    const std::string kept = "\xc2\xa0\xe2\x80\x94 na\xc3\xafve \xe6\x96\x87";
    CHECK(printable(kept, false) == kept);
}

TEST_CASE("a file or a folder whose name is empty is refused", "[tools]") {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"plan", "llama-3-8b", "--devices", "sim:h100", "-o", ""},
          {"plan", "llama-3-8b", "--devices", "sim:h100", "--output="},
          {"export", "llama-3-8b", "--devices", "sim:h100", "--format", "dot", "-o", ""},
          {"run", bundled_model().string(), "--prompt", "A", "--trace", ""}}) {
        const CommandResult result = run_cleave(words);
        CHECK(result.exit_code == 1);
        CHECK_THAT(result.error, Catch::Contains("'': the name is empty; give a "));
    }
}

TEST_CASE("every command's help shows a worked example", "[tools]") {
    for (const char* command :
         {"run", "serve", "chat", "plan", "inspect", "export", "check", "import", "emit", "devices",
          "model", "convert", "doctor", "cache", "completion", "man"}) {
        CommandResult r = run_cleave({command, "--help"});
        INFO(command);
        CHECK(r.exit_code == 0);
        CHECK_THAT(r.output, Catch::Matchers::Contains("Example: cleave " + std::string(command)));
    }
}

TEST_CASE("a missing or unknown sub-command is the user's error", "[tools]") {
    CHECK(run_cleave({}).exit_code == 1);
    CHECK(run_cleave({"fly"}).exit_code == 1);
    CHECK(run_cleave({"plan"}).exit_code == 1);
}

TEST_CASE("a model that does not exist is named together with the shape names", "[tools]") {
    for (const char* command : {"run", "plan", "import", "emit"})
        expect_refused({command, "no-such-model.onnx"},
                       {"no-such-model.onnx", "no such file", "llama-3-8b"});
}

TEST_CASE("a file that is no ONNX is refused by name", "[tools]") {
    TemporaryFolder folder;
    fs::path path = folder.path() / "text.onnx";
    std::ofstream(path) << "this is a text, not a model";
    for (const char* command : {"run", "plan", "import", "emit"})
        expect_refused({command, path.string()}, {"text.onnx"});
}

TEST_CASE("truncated external data is refused before anything runs", "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder);
    fs::resize_file(model + ".data", 1000);
    expect_refused({"run", model, "--input-ids", "1"}, {"model.onnx.data"});
    expect_refused({"plan", model}, {"model.onnx.data"});
    expect_refused({"import", model}, {"model.onnx.data"});
}

TEST_CASE("a file without its external data can be planned with --weights none, and not run",
          "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder);
    fs::remove(model + ".data");
    expect_refused({"plan", model}, {"model.onnx.data"});
    CHECK(run_cleave({"plan", model, "--weights", "none"}).exit_code == 0);
    expect_refused({"run", model, "--weights", "none", "--input-ids", "1"}, {"not run"});
}

TEST_CASE("unknown devices and shapes that do not use the devices are refused by name", "[tools]") {
    expect_refused({"plan", "stories-260k", "--devices", "gpu[0]"}, {"gpu", "host", "cuda"});
    expect_refused({"plan", "stories-260k", "--devices", "sim:h1000[0]"}, {"h1000", "h100"});
    expect_refused({"plan", "stories-260k", "--devices", "host[0-2]", "--tp", "2", "--pp", "2"},
                   {"4", "3"});
    expect_refused({"plan", "stories-260k", "--devices", "host[0,0]"}, {"host[0]"});
}

TEST_CASE("a prompt longer than the context is refused", "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder);
    std::string ids = "1";
    for (int i = 0; i < 70; ++i) ids += ",2";
    expect_refused({"run", model, "--input-ids", ids}, {"71", "64"});
    expect_refused({"run", model, "--input-ids", "1,2,3", "--max-new-tokens", "63"}, {"64"});
    expect_refused({"run", model, "--input-ids", "1", "--context", "128"}, {"--context", "64"});
}

TEST_CASE("token ids that are no numbers or outside the vocabulary are refused", "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder);
    expect_refused({"run", model, "--input-ids", "1,x"}, {"1,x"});
    expect_refused({"run", model, "--input-ids", "1,"}, {"1,"});
    expect_refused({"run", model, "--input-ids", "64"}, {"64", "vocabulary"});
    expect_refused({"run", model, "--input-ids", "-1"}, {"-1"});
    expect_refused({"run", model, "--prompt", "hello"}, {"tokenizer"});
    expect_refused({"run", model}, {"--prompt", "--input-ids"});
    expect_refused({"run", "llama-3-8b", "--input-ids", "1"}, {"cleave model llama-3-8b"});
}

TEST_CASE("a model that does not fit is refused with each device's deficit, as text and as JSON",
          "[tools]") {
    std::vector<std::string> arguments{"plan",    "llama-2-70b", "--devices", "sim:rtx4090[0-3]",
                                       "--dtype", "f16"};
    expect_refused(arguments, {"sim:rtx4090[0-3]: each needs", "has 25.8 GB"});
    arguments.emplace_back("--json");
    CommandResult r = run_cleave(arguments);
    CHECK(r.exit_code == 1);
    Json json = Json::parse(r.output);
    CHECK(json["error"] == "does not fit");
    REQUIRE(json["devices"].size() == 4);
    CHECK(!json["fixes"].empty());
    for (const Json& d : json["devices"])
        CHECK(d["needed_bytes"].get<int64_t>() - d["capacity_bytes"].get<int64_t>() ==
              d["deficit_bytes"].get<int64_t>());
}

TEST_CASE("run prints JSON alone on standard output, and the same tokens for any devices",
          "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder);
    Json expected;
    for (const char* devices : {"host", "host[0-1]", "host[0-2]", "host[0-7]"}) {
        CommandResult r = run_cleave({"run", model, "--devices", devices, "--input-ids", "1,2,3",
                                      "--max-new-tokens", "8", "--ignore-eos", "--json"});
        INFO(devices << r.error);
        REQUIRE(r.exit_code == 0);
        Json json = Json::parse(r.output);
        for (const char* key :
             {"prompt_ids", "token_ids", "text", "prefill_ms", "decode_ms_per_token",
              "tokens_per_second", "devices", "transferred_bytes", "peak_memory_bytes"})
            CHECK(json.contains(key));
        CHECK(json["token_ids"].size() == 8);
        if (expected.is_null()) expected = json["token_ids"];
        CHECK(json["token_ids"] == expected);
    }
}

TEST_CASE("run writes the host's tokens on imitated GPUs of both vendors, however they are divided",
          "[tools]") {
    std::vector<fs::path> models{bundled_model()};
    // And one that others trained and exported, if it is beside the checkout.
    const fs::path stories =
        shared_data() / "models" / "stories260K" / "dynamo_op23_past_sdpa.onnx";
    if (fs::exists(stories)) models.push_back(stories);
    const std::vector<std::vector<std::string>> places{
        {"host[0]"},
        {"simt:gfx90a[0-7]", "--tp", "8"},
        {"simt:gfx90a[0-7]", "--tp", "4", "--pp", "2"},
        {"simt:sm_90a[0-2]", "--tp", "3"},
        {"simt:gfx1100[0]"},
        {"simt:sm_75[0]"},
        {"simt:sm_120[0-1]", "--tp", "2"},
        {"simt:gfx908[0-1]", "--pp", "2"},
        {"simt:gfx1201[0]"},
        {"simt:gfx90a[0-1]", "--tp", "2", "--simt-seed", "0"},
        {"simt:gfx90a[0-1]", "--tp", "2", "--simt-seed", "7"}};
    for (const fs::path& model : models) {
        Json host;
        // In all places the bundled model, in the first four the other one.
        for (size_t i = 0; i < (model == models[0] ? places.size() : 4); ++i) {
            const std::vector<std::string>& where = places[i];
            std::vector<std::string> command{"run",    model.string(), "--context", "32",
                                             "--json", "--ignore-eos", "--devices"};
            command.insert(command.end(), where.begin(), where.end());
            for (const char* word :
                 {"--input-ids", "1,17,230,5,301,44,380", "--max-new-tokens", "6"})
                command.emplace_back(word);
            const CommandResult r = run_cleave(command);
            INFO(model << " on " << fmt::format("{}", fmt::join(where, " ")) << ": " << r.error);
            REQUIRE(r.exit_code == 0);
            const Json tokens = Json::parse(r.output)["token_ids"];
            if (host.is_null()) host = tokens;
            CHECK(tokens == host);
            CHECK(tokens.size() == 6);
        }
    }
}

TEST_CASE("run writes the host's tokens on every architecture that simt imitates",
          "[tools][slow]") {
    const auto tokens_on = [](const std::string& device) {
        const CommandResult r =
            run_cleave({"run", bundled_model().string(), "--context", "32", "--json",
                        "--ignore-eos", "--devices", device, "--input-ids",
                        "1,17,230,5,301,44,380,12,90", "--max-new-tokens", "3"});
        INFO(device << ": " << r.error);
        REQUIRE(r.exit_code == 0);
        return Json::parse(r.output)["token_ids"];
    };
    const Json host = tokens_on("host[0]");
    for (const planner::GpuArch& arch : planner::gpu_archs()) {
        INFO(arch.name);
        CHECK(tokens_on(fmt::format("simt:{}[0]", arch.name)) == host);
    }
}

TEST_CASE("an order of threads is refused where no device imitates any", "[tools]") {
    TemporaryFolder folder;
    const std::string model = write_tiny(folder);
    expect_refused({"run", model, "--devices", "host[0]", "--input-ids", "1", "--simt-seed", "3"},
                   {"--simt-seed 3", "simt:"});
    expect_refused(
        {"run", model, "--devices", "simt:sm_80[0]", "--input-ids", "1", "--simt-seed", "often"},
        {"--simt-seed", "often"});
}

TEST_CASE(
    "a model whose logits are no numbers is refused by what it is, greedy, sampled or as JSON",
    "[tools]") {
    TemporaryFolder folder;
    const std::string model = write_tiny(folder), data = model + ".data";
    {
        const std::vector<float> nan(2000, std::numeric_limits<float>::quiet_NaN());
        std::fstream file(data, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(fs::file_size(data) / 2 / 4 * 4));
        file.write(reinterpret_cast<const char*>(nan.data()),
                   static_cast<std::streamsize>(nan.size() * sizeof(float)));
        REQUIRE(file);
    }
    for (const char* device : {"host[0]", "simt:sm_90a[0]"})
        for (const std::vector<std::string>& more :
             {std::vector<std::string>{}, {"--temperature", "1"}, {"--json"}, {"--check"}}) {
            // One host device is the reference of a check itself.
            if (device == std::string("host[0]") && more == std::vector<std::string>{"--check"})
                continue;
            std::vector<std::string> run = {"run",       model,  "--input-ids",      "1,2,3",
                                            "--devices", device, "--max-new-tokens", "2"};
            run.insert(run.end(), more.begin(), more.end());
            expect_refused(run, {"model.onnx", "of the prompt are not numbers", device, "f32"});
        }
}

TEST_CASE("a batch gives one sequence a prompt, each as it is alone", "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder);
    CommandResult r = run_cleave({"run", model, "--input-ids", "1,2,3,4,5", "--input-ids", "7",
                                  "--max-new-tokens", "6", "--ignore-eos", "--json"});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    Json batch = Json::parse(r.output)["sequences"];
    REQUIRE(batch.size() == 2);
    size_t i = 0;
    for (const char* ids : {"1,2,3,4,5", "7"}) {
        Json alone = Json::parse(run_cleave({"run", model, "--input-ids", ids, "--max-new-tokens",
                                             "6", "--ignore-eos", "--json"})
                                     .output);
        CHECK(batch[i]["token_ids"] == alone["token_ids"]);
        CHECK(batch[i++]["prompt_ids"] == alone["prompt_ids"]);
    }
}

TEST_CASE("dumped logits have a row for each prompt token and each generated token after the first",
          "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder);
    fs::path logits = folder.path() / "logits.f32";
    CommandResult r = run_cleave({"run", model, "--input-ids", "1,2,3", "--max-new-tokens", "4",
                                  "--ignore-eos", "--json", "--dump-logits", logits.string()});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    CHECK(fs::file_size(logits) == (3 + 3) * 64 * sizeof(float));
}

TEST_CASE("the largest difference of two texts' logits is that of all of them, or there is none",
          "[tools]") {
    using Catch::Matchers::Contains;
    const std::vector<float> host{0, 1, 2, 3, 4, 5};
    std::vector<float> logits{0, 1.5f, 2, 3, 1, 5};
    CHECK(tools::compare_logits(logits, host, 3).largest == 3);
    CHECK(tools::compare_logits(logits, host, 3).reason.empty());
    CHECK(tools::compare_logits(logits, host, 3).rows == 2);
    CHECK(tools::compare_logits(logits, host, 3).same_choices == 2);
    CHECK(tools::compare_logits(host, host, 3).divergence == 0);
    // p is 1/2 and 1/2, log q is -log(1 + e) and 1 - log(1 + e).
    const std::vector<float> even{0, 0, 0, 0}, uneven{0, 1, 0, 1};
    const auto difference = tools::compare_logits(uneven, even, 2);
    CHECK(difference.divergence == Approx(2 * (std::log(1 + std::exp(1.0)) - std::log(2) - 0.5)));
    CHECK(difference.same_choices == 0);
    const float infinity = std::numeric_limits<float>::infinity();
    for (float no_number : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
        logits[4] = no_number;
        CHECK_THAT(tools::compare_logits(logits, host, 3).reason, Contains("row 1, column 1"));
        CHECK_THAT(tools::compare_logits(host, logits, 3).reason, Contains("row 1, column 1"));
        CHECK_THAT(tools::compare_logits(logits, logits, 3).reason, Contains("row 1, column 1"));
    }
    logits.resize(3);
    CHECK_THAT(tools::compare_logits(logits, host, 3).reason,
               Contains("3 logits here, 6 on the host"));
    CHECK_FALSE(tools::compare_logits({}, {}, 3).reason.empty());
}

TEST_CASE("a check fails where a logit is no number, and its JSON says which", "[tools]") {
    TemporaryFolder folder;
    const std::string model = write_tiny(folder);
    const importer::Graph graph = importer::import_onnx(model);
    const auto table = std::find_if(
        graph.weights.begin(), graph.weights.end(),
        [](const importer::Weight& w) { return w.shape == std::vector<int64_t>{64, 32}; });
    REQUIRE(table != graph.weights.end());  // lm_head's as well as the embedding
    std::fstream data(model + ".data", std::ios::binary | std::ios::in | std::ios::out);
    data.seekp(static_cast<std::streamoff>(table->data.offset + table->data.length - 4));
    const float infinity = std::numeric_limits<float>::infinity();
    data.write(reinterpret_cast<const char*>(&infinity), sizeof infinity);
    data.close();
    const std::vector<std::string> command{
        "run",         model,   "--devices",        "host[0-1]", "--tp",   "2",
        "--input-ids", "1,2,3", "--max-new-tokens", "1",         "--check"};
    std::vector<std::string> as_json = command;
    as_json.emplace_back("--json");
    const CommandResult json = run_cleave(as_json), text = run_cleave(command);
    for (const CommandResult* r : {&json, &text}) {
        CHECK(r->exit_code == 1);
        CHECK_THAT(r->error, Catch::Matchers::Contains("row 0, column 63"));
    }
    const Json result = Json::parse(json.output);
    CHECK(result["check_max_difference"].is_null());
    REQUIRE(result.contains("check_reason"));
    CHECK_THAT(result["check_reason"].get<std::string>(),
               Catch::Matchers::Contains("row 0, column 63"));
    const Json schema =
        Json::parse(std::ifstream(source_root() / "tools" / "schema" / "run.schema.json"));
    for (const char* key : {"check_max_difference", "check_reason"})
        CHECK(schema_errors(schema["properties"][key], result[key]) == std::vector<std::string>());
}

TEST_CASE("a check compares as many tokens of the host's as the run made, whatever ended it",
          "[tools]") {
    const CommandResult r =
        run_cleave({"run", bundled_model().string(), "--devices", "host[0-1]", "--pp", "2",
                    "--prompt", "Once upon a time", "--prompt", "Lily", "--stop", "the",
                    "--max-new-tokens", "24", "--check", "--json"});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    const Json result = Json::parse(r.output);
    CHECK(result["sequences"][0]["token_ids"].size() < 24);
    CHECK(result["check_max_difference"] < 1e-3);
}

TEST_CASE("what is known by name is listed with figures and sources, and all of it can be planned",
          "[tools]") {
    const Json listed = Json::parse(run_cleave({"devices", "--catalogue", "--json"}).output);
    const Json schema =
        Json::parse(std::ifstream(source_root() / "tools" / "schema" / "catalogue.schema.json"));
    CHECK(schema_errors(schema, listed) == std::vector<std::string>());
    const auto unwrapped = [](const std::string& text) {
        return std::regex_replace(text, std::regex("\\s+"), " ");
    };
    const std::string text = unwrapped(run_cleave({"devices", "--catalogue"}).output);
    for (const Json& device : listed["devices"]) {
        const auto name = device["name"].get<std::string>();
        INFO(name);
        CHECK_THAT(text, Catch::Matchers::Contains(device["source"].get<std::string>()));
        CHECK(run_cleave({"plan", "llama-3.2-1b", "--devices", "sim:" + name + "[0-1]", "--json"})
                  .exit_code == 0);
    }
    for (const Json& shape : listed["shapes"]) {
        INFO(shape);
        CHECK(run_cleave({"plan", shape.get<std::string>(), "--devices", "sim:mi325x[0-7]",
                          "--context", "256", "--prompt-tokens", "64", "--json"})
                  .exit_code == 0);
    }
    for (const Json& fabric : listed["fabrics"]) {
        const CommandResult r =
            run_cleave({"plan", "llama-3-8b", "--devices", "sim:rtx4090[0-7]/4", "--fabric",
                        fabric["name"].get<std::string>(), "--tp", "8", "--pp", "1"});
        INFO(fabric["name"]);
        CHECK(r.exit_code == 0);
        CHECK_THAT(unwrapped(r.output),
                   Catch::Matchers::Contains(
                       fmt::format("times over it are {}, not run",
                                   fabric["published"].get<bool>() ? "modelled" : "estimated")));
    }
}

TEST_CASE("devices tells the rate of every pair of a few devices, and counts the links of many",
          "[tools]") {
    const CommandResult few = run_cleave({"devices", "--devices", "sim:h100[0-1],sim:mi300x[0]"});
    INFO(few.output);
    for (const char* line :
         {"GB/s to        sim:h100[0]  sim:h100[1]  sim:mi300x[0]",
          "sim:h100[1]     nvlink 450            -        pcie 25", "latency of nvlink: 2.50 us"})
        CHECK_THAT(few.output, Catch::Matchers::Contains(line));

    const CommandResult many =
        run_cleave({"devices", "--devices", "sim:h100[0-71],sim:mi300x[0-31]"});
    INFO(many.output);
    std::istringstream lines(many.output);
    int64_t links = 0;
    for (std::string line; std::getline(lines, line);)
        if (line.find(" links of ") != std::string::npos) links += std::stoll(line);
    CHECK(links == 104 * 103);
}

TEST_CASE("run drives cards of both vendors, checks them against the host and traces each step",
          "[tools]") {
    TemporaryFolder folder;
    const std::string trace = (folder.path() / "trace.json").string();
    ::setenv("CLEAVE_CUDA_LIBRARY", CLEAVE_FAKE_CUDA, 1);
    ::setenv("CLEAVE_HIP_LIBRARY", CLEAVE_FAKE_HIP, 1);
    CommandResult r =
        run_cleave({"run", bundled_model().string(), "--devices", "cuda[0],hip[0]", "--tp", "2",
                    "--input-ids", "1,17,230,5", "--max-new-tokens", "3", "--context", "32",
                    "--gpu-compiler", "simt", "--check", "--trace", trace, "--json"});
    for (const char* library : {"NCCL", "NVML", "ROCM_SMI"})
        ::setenv(fmt::format("CLEAVE_{}_LIBRARY", library).c_str(), "libnone.so", 1);
    ::setenv("CLEAVE_RCCL_LIBRARY", CLEAVE_FAKE_NCCL, 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "0,1,2", 1);
    const CommandResult devices = run_cleave({"devices"});
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    const CommandResult described = run_cleave({"devices", "--json"});
    for (const char* library : {"CUDA", "HIP", "NCCL", "RCCL", "NVML", "ROCM_SMI"})
        ::unsetenv(fmt::format("CLEAVE_{}_LIBRARY", library).c_str());
    for (const char* line :
         {"note: cuda[0] (NVIDIA H100 80GB HBM3) and cuda[2] (NVIDIA A40) are unequal",
          "no NVML: not installed (tried libnone.so)",
          "no ROCm SMI: not installed (tried libnone.so)", "304 compute units; RCCL 2.28.9",
          "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f, PCI 0000:3b:00.0;", "GB/s to",
          "latency of xgmi: 4.00 us", "CUDA_VISIBLE_DEVICES=0,1,2: the driver shows",
          "GPU-cccccccccccccccc, PCI 0000:d1:00.0;"})
        CHECK_THAT(devices.output, Catch::Matchers::Contains(line));
    const Json machine = Json::parse(described.output);
    const Json schema =
        Json::parse(std::ifstream(source_root() / "tools" / "schema" / "devices.schema.json"));
    CHECK(schema_errors(schema, machine) == std::vector<std::string>());
    REQUIRE(machine["devices"].size() == 7);
    CHECK(machine["devices"][1]["pci"] == "0000:5e:00.0");
    CHECK(machine["devices"][5]["max_grid_x"] == 4'194'303);
    // What is printed is itself a file for --machine, of cards that may be gone by then.
    const std::string file = (folder.path() / "machine.json").string();
    std::ofstream(file) << described.output;
    const CommandResult planned = run_cleave({"plan", "llama-3-8b", "--machine", file});
    INFO(planned.error);
    CHECK(planned.exit_code == 0);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    const Json result = Json::parse(r.output);
    CHECK(result["devices"] == Json({"cuda[0]", "hip[0]"}));
    CHECK(result["check_max_difference"] < 1e-2);
    CHECK(result["check_max_difference"] > 0);  // the sums' order is another
    std::map<std::pair<int, int>, int> steps;   // by pass and device
    const Json traced = Json::parse(std::ifstream(trace));
    for (const Json& event : traced["traceEvents"])
        if (event["ph"] == "X") ++steps[{event["args"]["pass"], event["tid"]}];
    REQUIRE(steps.size() == 3 * 2);
    CHECK(steps[{1, 0}] == steps[{2, 0}]);
    CHECK(steps[{1, 0}] >= steps[{1, 1}]);
    CHECK(steps[{1, 1}] > 6);
}

TEST_CASE("Ctrl-C ends a run whose kernel on one of a card's logical devices never does",
          "[tools]") {
    ::setenv("CLEAVE_CUDA_LIBRARY", CLEAVE_FAKE_CUDA, 1);
    ::setenv("CLEAVE_FAKE_HANG", "attention", 1);  // and presses Ctrl-C then
    const CommandResult r = run_cleave(
        {"run", bundled_model().string(), "--devices", "cuda[0]/0-1", "--tp", "2", "--input-ids",
         "1,17,230,5", "--max-new-tokens", "3", "--context", "32", "--gpu-compiler", "simt"});
    ::unsetenv("CLEAVE_CUDA_LIBRARY");
    ::unsetenv("CLEAVE_FAKE_HANG");
    CHECK(r.exit_code == 130);
    CHECK_THAT(r.error, Catch::Matchers::Contains("interrupted"));
}

TEST_CASE("a saved plan runs as it is and gives the tokens of a fresh one", "[tools]") {
    TemporaryFolder folder;
    std::string model = write_tiny(folder), plan = (folder.path() / "tiny.plan").string();
    REQUIRE(
        run_cleave({"plan", model, "--devices", "host[0-3]", "--tp", "2", "--pp", "2", "-o", plan})
            .exit_code == 0);
    CommandResult saved = run_cleave(
        {"run", plan, "--input-ids", "1,2", "--max-new-tokens", "4", "--ignore-eos", "--json"});
    INFO(saved.error);
    REQUIRE(saved.exit_code == 0);
    CommandResult fresh = run_cleave(
        {"run", model, "--input-ids", "1,2", "--max-new-tokens", "4", "--ignore-eos", "--json"});
    CHECK(Json::parse(saved.output)["token_ids"] == Json::parse(fresh.output)["token_ids"]);
    expect_refused({"run", plan, "--devices", "host", "--input-ids", "1"},
                   {"a plan file is executed as it is"});
}

TEST_CASE("a plan that reads files outside its folder names where they are", "[tools]") {
    TemporaryFolder models, plans;
    const std::string model = write_tiny(models);
    const auto error_of = [&](const fs::path& plan) {
        REQUIRE(run_cleave({"plan", model, "--devices", "host", "-o", plan.string()}).exit_code ==
                0);
        const CommandResult run =
            run_cleave({"run", plan.string(), "--input-ids", "1", "--max-new-tokens", "1"});
        REQUIRE(run.exit_code == 0);
        return run.error;
    };
    CHECK_THAT(error_of(plans.path() / "far.plan"),
               Catch::Matchers::Contains("far.plan: reads weights from " +
                                         fs::canonical(model).parent_path().string()));
    CHECK_THAT(error_of(fs::path(model).parent_path() / "near.plan"),
               !Catch::Matchers::Contains("reads weights"));
}

TEST_CASE("a plan is the same byte for byte when it is made again", "[tools]") {
    std::vector<std::string> arguments{"plan", "llama-3-8b", "--devices", "sim:l40s[0-2]",
                                       "--json"};
    std::string first = run_cleave(arguments).output;
    CHECK(!first.empty());
    CHECK(run_cleave(arguments).output == first);
}

TEST_CASE("the progress of an upload says how much of how much and how fast", "[tools]") {
    using tools::progress_text;
    const std::string half(15, '#'), rest(15, '.'), none(30, '.'), all(30, '#');
    CHECK(progress_text("loading weights", {2'000'000'000, 4'000'000'000, true, 0, 0.5}) ==
          "loading weights [" + half + rest + "] 2.00 GB of 4.00 GB, 4.00 GB/s");
    // What was done before anybody looked at the clock was not read in that time.
    CHECK(progress_text("loading weights", {4'000'000, 4'000'000, true, 3'000'000, 2}) ==
          "loading weights [" + all + "] 4.00 MB of 4.00 MB, 500 kB/s");
    CHECK(progress_text("loading weights", {0, 4'000'000, true, 0, 0.1}) ==
          "loading weights [" + none + "] 0 B of 4.00 MB");
    CHECK(progress_text("compiling kernels", {3, 6, false, 0, 9}) ==
          "compiling kernels [" + half + rest + "] 3 of 6");
}
