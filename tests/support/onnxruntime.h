// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime as a peer that shares nothing with ours, run by the Python that CLEAVE_TEST_PYTHON names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cleave::test {

struct Peer {
    std::string tokens;         // new ones, joined by commas
    std::vector<float> logits;  // of the prompt's tokens, then of the new ones but the last
};

// Fails the test when Python does. `as_written`: without the optimiser.
Peer run_onnxruntime(const char* python, const std::filesystem::path& model, const std::string& ids,
                     const std::string& new_tokens, const std::filesystem::path& folder,
                     bool as_written = false);

// The same by the command, on devices such as {"host[0-1]", "--tp", "2"}.
Peer run_ours(const std::filesystem::path& model, const std::vector<std::string>& devices,
              const std::string& ids, const std::string& new_tokens,
              const std::filesystem::path& folder);

// What `cleave export --format ort` wrote to `exported`, by its own runner; several prompts: "1,2 --input-ids 3,4", and
// then a line of tokens for each.
Peer run_folder(const char* python, const std::filesystem::path& exported, const std::string& ids,
                const std::string& new_tokens, const std::filesystem::path& folder);

// The same folder by onnxruntime-genai: its new tokens.
std::string run_genai(const char* python, const std::filesystem::path& exported,
                      const std::string& ids, const std::string& new_tokens,
                      const std::filesystem::path& folder);

double largest_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace cleave::test
