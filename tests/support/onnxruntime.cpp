// SPDX-License-Identifier: Apache-2.0
#include "tests/support/onnxruntime.h"

#include <cmath>
#include <cstdlib>
#include <fstream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {

namespace fs = std::filesystem;

namespace {

std::vector<float> read_floats(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<float> values(fs::file_size(path) / sizeof(float));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    return values;
}

// "1,2,3"
std::vector<size_t> ids_of(const std::string& joined) {
    return nlohmann::json::parse("[" + joined + "]");
}

}  // namespace

Peer run_onnxruntime(const char* python, const fs::path& model, const std::string& ids,
                     const std::string& new_tokens, const fs::path& folder, bool as_written) {
    const fs::path script = source_root() / "tests" / "support" / "onnxruntime_logits.py";
    const fs::path logits = folder / "peer.f32", output = folder / "peer.txt";
    std::string line = fmt::format("'{}' '{}' '{}' {} {} '{}' {} >'{}'", python, script.string(),
                                   model.string(), ids, new_tokens, logits.string(),
                                   as_written ? "--as-written" : "", output.string());
    REQUIRE(std::system(line.c_str()) == 0);
    Peer peer;
    std::ifstream(output) >> peer.tokens;
    peer.logits = read_floats(logits);
    return peer;
}

Peer run_folder(const char* python, const fs::path& exported, const std::string& ids,
                const std::string& new_tokens, const fs::path& folder) {
    const fs::path logits = folder / "exported.f32", output = folder / "exported.txt";
    const std::string line = fmt::format(
        "'{}' '{}' --input-ids {} --max-new-tokens {} --dump-logits '{}' >'{}'", python,
        (exported / "run.py").string(), ids, new_tokens, logits.string(), output.string());
    REQUIRE(std::system(line.c_str()) == 0);
    std::ifstream file(output);
    const nlohmann::json json = nlohmann::json::parse(file);
    Peer peer;
    for (const nlohmann::json& sequence :
         json.contains("sequences") ? json["sequences"] : nlohmann::json::array({json})) {
        const std::vector<int32_t> tokens = sequence["token_ids"];
        peer.tokens +=
            (peer.tokens.empty() ? "" : "\n") + fmt::format("{}", fmt::join(tokens, ","));
    }
    peer.logits = read_floats(logits);
    return peer;
}

std::string run_genai(const char* python, const fs::path& exported, const std::string& ids,
                      const std::string& new_tokens, const fs::path& folder) {
    const fs::path script = source_root() / "tests" / "support" / "genai_tokens.py";
    const fs::path output = folder / "genai.txt";
    const std::string line = fmt::format("'{}' '{}' '{}' {} {} >'{}'", python, script.string(),
                                         exported.string(), ids, new_tokens, output.string());
    REQUIRE(std::system(line.c_str()) == 0);
    std::string tokens;
    std::ifstream(output) >> tokens;
    return tokens;
}

Peer run_ours(const fs::path& model, const std::vector<std::string>& devices,
              const std::string& ids, const std::string& new_tokens, const fs::path& folder) {
    const fs::path logits = folder / "ours.f32";
    std::vector<std::string> arguments{
        "run",      model.string(),  "--input-ids",   ids,        "--max-new-tokens",
        new_tokens, "--ignore-eos",  "--compute",
        "exact",  // the peer's activations are f32
        "--json",   "--dump-logits", logits.string(), "--devices"};
    arguments.insert(arguments.end(), devices.begin(), devices.end());
    CommandResult r = run_cleave(arguments);
    INFO(devices.front() << " " << (devices.size() > 1 ? devices[1] + devices[2] : "") << r.error);
    REQUIRE(r.exit_code == 0);
    const std::vector<int32_t> tokens = nlohmann::json::parse(r.output)["token_ids"];
    return {fmt::format("{}", fmt::join(tokens, ",")), read_floats(logits)};
}

void check_same(const Peer& ours, const Peer& peer, double tolerance) {
    CHECK(ours.tokens == peer.tokens);
    CHECK(largest_difference(ours.logits, peer.logits) < tolerance);
}

void check_same_but_for_ties(const Peer& ours, const Peer& peer, const std::string& prompt,
                             double tolerance) {
    const std::vector<size_t> mine = ids_of(ours.tokens), other = ids_of(peer.tokens);
    const size_t prompt_tokens = ids_of(prompt).size();
    REQUIRE(mine.size() == other.size());
    REQUIRE(ours.logits.size() == peer.logits.size());
    const size_t rows = prompt_tokens + mine.size() - 1;
    const size_t vocabulary = peer.logits.size() / rows;
    size_t same = 0;
    while (same < mine.size() && mine[same] == other[same]) ++same;
    // The row that chose the first token that differs is the last with the same tokens before it.
    const size_t shared = std::min(rows, prompt_tokens + same) * vocabulary;
    auto until = [shared](const std::vector<float>& logits) {
        return std::vector<float>(logits.begin(),
                                  logits.begin() + static_cast<std::ptrdiff_t>(shared));
    };
    CHECK(largest_difference(until(ours.logits), until(peer.logits)) < tolerance);
    if (same == mine.size()) return;
    INFO("the first " << same << " tokens are the same; then " << mine[same] << " and "
                      << other[same]);
    const float* row = &peer.logits[(prompt_tokens + same - 1) * vocabulary];
    CHECK(row[other[same]] - row[mine[same]] < 2 * tolerance);
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - b[i]));
    return largest;
}

}  // namespace cleave::test
