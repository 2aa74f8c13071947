// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "runtime/base/mapped_file.h"
#include "tools/cli/files.h"

namespace cleave::tools {
namespace {

using runtime::Tensor;

struct Row {
    DType dtype;
    std::string_view descr;
};
constexpr std::array kTypes{
    Row{DType::kF32, "<f4"},   Row{DType::kF16, "<f2"},   Row{DType::kF64, "<f8"},
    Row{DType::kInt8, "|i1"},  Row{DType::kUInt8, "|u1"}, Row{DType::kInt16, "<i2"},
    Row{DType::kInt32, "<i4"}, Row{DType::kInt64, "<i8"}, Row{DType::kBool, "|b1"},
};
constexpr std::string_view kMagic{"\x93NUMPY", 6};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw UserError("{} is no .npy file that can be read: {}", path, why);
}

// What follows 'key': in the header's dictionary.
std::string_view value_of(std::string_view header, std::string_view key, const std::string& path) {
    const std::string quoted = fmt::format("'{}':", key);
    size_t at = header.find(quoted);
    if (at == std::string_view::npos) refuse(path, fmt::format("its header has no {}", quoted));
    header.remove_prefix(at + quoted.size());
    while (!header.empty() && header[0] == ' ') header.remove_prefix(1);
    return header;
}

std::vector<int64_t> parse_shape(std::string_view text, const std::string& path) {
    std::vector<int64_t> shape;
    if (text.empty() || text[0] != '(') refuse(path, "its shape is no tuple");
    text.remove_prefix(1);
    while (!text.empty() && text[0] != ')') {
        if (text[0] == ' ' || text[0] == ',') {
            text.remove_prefix(1);
            continue;
        }
        int64_t size = -1;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
        if (error != std::errc() || size < 0 || size > (int64_t{1} << 40))
            refuse(path, "a dimension of its shape is no size");
        shape.push_back(size);
        text.remove_prefix(static_cast<size_t>(end - text.data()));
    }
    return shape;
}

}  // namespace

Tensor read_npy(const std::string& name, const std::string& path) {
    // Mapped: a file that is none is not read.
    const MappedFile mapped(path);
    const std::string_view file(reinterpret_cast<const char*>(mapped.bytes().data()),
                                mapped.bytes().size());
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(file[i])); };
    if (file.size() < 10 || std::string_view(file).substr(0, 6) != kMagic)
        refuse(path, "it does not begin as one; save it with numpy.save");
    const bool wide = byte(6) >= 2;  // version
    size_t start = wide ? 12 : 10, length = byte(8) | byte(9) << 8;
    if (wide && file.size() >= 12) length |= byte(10) << 16 | byte(11) << 24;
    if (file.size() < start || file.size() - start < length) refuse(path, "it is cut short");
    const std::string_view header = std::string_view(file).substr(start, length);

    Tensor tensor{name, DType::kF32, parse_shape(value_of(header, "shape", path), path), {}};
    const std::string_view descr = value_of(header, "descr", path);
    const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const Row& row) {
        return descr.substr(0, 5) == fmt::format("'{}'", row.descr);
    });
    if (type == kTypes.end())
        refuse(path, fmt::format("its type {} is none of f32, f16, f64, integers and bool, "
                                 "little-endian",
                                 descr.substr(0, descr.find(','))));
    tensor.dtype = type->dtype;
    if (value_of(header, "fortran_order", path).substr(0, 5) != "False")
        refuse(path, "it is stored column by column; save numpy.ascontiguousarray of it");
    __int128 bytes = dtype_bits(tensor.dtype) / 8;
    for (int64_t d : tensor.shape) {
        bytes *= d;
        if (bytes > static_cast<__int128>(file.size())) refuse(path, "it is cut short");
    }
    const std::string_view data = std::string_view(file).substr(start + length);
    if (data.size() != static_cast<size_t>(bytes))
        refuse(path, fmt::format("{} bytes follow its header, its shape needs {}", data.size(),
                                 static_cast<int64_t>(bytes)));
    const auto* first = reinterpret_cast<const std::byte*>(data.data());
    tensor.data.assign(first, first + data.size());
    return tensor;
}

void write_npy(const Tensor& tensor, const std::string& path) {
    const auto* type = std::find_if(kTypes.begin(), kTypes.end(),
                                    [&](const Row& row) { return row.dtype == tensor.dtype; });
    if (type == kTypes.end())
        throw UserError(
            "output '{}' is {}, which .npy files have no type for; cast it to f32 in "
            "the model",
            tensor.name, tensor.dtype);
    std::string header =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type->descr,
                    fmt::join(tensor.shape, ", "), tensor.shape.size() == 1 ? "," : "");
    // Data begins at a multiple of 64; a line feed ends the header.
    header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ');
    header += '\n';
    std::string file(kMagic);
    file += '\x01';
    file += '\0';
    file += static_cast<char>(header.size() & 255);
    file += static_cast<char>(header.size() >> 8);
    file += header;
    file.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    write_file("--output-dir", path, file);
}

}  // namespace cleave::tools
