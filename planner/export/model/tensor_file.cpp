// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/tensor_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "importer/weights/quantized_shard.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using importer::RopeTable;
using importer::Weight;
using importer::WeightReader;

constexpr int64_t kBlockBytes = int64_t{16} << 20;

void put(std::ostream& out, const std::vector<std::byte>& bytes) {
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
}

// [rows, columns] -> [columns, rows] of elements of `size` bytes.
void transpose(const std::vector<std::byte>& from, int64_t rows, int64_t columns, int64_t size,
               std::vector<std::byte>& to) {
    to.resize(from.size());
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            std::memcpy(&to[static_cast<size_t>((c * rows + r) * size)],
                        &from[static_cast<size_t>((r * columns + c) * size)],
                        static_cast<size_t>(size));
}

void write_shard(const WeightReader& reader, const WeightShard& shard, Range columns, DType dtype,
                 bool transposed, std::ostream& out) {
    const int64_t rows = shard.rows.size(), width = columns.size();
    const int64_t size = dtype_bytes(dtype, 1);
    std::vector<std::byte> bytes, turned;
    if (!transposed) {
        const int64_t step = std::max<int64_t>(1, kBlockBytes / (width * size));
        for (int64_t r = shard.rows.begin; r < shard.rows.end; r += step) {
            const Range part{r, std::min(r + step, shard.rows.end)};
            bytes.resize(static_cast<size_t>(part.size() * width * size));
            reader.read(shard.weight, part, columns, dtype, bytes);
            put(out, bytes);
        }
        return;
    }
    const int64_t step = std::max<int64_t>(1, kBlockBytes / (rows * size));
    for (int64_t c = columns.begin; c < columns.end; c += step) {
        const Range part{c, std::min(c + step, columns.end)};
        bytes.resize(static_cast<size_t>(rows * part.size() * size));
        reader.read(shard.weight, shard.rows, part, dtype, bytes);
        transpose(bytes, rows, part.size(), size, turned);
        put(out, turned);
    }
}

std::vector<std::byte> rope_values(const RopeTable& table, int64_t positions, bool sine,
                                   const WeightReader& reader) {
    const int64_t half = table.rotary_dim / 2;
    std::vector<std::byte> bytes(static_cast<size_t>(positions * half) * sizeof(float));
    if (table.frequencies.empty()) {
        reader.read(sine ? table.sin : table.cos, {0, positions}, {0, half}, DType::kF32, bytes);
        return bytes;
    }
    for (int64_t p = 0; p < positions; ++p)
        for (int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(p) *
                                 static_cast<double>(table.frequencies[static_cast<size_t>(i)]);
            const auto value =
                static_cast<float>((sine ? std::sin(angle) : std::cos(angle)) * table.magnitude);
            std::memcpy(&bytes[static_cast<size_t>(p * half + i) * sizeof(float)], &value,
                        sizeof(float));
        }
    return bytes;
}

}  // namespace

TensorFile::TensorFile(const Plan& plan, std::shared_ptr<WeightReader> reader, int64_t alignment)
    : plan_(plan), reader_(std::move(reader)), alignment_(alignment) {}

const StoredTensor* TensorFile::find(const std::string& name) const {
    auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : tensors_[at->second].get();
}

const StoredTensor& TensorFile::add(StoredTensor tensor) {
    tensor.offset = (end_ + alignment_ - 1) / alignment_ * alignment_;
    int64_t elements = 1;
    for (int64_t d : tensor.shape) elements *= d;
    tensor.length = dtype_bytes(tensor.dtype, elements);
    end_ = tensor.offset + tensor.length;
    by_name_[tensor.name] = tensors_.size();
    tensors_.push_back(std::make_unique<StoredTensor>(std::move(tensor)));
    return *tensors_.back();
}

const StoredTensor& TensorFile::weight(const WeightShard& shard, bool transposed) {
    const Weight& weight = plan_.graph.weight(shard.weight);
    const bool vector = weight.shape.size() == 1;
    std::string name = weight.name;
    if (shard.rows.size() != weight.shape[0])
        name += fmt::format(".rows{}-{}", shard.rows.begin, shard.rows.end);
    if (!vector && shard.columns.size() != weight.shape[1])
        name += fmt::format(".columns{}-{}", shard.columns.begin, shard.columns.end);
    if (transposed) name += ".transposed";
    if (const StoredTensor* known = find(name)) return *known;
    StoredTensor t;
    t.name = name;
    t.dtype = shard.dtype;
    if (importer::stays_quantized(weight, shard.dtype)) {
        t.dtype = DType::kF32;
        expanded_ = true;
    }
    const Range columns = vector ? Range{0, 1} : shard.columns;
    t.shape = {shard.rows.size()};
    if (!vector) t.shape.push_back(columns.size());
    if (transposed) std::reverse(t.shape.begin(), t.shape.end());
    t.write = [reader = reader_, shard, columns, dtype = t.dtype, transposed](std::ostream& out) {
        write_shard(*reader, shard, columns, dtype, transposed, out);
    };
    return add(std::move(t));
}

const StoredTensor& TensorFile::rope(RopeTableId id, bool sine) {
    const std::string name = fmt::format("rope{}.{}", id.index(), sine ? "sin" : "cos");
    if (const StoredTensor* known = find(name)) return *known;
    const RopeTable& table = plan_.graph.rope_table(id);
    const int64_t positions = plan_.workload.context;
    if (table.max_positions > 0 && table.max_positions < positions)
        throw UserError(
            "the rotary table '{}' ends at position {}, but the context is {}; use $context {} or "
            "less",
            table.name, table.max_positions, positions, table.max_positions);
    StoredTensor t;
    t.name = name;
    t.shape = {positions, table.rotary_dim / 2};
    t.write = [reader = reader_, &table, positions, sine](std::ostream& out) {
        put(out, rope_values(table, positions, sine, *reader));
    };
    return add(std::move(t));
}

void TensorFile::write(std::ostream& out) const {
    const auto base = out.tellp();
    for (const auto& tensor : tensors_) {
        out.seekp(base + static_cast<std::streamoff>(tensor->offset));
        tensor->write(out);
    }
}

std::string data_file_name(DeviceId device) { return fmt::format("device{}.data", device.index()); }

void check_exportable(const Plan& plan) {
    const DType kv = plan.workload.kv_dtype.value_or(DType::kF32);
    if (!plan.kv_slabs.empty() && has_kv_scales(kv))
        throw UserError(
            "the plan keeps keys and values in {} with scales: this export keeps them in f32, f16 "
            "or bf16; give $kv_dtype one of these or leave it out",
            kv);
    for (const WeightShard& shard : plan.weights) {
        const Weight& weight = plan.graph.weight(shard.weight);
        const bool absent =
            weight.data.file.valid() && !plan.graph.files[weight.data.file.index()].present;
        if (!weight.data.has_data() || absent)
            throw UserError(
                "weight '{}' of {} has no data: a shape name, or a model without weights, "
                "cannot be exported with its weights; give the model's own file ($write_model "
                "makes one with random weights)",
                weight.name, plan.graph.name);
        if (weight.quantization.dynamic_activations && weight.packing != importer::Packing::kDense)
            throw UserError(
                "weight '{}' of {} is multiplied in integers (MatMulInteger): this export would "
                "change the result; export the plan of a model whose activations are floating",
                weight.name, plan.graph.name);
        if (!importer::stays_quantized(weight, shard.dtype) && shard.dtype != DType::kF32 &&
            shard.dtype != DType::kF16 && shard.dtype != DType::kBF16)
            throw UserError(
                "weight '{}' lies on {} as {}: this export writes f32, f16 and bf16; give $dtype "
                "one of these or leave it out",
                weight.name, plan.machine.device(shard.device).name, shard.dtype);
    }
}

}  // namespace cleave::planner
