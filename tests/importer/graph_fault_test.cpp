// SPDX-License-Identifier: Apache-2.0
// What is asked of any graph, whether Cleave made it or a file says it.
#include "importer/graph/graph.h"
#include "tests/support/test.h"

namespace cleave {
namespace {

using namespace importer;
using Catch::Matchers::Contains;

// One weight of 16 x 32 codes of 4 bits.
Graph packed_graph() {
    Graph graph;
    graph.files.push_back({"weights", 4096});
    Weight w;
    w.name = "w";
    w.shape = {8, 32};
    w.dtype = DType::kInt4;
    w.packing = Packing::kMatMulNBits;
    w.source_shape = {16, 32};
    w.rows = {8, 16};
    w.data = w.quantization.scales = {FileId(0), {}, 0, 256};
    graph.weights.push_back(w);
    return graph;
}

TEST_CASE("A weight is a part of what is stored, whatever it is packed in", "[importer]") {
    Graph graph = packed_graph();
    Weight& w = graph.weights[0];
    CHECK(graph_fault(graph) == "");
    w.rows = {-8, 0};
    CHECK_THAT(graph_fault(graph), Contains("w: rows -8 to 0"));
    w.rows = {9, 17};
    CHECK_THAT(graph_fault(graph), Contains("not of the stored [16, 32]"));
    w = packed_graph().weights[0];
    w.source_shape = {16, -32};
    CHECK_THAT(graph_fault(graph), Contains("its stored shape makes no sense"));
    w.source_shape.clear();
    CHECK_THAT(graph_fault(graph), Contains("without a stored shape"));
    w.gguf = GgufType::kF32;
    w.source_shape = {16, 32};
    CHECK_THAT(graph_fault(graph), Contains("F32 is no type of blocks"));
    w = packed_graph().weights[0];
    w.quantization.scales.file = FileId(1);
    CHECK_THAT(graph_fault(graph), Contains("file out of range"));
    w.quantization.scales = {};
    CHECK_THAT(graph_fault(graph), Contains("codes without scales"));
    w.quantization.rounded_from = DType::kF32;
    CHECK_THAT(graph_fault(graph), Contains("fewer bytes are stored"));
    w = packed_graph().weights[0];
    w.data.file = FileId(1);
    CHECK_THAT(graph_fault(graph), Contains("file out of range"));
    w.data = {{}, BlobId(0), 1, 4};
    graph.blobs.emplace_back(4);
    CHECK_THAT(graph_fault(graph), Contains("reaches beyond its blob"));
}

TEST_CASE("No name of a graph breaks a line", "[importer]") {
    Graph graph = packed_graph();
    graph.weights[0].name = "w\ncleave: fine";
    CHECK(unprintable_name(graph) == "w?cleave: fine");
    CHECK_THAT(graph_fault(graph), Contains("'w?cleave: fine' has control characters"));
}

}  // namespace
}  // namespace cleave
