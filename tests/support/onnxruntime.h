// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime as a peer that shares nothing with ours, run by the Python that CLEAVE_TEST_PYTHON
// names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cleave::test {

// A prompt for the bundled model.
inline constexpr const char* kPeerPrompt = "1,40,7,99,3,3,120,64,5,77,31,200,513,17,800,45";
inline constexpr const char* kNoOnnxRuntime =
    "CLEAVE_TEST_PYTHON names no Python with onnxruntime (tools/test sets it)";

// What --devices and the flags behind it take: {"host[0-1]", "--tp", "2"}.
using Devices = std::vector<std::string>;

struct Peer {
    std::string tokens;         // new ones, joined by commas
    std::vector<float> logits;  // of the prompt's tokens, then of the new ones but the last
};

// Fails the test when Python does. `as_written`: without the optimiser.
Peer run_onnxruntime(const char* python, const std::filesystem::path& model, const std::string& ids,
                     const std::string& new_tokens, const std::filesystem::path& folder,
                     bool as_written = false);

// The same by the command.
Peer run_ours(const std::filesystem::path& model, const Devices& devices, const std::string& ids,
              const std::string& new_tokens, const std::filesystem::path& folder);

// What `cleave export --format ort` wrote to `exported`, by its own runner; several prompts: "1,2
// --input-ids 3,4", and then a line of tokens for each.
Peer run_folder(const char* python, const std::filesystem::path& exported, const std::string& ids,
                const std::string& new_tokens, const std::filesystem::path& folder);

// The same folder by onnxruntime-genai: its new tokens.
std::string run_genai(const char* python, const std::filesystem::path& exported,
                      const std::string& ids, const std::string& new_tokens,
                      const std::filesystem::path& folder);

// The same tokens, and logits within `tolerance`.
void check_same(const Peer& ours, const Peer& peer, double tolerance = 1e-3);

// The same up to the first token where two logits of the peer lie so close that errors within
// `tolerance` decide: from there on the texts differ, and logits cannot be compared.
void check_same_but_for_ties(const Peer& ours, const Peer& peer, const std::string& prompt,
                             double tolerance);

double largest_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace cleave::test
