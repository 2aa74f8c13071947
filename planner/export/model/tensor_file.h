// SPDX-License-Identifier: Apache-2.0
// One file with a device's constants: shards of weights, cut and converted as they are written, and
// rotary tables. In: a plan. Out: where each tensor lies, known at once, and the bytes, streamed
// when the file is made: what is held of the weights is one block of 16 MiB. Each tensor exists
// once, however many graphs name it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "importer/weights/weight_reader.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct StoredTensor {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    int64_t offset = 0, length = 0;  // bytes
    std::function<void(std::ostream&)> write = {};
};

class TensorFile {
public:
    // Keeps references to both. `alignment` is that of every tensor's offset.
    TensorFile(const Plan& plan, std::shared_ptr<importer::WeightReader> reader,
               int64_t alignment = 4096);

    // A shard as [rows, columns], or [columns, rows] when `transposed`, in its floating type on the
    // device; quantised ones are expanded to f32.
    const StoredTensor& weight(const WeightShard& shard, bool transposed);
    // cos and sin of positions [0, workload.context), each f32 [context, rotary_dim / 2].
    const StoredTensor& rope_cos(RopeTableId table) { return rope(table, false); }
    const StoredTensor& rope_sin(RopeTableId table) { return rope(table, true); }

    const std::vector<std::unique_ptr<StoredTensor>>& tensors() const { return tensors_; }
    bool expanded() const { return expanded_; }  // some quantised weight was
    void write(std::ostream& out) const;

private:
    const StoredTensor& rope(RopeTableId table, bool sine);
    const StoredTensor* find(const std::string& name) const;
    const StoredTensor& add(StoredTensor tensor);

    const Plan& plan_;
    std::shared_ptr<importer::WeightReader> reader_;
    int64_t alignment_;
    int64_t end_ = 0;
    bool expanded_ = false;
    std::vector<std::unique_ptr<StoredTensor>> tensors_;
    std::map<std::string, size_t> by_name_;
};

// The file of a device beside ONNX models: "device0.data".
std::string data_file_name(DeviceId device);

// UserError where a weight of the plan has no bytes to be written, or weights or the KV cache are
// stored on devices in a type that no export has.
void check_exportable(const Plan& plan);

}  // namespace cleave::planner
