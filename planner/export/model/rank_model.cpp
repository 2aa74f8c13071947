// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/rank_model.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "planner/export/model/ort/lower_segment.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

class RankModel {
public:
    RankModel(const Plan& plan, const Schedule& schedule, int stage, DeviceId device,
              CollectiveOps ops)
        : plan_(plan), schedule_(schedule), stage_(stage), device_(device), ops_(ops) {}

    onnx::ModelProto run(TensorFile& data, const std::string& data_file) {
        for (const ScheduleItem& item : schedule_.order) {
            if (item.segment >= 0) {
                const Segment& s = schedule_.segments[static_cast<size_t>(item.segment)];
                if (s.stage == stage_ && s.device == device_)
                    append(lower_segment(plan_, s, data, data_file));
            } else {
                const Exchange& e = schedule_.exchanges[static_cast<size_t>(item.exchange)];
                if (e.kind != Exchange::Kind::kTransfer && e.stage == stage_) collective(e);
            }
        }
        drop_inner_outputs();
        return std::move(model_);
    }

private:
    // Names that a segment gives to nobody are made unique by its number.
    void append(onnx::ModelProto part) {
        onnx::GraphProto& from = *part.mutable_graph();
        std::set<std::string> shared;
        for (const auto& v : from.input()) shared.insert(v.name());
        for (const auto& v : from.output()) shared.insert(v.name());
        const std::string prefix = fmt::format("part{}/", parts_);
        const auto unique = [&](const std::string& name) {
            return name.empty() || shared.count(name) ? name : prefix + name;
        };
        for (auto& node : *from.mutable_node()) {
            node.set_name(prefix + node.name());
            for (auto& name : *node.mutable_input()) name = unique(name);
            for (auto& name : *node.mutable_output()) name = unique(name);
        }
        for (auto& tensor : *from.mutable_initializer()) tensor.set_name(unique(tensor.name()));
        if (parts_++ == 0) {
            model_ = part;
            model_.clear_graph();
            model_.mutable_graph()->set_name(
                fmt::format("stage {} on {}", stage_, plan_.machine.device(device_).name));
        }
        onnx::GraphProto& to = *model_.mutable_graph();
        for (const auto& v : from.input())
            if (!made_.count(v.name()) && inputs_.insert(v.name()).second) *to.add_input() = v;
        for (const auto& v : from.input()) taken_.insert(v.name());
        for (const auto& v : from.output()) {
            made_.insert(v.name());
            *to.add_output() = v;
        }
        for (const auto& node : from.node()) *to.add_node() = node;
        for (const auto& tensor : from.initializer()) *to.add_initializer() = tensor;
    }

    onnx::NodeProto& node(const std::string& type, const std::string& in, const std::string& out) {
        onnx::NodeProto& made = *model_.mutable_graph()->add_node();
        made.set_op_type(type);
        made.set_name(out + "/" + type);
        made.add_input(in);
        made.add_output(out);
        return made;
    }

    void transpose(const std::string& in, const std::string& out,
                   const std::vector<int64_t>& order) {
        onnx::AttributeProto& perm = *node("Transpose", in, out).add_attribute();
        perm.set_name("perm");
        perm.set_type(onnx::AttributeProto::INTS);
        for (int64_t axis : order) perm.add_ints(axis);
    }

    static void integer(onnx::NodeProto& node, const char* name, int64_t value) {
        onnx::AttributeProto& a = *node.add_attribute();
        a.set_name(name);
        a.set_type(onnx::AttributeProto::INT);
        a.set_i(value);
    }

    int64_t ranks() const {
        return static_cast<int64_t>(plan_.stages[static_cast<size_t>(stage_)].devices.size());
    }

    onnx::NodeProto& microsoft(const std::string& type, const std::string& in,
                               const std::string& out) {
        constexpr const char* kDomain = "com.microsoft";
        const auto& known = model_.opset_import();
        if (std::none_of(known.begin(), known.end(),
                         [](const auto& o) { return o.domain() == kDomain; })) {
            auto& opset = *model_.add_opset_import();
            opset.set_domain(kDomain);
            opset.set_version(1);
        }
        onnx::NodeProto& made = node(type, in, out);
        made.set_domain(kDomain);
        return made;
    }

    // The attributes are those of polygraphy's shard tool (0.53.6); no groups: all ranks of the
    // communicator.
    void dist_collective(const std::string& operation, const std::string& in,
                         const std::string& out) {
        onnx::NodeProto& made = node("DistCollective", in, out);
        const auto text = [&](const char* name, const std::string& value) {
            onnx::AttributeProto& a = *made.add_attribute();
            a.set_name(name);
            a.set_type(onnx::AttributeProto::STRING);
            a.set_s(value);
        };
        text("collective_operation", operation);
        text("reduce_op", operation == "all_reduce" ? "sum" : "none");
        integer(made, "root", -1);
        integer(made, "nb_rank", ranks());
        integer(made, "group_size", 0);  // of `groups`
        onnx::AttributeProto& groups = *made.add_attribute();
        groups.set_name("groups");
        groups.set_type(onnx::AttributeProto::INTS);
    }

    void collective(const Exchange& e) {
        const auto mine = std::find(e.from.begin(), e.from.end(), device_) - e.from.begin();
        const std::string& source = e.sources.at(static_cast<size_t>(mine)).name;
        const std::string& result = e.result.name;
        taken_.insert(source);
        made_.insert(result);
        if (e.kind == Exchange::Kind::kAllReduce) {
            if (ops_ == CollectiveOps::kMicrosoft)
                microsoft("AllReduce", source, result);
            else
                dist_collective("all_reduce", source, result);
            return;
        }
        gather(e, source, result);
    }

    void gather(const Exchange& e, const std::string& source, const std::string& result) {
        if (ops_ == CollectiveOps::kMicrosoft) {
            onnx::NodeProto& made = microsoft("AllGather", source, result);
            integer(made, "axis", 2);
            integer(made, "group_size", ranks());
        } else {
            stack(source, result);
        }
        onnx::ValueInfoProto& out = *model_.mutable_graph()->add_output();
        out.set_name(result);
        auto* tensor = out.mutable_type()->mutable_tensor_type();
        tensor->set_elem_type(onnx::TensorProto::FLOAT);
        for (const char* dim : {"batch", "sequence"})
            tensor->mutable_shape()->add_dim()->set_dim_param(dim);
        tensor->mutable_shape()->add_dim()->set_dim_value(e.result.columns.size());
    }

    // Gathers stack along the first axis; the parts lie along the last of [batch, sequence,
    // features].
    void stack(const std::string& source, const std::string& result) {
        transpose(source, result + "/part", {2, 0, 1});
        dist_collective("all_gather", result + "/part", result + "/parts");
        transpose(result + "/parts", result, {1, 2, 0});
    }

    // What only this rank's own segments and collectives take stays inside.
    void drop_inner_outputs() {
        std::set<std::string> leaving{schedule_.logits.name};
        for (const Exchange& e : schedule_.exchanges)
            if (e.kind == Exchange::Kind::kTransfer && e.from[0] == device_)
                leaving.insert(e.sources[0].name);
        auto& outputs = *model_.mutable_graph()->mutable_output();
        // What is transferred may be an all-reduce's sum, which no segment gives as its output.
        for (const std::string& name : leaving) {
            const bool there = std::any_of(outputs.begin(), outputs.end(),
                                           [&](const auto& v) { return v.name() == name; });
            if (!there && made_.count(name)) outputs.Add()->set_name(name);
        }
        outputs.erase(std::remove_if(outputs.begin(), outputs.end(),
                                     [&](const auto& v) {
                                         return taken_.count(v.name()) && !leaving.count(v.name());
                                     }),
                      outputs.end());
    }

    const Plan& plan_;
    const Schedule& schedule_;
    int stage_;
    DeviceId device_;
    CollectiveOps ops_;
    int parts_ = 0;
    onnx::ModelProto model_;
    std::set<std::string> made_, taken_, inputs_;
};

}  // namespace

void check_collectives(const Plan& plan, const Schedule& schedule, const std::string& tool) {
    for (const Exchange& e : schedule.exchanges) {
        if (e.kind == Exchange::Kind::kTransfer) continue;
        const size_t ranks = plan.stages[static_cast<size_t>(e.stage)].devices.size();
        if (e.from.size() != ranks)
            throw UserError(
                "{}: {} of {} devices of stage {} have no part of {}, and every rank must bring "
                "one to a collective; plan with a smaller $tensor_parallel",
                tool, ranks - e.from.size(), ranks, e.stage, e.result.name);
        for (const DeviceTensor& source : e.sources)
            if (e.kind == Exchange::Kind::kAllGather &&
                source.columns.size() != e.sources[0].columns.size())
                throw UserError(
                    "{}: {} is cut in parts of {} and {}, and an all-gather takes equal ones; "
                    "choose a $tensor_parallel that divides it, on equal devices",
                    tool, e.result.name, e.sources[0].columns.size(), source.columns.size());
    }
}

bool add_rank(const Plan& plan, const Schedule& schedule, int stage, DeviceId device,
              CollectiveOps ops, const std::string& name,
              const std::shared_ptr<importer::WeightReader>& reader, ExportResult& result) {
    auto data = std::make_shared<TensorFile>(plan, reader);
    ExportFile file{name, {}};
    CLEAVE_CHECK(RankModel(plan, schedule, stage, device, ops)
                     .run(*data, data_file_name(device))
                     .SerializeToString(&file.contents))
        << name << " does not serialise";
    result.files.push_back(std::move(file));
    result.files.push_back(
        {data_file_name(device), {}, [data](std::ostream& out) { data->write(out); }});
    return data->expanded();
}

}  // namespace cleave::planner
