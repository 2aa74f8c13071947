// SPDX-License-Identifier: Apache-2.0
#include "models/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"
#include "runtime/base/mapped_file.h"

namespace cleave::models {
namespace {

using Json = nlohmann::json;

// The format's own limits: a header of 100 MB, and here a tensor of 2^50 elements.
constexpr uint64_t kMostHeaderBytes = 100'000'000, kMostElements = uint64_t{1} << 50;
constexpr uint64_t kLengthBytes = 8;

constexpr std::array<std::pair<std::string_view, int>, 15> kTypes{{{"F64", 64},
                                                                   {"F32", 32},
                                                                   {"F16", 16},
                                                                   {"BF16", 16},
                                                                   {"F8_E4M3", 8},
                                                                   {"F8_E5M2", 8},
                                                                   {"F8_E8M0", 8},
                                                                   {"I64", 64},
                                                                   {"I32", 32},
                                                                   {"I16", 16},
                                                                   {"I8", 8},
                                                                   {"U64", 64},
                                                                   {"U32", 32},
                                                                   {"U16", 16},
                                                                   {"U8", 8}}};

// One entry of the header, with messages that name file and tensor.
class Entry {
public:
    Entry(const std::string& path, const std::string& name, const Json& json)
        : path_(path), name_(name), json_(json) {}

    StoredTensor read(uint64_t begin_of_data, uint64_t bytes_of_data) const {
        if (!json_.is_object()) refuse("is no object of dtype, shape and data_offsets");
        StoredTensor tensor{name_, text("dtype"), {}, 0, 0};
        const int bits = safetensors_bits(tensor.dtype);
        if (bits == 0)
            refuse(
                fmt::format("has the element type \"{}\", which is not supported", tensor.dtype));
        uint64_t count = 1;
        for (const uint64_t d : numbers("shape")) {
            if (d != 0 && count > kMostElements / d) refuse("has a shape that overflows");
            count *= d;
            tensor.shape.push_back(static_cast<int64_t>(d));
        }
        const std::vector<uint64_t> offsets = numbers("data_offsets");
        if (offsets.size() != 2 || offsets[0] > offsets[1])
            refuse("has data_offsets that are no beginning and end");
        if (offsets[1] > bytes_of_data)
            refuse(
                fmt::format("ends at byte {} of the data, which has {}; the file was cut "
                            "short: download it again",
                            offsets[1], bytes_of_data));
        tensor.offset = begin_of_data + offsets[0];
        tensor.length = offsets[1] - offsets[0];
        if (tensor.length != (count * static_cast<uint64_t>(bits) + 7) / 8)
            refuse(fmt::format("has {} bytes, but its shape and type ({}) need {}", tensor.length,
                               tensor.dtype, (count * static_cast<uint64_t>(bits) + 7) / 8));
        return tensor;
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw UserError("{}: tensor '{}' {}", path_, name_, what);
    }
    const Json& field(const char* key) const {
        const auto found = json_.find(key);
        if (found == json_.end()) refuse(fmt::format("has no {}", key));
        return *found;
    }
    std::string text(const char* key) const {
        if (!field(key).is_string()) refuse(fmt::format("has a {} that is no text", key));
        return field(key).get<std::string>();
    }
    std::vector<uint64_t> numbers(const char* key) const {
        const Json& list = field(key);
        if (!list.is_array()) refuse(fmt::format("has a {} that is no list", key));
        std::vector<uint64_t> values;
        for (const Json& value : list) {
            if (!value.is_number_unsigned() || value.get<uint64_t>() >= uint64_t{1} << 62)
                refuse(fmt::format("has {} in its {}", value.dump(), key));
            values.push_back(value.get<uint64_t>());
        }
        return values;
    }

    const std::string& path_;
    const std::string& name_;
    const Json& json_;
};

uint64_t header_length(const MappedFile& file) {
    const auto bytes = file.bytes();
    uint64_t length = 0;
    for (size_t i = 0; i < kLengthBytes && i < bytes.size(); ++i)
        length |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    if (bytes.size() < kLengthBytes || length < 2)
        throw UserError("{}: no safetensors file, or cut short ({} bytes); download it again",
                        file.path(), bytes.size());
    if (length > kMostHeaderBytes)
        throw UserError(
            "{}: no safetensors file: its header would have {} bytes; at most {} are "
            "supported",
            file.path(), length, kMostHeaderBytes);
    if (length > bytes.size() - kLengthBytes)
        throw UserError(
            "{}: its header has {} bytes, but the file has {} after its first {}; it was cut "
            "short: download it again",
            file.path(), length, bytes.size() - kLengthBytes, kLengthBytes);
    return length;
}

// Every byte of the data belongs to one tensor.
void check_places(const SafetensorsFile& file, uint64_t begin_of_data) {
    uint64_t at = begin_of_data;
    for (const StoredTensor& tensor : file.tensors) {
        if (tensor.offset < at)
            throw UserError("{}: tensor '{}' overlaps the one in front of it; the file is damaged",
                            file.path, tensor.name);
        if (tensor.offset > at)
            throw UserError(
                "{}: the {} bytes in front of tensor '{}' belong to none; the file is damaged",
                file.path, tensor.offset - at, tensor.name);
        at += tensor.length;
    }
    if (at != file.size)
        throw UserError("{}: {} bytes behind its last tensor; the file is damaged", file.path,
                        file.size - at);
}

}  // namespace

int safetensors_bits(const std::string& dtype) {
    if (dtype == "BOOL") return 8;
    for (const auto& [name, bits] : kTypes)
        if (name == dtype) return bits;
    return 0;
}

SafetensorsFile read_safetensors(const std::string& path) {
    const MappedFile map(path);
    const uint64_t length = header_length(map);
    const uint64_t begin_of_data = kLengthBytes + length;
    const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()) + kLengthBytes,
                                length);
    const Json header = parse_json(text, path + ": its header", "download the file again");
    if (!header.is_object()) throw UserError("{}: its header is no JSON object", path);
    SafetensorsFile file{path, map.bytes().size(), {}};
    for (const auto& [name, entry] : header.items())
        if (name != "__metadata__")
            file.tensors.push_back(
                Entry(path, name, entry).read(begin_of_data, file.size - begin_of_data));
    std::sort(
        file.tensors.begin(), file.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
            return std::tie(a.offset, a.length, a.name) < std::tie(b.offset, b.length, b.name);
        });
    check_places(file, begin_of_data);
    return file;
}

}  // namespace cleave::models
