// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/read/wire_format.h"

#include <cstdint>

#include <fmt/format.h>

namespace cleave::importer::from_onnx {
namespace {

enum class Message { kModel, kGraph, kNode, kAttribute, kTensor, kFunction, kOther };

constexpr size_t kSmall = 256;  // bytes; smaller tensors stay in the message
constexpr int kMaxDepth = 60;   // Protobuf itself stops at 100

Message child(Message message, uint64_t field) {
    switch (message) {
        case Message::kModel:
            if (field == 7) return Message::kGraph;
            if (field == 25) return Message::kFunction;
            break;
        case Message::kGraph:
            if (field == 1) return Message::kNode;
            if (field == 5) return Message::kTensor;
            break;
        case Message::kNode:
            if (field == 5) return Message::kAttribute;
            break;
        case Message::kAttribute:
            if (field == 5 || field == 10) return Message::kTensor;
            if (field == 6 || field == 11) return Message::kGraph;
            break;
        case Message::kFunction:
            if (field == 7) return Message::kNode;
            if (field == 11) return Message::kAttribute;  // defaults of its attributes
            break;
        case Message::kTensor:
        case Message::kOther: break;
    }
    return Message::kOther;
}

struct Field {
    uint64_t number = 0;
    uint64_t wire_type = 0;
    size_t begin = 0;    // of tag
    size_t payload = 0;  // of the bytes of a length-delimited field
    size_t end = 0;
};

class Walker {
public:
    explicit Walker(std::span<const std::byte> file) : file_(file) {}

    bool copy(Message message, size_t begin, size_t end, int depth, std::string& out) {
        if (depth > kMaxDepth) return false;
        if (message == Message::kTensor) return copy_tensor(begin, end, out);
        for (size_t at = begin; at < end;) {
            std::optional<Field> f = next(at, end);
            if (!f) return false;
            at = f->end;
            Message inner = f->wire_type == 2 ? child(message, f->number) : Message::kOther;
            if (inner == Message::kOther) {
                append(out, f->begin, f->end);
                continue;
            }
            std::string body;
            if (!copy(inner, f->payload, f->end, depth + 1, body)) return false;
            append_delimited(out, f->number, body);
        }
        return true;
    }

private:
    std::optional<uint64_t> varint(size_t& at, size_t end) const {
        uint64_t value = 0;
        for (int shift = 0; shift < 64 && at < end; shift += 7) {
            auto byte = std::to_integer<uint64_t>(file_[at++]);
            value |= (byte & 127) << shift;
            if (byte < 128) return value;
        }
        return std::nullopt;
    }

    std::optional<Field> next(size_t at, size_t end) const {
        Field f;
        f.begin = at;
        std::optional<uint64_t> tag = varint(at, end);
        if (!tag || *tag >> 3 == 0) return std::nullopt;
        f.number = *tag >> 3;
        f.wire_type = *tag & 7;
        f.payload = at;
        uint64_t length = 0;
        if (f.wire_type == 0) {
            if (!varint(at, end)) return std::nullopt;
        } else if (f.wire_type == 1) {
            length = 8;
        } else if (f.wire_type == 5) {
            length = 4;
        } else if (f.wire_type == 2) {
            std::optional<uint64_t> n = varint(at, end);
            if (!n) return std::nullopt;
            length = *n;
            f.payload = at;
        } else {
            return std::nullopt;  // groups are not used by ONNX
        }
        if (length > end - at) return std::nullopt;
        f.end = at + length;
        return f;
    }

    // float_data in one packed run is the array itself, little-endian, as raw_data is.
    bool copy_tensor(size_t begin, size_t end, std::string& out) const {
        constexpr uint64_t kFloatData = 4, kRawData = 9, kExternalData = 13;
        int float_runs = 0, raw_runs = 0;
        for (size_t at = begin; at < end;) {
            std::optional<Field> f = next(at, end);
            if (!f) return false;
            if (f->number == kFloatData) ++float_runs;
            if (f->number == kRawData && ++raw_runs > 1) return false;  // which one counts?
            at = f->end;
        }
        std::string where;
        for (size_t at = begin; at < end;) {
            std::optional<Field> f = next(at, end);
            at = f->end;
            const bool bytes = f->wire_type == 2;
            const size_t length = f->end - f->payload;
            if (bytes && f->number == kExternalData && mentions_inline_key(*f)) return false;
            if (bytes && length >= kSmall &&
                (f->number == kRawData || (f->number == kFloatData && float_runs == 1))) {
                where = fmt::format("{},{}", f->payload, length);
                continue;
            }
            append(out, f->begin, f->end);
        }
        if (where.empty()) return true;
        std::string entry;
        append_delimited(entry, 1, kInlineKey);
        append_delimited(entry, 2, where);
        append_delimited(out, kExternalData, entry);
        return true;
    }

    // The key is ours; a file that carries it could point our views anywhere.
    bool mentions_inline_key(const Field& f) const {
        std::string_view text(reinterpret_cast<const char*>(file_.data()) + f.payload,
                              f.end - f.payload);
        return text.find(kInlineKey) != std::string_view::npos;
    }

    void append(std::string& out, size_t begin, size_t end) const {
        out.append(reinterpret_cast<const char*>(file_.data()) + begin, end - begin);
    }

    static void append_varint(std::string& out, uint64_t value) {
        for (; value >= 128; value >>= 7) out.push_back(static_cast<char>((value & 127) | 128));
        out.push_back(static_cast<char>(value));
    }

    static void append_delimited(std::string& out, uint64_t number, std::string_view body) {
        append_varint(out, number << 3 | 2);
        append_varint(out, body.size());
        out.append(body);
    }

    std::span<const std::byte> file_;
};

}  // namespace

std::optional<std::string> without_tensor_bytes(std::span<const std::byte> file) {
    std::string out;
    if (!Walker(file).copy(Message::kModel, 0, file.size(), 0, out)) return std::nullopt;
    return out;
}

}  // namespace cleave::importer::from_onnx
