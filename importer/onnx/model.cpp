// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/model.h"

#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {

const onnx::AttributeProto* Node::attribute(std::string_view key) const {
    for (const onnx::AttributeProto& a : proto->attribute())
        if (a.name() == key) return &a;
    return nullptr;
}

int64_t Node::integer(std::string_view key, int64_t otherwise) const {
    const onnx::AttributeProto* a = attribute(key);
    return a && a->type() == onnx::AttributeProto::INT ? a->i() : otherwise;
}

double Node::real(std::string_view key, double otherwise) const {
    const onnx::AttributeProto* a = attribute(key);
    return a && a->type() == onnx::AttributeProto::FLOAT ? a->f() : otherwise;
}

std::string Node::text(std::string_view key, const std::string& otherwise) const {
    const onnx::AttributeProto* a = attribute(key);
    return a && a->type() == onnx::AttributeProto::STRING ? a->s() : otherwise;
}

std::optional<std::vector<int64_t>> Node::integers(std::string_view key) const {
    const onnx::AttributeProto* a = attribute(key);
    if (!a || a->type() != onnx::AttributeProto::INTS) return std::nullopt;
    return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

int64_t Constant::count() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
}

bool Constant::is_floating() const {
    std::optional<DType> dtype = dtype_of(elem_type);
    return dtype && cleave::is_floating(*dtype);
}

std::span<const std::byte> Model::bytes(const DataRef& ref) const {
    if (ref.blob.valid())
        return std::span<const std::byte>(blobs.at(ref.blob.index()))
            .subspan(ref.offset, ref.length);
    const SourceFile& file = files.at(ref.file.index());
    if (!file.present)
        throw UserError(
            "{}: a value that the model's structure depends on is in {}, which is absent; put the "
            "file beside the model",
            path, file.path);
    if (maps_.size() < files.size()) maps_.resize(files.size());
    std::unique_ptr<MappedFile>& map = maps_[ref.file.index()];
    if (!map) map = std::make_unique<MappedFile>(file.path);
    if (ref.offset > map->bytes().size() || ref.length > map->bytes().size() - ref.offset)
        throw UserError("{}: {} became shorter while it was read; copy it again", path, file.path);
    return map->bytes().subspan(ref.offset, ref.length);
}

std::string describe(const Model& model, const Node& node) {
    std::string op = node.domain.empty() ? node.op : node.domain + "." + node.op;
    if (!node.name.empty()) return fmt::format("node '{}' ({})", node.name, op);
    for (Ref out : node.out)
        if (out != kNone)
            return fmt::format("the unnamed node that makes '{}' ({})", model.values[out].name, op);
    return fmt::format("an unnamed node ({})", op);
}

std::optional<DType> dtype_of(int32_t elem_type) {
    using T = onnx::TensorProto;
    switch (elem_type) {
        case T::FLOAT: return DType::kF32;
        case T::FLOAT16: return DType::kF16;
        case T::BFLOAT16: return DType::kBF16;
        case T::DOUBLE: return DType::kF64;
        case T::FLOAT8E4M3FN: return DType::kF8E4M3;
        case T::FLOAT8E8M0: return DType::kF8E8M0;
        case T::FLOAT4E2M1: return DType::kMxfp4;
        case T::INT8: return DType::kInt8;
        case T::UINT8: return DType::kUInt8;
        case T::INT4: return DType::kInt4;
        case T::UINT4: return DType::kUInt4;
        case T::INT16: return DType::kInt16;
        case T::INT32: return DType::kInt32;
        case T::INT64: return DType::kInt64;
        case T::BOOL: return DType::kBool;
        default: return std::nullopt;
    }
}

std::string elem_type_name(int32_t elem_type) {
    const std::string& name =
        onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(elem_type));
    return name.empty() ? fmt::format("type {}", elem_type) : name;
}

int elem_type_bits(int32_t elem_type) {
    using T = onnx::TensorProto;
    if (std::optional<DType> dtype = dtype_of(elem_type))
        return *dtype == DType::kBool ? 8 : dtype_bits(*dtype);
    switch (elem_type) {
        case T::FLOAT8E4M3FNUZ:
        case T::FLOAT8E5M2:
        case T::FLOAT8E5M2FNUZ: return 8;
        case T::UINT16: return 16;
        case T::UINT32: return 32;
        case T::UINT64:
        case T::COMPLEX64: return 64;
        case T::COMPLEX128: return 128;
        default: return 0;
    }
}

}  // namespace cleave::importer::from_onnx
