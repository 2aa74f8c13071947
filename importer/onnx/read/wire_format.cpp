// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/read/wire_format.h"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "runtime/base/protobuf_wire.h"

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

class Walker {
public:
    explicit Walker(std::string_view file) : file_(file) {}

    bool copy(Message message, std::string_view rest, int depth, std::string& out) {
        if (depth > kMaxDepth) return false;
        if (message == Message::kTensor) return copy_tensor(rest, out);
        while (!rest.empty()) {
            const std::optional<WireField> f = take_field(rest);
            if (!f) return false;
            const Message inner = f->type == 2 ? child(message, f->number) : Message::kOther;
            if (inner == Message::kOther) {
                out.append(f->whole);
                continue;
            }
            std::string body;
            if (!copy(inner, f->content, depth + 1, body)) return false;
            append_bytes(out, f->number, body);
        }
        return true;
    }

private:
    // float_data in one packed run is the array itself, little-endian, as raw_data is.
    bool copy_tensor(std::string_view tensor, std::string& out) const {
        constexpr uint64_t kFloatData = 4, kRawData = 9, kExternalData = 13;
        int float_runs = 0, raw_runs = 0;
        for (std::string_view rest = tensor; !rest.empty();) {
            const std::optional<WireField> f = take_field(rest);
            if (!f) return false;
            if (f->number == kFloatData) ++float_runs;
            if (f->number == kRawData && ++raw_runs > 1) return false;  // which one counts?
        }
        std::string where;
        while (!tensor.empty()) {
            const std::optional<WireField> f = take_field(tensor);
            const bool bytes = f->type == 2;
            // The key is ours; a file that carries it could point our views anywhere.
            if (bytes && f->number == kExternalData &&
                f->content.find(kInlineKey) != std::string_view::npos)
                return false;
            if (bytes && f->content.size() >= kSmall &&
                (f->number == kRawData || (f->number == kFloatData && float_runs == 1))) {
                where = fmt::format("{},{}", f->content.data() - file_.data(), f->content.size());
                continue;
            }
            out.append(f->whole);
        }
        if (where.empty()) return true;
        std::string entry;
        append_bytes(entry, 1, kInlineKey);
        append_bytes(entry, 2, where);
        append_bytes(out, kExternalData, entry);
        return true;
    }

    std::string_view file_;
};

}  // namespace

std::optional<std::string> without_tensor_bytes(std::span<const std::byte> file) {
    const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
    std::string out;
    if (!Walker(bytes).copy(Message::kModel, bytes, 0, out)) return std::nullopt;
    return out;
}

}  // namespace cleave::importer::from_onnx
