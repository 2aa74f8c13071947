// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_model.h"

#include <cstring>
#include <fstream>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "importer/weights/quantize.h"
#include "importer/weights/weight_reader.h"
#include "runtime/base/convert.h"
#include "runtime/base/gguf.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using importer::Range;

fs::path gguf_file(const std::string& name) {
    return source_root() / "tests" / "files" / "gguf" / (name + ".gguf");
}

std::string gguf_bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string fnv1a(std::span<const std::byte> bytes) {
    uint64_t value = 0xcbf29ce484222325u;
    for (const std::byte b : bytes) value = (value ^ std::to_integer<uint64_t>(b)) * 0x100000001b3u;
    return fmt::format("{:016x}", value);
}

// A copy of llama.gguf with a piece of its header replaced by one as long.
std::string error_of_changed(const std::string& piece, const std::string& by) {
    REQUIRE(piece.size() == by.size());
    std::string bytes = gguf_bytes(gguf_file("llama"));
    const size_t at = bytes.find(piece);
    REQUIRE(at != std::string::npos);
    const TemporaryFolder folder;
    const fs::path copy = folder.path() / "x.gguf";
    std::ofstream(copy, std::ios::binary) << bytes.replace(at, piece.size(), by);
    return user_error([&] { models::import_gguf(copy.string()); });
}

}  // namespace

TEST_CASE("blocks of every GGUF type expand to the numbers of ggml's own package, bit by bit",
          "[models][gguf]") {
    const importer::Graph graph = models::import_gguf(gguf_file("blocks").string());
    const auto digests = nlohmann::json::parse(
        gguf_bytes(source_root() / "tests" / "files" / "gguf" / "blocks.json"));
    const importer::WeightReader reader(graph);
    size_t checked = 0;
    for (const importer::Weight& weight : graph.weights) {
        if (weight.shape.size() != 2) continue;
        INFO(weight.name);
        std::vector<float> values(static_cast<size_t>(weight.num_elements()));
        reader.read(weight, {0, weight.shape[0]}, {0, weight.shape[1]}, DType::kF32,
                    std::as_writable_bytes(std::span(values)));
        CHECK(fnv1a(std::as_bytes(std::span(values))) == digests[weight.name].get<std::string>());
        // A part that begins and ends within blocks is the same numbers.
        std::vector<float> part(5 * 40);
        reader.read(weight, {3, 8}, {37, 77}, DType::kF32, std::as_writable_bytes(std::span(part)));
        for (size_t i = 0; i < part.size(); ++i)
            CHECK(part[i] == values[(3 + i / 40) * 256 + 37 + i % 40]);
        ++checked;
    }
    CHECK(checked == digests.size());
}

TEST_CASE("blocks that a device has a type for are packed without loss", "[models][gguf]") {
    const importer::Graph graph = models::import_gguf(gguf_file("blocks").string());
    const importer::WeightReader reader(graph);
    size_t checked = 0;
    for (size_t w = 0; w < graph.weights.size(); ++w) {
        const importer::Weight& weight = graph.weights[w];
        if (weight.packing == importer::Packing::kDense) continue;
        INFO(weight.name);
        const Range rows{2, 9}, columns{64, 192};
        const auto format = quantized_format(weight);
        const auto l = quantized_layout(format, rows.size(), columns.size());
        std::vector<std::byte> codes(7 * l.row_bytes), scales(7 * l.scale_row_bytes),
            zeros(7 * l.zero_row_bytes);
        reader.read_quantized(importer::WeightId(w), rows, columns, {codes, scales, zeros});
        std::vector<float> expected(7 * 128);
        reader.read(weight, rows, columns, DType::kF32,
                    std::as_writable_bytes(std::span(expected)));
        const bool four = dtype_bits(format.code) == 4;
        for (int64_t r = 0; r < 7; ++r)
            for (int64_t c = 0; c < 128; ++c) {
                const int64_t byte = four ? c / 32 * 16 + c % 16 : c;
                int code = std::to_integer<int>(codes[r * l.row_bytes + byte]);
                if (four) code = c % 32 < 16 ? code & 15 : code >> 4;
                const int64_t block = r * 4 + c / 32;
                float scale = 0, zero = static_cast<float>(format.constant_zero);
                convert_elements(DType::kF16, scales.data() + block * 2, DType::kF32, &scale, 1);
                if (!zeros.empty()) std::memcpy(&zero, zeros.data() + block * 4, 4);
                const float value = (static_cast<float>(code) - zero) * scale;
                // A zero point is a quotient, rounded once; codes are below 16.
                const float bound = zeros.empty() ? 0 : 4e-6f;
                CHECK(std::abs(value - expected[r * 128 + c]) <= bound);
            }
        ++checked;
    }
    CHECK(checked == 7);
}

TEST_CASE("matrices of a GGUF file that have another type are requantised from what they expand to",
          "[models][gguf]") {
    const importer::Graph given = models::import_gguf(gguf_file("blocks").string());
    CHECK(types_to_requantize(given) ==
          "Q2_K (1 tensor), Q3_K (1 tensor), Q4_K (1 tensor), Q5_0 (1 tensor), Q5_1 (1 tensor), "
          "Q5_K (1 tensor), Q6_K (3 tensors)");
    CHECK(types_to_requantize(models::import_gguf(gguf_file("llama").string())).empty());
    const importer::Graph graph = quantize_weights(given, DType::kInt8);
    CHECK(types_to_requantize(graph).empty());
    for (const importer::Weight& weight : graph.weights)
        if (weight.shape.size() == 2) {
            CHECK(weight.dtype == DType::kInt8);
            CHECK(weight.quantization.rounded_from.has_value() == (weight.gguf != GgufType::kQ80));
        }
}

TEST_CASE("a GGUF model has no more positions than its rotary tables", "[models][gguf]") {
    // It says 128; behind 16 its frequencies are others, for shorter sequences too.
    CHECK(models::import_gguf(gguf_file("phi3_partial").string()).config.max_positions == 16);
    CHECK(models::import_gguf(gguf_file("llama").string()).config.max_positions == 128);
}

TEST_CASE("a GGUF model that is not understood whole is refused by name", "[models][gguf]") {
    CHECK_THAT(error_of_changed("general.architecture", "general.architectura"),
               Contains("no general.architecture"));
    CHECK_THAT(error_of_changed("llama.block_count", "llama.block_coumt"),
               Contains("llama.block_count"));
    CHECK_THAT(error_of_changed("blk.1.attn_q.weight", "blk.1.attn_z.weight"),
               Contains("'blk.1.attn_q.weight' is missing"));
    CHECK_THAT(error_of_changed("output_norm.weight", "ootput_norm.weight"),
               Contains("'output_norm.weight' is missing"));
    CHECK_THAT(user_error([] { models::import_gguf(gguf_file("tokenizer_gpt2").string()); }),
               Contains("no matrix 'token_embd.weight'"));
    CHECK_THAT(user_error([] { models::import_gguf("absent.gguf"); }), Contains("absent.gguf"));
}

}  // namespace cleave::test
