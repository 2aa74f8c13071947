// SPDX-License-Identifier: Apache-2.0
#include "importer/weights/weight_reader.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>

#include "importer/weights/dequantize.h"
#include "importer/weights/gguf_blocks.h"
#include "importer/weights/read_transposed.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"
#include "runtime/base/mapped_file.h"

namespace cleave::importer {

struct WeightReader::Files {
    std::mutex mutex;
    std::vector<std::optional<MappedFile>> maps;  // one for each Graph::files, mapped at first use
};

void refuse_outside(const Weight& weight, std::string_view what) {
    throw UserError(
        "{}: a {} lies outside its tensor; the model or the plan was changed after it was made. "
        "Import or plan it again.",
        weight.name, what);
}

WeightReader::WeightReader(const Graph& graph) : files_(std::make_unique<Files>()), graph_(graph) {
    files_->maps.resize(graph.files.size());
}

WeightReader::~WeightReader() = default;

std::span<const std::byte> WeightReader::whole(const DataRef& ref) const {
    if (ref.blob.valid()) return graph_.blobs.at(ref.blob.index());
    CLEAVE_CHECK(ref.file.valid()) << "the bytes of a weight without data were asked for";
    const SourceFile& file = graph_.files.at(ref.file.index());
    if (!file.present)
        throw UserError(
            "{}: the weights of {} are in this file, and it is absent; it can be planned "
            "($weights_may_be_absent) but not run. Put the file beside the model.",
            file.path, graph_.name);
    std::lock_guard lock(files_->mutex);
    std::optional<MappedFile>& map = files_->maps.at(ref.file.index());
    if (!map) map.emplace(file.path);
    return map->bytes();
}

std::span<const std::byte> WeightReader::bytes(const DataRef& ref) const {
    const std::span<const std::byte> all = whole(ref);
    if (ref.offset <= all.size() && ref.length <= all.size() - ref.offset)
        return all.subspan(ref.offset, ref.length);
    CLEAVE_CHECK(!ref.blob.valid()) << "a weight reaches beyond its blob";
    throw UserError(
        "{}: the file has {} bytes, but a weight is said to lie at bytes {} to {}; it was "
        "truncated or replaced after import. Copy it again.",
        graph_.files.at(ref.file.index()).path, all.size(), ref.offset, ref.offset + ref.length);
}

namespace {

// The source as a matrix [rows, columns]: vectors are one row, leading dimensions are folded.
struct SourceMatrix {
    int64_t rows = 1;
    int64_t columns = 1;
};

SourceMatrix source_matrix(const Weight& weight) {
    SourceMatrix m;
    if (weight.shape.size() == 1) {
        for (int64_t d : weight.source_shape) m.columns *= d;
        return m;
    }
    CLEAVE_CHECK(!weight.source_shape.empty())
        << weight.name << ": a matrix without a source shape";
    m.columns = weight.source_shape.back();
    for (size_t i = 0; i + 1 < weight.source_shape.size(); ++i) m.rows *= weight.source_shape[i];
    return m;
}

Range within(Range part, Range whole, int64_t source_size) {
    int64_t begin = whole.empty() ? 0 : whole.begin;
    int64_t end = whole.empty() ? source_size : whole.end;
    Range r{begin + part.begin, begin + part.end};
    CLEAVE_CHECK(part.begin >= 0 && r.end <= end) << "a rectangle reaches beyond its weight";
    return r;
}

}  // namespace

const Weight& WeightReader::with_data(WeightId id) const {
    const Weight& weight = graph_.weight(id);
    if (!weight.data.has_data())
        throw UserError(
            "{}: this weight has no data (a shape name, or $weights_may_be_absent); the model can "
            "be "
            "planned but not run",
            weight.name);
    return weight;
}

std::span<const std::byte> WeightReader::stored_bytes(WeightId id, Range rows) const {
    const Weight& weight = with_data(id);
    const std::span<const std::byte> data = bytes(weight.data);
    if (weight.packing != Packing::kDense || weight.gguf || weight.transposed ||
        weight.shape.size() < 2)
        return data;
    const SourceMatrix source = source_matrix(weight);
    const Range r = within(rows, weight.rows, source.rows);
    const auto row_bytes = static_cast<size_t>(dtype_bytes(weight.dtype, source.columns));
    const size_t begin = static_cast<size_t>(r.begin) * row_bytes;
    const size_t size = static_cast<size_t>(r.size()) * row_bytes;
    CLEAVE_CHECK(begin <= data.size() && size <= data.size() - begin)
        << weight.name << ": fewer bytes than its shape needs";
    return data.subspan(begin, size);
}

std::span<const std::byte> WeightReader::stored_as_read(WeightId id, Range rows, Range columns,
                                                        DType to) const {
    const Weight& weight = with_data(id);
    if (weight.packing != Packing::kDense || weight.gguf || weight.transposed ||
        weight.dtype != to || !is_floating(to))
        return {};
    const SourceMatrix source = source_matrix(weight);
    const bool vector = weight.shape.size() == 1;
    const Range r = within(rows, weight.rows, vector ? source.columns : source.rows);
    int64_t width = 1;
    if (!vector) {
        width = source.columns;
        if (within(columns, weight.columns, source.columns).size() != width) return {};
    }
    const std::span<const std::byte> data = bytes(weight.data), all = whole(weight.data);
    const auto begin = static_cast<size_t>(dtype_bytes(to, r.begin * width));
    const auto size = static_cast<size_t>(dtype_bytes(to, r.size() * width));
    CLEAVE_CHECK(begin <= data.size() && size <= data.size() - begin)
        << weight.name << ": fewer bytes than its shape needs";
    const std::span<const std::byte> stored = data.subspan(begin, size);
    const auto behind = static_cast<size_t>(all.data() + all.size() - stored.data()) - size;
    const bool aligned = reinterpret_cast<uintptr_t>(stored.data()) % (dtype_bits(to) / 8) == 0;
    return behind >= kBehind && aligned ? stored : std::span<const std::byte>();
}

void WeightReader::read_quantized(WeightId id, Range rows, Range columns,
                                  const QuantizedParts& destination) const {
    if (rows.empty() || columns.empty()) return;
    pack_quantized(*this, with_data(id), rows, columns, destination);
}

void WeightReader::read(WeightId id, Range rows, Range columns, DType to,
                        std::span<std::byte> destination) const {
    read(with_data(id), rows, columns, to, destination);
}

void WeightReader::read(const Weight& weight, Range rows, Range columns, DType to,
                        std::span<std::byte> destination) const {
    const bool vector = weight.shape.size() == 1;
    if (vector) columns = Range{0, 1};
    if (rows.empty() || columns.empty()) return;
    const int64_t count = rows.size() * columns.size();
    CLEAVE_CHECK(static_cast<int64_t>(destination.size()) == dtype_bytes(to, count))
        << weight.name << ": the destination has " << destination.size() << " bytes";
    if (weight.packing != Packing::kDense) {
        dequantize(*this, weight, rows, columns, to, destination);
        return;
    }
    if (weight.gguf) {
        expand_gguf(*this, weight, rows, columns, to, destination);
        return;
    }
    if (vector && to == weight.dtype && !is_floating(to)) {  // integers of tensor operators
        const int64_t size = dtype_bits(to) / 8;
        const std::span<const std::byte> data = bytes(weight.data);
        CLEAVE_CHECK(size > 0 && static_cast<int64_t>(data.size()) >= rows.end * size)
            << weight.name << ": fewer bytes than its shape needs";
        std::memcpy(destination.data(), data.data() + rows.begin * size, destination.size());
        return;
    }
    CLEAVE_CHECK(is_floating(weight.dtype) && is_floating(to))
        << weight.name << ": not a floating type";
    const SourceMatrix source = source_matrix(weight);
    const std::span<const std::byte> data = bytes(weight.data);
    CLEAVE_CHECK(static_cast<int64_t>(data.size()) >=
                 dtype_bytes(weight.dtype, source.rows * source.columns))
        << weight.name << ": fewer bytes than its shape needs";
    const size_t size = dtype_bits(weight.dtype) / 8;
    const size_t to_size = dtype_bits(to) / 8;
    if (vector) {
        Range r = within(rows, weight.rows, source.columns);
        convert_elements(weight.dtype, data.data() + r.begin * size, to, destination.data(), count);
        return;
    }
    Range r = within(rows, weight.rows, weight.transposed ? source.columns : source.rows);
    Range c = within(columns, weight.columns, weight.transposed ? source.rows : source.columns);
    if (weight.transposed) {
        read_transposed(data.data(), source.columns, r, c, weight.dtype, to, destination.data());
        return;
    }
    if (c.size() == source.columns) {
        convert_elements(weight.dtype, data.data() + r.begin * source.columns * size, to,
                         destination.data(), count);
        return;
    }
    for (int64_t row = 0; row < r.size(); ++row)
        convert_elements(weight.dtype,
                         data.data() + ((r.begin + row) * source.columns + c.begin) * size, to,
                         destination.data() + row * c.size() * to_size, c.size());
}

}  // namespace cleave::importer
