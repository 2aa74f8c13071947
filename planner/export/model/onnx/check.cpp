// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/onnx/check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <fmt/ranges.h>

#include "importer/onnx/affinities.h"
#include "importer/onnx/import.h"
#include "planner/export/model/onnx/annotate.h"
#include "planner/export/model/onnx/foreign.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/workload_request.h"
#include "planner/planner.h"
#include "planner/search/affinity_pins.h"
#include "planner/verify/verify.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

// Products of numbers from a file stay in 64 bits; no configuration has as many devices.
constexpr int64_t kMostShards = int64_t{1} << 30;

class Checker {
public:
    explicit Checker(std::string path) : path_(std::move(path)), model_(read_model_file(path_)) {}

    AnnotationReport run() {
        configurations();
        if (report_.configuration.empty())
            throw UserError(
                "{} has no multi-device annotations (ModelProto.configuration); "
                "$export_onnx writes them",
                path_);
        for (const onnx::NodeProto& node : model_.graph().node()) check_node(node);
        std::optional<Plan> embedded = embedded_plan(model_, path_);
        report_.has_embedded_plan = embedded.has_value();
        if (embedded)
            compare(std::move(*embedded));
        else
            complete();
        return std::move(report_);
    }

private:
    void find(const std::string& node, const char* kind, std::string message) {
        report_.findings.push_back({node, kind, std::move(message)});
    }

    // ---- What the standard asks

    void configurations() {
        for (const auto& c : model_.configuration()) {
            if (report_.configuration.empty()) report_.configuration = c.name();
            if (!devices_.try_emplace(c.name(), c.num_devices()).second)
                find("", "invalid", fmt::format("two configurations are named '{}'", c.name()));
            if (c.num_devices() < 1)
                find("", "invalid",
                     fmt::format("configuration '{}' has {} devices", c.name(), c.num_devices()));
            if (c.device_size() > 0 && c.device_size() != c.num_devices())
                find("", "invalid",
                     fmt::format("configuration '{}' has {} devices and names {}", c.name(),
                                 c.num_devices(), c.device_size()));
        }
    }

    void check_node(const onnx::NodeProto& node) {
        ++report_.num_nodes;
        const std::string label = label_of(node);
        std::set<std::string> seen;
        for (const auto& on : node.device_configurations()) {
            auto known = devices_.find(on.configuration_id());
            if (known == devices_.end()) {
                find(label, "invalid",
                     fmt::format("annotated for the configuration '{}', which the model does not "
                                 "declare",
                                 on.configuration_id()));
                continue;
            }
            if (!seen.insert(on.configuration_id()).second)
                find(label, "contradictory",
                     fmt::format("two annotations for '{}'", on.configuration_id()));
            if (on.has_pipeline_stage() && on.pipeline_stage() < 0)
                find(label, "invalid", fmt::format("pipeline stage {}", on.pipeline_stage()));
            for (const auto& spec : on.sharding_spec()) check_spec(node, spec, known->second);
        }
        if (seen.count(report_.configuration))
            ++report_.num_annotated;
        else
            find(label, "missing",
                 fmt::format("has no annotation for '{}'", report_.configuration));
    }

    void check_spec(const onnx::NodeProto& node, const onnx::ShardingSpecProto& spec, int devices) {
        const std::string label = label_of(node), &tensor = spec.tensor_name();
        auto names = [&tensor](const auto& list) {
            return std::find(list.begin(), list.end(), tensor) != list.end();
        };
        if (!names(node.input()) && !names(node.output()))
            find(label, "invalid",
                 fmt::format("shards '{}', which is neither its input nor its output", tensor));
        std::map<int64_t, std::vector<int64_t>> groups;
        for (const auto& entry : spec.index_to_device_group_map())
            groups[entry.key()].assign(entry.value().begin(), entry.value().end());
        std::set<int64_t> used;
        for (int64_t d : spec.device()) {
            const auto group = groups.find(d);
            for (int64_t one : group == groups.end() ? std::vector<int64_t>{d} : group->second) {
                if (one < 0 || one >= devices)
                    find(label, "invalid",
                         fmt::format("places '{}' on device {}, and the configuration has {}",
                                     tensor, one, devices));
                if (!used.insert(one).second)
                    find(label, "contradictory",
                         fmt::format("places two shards of '{}' on device {}", tensor, one));
            }
        }
        int64_t shards = 1;
        for (const auto& dim : spec.sharded_dim())
            for (const auto& simple : dim.simple_sharding()) {
                const int64_t parts = simple.num_shards();
                if (parts < 1)
                    find(label, "invalid", fmt::format("cuts '{}' into {} shards", tensor, parts));
                // More than there are devices stay more.
                shards = std::min(shards, kMostShards) * std::clamp<int64_t>(parts, 0, kMostShards);
            }
        if (spec.sharded_dim_size() > 0 && shards != spec.device_size())
            find(label, "contradictory",
                 fmt::format("cuts '{}' into {} shards for {} devices", tensor, shards,
                             spec.device_size()));
    }

    // ---- With the plan that the annotations came with

    void compare(Plan plan) {
        if (!prove(plan)) return;  // nothing else can rely on it
        lost_nodes(plan);
        onnx::ModelProto expected = model_;
        annotate(plan, expected);
        for (int i = 0; i < model_.graph().node_size(); ++i)
            compare_node(model_.graph().node(i), expected.graph().node(i));
        importer::Graph graph = importer::import_onnx(path_, {true});
        if (digest(graph) != digest(plan.graph))
            find(
                "", "lost",
                "the graph is not the one that the plan was made for: it was rewritten since; plan "
                "and export it again");
        else {
            plan.graph = std::move(graph);  // its weights lie in this file
            plan.graph_digest = graph_digest(plan.graph);
            if (!prove(plan)) return;
        }
        report_.plan = std::move(plan);
    }

    bool prove(const Plan& plan) {
        const std::vector<Violation> violations = find_violations(plan);
        for (const Violation& v : violations) find("", "contradictory", v.rule + ": " + v.message);
        return violations.empty();
    }

    // Weights may lie elsewhere in the annotated file.
    static std::string digest(importer::Graph graph) {
        for (importer::Weight& w : graph.weights) w.data.offset = 0;
        return graph_digest(graph);
    }

    void lost_nodes(const Plan& plan) {
        std::set<std::string> present;
        for (const onnx::NodeProto& node : model_.graph().node()) present.insert(label_of(node));
        for (const importer::Op& op : plan.graph.ops)
            for (const std::string& name : op.onnx_nodes)
                // Nodes of an inlined function stand as "call/inner" and are not in the graph
                // itself.
                if (!present.count(name) && model_.functions_size() == 0)
                    find(name, "lost",
                         fmt::format("a node of {} is no longer in the file", op.name));
    }

    static std::string annotation_of(const onnx::NodeProto& node) {
        std::string text;
        for (const auto& on : node.device_configurations())
            if (on.configuration_id() == kConfiguration) text += on.SerializeAsString();
        std::map<std::string, std::string> metadata;
        for (const auto& entry : node.metadata_props())
            if (entry.key().starts_with(kMetadataPrefix)) metadata[entry.key()] = entry.value();
        for (const auto& [key, value] : metadata)
            text.append(key).append("=").append(value).append("\n");
        return text;
    }
    static std::string words_of(const onnx::NodeProto& node) {
        std::vector<std::string> words;
        for (const auto& on : node.device_configurations()) {
            if (on.configuration_id() != kConfiguration) continue;
            words.push_back(fmt::format("stage {}", on.pipeline_stage()));
            for (const auto& spec : on.sharding_spec()) {
                std::string cut;
                for (const auto& dim : spec.sharded_dim())
                    for (const auto& simple : dim.simple_sharding())
                        cut += fmt::format(" axis {} in {}", dim.axis(), simple.num_shards());
                words.push_back(fmt::format("'{}' on {}{}", spec.tensor_name(),
                                            fmt::join(spec.device(), ","), cut));
            }
        }
        for (const auto& entry : node.metadata_props())
            if (entry.key().starts_with(kMetadataPrefix))
                words.push_back(entry.key() + " " + entry.value());
        return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, "; "));
    }

    void compare_node(const onnx::NodeProto& found, const onnx::NodeProto& expected) {
        if (annotation_of(found) == annotation_of(expected)) return;
        const bool bare =
            std::none_of(found.device_configurations().begin(), found.device_configurations().end(),
                         [](const auto& on) { return on.configuration_id() == kConfiguration; });
        if (bare) return;  // found missing already
        find(label_of(found), "contradictory",
             fmt::format("says {}, and the plan says {}", words_of(found), words_of(expected)));
    }

    // ---- Without

    void complete() {
        importer::Graph graph = importer::import_onnx(path_, {true});
        const Workload workload = fill_workload({}, graph.config.max_positions);
        try {
            ForeignPlan said = plan_as_annotated(model_, graph, configured_machine(), workload);
            for (AnnotationFinding& f : said.findings) report_.findings.push_back(std::move(f));
            if (said.complete)
                report_.plan = std::move(said.plan);
            else
                complete_by_pins(graph, workload);
        } catch (const UserError& error) {
            find("", "contradictory", error.what());
        }
    }

    // Where the file says something of some nodes only: their devices are pins, the rest is the
    // planner's.
    void complete_by_pins(const importer::Graph& graph, const Workload& workload) {
        importer::Affinities affinities = importer::read_affinities(path_);
        const Machine machine = machine_of(affinities);
        PlanOptions options;
        AffinityPins pins = pins_from_affinities(graph, affinities, machine);
        if (!pins.left_out.empty()) find("", "contradictory", pins.left_out);
        options.pins = std::move(pins.pins);
        report_.plan = make_plan(graph, machine, workload, options);
    }

    // Nothing where the names are no device list.
    static std::optional<Machine> machine_named(const std::string& names) {
        try {
            return build_machine(parse_devices(names), read_host_facts());
        } catch (const UserError&) {
            return std::nullopt;
        }
    }

    // The first configuration's devices by their names where these are ours; else as many host
    // devices.
    Machine configured_machine() const {
        const auto& c = model_.configuration(0);
        if (c.device_size() == c.num_devices())
            if (auto named = machine_named(fmt::format("{}", fmt::join(c.device(), ","))))
                return *std::move(named);
        return build_machine(
            parse_devices(fmt::format("host[0-{}]", std::max(c.num_devices(), 1) - 1)),
            read_host_facts());
    }

    // The configuration's devices where their names are such; else as many host devices.
    static Machine machine_of(importer::Affinities& affinities) {
        std::string names;
        std::set<std::string> known;
        for (const importer::NodeAffinity& a : affinities.nodes)
            if (!a.device.empty() && known.insert(a.device).second)
                names += (names.empty() ? "" : ",") + a.device;
        if (static_cast<int>(known.size()) == affinities.num_devices)
            if (auto named = machine_named(names)) return *std::move(named);
        for (importer::NodeAffinity& a : affinities.nodes) a.device.clear();
        return build_machine(
            parse_devices(fmt::format("host[0-{}]", std::max(affinities.num_devices, 1) - 1)),
            read_host_facts());
    }

    std::string path_;
    onnx::ModelProto model_;
    std::map<std::string, int> devices_;  // of each configuration
    AnnotationReport report_;
};

}  // namespace

AnnotationReport check_annotations(const std::string& path) { return Checker(path).run(); }

}  // namespace cleave::planner
