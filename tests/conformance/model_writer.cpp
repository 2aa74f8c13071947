// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/model_writer.h"

#include <cmath>
#include <fstream>

#include "importer/onnx/import.h"
#include "runtime/base/convert.h"
#include "tests/support/test.h"

namespace cleave::test {

namespace {

void keep_in_memory(importer::Graph& graph) {
    for (importer::Weight& w : graph.weights) {
        if (!w.data.file.valid()) continue;
        const importer::SourceFile& source = graph.files[w.data.file.index()];
        std::ifstream file(source.path, std::ios::binary);
        std::vector<std::byte> blob(w.data.length);
        file.seekg(static_cast<std::streamoff>(w.data.offset));
        file.read(reinterpret_cast<char*>(blob.data()), static_cast<std::streamsize>(blob.size()));
        graph.blobs.push_back(std::move(blob));
        w.data = {{}, importer::BlobId(graph.blobs.size() - 1), 0, w.data.length};
    }
}

}  // namespace

importer::Graph ModelWriter::graph() const {
    TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.onnx";
    std::ofstream(path, std::ios::binary) << model_.SerializeAsString();
    importer::Graph graph = importer::import_onnx(path.string());
    keep_in_memory(graph);  // the folder goes
    return graph;
}

runtime::Tensor floats(const std::string& name, const Shape& shape, DType dtype, double phase) {
    runtime::Tensor tensor{name, dtype, shape, {}};
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i)
        values.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i + 1) + phase)));
    tensor.data.resize(static_cast<size_t>(dtype_bytes(dtype, n)));
    convert_elements(DType::kF32, values.data(), dtype, tensor.data.data(), n);
    return tensor;
}

runtime::Tensor integers(const std::string& name, const Shape& shape,
                         const std::vector<int64_t>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return {name, DType::kInt64, shape, {bytes, bytes + values.size() * sizeof(int64_t)}};
}

}  // namespace cleave::test
