// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <tuple>

#include "runtime/base/control_characters.h"
#include "runtime/base/errors.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/path_state.h"
#include "runtime/base/rounding.h"

namespace cleave {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMagic = "GGUF";
// Far beyond any model: vocabularies of 2026 have some 300,000 tokens, each with a score, a type
// and a merge.
constexpr uint64_t kMostElements = 1 << 23, kMostPairs = 1 << 16, kMostTensors = 1 << 20;
constexpr uint64_t kMostTensorElements = uint64_t{1} << 50;
constexpr uint32_t kMostDimensions = 4, kMostAlignment = 1 << 20;

constexpr std::array kLayouts{GgufLayout{GgufType::kF32, 0, "F32", 1, 4},
                              GgufLayout{GgufType::kF16, 1, "F16", 1, 2},
                              GgufLayout{GgufType::kBF16, 30, "BF16", 1, 2},
                              GgufLayout{GgufType::kQ40, 2, "Q4_0", 32, 18},
                              GgufLayout{GgufType::kQ41, 3, "Q4_1", 32, 20},
                              GgufLayout{GgufType::kQ50, 6, "Q5_0", 32, 22},
                              GgufLayout{GgufType::kQ51, 7, "Q5_1", 32, 24},
                              GgufLayout{GgufType::kQ80, 8, "Q8_0", 32, 34},
                              GgufLayout{GgufType::kQ2K, 10, "Q2_K", 256, 84},
                              GgufLayout{GgufType::kQ3K, 11, "Q3_K", 256, 110},
                              GgufLayout{GgufType::kQ4K, 12, "Q4_K", 256, 144},
                              GgufLayout{GgufType::kQ5K, 13, "Q5_K", 256, 176},
                              GgufLayout{GgufType::kQ6K, 14, "Q6_K", 256, 210}};

enum class ValueType : uint8_t {
    kUInt8,
    kInt8,
    kUInt16,
    kInt16,
    kUInt32,
    kInt32,
    kFloat32,
    kBool,
    kString,
    kArray,
    kUInt64,
    kInt64,
    kFloat64
};

class Reader {
public:
    explicit Reader(const MappedFile& file) : path_(file.path()), bytes_(file.bytes()) {}

    GgufFile read() {
        GgufFile file{path_, bytes_.size(), Json::object(), {}};
        check_version();
        const uint64_t tensors = count("tensors", kMostTensors);
        const uint64_t pairs = count("key-value pairs", kMostPairs);
        for (uint64_t i = 0; i < pairs; ++i) {
            const std::string key = name("a key");
            const auto type = number<uint32_t>("the type of " + key);
            if (file.metadata.contains(key)) refuse(fmt::format("has '{}' twice", key));
            file.metadata[key] = value(key, type);
        }
        if (const auto split = file.metadata.find("split.count"); split != file.metadata.end() &&
                                                                  split->is_number_integer() &&
                                                                  *split != 0 && *split != 1)
            refuse(
                fmt::format("is one of {} parts of a model, which are not supported; merge them "
                            "(llama-gguf-split --merge)",
                            split->dump()));
        for (uint64_t i = 0; i < tensors; ++i) file.tensors.push_back(tensor());
        place(file);
        return file;
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw UserError("{}: the GGUF file {}", path_, what);
    }
    void need(uint64_t size, const std::string& what) const {
        if (size > bytes_.size() - at_)
            refuse(fmt::format("ends within {}, at byte {}; it was cut short: download it again",
                               what, bytes_.size()));
    }
    template <class T>
    T number(const std::string& what) {
        static_assert(std::endian::native == std::endian::little);
        need(sizeof(T), what);
        T value;
        std::memcpy(&value, bytes_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return value;
    }
    uint64_t count(const char* what, uint64_t most) {
        const auto n = number<uint64_t>(fmt::format("the number of {}", what));
        if (n > most)
            refuse(fmt::format("would have {} {}; at most {} are supported", n, what, most));
        return n;
    }
    std::string text(const std::string& what) {
        const auto size = number<uint64_t>(what);
        need(size, what);
        std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
        at_ += size;
        return text;
    }

    // Which messages and tables show.
    std::string name(const std::string& what) {
        std::string name = text(what);
        if (has_control_characters(name))
            refuse(fmt::format("has control characters in {}, before byte {}", what, at_));
        return name;
    }

    void check_version() {
        need(kMagic.size(), "its first bytes");
        if (std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0)
            throw UserError("{}: no GGUF file", path_);
        at_ = kMagic.size();
        const auto version = number<uint32_t>("its version");
        if ((version & 0xffff) == 0)
            refuse("is big-endian, which is not supported; convert the model anew");
        if (version != 2 && version != 3)
            refuse(fmt::format("is of version {}; supported are 2 and 3", version));
    }

    template <class T>
    Json real(const std::string& key) {
        const T value = number<T>(key);
        if (!std::isfinite(value)) refuse(fmt::format("has no finite number for '{}'", key));
        return value;
    }

    Json value(const std::string& key, uint32_t type) {
        switch (static_cast<ValueType>(type)) {
            case ValueType::kUInt8: return number<uint8_t>(key);
            case ValueType::kInt8: return number<int8_t>(key);
            case ValueType::kUInt16: return number<uint16_t>(key);
            case ValueType::kInt16: return number<int16_t>(key);
            case ValueType::kUInt32: return number<uint32_t>(key);
            case ValueType::kInt32: return number<int32_t>(key);
            case ValueType::kFloat32: return real<float>(key);
            case ValueType::kBool: return number<uint8_t>(key) != 0;
            case ValueType::kString: return text(key);
            case ValueType::kArray: return array(key);
            case ValueType::kUInt64: return number<uint64_t>(key);
            case ValueType::kInt64: return number<int64_t>(key);
            case ValueType::kFloat64: return real<double>(key);
        }
        refuse(fmt::format("has a value of type {} for '{}', which the format does not have", type,
                           key));
    }

    Json array(const std::string& key) {
        const auto type = number<uint32_t>(key);
        const auto size = number<uint64_t>(key);
        if (type == static_cast<uint32_t>(ValueType::kArray))
            refuse(
                fmt::format("has arrays within an array for '{}', which are not supported", key));
        if (size > kMostElements - elements_)
            refuse(fmt::format("would have {} values for '{}'; at most {} are supported in all",
                               size, key, kMostElements));
        elements_ += size;
        Json list = Json::array();
        for (uint64_t i = 0; i < size; ++i) list.push_back(value(key, type));
        return list;
    }

    GgufTensor tensor() {
        GgufTensor t;
        t.name = name("a tensor's name");
        const auto dimensions = number<uint32_t>(t.name);
        if (dimensions == 0 || dimensions > kMostDimensions)
            refuse(fmt::format("has {} dimensions for tensor '{}'", dimensions, t.name));
        uint64_t elements = 1;
        for (uint32_t i = 0; i < dimensions; ++i) {
            const auto d = number<uint64_t>(t.name);
            if (d == 0 || elements > kMostTensorElements / d)
                refuse(fmt::format("has an impossible shape for tensor '{}'", t.name));
            elements *= d;
            t.shape.insert(t.shape.begin(), static_cast<int64_t>(d));
        }
        const GgufLayout& layout = layout_of(t.name, number<uint32_t>(t.name));
        t.type = layout.type;
        if (t.shape.back() % layout.elements != 0)
            refuse(
                fmt::format("has rows of {} elements for tensor '{}', which are no whole blocks "
                            "of {} ({})",
                            t.shape.back(), t.name, layout.elements, layout.name));
        t.length =
            elements / static_cast<uint64_t>(layout.elements) * static_cast<uint64_t>(layout.bytes);
        t.offset = number<uint64_t>(t.name);
        return t;
    }

    const GgufLayout& layout_of(const std::string& name, uint32_t type) const {
        std::string known;
        for (const GgufLayout& layout : kLayouts) {
            if (layout.number == type) return layout;
            known += (known.empty() ? "" : ", ") + std::string(layout.name);
        }
        refuse(
            fmt::format("has tensor '{}' of ggml's type {}, which is not supported; supported "
                        "are {}",
                        name, type, known));
    }

    // Offsets count from the first aligned byte behind the header.
    void place(GgufFile& file) {
        uint64_t alignment = 32;
        if (const auto said = file.metadata.find("general.alignment");
            said != file.metadata.end()) {
            if (!said->is_number_unsigned() || !std::has_single_bit(said->get<uint64_t>()) ||
                said->get<uint64_t>() > kMostAlignment)
                refuse(fmt::format("has a general.alignment that is no power of two up to {}",
                                   kMostAlignment));
            alignment = said->get<uint64_t>();
        }
        const uint64_t begin = round_up(at_, alignment);
        std::set<std::string_view> names;
        for (GgufTensor& t : file.tensors) {
            if (!names.insert(t.name).second) refuse(fmt::format("has tensor '{}' twice", t.name));
            if (t.offset % alignment != 0)
                refuse(fmt::format("has tensor '{}' at byte {}, which is no multiple of {}", t.name,
                                   t.offset, alignment));
            const uint64_t room = file.size > begin ? file.size - begin : 0;
            if (t.offset > room || t.length > room - t.offset)
                refuse(
                    fmt::format("has tensor '{}' up to byte {} of its data, which has {}; it was "
                                "cut short: download it again",
                                t.name, t.offset + t.length, room));
            t.offset += begin;
        }
        std::sort(file.tensors.begin(), file.tensors.end(),
                  [](const GgufTensor& a, const GgufTensor& b) {
                      return std::tie(a.offset, a.name) < std::tie(b.offset, b.name);
                  });
        for (size_t i = 1; i < file.tensors.size(); ++i) {
            const GgufTensor& before = file.tensors[i - 1];
            if (before.offset + before.length > file.tensors[i].offset)
                refuse(fmt::format("has tensor '{}' over '{}'", file.tensors[i].name, before.name));
        }
    }

    const std::string& path_;
    std::span<const std::byte> bytes_;
    uint64_t at_ = 0;
    uint64_t elements_ = 0;  // of all arrays
};

}  // namespace

const GgufLayout& gguf_layout(GgufType type) {
    const auto found = std::find_if(kLayouts.begin(), kLayouts.end(),
                                    [&](const GgufLayout& l) { return l.type == type; });
    CLEAVE_CHECK(found != kLayouts.end()) << "no GGUF type";
    return *found;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const GgufTensor& t) { return t.name == name; });
    return found == tensors.end() ? nullptr : &*found;
}

std::string GgufFile::architecture() const {
    const auto found = metadata.find("general.architecture");
    if (found == metadata.end() || !found->is_string())
        throw UserError("{}: the GGUF file has no general.architecture", path);
    return found->get<std::string>();
}

bool is_gguf(const std::string& path) {
    if (!is_file(path)) return false;  // a pipe would wait
    std::string begins(kMagic.size(), '\0');
    std::ifstream(path, std::ios::binary).read(begins.data(), std::ssize(begins));
    return begins == kMagic;
}

GgufFile read_gguf(const std::string& path) { return Reader(MappedFile(path)).read(); }

}  // namespace cleave
