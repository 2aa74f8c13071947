// SPDX-License-Identifier: Apache-2.0
// Small Llama files of the project's own writer, and changed copies of ONNX files, for the
// importer's tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "models/onnx_writer.h"
#include "tests/support/test.h"

namespace cleave::test {

// Two layers, 4 heads over 2 KV heads of 8, vocabulary 64.
models::Shape tiny_shape();

// Writes it into `folder`, inline data unless asked otherwise; gives the file's path.
std::filesystem::path write_tiny(const std::filesystem::path& folder,
                                 models::WriteOptions options = {},
                                 const models::Shape& shape = tiny_shape());

onnx::ModelProto load_onnx(const std::filesystem::path& path);
void save_onnx(const onnx::ModelProto& model, const std::filesystem::path& path);

// The index-th node of an operator.
onnx::NodeProto& node_of(onnx::ModelProto& model, const std::string& op_type, int index = 0);

// What importing the file says that is wrong with it.
std::string file_error(const std::filesystem::path& path);

// The error that importing a changed tiny model gives; fails the test when it gives none.
std::string import_error(const std::function<void(onnx::ModelProto&)>& change,
                         models::WriteOptions options = {});

// New names for all nodes, values and initializers, of subgraphs and functions too; meaningless and
// in another order.
void randomize_names(onnx::ModelProto& model, uint64_t seed);

// A prompt of the tiny model's vocabulary.
inline const std::vector<int32_t> kPrompt{1, 7, 33, 2, 60, 12, 12, 5};

// The largest absolute difference of two equally long lists of logits.
double difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace cleave::test
