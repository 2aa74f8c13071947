// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/affinities.h"

#include <algorithm>
#include <functional>
#include <set>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <onnx/onnx_pb.h>

#include "importer/onnx/read/passes.h"
#include "runtime/base/errors.h"
#include "runtime/base/mapped_file.h"

namespace cleave::importer {
namespace {

using google::protobuf::internal::WireFormatLite;
using Bytes = std::span<const std::byte>;

// Field numbers of onnx.proto.
constexpr int kModelGraph = 7, kModelConfiguration = 26, kGraphNode = 1;

// Calls `visit` with every length-delimited field of a message; others are passed over. False: not
// a message.
bool each_field(Bytes message, const std::function<void(int, Bytes)>& visit) {
    const auto* data = reinterpret_cast<const uint8_t*>(message.data());
    size_t at = 0;
    while (at < message.size()) {
        // A stream of its own for each field: CodedInputStream counts in int, files may be larger.
        auto size = static_cast<int>(std::min<size_t>(message.size() - at, INT32_MAX));
        google::protobuf::io::CodedInputStream in(data + at, size);
        uint32_t tag = in.ReadTag();
        if (tag == 0) return false;
        if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
            uint64_t length = 0;
            if (!in.ReadVarint64(&length)) return false;
            size_t begin = at + static_cast<size_t>(in.CurrentPosition());
            if (length > message.size() - begin) return false;
            visit(WireFormatLite::GetTagFieldNumber(tag), message.subspan(begin, length));
            at = begin + length;
        } else {
            if (!WireFormatLite::SkipField(&in, tag)) return false;
            at += static_cast<size_t>(in.CurrentPosition());
        }
    }
    return true;
}

class Reader {
public:
    explicit Reader(std::string path) { result_.path = std::move(path); }

    Affinities run() {
        MappedFile file(result_.path);
        std::vector<Bytes> graphs;
        each_field(file.bytes(), [&](int field, Bytes bytes) {
            if (field == kModelConfiguration) configuration(bytes);
            if (field == kModelGraph) graphs.push_back(bytes);
        });
        for (Bytes graph : graphs)
            each_field(graph, [&](int field, Bytes bytes) {
                if (field == kGraphNode) node(bytes);
            });
        return std::move(result_);
    }

private:
    void configuration(Bytes bytes) {
        onnx::DeviceConfigurationProto c;
        if (!c.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
        known_.insert(c.name());
        if (known_.size() > 1) return;
        result_.configuration = c.name();
        result_.num_devices = c.num_devices();
        devices_.assign(c.device().begin(), c.device().end());
    }

    void node(Bytes bytes) {
        onnx::NodeProto n;
        if (!n.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
        if (n.device_configurations_size() == 0 && n.metadata_props_size() == 0) return;
        NodeAffinity a;
        a.node = !n.name().empty() ? n.name() : n.output_size() > 0 ? n.output(0) : "";
        for (const auto& entry : n.metadata_props()) {
            if (entry.key() == "device") a.device = entry.value();
            // Of `cleave export --format onnx`: a node that several devices share has a stage, and
            // no one device.
            if (entry.key() == "cleave.devices" && entry.value().find(',') != std::string::npos)
                return;
        }
        for (const auto& c : n.device_configurations()) {
            if (!known_.count(c.configuration_id()))
                throw UserError(
                    "{}: node '{}' is annotated for the configuration '{}', which the model does "
                    "not declare",
                    result_.path, a.node, c.configuration_id());
            if (c.configuration_id() == result_.configuration) position(n, c, a);
        }
        if (a.position >= 0 || !a.device.empty()) result_.nodes.push_back(std::move(a));
    }

    // The one device of the node's outputs, else its pipeline stage.
    void position(const onnx::NodeProto& n, const onnx::NodeDeviceConfigurationProto& c,
                  NodeAffinity& a) const {
        std::set<int64_t> on;
        for (const auto& spec : c.sharding_spec())
            if (spec.sharded_dim_size() > 0 && spec.device_size() > 1) return;  // of an input, too
        for (const auto& spec : c.sharding_spec())
            if (std::find(n.output().begin(), n.output().end(), spec.tensor_name()) !=
                n.output().end())
                on.insert(spec.device().begin(), spec.device().end());
        if (on.size() > 1) return;  // tensor parallelism: which devices share it is the planner's
        int64_t position = !on.empty()              ? *on.begin()
                           : c.has_pipeline_stage() ? c.pipeline_stage()
                                                    : -1;
        if (position < 0) return;
        if (position >= result_.num_devices)
            throw UserError(
                "{}: node '{}' is annotated for device {}, and the configuration '{}' has {}",
                result_.path, a.node, position, result_.configuration, result_.num_devices);
        a.position = static_cast<int>(position);
        if (position < static_cast<int64_t>(devices_.size())) a.device = devices_[position];
    }

    Affinities result_;
    std::set<std::string> known_;
    std::vector<std::string> devices_;
};

}  // namespace

Affinities read_affinities(const std::string& path) {
    return Reader(from_onnx::find_onnx_file(path)).run();
}

}  // namespace cleave::importer
