// SPDX-License-Identifier: Apache-2.0
#include "models/stand_in_weights.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::models {

namespace {

constexpr int64_t kBlock = 1 << 18;  // distinct elements; the file repeats them
// No element is where a kernel could read it: shared bytes in place would stay in the cache.
constexpr int64_t kOffset = 1;

std::vector<std::byte> random_block(DType dtype, float around) {
    std::vector<float> numbers(kBlock);
    uint32_t state = 1;
    for (float& x : numbers) {
        state = state * 1664525u + 1013904223u;  // Numerical Recipes, "quick and dirty" generator
        x = around + (static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5f) * 0.05f;
    }
    std::vector<std::byte> block(static_cast<size_t>(dtype_bytes(dtype, kBlock)));
    convert_elements(DType::kF32, numbers.data(), dtype, block.data(), kBlock);
    return block;
}

}  // namespace

StandInWeights::StandInWeights(importer::Graph& graph) {
    int64_t most = 0;
    for (const importer::Weight& weight : graph.weights) {
        CLEAVE_CHECK(weight.packing == importer::Packing::kDense && !weight.data.has_data())
            << weight.name << " has data of its own";
        CLEAVE_CHECK(weight.dtype == graph.weights[0].dtype) << weight.name << " has another type";
        most = std::max(most, weight.packed_bytes());
    }
    std::string name = (std::filesystem::temp_directory_path() / "cleave-weights-XXXXXX").string();
    file_ = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
    if (!file_) throw UserError("{}: no temporary file can be made there; set TMPDIR", name);
    ::unlink(name.c_str());  // nothing is left of it, whatever ends the process
    const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
    std::vector<std::byte> block = random_block(graph.weights[0].dtype, 0);
    std::ofstream out(path, std::ios::binary);
    out.write("", kOffset);
    for (int64_t at = 0; at < most; at += static_cast<int64_t>(block.size()))
        out.write(
            reinterpret_cast<const char*>(block.data()),
            static_cast<std::streamsize>(std::min(most - at, static_cast<int64_t>(block.size()))));
    // Else the normalised values are as small as the weights, and all that layers add is lost
    // beside the embedding.
    const std::vector<std::byte> norms = random_block(graph.weights[0].dtype, 1);
    out.write(reinterpret_cast<const char*>(norms.data()),
              static_cast<std::streamsize>(norms.size()));
    out.close();
    if (!out) throw UserError("{}: no room for {} bytes of weights; set TMPDIR", name, most);
    importer::SourceFile source;
    source.path = path;
    graph.files.push_back(std::move(source));
    for (importer::Weight& weight : graph.weights)
        weight.data = {importer::FileId(graph.files.size() - 1),
                       {},
                       static_cast<uint64_t>(kOffset + (weight.shape.size() == 1 ? most : 0)),
                       static_cast<uint64_t>(weight.packed_bytes())};
}

}  // namespace cleave::models
