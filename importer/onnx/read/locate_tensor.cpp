// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstring>
#include <filesystem>

#include "importer/onnx/read/passes.h"
#include "importer/onnx/read/wire_format.h"
#include "runtime/base/errors.h"
#include "runtime/base/inside.h"
#include "runtime/base/path_state.h"

namespace cleave::importer::from_onnx {
namespace fs = std::filesystem;
namespace {

// Bytes that the shape and type ask for. Refuses negative and overflowing dimensions.
uint64_t expected_bytes(const Model& model, const Constant& c) {
    const int bits = elem_type_bits(c.elem_type);
    if (bits == 0)
        throw UserError("{}: initializer '{}' has element type {}; numbers are supported",
                        model.path, c.name, elem_type_name(c.elem_type));
    uint64_t count = 1;
    for (int64_t d : c.dims) {
        if (d < 0)
            throw UserError("{}: initializer '{}' has the negative dimension {}", model.path,
                            c.name, d);
        if (d != 0 && count > (uint64_t{1} << 50) / static_cast<uint64_t>(d))
            throw UserError("{}: the shape of initializer '{}' overflows", model.path, c.name);
        count *= static_cast<uint64_t>(d);
    }
    return (count * bits + 7) / 8;
}

void check_length(const Model& model, const Constant& c, uint64_t expected, uint64_t length) {
    if (length != expected)
        throw UserError("{}: initializer '{}' has {} bytes, but its shape and type ({}) need {}",
                        model.path, c.name, length, elem_type_name(c.elem_type), expected);
}

FileId external_file(Model& model, const std::string& name, const std::string& location,
                     const ImportOptions& options) {
    const fs::path folder = fs::path(model.path).parent_path();
    const fs::path relative(location);
    const auto refuse = [&](std::string_view why) {
        throw UserError(
            "{}: initializer '{}' names the external file '{}', which {}; external data must lie "
            "in the model's folder or below it",
            model.path, name, location.c_str(), why);  // c_str: no zero byte in a message
    };
    if (location.empty()) refuse("is empty");
    if (location.find('\0') != std::string::npos) refuse("has a zero byte");
    if (relative.is_absolute()) refuse("is an absolute path");
    for (const fs::path& part : relative)
        if (part == "..") refuse("leaves the model's folder");
    const fs::path full = folder.empty() ? relative : folder / relative;
    for (size_t i = 0; i < model.files.size(); ++i)
        if (model.files[i].path == full.string()) return FileId(i);
    SourceFile file{full.string(), 0, true};
    if (!is_there(full)) {
        if (!options.weights_may_be_absent)
            throw UserError(
                "{}: the external data file {} (of initializer '{}') is missing; put it beside "
                "the model, or plan without it ($weights_may_be_absent)",
                model.path, full.string(), name);
        file.present = false;
    } else {
        if (!is_inside(folder, full)) refuse("is a symbolic link out of the model's folder");
        const std::optional<uint64_t> size = size_at(full);
        if (!size) refuse("is not a regular file");
        file.size = *size;
    }
    model.files.push_back(file);
    return FileId(model.files.size() - 1);
}

uint64_t number(const Model& model, const std::string& name, const std::string& text) {
    uint64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        throw UserError("{}: initializer '{}': '{}' is no offset or length of external data",
                        model.path, name, text);
    return value;
}

void locate_external(Model& model, const onnx::TensorProto& tensor, Constant& c, uint64_t expected,
                     const ImportOptions& options) {
    std::string location;
    uint64_t offset = 0, length = expected;
    for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
        if (entry.key() == "location") location = entry.value();
        if (entry.key() == "offset") offset = number(model, c.name, entry.value());
        if (entry.key() == "length") length = number(model, c.name, entry.value());
    }
    c.data.file = external_file(model, c.name, location, options);
    c.data.offset = offset;
    c.data.length = expected;
    check_length(model, c, expected, length);
    const SourceFile& file = model.files[c.data.file.index()];
    if (file.present && (offset > file.size || expected > file.size - offset))
        throw UserError(
            "{}: initializer '{}' lies at bytes {} to {} of {}, but that file has {} bytes; it was "
            "cut short: copy it again",
            model.path, c.name, offset, offset + expected, file.path, file.size);
}

template <class To, class Field>
std::vector<std::byte> cast_all(const Field& field) {
    std::vector<std::byte> bytes(field.size() * sizeof(To));
    for (int i = 0; i < field.size(); ++i) {
        To value = static_cast<To>(field.Get(i));
        std::memcpy(&bytes[i * sizeof(To)], &value, sizeof(To));
    }
    return bytes;
}

// Typed fields (int32_data and the like) as the packed bytes that raw_data would have.
std::vector<std::byte> typed_bytes(const onnx::TensorProto& t) {
    using T = onnx::TensorProto;
    switch (t.data_type()) {
        case T::FLOAT: return cast_all<float>(t.float_data());
        case T::DOUBLE: return cast_all<double>(t.double_data());
        case T::INT64: return cast_all<int64_t>(t.int64_data());
        case T::INT32: return cast_all<int32_t>(t.int32_data());
        case T::UINT64: return cast_all<uint64_t>(t.uint64_data());
        case T::UINT32: return cast_all<uint32_t>(t.uint64_data());
        default: break;
    }
    return elem_type_bits(t.data_type()) == 16 ? cast_all<uint16_t>(t.int32_data())
                                               : cast_all<uint8_t>(t.int32_data());
}

}  // namespace

Constant locate_tensor(Model& model, const onnx::TensorProto& tensor, const std::string& name,
                       const ImportOptions& options) {
    Constant c{name, tensor.data_type(), {tensor.dims().begin(), tensor.dims().end()}, {}};
    const uint64_t expected = expected_bytes(model, c);
    if (tensor.has_segment())
        throw UserError("{}: initializer '{}' is stored in segments, which is not supported",
                        model.path, name);
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
        locate_external(model, tensor, c, expected, options);
        return c;
    }
    for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
        if (entry.key() != kInlineKey) continue;
        if (tensor.external_data_size() > 1 || tensor.has_raw_data())
            throw UserError("{}: the data of initializer '{}' is given twice", model.path, name);
        const size_t comma = entry.value().find(',');
        c.data = {FileId(0),
                  {},
                  number(model, name, entry.value().substr(0, comma)),
                  number(model, name, entry.value().substr(comma + 1))};
        check_length(model, c, expected, c.data.length);
        return c;
    }
    std::vector<std::byte> bytes;
    if (tensor.has_raw_data()) {
        const auto* raw = reinterpret_cast<const std::byte*>(tensor.raw_data().data());
        bytes.assign(raw, raw + tensor.raw_data().size());
    } else {
        bytes = typed_bytes(tensor);
    }
    if (bytes.size() != expected)
        throw UserError("{}: initializer '{}' has {} bytes, but its shape and type ({}) need {}",
                        model.path, name, bytes.size(), elem_type_name(c.elem_type), expected);
    c.data = {{}, BlobId(model.blobs.size()), 0, expected};
    model.blobs.push_back(std::move(bytes));
    return c;
}

}  // namespace cleave::importer::from_onnx
