// SPDX-License-Identifier: Apache-2.0
// `cleave import`, `cleave doctor` and `cleave emit`: what they print, and that their JSON is what
// the published schemas say.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/onnx_writer.h"
#include "runtime/base/environment.h"
#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

Json schema(const std::string& name) {
    return Json::parse(std::ifstream(source_root() / "tools" / "schema" / (name + ".schema.json")));
}

// Kernels of many tokens multiply by the arch's matrix instruction, and no other does: how many
// there are of both.
std::pair<int, int> check_matrix_instructions(const Json& emitted, const std::string& family) {
    int with = 0, without = 0;
    for (const Json& kernel : emitted["kernels"]) {
        INFO(kernel.dump(1));
        const auto fused = kernel["fused"].get<std::vector<std::string>>();
        const auto fuses = [&](const char* operation) {
            return std::find(fused.begin(), fused.end(), operation) != fused.end();
        };
        const int tokens = kernel["tile"]["tokens"];
        const bool expected = (fuses("linear") && tokens > 8) || (fuses("attention") && tokens > 1);
        const Json& counts = kernel["matrix_instructions"];
        CHECK(counts.empty() != expected);
        for (const auto& [name, count] : counts.items()) {
            CHECK(name.starts_with(family));
            CHECK(count > 0);
        }
        CHECK_FALSE(kernel["matrix_instructions_counted_in"] == "");
        if (kernel["phase"] == "decode") CHECK(counts.empty());
        ++(expected ? with : without);
    }
    return {with, without};
}

// What the command prints with --json, checked against the schema of that name.
Json checked_json(const std::string& name, std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const CommandResult r = run_cleave(arguments);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    Json json = Json::parse(r.output);
    CHECK(schema_errors(schema(name), json) == std::vector<std::string>());
    return json;
}

std::string write_model(const fs::path& folder) {
    models::Shape shape = *models::find_shape("stories-260k");
    shape.config.num_layers = 2;
    return models::write_onnx_llama(shape, folder.string(), {});
}

}  // namespace

TEST_CASE("import prints config, layers, types, exporter, what was folded and what stayed opaque",
          "[tools]") {
    TemporaryFolder folder;
    const std::string model = write_model(folder.path());
    const Json json = checked_json("import", {"import", model});
    CHECK(json["config"]["num_layers"] == 2);
    CHECK(json["config"]["rope_theta"] == 10000.0);
    REQUIRE(json["layers"].size() == 1);  // both layers are alike
    CHECK(json["layers"][0]["last"] == 1);
    CHECK(json["layers"][0]["operators"].size() == 16);
    CHECK(json["dtype"] == "f32");
    CHECK(json["weight_bytes_by_storage"]["f32"] == json["weight_bytes"]);
    CHECK(json["opaque"].empty());
    CHECK_THAT(json["exporter"].get<std::string>(), Contains("cleave"));
    CHECK(!json["folded"].empty());
    const CommandResult text = run_cleave({"import", model});
    for (const char* piece :
         {"exporter", "layers 0-1", "q_proj 64 -> 64", "theta 10000", "8 heads over 4", "f32",
          "opaque", "none", "nodes read", "model.onnx.data"})
        CHECK_THAT(text.output, Contains(piece));
}

TEST_CASE("import describes every exporter's file, and its JSON follows the schema", "[tools]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const fs::path data = shared_data();
    struct Expected {
        const char* file;
        const char* text;
    };
    for (const Expected& e : std::initializer_list<Expected>{
             {"models/stories260K/legacy_op17_past_sdpa.onnx", "TorchScript"},
             {"models/stories260K/dynamo_op23_past_sdpa.onnx", "dynamo"},
             {"models/stories260K/derived/decoder_model_merged.onnx",
              "took the branch that reads the past"},
             {"models/stories260K/mobius_default/model.onnx", "inlined functions"},
             {"models/rand_gqa16/genai0114_int4_cpu/model.onnx", "MatMulNBits, blocks of 32"},
             {"models/stories260K/derived/legacy17_dynamic_int8.onnx", "MatMulInteger"},
             {"models/mistral_sw8/dynamo_op23_past_sdpa.onnx", "window 8"},
             {"models/qwen2/genai018_fp32_cpu/model.onnx", "+ bias"},
             {"models/qwen3/dynamo_op23_past_sdpa.onnx", "q_norm"},
             {"models/gemma/legacy_op17_past_sdpa.onnx", "gelu_tanh"},
             {"onnx-node-tests/test_rms_normalization_2d_axis0/model.onnx", "no Llama"}}) {
        INFO(e.file);
        checked_json("import", {"import", (data / e.file).string(), "--weights", "none"});
        const CommandResult r =
            run_cleave({"import", (data / e.file).string(), "--weights", "none"});
        CHECK(r.exit_code == 0);
        CHECK_THAT(r.output, Contains(e.text));
    }
}

TEST_CASE("doctor says what was found, where, in which version, and what was tried", "[tools]") {
    const Json json = checked_json("doctor", {"doctor"});
    CHECK(json["ok"] == true);  // the tests need the host compiler themselves
    for (const Json& f : json["libraries"]) {
        INFO(f["name"]);
        CHECK(f["found"] == true);
        CHECK(!f["path"].get<std::string>().empty());
    }
    CHECK(json["libraries"][0]["version"].get<std::string>().find("19") != std::string::npos);
    for (const char* name :
         {"CUDA driver", "NVRTC", "NCCL", "HIP runtime", "hipRTC", "RCCL", "Clang for AMD"}) {
        INFO(name);
        bool listed = false;
        for (const Json& f : json["gpus"]) {
            if (f["name"] != name) continue;
            listed = true;
            CHECK(f["tried"].size() >= 2);
            CHECK(f["found"] == !f["path"].get<std::string>().empty());
            CHECK(f["found"] == f["fix"].get<std::string>().empty());
        }
        CHECK(listed);
    }
    CHECK(json["cpu"]["cores"].get<int>() > 0);
    CHECK(!json["caches"].empty());
    CHECK(json["environment"].size() == environment_variables().size());
    ::setenv("CLEAVE_GPU_GRAPHS", "0", 1);
    const CommandResult text = run_cleave({"doctor"});
    ::unsetenv("CLEAVE_GPU_GRAPHS");
    CHECK_THAT(text.output, Contains("CLEAVE_GPU_GRAPHS=0") && Contains("CLEAVE_GPU_OVERLAP"));
    for (const char* piece :
         {"host compiler", "METIS", "ONNX", "Protobuf", "CUDA driver", "HIP runtime", "cache"})
        CHECK_THAT(text.output + text.error, Contains(piece));
}

TEST_CASE("doctor says of each GPU compiler where its file lies and what it compiles for",
          "[tools]") {
    const Json json = checked_json("doctor", {"doctor"});
    std::string hip;  // version of the runtime
    for (const Json& f : json["gpus"])
        if (f["name"] == "HIP runtime") hip = f["version"];
    int found = 0;
    for (const auto& [name, arch] :
         {std::pair{"NVRTC", "sm_90"}, {"hipRTC", "gfx906"}, {"Clang for AMD", "gfx942"}})
        for (const Json& f : json["gpus"]) {
            if (f["name"] != name || f["found"] == false) continue;
            INFO(f.dump(1));
            const std::string version = f["version"], path = f["path"];
            CHECK(fs::path(path).is_absolute());
            CHECK(fs::exists(path));
            CHECK_THAT(version, Contains(", compiles for ") && Contains(arch));
            if (path.find("libamdhip64") != std::string::npos)
                CHECK_THAT(version, Contains(" of HIP " + hip + ","));
            ++found;
        }
    CHECK(found > 0);  // Clang is where the tests are
}

TEST_CASE("doctor says that a variable names no compiler, and takes no other", "[tools]") {
    TemporaryFolder folder;
    const fs::path log = folder.path() / "log";
    const std::string command = fmt::format(
        "CLEAVE_NVRTC=/nowhere/nvrtc CLEAVE_HIPRTC=/nowhere/hip '{}' doctor --json > '{}'",
        CLEAVE_BINARY, log.string());
    REQUIRE(std::system(command.c_str()) == 0);
    const Json json = Json::parse(read_file(log));
    int told = 0;
    for (const Json& f : json["gpus"])
        for (const auto& [name, words] :
             {std::pair{"NVRTC", "CLEAVE_NVRTC=/nowhere/nvrtc gives no NVRTC"},
              {"hipRTC", "CLEAVE_HIPRTC=/nowhere/hip gives no hipRTC"}}) {
            if (f["name"] != name) continue;
            INFO(f.dump(1));
            CHECK(f["found"] == false);
            CHECK_THAT(f["reason"].get<std::string>(), Contains(words));
            ++told;
        }
    CHECK(told == 2);
}

TEST_CASE("a machine file that is no JSON is refused with its line, in plain words", "[tools]") {
    TemporaryFolder folder;
    const std::string path = (folder.path() / "machine.json").string();
    for (const auto& [text, where] : {std::pair{"{\n  \"devices\": [\n    {,\n", "line 3"},
                                      {"", "line 1"},
                                      {"{\"a\": 1}}", "line 1"},
                                      {"[1, 2", "line 1"},
                                      {"\xff\xfe", "line 1"}}) {
        std::ofstream(path) << text;
        const CommandResult r = run_cleave({"plan", "stories-260k", "--machine", path});
        INFO(r.error);
        CHECK(r.exit_code == 1);
        CHECK_THAT(r.error, Contains(path) && Contains(where) && Contains("no JSON") &&
                                Contains("cleave devices -o"));
        CHECK(r.error.find("json.exception") == std::string::npos);
    }
}

TEST_CASE("a mistyped shape name is answered with the nearest one", "[tools]") {
    for (const auto& [typed, meant] : {std::pair{"llama3-8b", "llama-3-8b"},
                                       {"Llama-2-7B", "llama-2-7b"},
                                       {"tinylama-1.1b", "tinyllama-1.1b"},
                                       {"llama-3.1-450b", "llama-3.1-405b"},
                                       {"stories260k", "stories-260k"}}) {
        const CommandResult r = run_cleave({"plan", typed});
        INFO(r.error);
        CHECK(r.exit_code == 1);
        CHECK_THAT(r.error, Contains(std::string("did you mean ") + meant + "?"));
    }
    CHECK(run_cleave({"plan", "bert-base"}).error.find("did you mean") == std::string::npos);
    CHECK_THAT(run_cleave({"model", "llama3-8b", "-o", "x"}).error,
               Contains("did you mean llama-3-8b?"));
}

TEST_CASE(
    "emit --compile --json gives what is claimed and measured, and the limit that shrank a tile",
    "[tools]") {
    TemporaryFolder folder;
    const std::string machine = (folder.path() / "machine.json").string();
    const auto write_machine = [&](int64_t max_grid_y) {
        Json device = {{"name", "sim:small[0]"},
                       {"kind", "sim"},
                       {"arch", "gfx942"},
                       {"memory_bytes", int64_t{8} << 30},
                       {"memory_bandwidth", 1'000'000'000'000},
                       {"flops_f32", 10'000'000'000'000},
                       {"shared_memory_per_block", 20'000},
                       {"warp_width", 64},
                       {"num_compute_units", 4},
                       {"max_grid_y", max_grid_y}};
        std::ofstream(machine) << Json{{"devices", Json::array({device})}};
    };
    write_machine(65535);
    const std::vector<std::string> emit = {"emit",      "stories-260k",   "--machine", machine,
                                           "--compile", "--gpu-compiler", "clang"};
    const Json json = checked_json("emit", emit);
    REQUIRE(json["kernels"].size() > 8);
    int shrunk = 0;
    for (const Json& kernel : json["kernels"]) {
        INFO(kernel.dump(1));
        CHECK(kernel["measured_shared_memory_bytes"] >= kernel["claimed_shared_memory_bytes"]);
        CHECK(kernel["measured_shared_memory_bytes"] <= kernel["limit_shared_memory_bytes"]);
        CHECK(kernel["registers"] > 0);
        CHECK_THAT(kernel["compiler"].get<std::string>(), Contains("clang"));
        if (!kernel.contains("tile_limited_by")) continue;
        ++shrunk;
        const Json& by = kernel["tile_limited_by"];
        CHECK(by["limit"] == "shared_memory_per_block");
        CHECK(by["available"] == 20'000);
        CHECK(by["need"] == by["preferred"]["shared_memory_bytes"]);
        CHECK(kernel["tile"]["tokens"].get<int>() * kernel["tile"]["rows"].get<int>() *
                  kernel["tile"]["depth"].get<int>() <
              by["preferred"]["tokens"].get<int>() * by["preferred"]["rows"].get<int>() *
                  by["preferred"]["depth"].get<int>());
    }
    CHECK(shrunk > 0);
    // f32: q, k and v; attention; o; gate and up; down.
    const auto [with, without] = check_matrix_instructions(json, "v_mfma_f32_16x16x4_f32");
    CHECK((with == 5 && without >= 7));
    const CommandResult text =
        run_cleave({"emit", "stories-260k", "--machine", machine, "--no-source"});
    CHECK_THAT(text.output, Contains("a limit changed the tile of prefill from 64 tokens") &&
                                Contains("the device has 20000"));
    // Eight heads in y do not fit seven.
    write_machine(7);
    const CommandResult refused = run_cleave({"emit", "stories-260k", "--machine", machine});
    CHECK(refused.exit_code == 1);
    CHECK_THAT(refused.error, Contains("max_grid_y") && Contains("sim:small[0]"));
}

TEST_CASE("what nobody measured of a kernel has no figure, in JSON and in text", "[tools]") {
    for (const auto& [device, compiled] : {std::pair{"simt:gfx90a", true},
                                           {"simt:sm_90a", true},
                                           {"host", true},
                                           {"sim:mi300x", false}}) {
        CAPTURE(device, compiled);
        std::vector<std::string> emit = {"emit", "stories-260k", "--devices", device,
                                         "--no-source"};
        if (compiled) emit.emplace_back("--compile");
        const Json json = checked_json("emit", emit);
        REQUIRE(json["kernels"].size() > 8);
        for (const Json& kernel : json["kernels"]) {
            INFO(kernel.dump(1));
            CHECK((kernel.contains("registers") && kernel["registers"].is_null()));
            CHECK((kernel.contains("spill_bytes") && kernel["spill_bytes"].is_null()));
            CHECK(kernel["matrix_instructions"] == Json::object());
            CHECK(kernel["matrix_instructions_counted_in"] == "");
        }
        const std::string text = run_cleave(emit).output;
        INFO(text);
        CHECK(text.find(", 0 bytes of code") == std::string::npos);
        CHECK((text.find(", not measured (runs on the CPU), clang") != std::string::npos) ==
              std::string_view(device).starts_with("simt:"));
    }
}

TEST_CASE(
    "emit's text names each kernel's phases as its JSON does, and tiles only where there are any",
    "[tools]") {
    for (const char* devices : {"simt:sm_90a[0-1]", "host"}) {
        CAPTURE(devices);
        const std::vector<std::string> emit = {"emit", "stories-260k", "--devices", devices,
                                               "--no-source"};
        const Json json = checked_json("emit", emit);
        std::map<std::string, std::set<std::string>> phases;
        int with = 0, without = 0;
        for (const Json& kernel : json["kernels"]) {
            INFO(kernel.dump(1));
            phases[kernel["name"]].insert(kernel["phase"].get<std::string>());
            CHECK((kernel.contains("tile") &&
                   (kernel["tile"].is_null() || kernel["tile"]["threads"] > 0)));
            ++(kernel["tile"].is_null() ? without : with);
        }
        // Hosts have none at all; of GPUs those that exchange have none.
        CHECK((with > 0) == std::string_view(devices).starts_with("simt:"));
        CHECK(without > 0);
        const std::string text = run_cleave(emit).output;
        INFO(text);
        for (const auto& [name, of] : phases)
            CHECK_THAT(text,
                       Contains(fmt::format("  {} ({}): ", name,
                                            of.size() == 2 ? "prefill and decode" : *of.begin())));
    }
}

// A copy of the command finds nothing beside it, and its worker nothing anywhere.
TEST_CASE("without hipRTC and LLVM emit --compile lists every name tried of both", "[tools]") {
    TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "bin" / "cleave",
                                log = folder.path() / "log", worker = folder.path() / "worker";
    std::filesystem::create_directory(copy.parent_path());
    std::filesystem::copy_file(CLEAVE_BINARY, copy);
    const std::string real =
        (std::filesystem::path(CLEAVE_BINARY).parent_path() / "cleave_compile_worker").string();
    std::ofstream(worker) << "#!/bin/sh\nexec '" << real << "' \"$1\" libone.so libtwo.so\n";
    std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
    const std::string command = fmt::format(
        "CLEAVE_COMPILE_WORKER='{}' CLEAVE_LLVM_LIBRARY= LD_LIBRARY_PATH= '{}' emit "
        "stories-260k --devices sim:mi300x --compile > '{}' 2>&1",
        worker.string(), copy.string(), log.string());
    CHECK(std::system(command.c_str()) != 0);
    const std::string message = read_file(log);
    INFO(message);
    size_t at = 0;
    for (const std::string& piece :
         {std::string("no compiler for gfx942: hipRTC was not found: libone.so"),
          std::string("libtwo.so"), (folder.path() / "lib" / "libcleave_llvm.so").string(),
          (folder.path() / "bin" / "libcleave_llvm.so").string(),
          std::string("; libcleave_llvm.so: "), std::string("install libclang-cpp19")}) {
        CAPTURE(piece);
        at = message.find(piece, at);
        REQUIRE(at != std::string::npos);
    }
}

TEST_CASE("emit --compile --json counts the matrix instructions of sm_90a where they should be",
          "[tools]") {
    const Json found = Json::parse(run_cleave({"doctor", "--json"}).output);
    for (const Json& library : found["gpus"])
        if (library["name"] == "NVRTC" && library["found"] == false)
            CLEAVE_SKIP("no NVRTC: " + library["reason"].get<std::string>());
    const Json json =
        checked_json("emit", {"emit", "stories-260k", "--devices", "sim:h100", "--dtype", "bf16",
                              "--compile", "--gpu-compiler", "nvrtc"});
    const auto [with, without] = check_matrix_instructions(json, "wgmma.mma_async");
    CHECK((with == 5 && without >= 7));
}

TEST_CASE("no name from a file begins a line of an error as Cleave's own do", "[tools]") {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "model.gguf").string();
    const std::string architecture = "x\ncleave: all is well";
    const std::string key = "general.architecture";
    const auto number = [](auto value) {
        return std::string(reinterpret_cast<const char*>(&value), sizeof value);
    };
    std::ofstream(path, std::ios::binary)
        << "GGUF" << number(uint32_t{3}) << number(uint64_t{0}) << number(uint64_t{1})
        << number(uint64_t{key.size()}) << key << number(uint32_t{8})
        << number(uint64_t{architecture.size()}) << architecture << std::string(64, '\0');
    const CommandResult result = run_cleave({"import", path});
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.error, Contains("all is well"));
    CHECK_THAT(result.error, !Contains("\ncleave:"));
}
