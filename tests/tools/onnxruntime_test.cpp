// SPDX-License-Identifier: Apache-2.0
// The bundled model against ONNX Runtime, an implementation that shares nothing with ours, through the command as users
// type it, on every shape of devices.
#include <cmath>
#include <cstdlib>
#include <fstream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kIds = "1,40,7,99,3,3,120,64,5,77,31,200,513,17,800,45";
constexpr const char* kNewTokens = "24";

std::vector<float> read_floats(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<float> values(fs::file_size(path) / sizeof(float));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    return values;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - b[i]));
    return largest;
}

struct Peer {
    std::string tokens;  // joined by commas
    std::vector<float> logits;
};

Peer run_onnxruntime(const char* python, const fs::path& model, const fs::path& folder) {
    const fs::path script = source_root() / "tests" / "support" / "onnxruntime_logits.py";
    const fs::path logits = folder / "peer.f32", output = folder / "peer.txt";
    std::string line =
        fmt::format("'{}' '{}' '{}' {} {} '{}' >'{}'", python, script.string(), model.string(),
                    kIds, kNewTokens, logits.string(), output.string());
    REQUIRE(std::system(line.c_str()) == 0);
    Peer peer;
    std::ifstream(output) >> peer.tokens;
    peer.logits = read_floats(logits);
    return peer;
}

}  // namespace

TEST_CASE("the bundled model gives ONNX Runtime's logits and tokens on any devices", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python)
        CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python with onnxruntime (tools/test sets it)");
    TemporaryFolder folder;
    const fs::path model = source_root() / "models" / "bundled" / "model.onnx",
                   logits = folder.path() / "ours.f32";
    Peer peer = run_onnxruntime(python, model, folder.path());
    const std::vector<std::vector<std::string>> shapes{{"host"},
                                                       {"host[0-1]", "--tp", "2"},
                                                       {"host[0-1]", "--pp", "2"},
                                                       {"host[0-3]", "--tp", "2", "--pp", "2"},
                                                       {"host[0-2]", "--tp", "3"},
                                                       {"host[0-7]", "--tp", "8"}};
    for (const std::vector<std::string>& shape : shapes) {
        std::vector<std::string> arguments{"run",
                                           model.string(),
                                           "--input-ids",
                                           kIds,
                                           "--max-new-tokens",
                                           kNewTokens,
                                           "--ignore-eos",
                                           "--json",
                                           "--dump-logits",
                                           logits.string(),
                                           "--devices"};
        arguments.insert(arguments.end(), shape.begin(), shape.end());
        CommandResult r = run_cleave(arguments);
        INFO(shape.front() << " " << (shape.size() > 1 ? shape[1] + shape[2] : "") << r.error);
        REQUIRE(r.exit_code == 0);
        std::vector<int32_t> tokens = Json::parse(r.output)["token_ids"];
        CHECK(fmt::format("{}", fmt::join(tokens, ",")) == peer.tokens);
        CHECK(largest_difference(read_floats(logits), peer.logits) < 1e-3);
    }
}
