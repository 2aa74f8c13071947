// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/onnx/foreign.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "planner/build/build_plan.h"
#include "planner/export/model/onnx/annotate.h"
#include "planner/search/check_options.h"
#include "planner/search/cost_tables.h"
#include "planner/search/lower_bound.h"
#include "planner/verify/verify.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using importer::Op;
using Spec = onnx::ShardingSpecProto;
using Annotation = onnx::NodeDeviceConfigurationProto;

// What the nodes of an operator, or of a unit, say together.
struct Said {
    int stage = -1;
    std::vector<int64_t> devices;  // in the order of a sharded tensor's shards, where there is one
    bool ordered = false;
    std::string node;
};

class ForeignReader {
public:
    ForeignReader(const onnx::ModelProto& model, const Graph& graph, const Machine& machine,
                  const Workload& workload)
        : model_(model),
          graph_(graph),
          machine_(machine),
          workload_(settled_compute(graph, machine, workload)),
          analysis_(analyse(graph, workload_)),
          configuration_(model.configuration(0).name()) {
        for (const onnx::NodeProto& node : model.graph().node()) nodes_[label_of(node)] = &node;
        for (const Op& op : graph.ops)
            for (const std::string& label : op.onnx_nodes) ++owners_[label];
    }

    ForeignPlan run() {
        if (!read_stages()) return std::move(result_);
        result_.complete = true;
        if (result_.findings.empty()) build();
        return std::move(result_);
    }

private:
    void find(const std::string& node, std::string message) {
        result_.findings.push_back({node, "contradictory", std::move(message)});
    }

    const Annotation* annotation_of(const onnx::NodeProto& node) const {
        for (const Annotation& on : node.device_configurations())
            if (on.configuration_id() == configuration_) return &on;
        return nullptr;
    }

    // A device may stand for a group of devices.
    static std::vector<int64_t> devices_of(const Spec& spec) {
        std::vector<int64_t> devices;
        for (int64_t d : spec.device()) {
            bool is_group = false;
            for (const auto& entry : spec.index_to_device_group_map())
                if (entry.key() == d) {
                    devices.insert(devices.end(), entry.value().begin(), entry.value().end());
                    is_group = true;
                }
            if (!is_group) devices.push_back(d);
        }
        return devices;
    }

    static bool is_cut(const Spec& spec) {
        for (const auto& dim : spec.sharded_dim())
            for (const auto& simple : dim.simple_sharding())
                if (simple.num_shards() > 1) return true;
        return false;
    }

    bool is_weight(const std::string& tensor) const {
        return std::any_of(graph_.weights.begin(), graph_.weights.end(), [&](const auto& w) {
            return std::find(w.initializers.begin(), w.initializers.end(), tensor) !=
                   w.initializers.end();
        });
    }

    // ---- Stages

    void add(const onnx::NodeProto& node, Said& said) {
        const Annotation* on = annotation_of(node);
        if (!on) return;
        const std::string label = label_of(node);
        if (on->has_pipeline_stage()) {
            if (said.stage >= 0 && said.stage != on->pipeline_stage())
                find(label, fmt::format("is in stage {} and '{}' in stage {}, and nothing can be "
                                        "cut between them: they are of one half of a layer",
                                        on->pipeline_stage(), said.node, said.stage));
            said.stage = on->pipeline_stage();
            said.node = label;
        }
        for (const Spec& spec : on->sharding_spec()) {
            const auto& outputs = node.output();
            const bool is_output =
                std::find(outputs.begin(), outputs.end(), spec.tensor_name()) != outputs.end();
            if (!is_output && !is_weight(spec.tensor_name())) continue;
            std::vector<int64_t> devices = devices_of(spec);
            if (is_cut(spec) && !said.ordered) {
                std::swap(said.devices, devices);
                said.ordered = true;
            }
            for (int64_t d : devices)
                if (std::find(said.devices.begin(), said.devices.end(), d) == said.devices.end())
                    said.devices.push_back(d);
            if (said.node.empty()) said.node = label;
        }
    }

    Said said_of(const Unit& unit) {
        Said said;
        for (int g = unit.begin; g < unit.end; ++g) {
            std::vector<OpId> ops = analysis_.groups[static_cast<size_t>(g)].ops;
            const OpId epilogue = analysis_.groups[static_cast<size_t>(g)].epilogue;
            if (epilogue.valid()) ops.push_back(epilogue);
            for (OpId id : ops)
                for (const std::string& label : graph_.op(id).onnx_nodes)
                    if (auto node = nodes_.find(label); node != nodes_.end() && owners_[label] == 1)
                        add(*node->second, said);
        }
        return said;
    }

    // False where the file leaves parts of the model open.
    bool read_stages() {
        std::vector<Said> said;
        for (const Unit& unit : analysis_.units) said.push_back(said_of(unit));
        const bool staged =
            std::all_of(said.begin(), said.end(), [](const Said& s) { return s.stage >= 0; });
        for (size_t u = 0; u < said.size(); ++u) {
            if (!staged && said[u].devices.empty()) return false;
            const bool same = u > 0 && (staged ? said[u].stage == said[u - 1].stage
                                               : said[u].devices == said[u - 1].devices);
            if (!same) {
                placement_.stages.emplace_back();
                placement_.stages.back().begin = analysis_.units[u].begin;
                stages_.push_back(said[u]);
            } else {
                merge(said[u], stages_.back());
            }
            placement_.stages.back().end = analysis_.units[u].end;
        }
        for (size_t s = 0; s < stages_.size(); ++s) {
            if (stages_[s].devices.empty()) return false;
            for (int64_t d : stages_[s].devices) {
                if (d < 0 || d >= static_cast<int64_t>(machine_.devices.size())) {
                    find(stages_[s].node, fmt::format("is on device {}, and there are {}", d,
                                                      machine_.devices.size()));
                    return true;
                }
                placement_.stages[s].devices.emplace_back(static_cast<size_t>(d));
            }
        }
        return true;
    }

    static void merge(const Said& from, Said& to) {
        const std::vector<int64_t> before = to.devices;
        if (from.ordered && !to.ordered) {
            to.devices = from.devices;
            to.ordered = true;
        }
        for (const auto& list : {before, from.devices})
            for (int64_t d : list)
                if (std::find(to.devices.begin(), to.devices.end(), d) == to.devices.end())
                    to.devices.push_back(d);
    }

    // ---- The plan

    void build() {
        PlanRequest request{importer::graph_digest(graph_), graph_, machine_, workload_, {}};
        check_options(analysis_, machine_, request.workload, request.options);
        for (StageChoice& stage : placement_.stages) {
            CostTables tables(analysis_, machine_, request.workload, stage.devices, 0);
            const auto count = static_cast<int>(stage.devices.size());
            stage.shares = tables.range(0, count, ShareMode::kBySpeed).shares;
            std::fill(stage.shares.weights.begin(), stage.shares.weights.end(), 1);
        }
        PlanBuilder builder(analysis_, std::move(request));
        Plan plan{builder.request(), better_heads(builder)};
        if (!fits_memory(plan)) {
            for (size_t d = 0; d < plan.memory.size(); ++d)
                if (plan.memory[d].needed() > plan.memory[d].capacity)
                    find("", fmt::format("{} needs {} bytes as annotated and has {}",
                                         machine_.devices[d].name, plan.memory[d].needed(),
                                         plan.memory[d].capacity));
            return;
        }
        plan.why.binding = "as annotated";
        plan.prediction.lower_bound_ns =
            lower_bound_ns(analysis_, machine_, plan.workload, plan.options.objective);
        verify_plan(plan);
        compare(plan);
        if (result_.findings.empty()) result_.plan = std::move(plan);
    }

    // The standard does not say whether a cut may go through the query heads of one KV head: what
    // is faster.
    PlanBody better_heads(PlanBuilder& builder) {
        PlanBody plan = builder.build(placement_);
        Placement flipped = placement_;
        for (StageChoice& stage : flipped.stages)
            stage.shares.whole_groups = !stage.shares.whole_groups;
        PlanBody other = builder.build(flipped);
        const bool change =
            fits_memory(other) &&
            (!fits_memory(plan) || other.prediction.objective_ns < plan.prediction.objective_ns);
        if (change) placement_ = std::move(flipped);
        return change ? std::move(other) : std::move(plan);
    }

    // ---- What the plan does otherwise

    void compare(const Plan& plan) {
        onnx::ModelProto expected = model_;
        for (onnx::NodeProto& node : *expected.mutable_graph()->mutable_node())
            node.clear_device_configurations();
        annotate(plan, expected);
        for (size_t s = 0; s < plan.stages.size(); ++s)
            for (size_t i = plan.stages[s].first_op.index(); i <= plan.stages[s].last_op.index();
                 ++i)
                stage_of_[OpId(i)] = s;
        std::map<std::string, OpId> op_of;
        for (size_t i = 0; i < graph_.ops.size(); ++i)
            for (const std::string& label : graph_.ops[i].onnx_nodes) op_of[label] = OpId(i);
        for (int i = 0; i < model_.graph().node_size(); ++i) {
            const onnx::NodeProto& node = model_.graph().node(i);
            const std::string label = label_of(node);
            const Annotation* found = annotation_of(node);
            if (!found || owners_[label] != 1) continue;
            const Annotation& on = expected.graph().node(i).device_configurations(
                expected.graph().node(i).device_configurations_size() - 1);
            for (const Spec& spec : found->sharding_spec()) {
                if (is_weight(spec.tensor_name()))
                    compare_weight(label, spec, on, op_of[label]);
                else if (std::find(node.output().begin(), node.output().end(),
                                   spec.tensor_name()) != node.output().end())
                    compare_output(node, spec, op_of[label]);
            }
        }
    }

    static std::string words_of(const Spec* spec) {
        if (!spec) return "whole";
        std::string cut;
        for (const auto& dim : spec->sharded_dim())
            for (const auto& simple : dim.simple_sharding())
                if (simple.num_shards() > 1)
                    cut += fmt::format("{}axis {} in {}", cut.empty() ? "cut along " : " and ",
                                       dim.axis(), simple.num_shards());
        if (cut.empty()) cut = "whole";
        return fmt::format("{} on devices {}", cut, fmt::join(devices_of(*spec), ","));
    }

    void compare_weight(const std::string& label, const Spec& spec, const Annotation& on, OpId op) {
        const Spec* expected = nullptr;
        for (const Spec& other : on.sharding_spec())
            if (other.tensor_name() == spec.tensor_name()) expected = &other;
        const size_t width = placement_.stages[stage_of_[op]].devices.size();
        if (width == 1 && !is_cut(spec)) return compare_devices(label, spec, op);
        const bool same_words = expected && words_of(expected) == words_of(&spec);
        if (same_words || (!expected && !is_cut(spec))) return;
        // A bias of a sum is added by one device; the file may keep it on each.
        if (expected && !is_cut(*expected) && !is_cut(spec)) return;
        find(label,
             fmt::format("has '{}' {}, which no plan can follow: this operator ({}) has it {}; say "
                         "so, or leave the specification out and the planner decides",
                         spec.tensor_name(), words_of(&spec), graph_.op(op).name,
                         words_of(expected)));
    }

    // Axes that count sequences, and tokens in a product's [sequences, tokens, features]: no plan
    // cuts these.
    static bool cuts_tokens(const onnx::NodeProto& node, const Spec& spec) {
        for (const auto& dim : spec.sharded_dim())
            for (const auto& simple : dim.simple_sharding())
                if (simple.num_shards() > 1 &&
                    (dim.axis() == 0 || (dim.axis() == 1 && node.op_type() == "MatMul")))
                    return true;
        return false;
    }

    void compare_output(const onnx::NodeProto& node, const Spec& spec, OpId op) {
        const size_t width = placement_.stages[stage_of_[op]].devices.size();
        const bool divided =
            width > 1 && analysis_.splits.ops[op.index()].effect == SplitEffect::kSplit;
        const bool differs =
            is_cut(spec) ? !divided || cuts_tokens(node, spec) : divided && spec.device_size() > 1;
        if (!differs) return compare_devices(label_of(node), spec, op);
        find(label_of(node),
             fmt::format("has '{}' {}, which no plan can follow: the result of {} is {} on the {} "
                         "devices of its stage",
                         spec.tensor_name(), words_of(&spec), graph_.op(op).name,
                         divided ? "divided by features or heads" : "whole", width));
    }

    void compare_devices(const std::string& label, const Spec& spec, OpId op) {
        for (int64_t d : devices_of(spec)) {
            const std::vector<DeviceId>& devices = placement_.stages[stage_of_[op]].devices;
            if (std::find(devices.begin(), devices.end(), DeviceId(static_cast<size_t>(d))) ==
                devices.end())
                find(label, fmt::format("places '{}' on device {}, which its stage does not have",
                                        spec.tensor_name(), d));
        }
    }

    const onnx::ModelProto& model_;
    const Graph& graph_;
    const Machine& machine_;
    const Workload workload_;
    Analysis analysis_;
    std::string configuration_;
    std::map<std::string, const onnx::NodeProto*> nodes_;
    std::map<std::string, int> owners_;
    std::map<OpId, size_t> stage_of_;
    std::vector<Said> stages_;
    Placement placement_;
    ForeignPlan result_;
};

}  // namespace

ForeignPlan plan_as_annotated(const onnx::ModelProto& model, const Graph& graph,
                              const Machine& machine, const Workload& workload) {
    ForeignPlan said = ForeignReader(model, graph, machine, workload).run();
    if (said.findings.empty() || workload.compute) return said;
    // Matrices that are cut by columns are products that nothing rounds.
    Workload exact = workload;
    exact.compute = ComputeMode::kExact;
    ForeignPlan other = ForeignReader(model, graph, machine, exact).run();
    return other.findings.empty() ? std::move(other) : std::move(said);
}

}  // namespace cleave::planner
