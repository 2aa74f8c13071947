// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/onnx/annotate.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "planner/file/plan_file.h"
#include "runtime/base/errors.h"
#include "runtime/base/mapped_file.h"

namespace cleave::planner {
namespace {

using importer::Weight;

constexpr int64_t kFirstIrWithDevices = 11;
constexpr const char* kPlanKey = "cleave.plan";
constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// RFC 4648: metadata are strings, and Python's reader refuses bytes that are no UTF-8.
std::string to_base64(const std::string& bytes) {
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; ++k)
            three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
        for (size_t k = 0; k < 4; ++k)
            text += i + k > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
    }
    return text;
}

std::optional<std::string> from_base64(const std::string& text) {
    std::string bytes;
    uint32_t bits = 0;
    int held = 0;
    for (char c : text) {
        if (c == '=') break;
        const size_t digit = kDigits.find(c);
        if (digit == std::string_view::npos) return std::nullopt;
        bits = bits << 6 | static_cast<uint32_t>(digit);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        bytes += static_cast<char>(bits >> held & 0xff);
    }
    return bytes;
}

template <class Message>
void set_metadata(Message& message, const std::string& key, const std::string& value) {
    auto* entry = message.add_metadata_props();
    entry->set_key(kMetadataPrefix + key);
    entry->set_value(value);
}

template <class Message>
void strip_metadata(Message& message) {
    auto* props = message.mutable_metadata_props();
    for (int i = props->size() - 1; i >= 0; --i)
        if (props->Get(i).key().starts_with(kMetadataPrefix)) props->DeleteSubrange(i, 1);
}

// Who computes an operator, with which shards of its weights.
struct Placed {
    int stage = 0;
    std::vector<DeviceId> devices;
    std::map<WeightId, std::vector<const WeightShard*>> weights;  // by device of `devices`
    bool is_partial = false;
};

class Annotator {
public:
    Annotator(const Plan& plan, onnx::ModelProto& model)
        : plan_(plan), model_(model), graph_(*model.mutable_graph()) {}

    void run() {
        strip_annotations(model_);
        model_.set_ir_version(std::max<int64_t>(model_.ir_version(), kFirstIrWithDevices));
        auto* configuration = model_.add_configuration();
        configuration->set_name(kConfiguration);
        configuration->set_num_devices(static_cast<int32_t>(plan_.machine.devices.size()));
        for (const DeviceInfo& d : plan_.machine.devices) configuration->add_device(d.name);
        describe_stages();
        embed_plan_file(serialize_plan(plan_), model_);
        collect();
        for (size_t i = 0; i < plan_.graph.ops.size(); ++i)
            for (const std::string& name : plan_.graph.ops[i].onnx_nodes)
                owners_[name].push_back(OpId(i));
        find_stages();
        for (int i = 0; i < graph_.node_size(); ++i) annotate_node(i);
    }

private:
    void describe_stages() {
        for (size_t s = 0; s < plan_.stages.size(); ++s)
            set_metadata(model_, fmt::format("stage.{}", s), device_list(plan_.stages[s].devices));
        std::vector<std::string> transfers;
        for (const Step& step : plan_.prefill.steps) {
            const Transfer* t = step.transfer();
            if (!t) continue;
            const PlacedValue& from = plan_.prefill.values[t->source.index()];
            const PlacedValue& to = plan_.prefill.values[t->destination.index()];
            transfers.push_back(fmt::format("{} {}>{}", plan_.graph.value(from.value).name,
                                            plan_.machine.device(from.device).name,
                                            plan_.machine.device(to.device).name));
        }
        if (!transfers.empty())
            set_metadata(model_, "transfers", fmt::format("{}", fmt::join(transfers, ", ")));
    }
    std::string device_list(const std::vector<DeviceId>& devices) const {
        std::vector<std::string> names;
        for (DeviceId d : devices) names.push_back(plan_.machine.device(d).name);
        return fmt::format("{}", fmt::join(names, ","));
    }

    void collect() {
        for (const Step& step : plan_.prefill.steps) {
            if (const Compute* c = step.compute())
                for (OpId id : c->ops) {
                    Placed& placed = placed_[id];
                    placed.stage = step.stage;
                    placed.devices.push_back(c->device);
                    for (PlacedId out : c->outputs)
                        placed.is_partial |= plan_.prefill.values[out.index()].partial;
                    for (WeightId w : plan_.graph.op(id).weights)
                        placed.weights[w].push_back(shard_of(*c, w));
                }
            if (const Collective* c = step.collective())
                for (OpId id : c->epilogue) {
                    Placed& placed = placed_[id] = {step.stage, c->group, {}, false};
                    if (plan_.graph.op(id).kind != importer::OpKind::kRmsNorm) continue;
                    for (WeightShardId w : c->weights) {
                        const WeightShard& shard = plan_.weights[w.index()];
                        placed.weights[shard.weight].push_back(&shard);
                    }
                }
        }
    }
    const WeightShard* shard_of(const Compute& c, WeightId w) const {
        for (WeightShardId id : c.weights)
            if (plan_.weights[id.index()].weight == w) return &plan_.weights[id.index()];
        return nullptr;
    }

    // A node of no operator (a shape, a mask, a table) belongs to every stage that reads it, and so
    // does one that operators of several stages share.
    void find_stages() {
        std::map<std::string, std::set<int>> readers;
        stages_.resize(static_cast<size_t>(graph_.node_size()));
        for (int i = graph_.node_size() - 1; i >= 0; --i) {
            const onnx::NodeProto& node = graph_.node(i);
            std::set<int>& stages = stages_[static_cast<size_t>(i)];
            for (OpId id : owners_of(node))
                if (placed_.count(id)) stages.insert(placed_.at(id).stage);
            if (stages.empty())
                for (const std::string& output : node.output())
                    if (auto at = readers.find(output); at != readers.end())
                        stages.insert(at->second.begin(), at->second.end());
            if (stages.empty()) stages.insert(0);
            for (const std::string& input : node.input())
                readers[input].insert(stages.begin(), stages.end());
        }
    }

    std::vector<OpId> owners_of(const onnx::NodeProto& node) const {
        auto at = owners_.find(label_of(node));
        return at == owners_.end() ? std::vector<OpId>{} : at->second;
    }

    void annotate_node(int index) {
        onnx::NodeProto& node = *graph_.mutable_node(index);
        const std::set<int>& stages = stages_[static_cast<size_t>(index)];
        auto* on = node.add_device_configurations();
        on->set_configuration_id(kConfiguration);
        on->set_pipeline_stage(*stages.begin());
        std::vector<std::string> names;
        const Placed* placed = nullptr;
        for (OpId id : owners_of(node)) {
            names.push_back(plan_.graph.op(id).name);
            if (auto at = placed_.find(id); at != placed_.end()) placed = &at->second;
        }
        if (!names.empty()) set_metadata(node, "op", fmt::format("{}", fmt::join(names, ",")));
        const bool replicated = stages.size() > 1 || !placed;
        std::vector<DeviceId> devices;
        if (!replicated) devices = placed->devices;
        for (int stage : stages)
            if (replicated)
                for (DeviceId d : plan_.stages[static_cast<size_t>(stage)].devices)
                    if (std::find(devices.begin(), devices.end(), d) == devices.end())
                        devices.push_back(d);
        set_metadata(node, "devices", device_list(devices));
        if (replicated || devices.size() == 1) {
            for (const std::string& output : node.output()) place_output(*on, output, devices);
            return;
        }
        for (const auto& [weight, shards] : placed->weights)
            shard_weight(node, *on, weight, shards);
        if (!placed->is_partial) return;
        // Whole on every device, once the sum has been made.
        for (const std::string& output : node.output()) place_output(*on, output, devices);
        set_metadata(node, "sum", "partial results are added over cleave.devices");
    }

    static void place_output(onnx::NodeDeviceConfigurationProto& on, const std::string& output,
                             const std::vector<DeviceId>& devices) {
        if (output.empty()) return;
        auto* spec = on.add_sharding_spec();
        spec->set_tensor_name(output);
        for (DeviceId d : devices) spec->add_device(static_cast<int64_t>(d.index()));
    }

    void shard_weight(onnx::NodeProto& node, onnx::NodeDeviceConfigurationProto& on, WeightId id,
                      const std::vector<const WeightShard*>& shards) {
        const Weight& weight = plan_.graph.weight(id);
        for (const std::string& input : node.input()) {
            if (std::find(weight.initializers.begin(), weight.initializers.end(), input) ==
                weight.initializers.end())
                continue;
            auto* spec = on.add_sharding_spec();
            spec->set_tensor_name(input);
            std::vector<std::string> parts;
            std::set<int64_t> sizes;
            bool by_rows = false;
            for (const WeightShard* shard : shards) {
                if (!shard) continue;  // a bias that another device adds
                spec->add_device(static_cast<int64_t>(shard->device.index()));
                by_rows |= shard->rows.size() != weight.shape[0];
                parts.push_back(fmt::format("{}:{}-{}x{}-{}", shard->device.index(),
                                            shard->rows.begin, shard->rows.end,
                                            shard->columns.begin, shard->columns.end));
                sizes.insert(shard->rows.size() * 1'000'000'007 + shard->columns.size());
            }
            const bool matrix = weight.shape.size() > 1;
            const WeightShard* first = shards[0];
            const bool by_columns = matrix && first && first->columns.size() != weight.shape[1];
            if (!by_rows && !by_columns) continue;  // a copy on each
            // A view of a larger tensor, or parts of unequal size: the standard has no words for
            // either.
            set_metadata(node, "shards." + weight.name, fmt::format("{}", fmt::join(parts, " ")));
            if (is_view(weight)) continue;
            auto* dim = spec->add_sharded_dim();
            dim->set_axis(matrix && (by_columns != weight.transposed) ? 1 : 0);
            auto* simple = dim->add_simple_sharding();
            simple->set_dim_value(by_rows ? weight.shape[0] : weight.shape[1]);
            simple->set_num_shards(static_cast<int64_t>(parts.size()));
        }
    }
    static bool is_view(const Weight& w) {
        int64_t stored = 1;
        for (int64_t d : w.source_shape) stored *= d;
        return stored != w.num_elements();
    }

    const Plan& plan_;
    onnx::ModelProto& model_;
    onnx::GraphProto& graph_;
    std::map<OpId, Placed> placed_;
    std::map<std::string, std::vector<OpId>> owners_;
    std::vector<std::set<int>> stages_;  // of each node
};

}  // namespace

void annotate(const Plan& plan, onnx::ModelProto& model) { Annotator(plan, model).run(); }

void strip_annotations(onnx::ModelProto& model) {
    auto* configurations = model.mutable_configuration();
    for (int i = configurations->size() - 1; i >= 0; --i)
        if (configurations->Get(i).name() == kConfiguration) configurations->DeleteSubrange(i, 1);
    strip_metadata(model);
    for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
        strip_metadata(node);
        auto* on = node.mutable_device_configurations();
        for (int i = on->size() - 1; i >= 0; --i)
            if (on->Get(i).configuration_id() == kConfiguration) on->DeleteSubrange(i, 1);
    }
}

void embed_plan_file(const std::string& bytes, onnx::ModelProto& model) {
    for (auto& entry : *model.mutable_metadata_props())
        if (entry.key() == kPlanKey) return entry.set_value(to_base64(bytes));
    auto* entry = model.add_metadata_props();
    entry->set_key(kPlanKey);
    entry->set_value(to_base64(bytes));
}

std::optional<std::string> embedded_plan_file(const onnx::ModelProto& model,
                                              const std::string& origin) {
    for (const auto& entry : model.metadata_props()) {
        if (entry.key() != kPlanKey) continue;
        std::optional<std::string> bytes = from_base64(entry.value());
        if (!bytes)
            throw UserError("{}: its metadata {} is damaged; export it again with $export_onnx",
                            origin, kPlanKey);
        return bytes;
    }
    return std::nullopt;
}

std::optional<Plan> embedded_plan(const onnx::ModelProto& model, const std::string& origin) {
    const std::optional<std::string> bytes = embedded_plan_file(model, origin);
    if (!bytes) return std::nullopt;
    return parse_plan(*bytes, fmt::format("{} (metadata {})", origin, kPlanKey));
}

std::string label_of(const onnx::NodeProto& node) {
    if (!node.name().empty()) return node.name();
    for (const std::string& output : node.output())
        if (!output.empty()) return output;
    return {};
}

onnx::ModelProto read_model_file(const std::string& path) {
    MappedFile file(path);
    google::protobuf::io::ArrayInputStream stream(
        file.bytes().data(), static_cast<int>(std::min<size_t>(file.bytes().size(), INT32_MAX)));
    google::protobuf::io::CodedInputStream in(&stream);
    in.SetTotalBytesLimit(INT32_MAX);
    onnx::ModelProto model;
    if (!model.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage() || !model.has_graph())
        throw UserError("{} is not an ONNX model", path);
    return model;
}

}  // namespace cleave::planner
