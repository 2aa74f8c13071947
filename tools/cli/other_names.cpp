// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/other_names.h"

#include <algorithm>
#include <array>

namespace cleave::tools {
namespace {

constexpr OtherName kOptionNames[] = {
    {"-m", "llama.cpp", "MODEL"},
    {"--model", "llama.cpp and vLLM", "MODEL"},
    {"-p", "llama.cpp", "--prompt"},
    {"-f", "llama.cpp", "--prompt-file"},
    {"--file", "llama.cpp", "--prompt-file"},
    {"-n", "llama.cpp", "--max-new-tokens"},
    {"--predict", "llama.cpp", "--max-new-tokens"},
    {"--n-predict", "llama.cpp", "--max-new-tokens"},
    {"--max-tokens", "OpenAI and vLLM", "--max-new-tokens"},
    {"-c", "llama.cpp", "--context"},
    {"--ctx-size", "llama.cpp", "--context"},
    {"--max-model-len", "vLLM", "--context"},
    {"--context-length", "SGLang", "--context"},
    {"-tp", "vLLM", "--tp"},
    {"--tensor-parallel-size", "vLLM", "--tp"},
    {"--tp-size", "SGLang", "--tp"},
    {"-pp", "vLLM", "--pp"},
    {"--pipeline-parallel-size", "vLLM", "--pp"},
    {"--pp-size", "SGLang", "--pp"},
    {"-dp", "vLLM", "--replicas"},
    {"--data-parallel-size", "vLLM", "--replicas"},
    {"--max-num-seqs", "vLLM", "--batch"},
    {"-np", "llama.cpp", "--batch"},
    {"--parallel", "llama.cpp", "--batch"},
    {"--max-num-batched-tokens", "vLLM", "--prefill-chunk"},
    {"--chunked-prefill-size", "SGLang", "--prefill-chunk"},
    {"-ub", "llama.cpp", "--prefill-chunk"},
    {"--ubatch-size", "llama.cpp", "--prefill-chunk"},
    {"--kv-cache-dtype", "vLLM", "--kv-dtype"},
    {"-t", "llama.cpp", "--threads"},
    {"--temp", "llama.cpp", "--temperature"},
    {"-s", "llama.cpp", "--seed"},
    {"--repeat-penalty", "llama.cpp", "--repetition-penalty"},
    {"-r", "llama.cpp", "--stop"},
    {"--reverse-prompt", "llama.cpp", "--stop"},
    {"-sys", "llama.cpp", "--system"},
    {"--system-prompt", "llama.cpp", "--system"},
    {"--served-model-name", "vLLM", "--name"},
    {"-a", "llama.cpp", "--name"},
    {"--alias", "llama.cpp", "--name"},
};

// GGUF's blocks of 32 with one scale are what int8 and int4 are here.
constexpr OtherType kTypeNames[] = {
    {"fp32", "vLLM", DType::kF32},         {"float32", "PyTorch", DType::kF32},
    {"float", "vLLM", DType::kF32},        {"fp16", "TensorRT", DType::kF16},
    {"float16", "PyTorch", DType::kF16},   {"half", "vLLM", DType::kF16},
    {"bfloat16", "PyTorch", DType::kBF16}, {"fp8", "vLLM", DType::kF8E4M3},
    {"fp8_e4m3", "vLLM", DType::kF8E4M3},  {"float8_e4m3fn", "PyTorch", DType::kF8E4M3},
    {"i8", "IREE", DType::kInt8},          {"q8_0", "llama.cpp", DType::kInt8},
    {"i4", "IREE", DType::kInt4},          {"q4_0", "llama.cpp", DType::kInt4},
};

}  // namespace

std::span<const OtherName> other_names() { return kOptionNames; }

bool is_taken_by(const OtherName& name, const CommandFacts& command) {
    const auto has = [&](std::string_view word) {
        return std::any_of(command.options.begin(), command.options.end(),
                           [&](const OptionFacts& option) {
                               return option.long_name == word || option.short_name == word;
                           });
    };
    return has(name.here) && !has(name.name);
}

std::span<const OtherType> other_types() { return kTypeNames; }

}  // namespace cleave::tools
