// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/arguments.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/shapes.h"
#include "runtime/base/errors.h"
#include "tools/benchmarks/flags.h"

namespace cleave::gpu_check {

namespace {

constexpr const char* kUsage =
    R"(usage: gpu-check [--device cuda[0]] [--stories15m MODEL] [--python PYTHON] [--shape SHAPE]
                 [--checked-shape SHAPE] [--nvrtc PATH] [--copy-mib 4096] [--tokens 512]
                 [--quick] [--parts PART,PART...] [--time-limit SECONDS] [-o REPORT.json]
Runs on the GPU, each part in processes of its own, and writes one JSON report, anew after each of
them, whole or not at all:
  conformance          the suite of tests that every driver takes
  kernel_table         every kernel on odd shapes between guard words
  bundled_model        text in f32, its logits compared with the host's, and again with the GPU's
                       own choice of tokens
  bundled_model_bf16   the same in bf16 behind a prompt of over 128 tokens
  tp4_logical_devices  the bundled model on four logical devices of the card
  tp2_cards            the bundled model on the first two cards of its kind, where there are two
  stories15m           that model, of the bundle (in 8 bits a weight) or from --stories15m MODEL
  checked_model        a random model of --checked-shape in bf16, compared with the host
  random_model         a random model of --shape in bf16: the same tokens twice
  benchmark            decode and prefill of --shape as shares of the card's rates
--python: a Python with PyTorch, whose matmul prefill is compared with (python3 unless told).
--quick: without the last three.
--time-limit: for all parts together; the benchmark comes before the kernel table, and those for
which nothing is left are named, which is no pass.
A process of conformance is ended after 300 s, of kernel_table after 1500, of a text after 600 (a
text takes up to four of them), of the last three after 1800. On a first run most of the time is
the compiler's: kernels are kept in the cache for the next.
)";

// As in the usage text.
constexpr int kConformanceSeconds = 300, kTableSeconds = 1500, kTextSeconds = 600,
              kBenchSeconds = 1800;
constexpr int64_t kLeastLimit = 1, kMostLimit = 100'000;

void check_shape(const std::string& flag, const std::string& shape) {
    const std::optional<models::Shape> found = models::find_shape(shape);
    if (!found || !found->is_plain())
        throw UserError("{} {}: no plain Llama of that name; known are {}", flag, shape,
                        fmt::join(models::shape_names(), ", "));
}

std::vector<std::string> chosen_parts(const std::string& text) {
    std::vector<std::string> parts;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
        if (std::find(part_names().begin(), part_names().end(), word) == part_names().end())
            throw UserError("--parts {}: '{}' is no part; there are {}", text, word,
                            fmt::join(part_names(), ", "));
        parts.push_back(word);
    }
    if (parts.empty()) throw UserError("--parts wants at least one part\n{}", usage());
    return parts;
}

}  // namespace

const std::vector<std::string>& part_names() {
    static const std::vector<std::string> kNames{
        "conformance", "kernel_table", "bundled_model", "bundled_model_bf16", "tp4_logical_devices",
        "tp2_cards",   "stories15m",   "checked_model", "random_model",       "benchmark"};
    return kNames;
}

int seconds_of(const std::string& part) {
    if (part == "conformance") return kConformanceSeconds;
    if (part == "kernel_table") return kTableSeconds;
    const bool is_bench = part == "checked_model" || part == "random_model" || part == "benchmark";
    return is_bench ? kBenchSeconds : kTextSeconds;
}

std::string usage() { return kUsage; }

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    std::string parts, time_limit;
    const std::vector<std::pair<std::string, std::string*>> values{
        {"--device", &arguments.device},
        {"--stories15m", &arguments.stories15m},
        {"--python", &arguments.python},
        {"--shape", &arguments.shape},
        {"--checked-shape", &arguments.checked_shape},
        {"--nvrtc", &arguments.nvrtc},
        {"--copy-mib", &arguments.copy_mib},
        {"--tokens", &arguments.tokens},
        {"--parts", &parts},
        {"--time-limit", &time_limit},
        {"-o", &arguments.output}};
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--help" || word == "-h") {
            arguments.help = true;
            return arguments;
        }
        if (word == "--quick") {
            arguments.quick = true;
            continue;
        }
        const auto flag = std::find_if(values.begin(), values.end(),
                                       [&](const auto& value) { return value.first == word; });
        if (flag == values.end()) throw UserError("{} is no flag of gpu-check\n{}", word, kUsage);
        if (i + 1 == argc) throw UserError("{} wants a value\n{}", word, kUsage);
        *flag->second = argv[++i];
        if (flag->second == &parts) arguments.parts = chosen_parts(parts);
    }
    if (!arguments.copy_mib.empty())
        bench::whole_number("--copy-mib", arguments.copy_mib, 1, bench::kMostCopyMib);
    if (!arguments.tokens.empty())
        bench::whole_number("--tokens", arguments.tokens, 1, bench::kMostTokens);
    if (!time_limit.empty())
        arguments.time_limit =
            bench::whole_number("--time-limit", time_limit, kLeastLimit, kMostLimit);
    check_shape("--shape", arguments.shape);
    check_shape("--checked-shape", arguments.checked_shape);
    for (const auto& [flag, path] :
         {std::pair{"--stories15m", &arguments.stories15m}, std::pair{"--nvrtc", &arguments.nvrtc}})
        if (std::error_code none; !path->empty() && !std::filesystem::exists(*path, none))
            throw UserError("{} {}: no such file or folder", flag, *path);
    return arguments;
}

}  // namespace cleave::gpu_check
