// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tools/cli/model_source.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

using importer::Graph;
using Json = nlohmann::ordered_json;

struct ImportArguments {
    ModelFlags model;
    bool json = false;
    bool graph = false;
};

// Neighbouring decoder layers that are made of the same operators.
struct LayerGroup {
    int first = 0, last = 0;
    std::vector<std::string> operators;
};

struct Summary {
    std::map<std::string, int64_t> ops;                    // by kind
    std::map<std::string, int64_t> weight_bytes;           // by dtype
    std::map<std::string, int64_t> storage;                // bytes by dtype and packing
    std::map<std::string, int64_t> opaque;                 // by domain and type
    std::map<std::string, std::vector<std::string>> left;  // ONNX nodes of the opaque ones
    std::vector<LayerGroup> layers;
    std::vector<std::string> rope;
    int64_t parameters = 0, bytes = 0;
};

std::string describe_storage(const importer::Weight& w) {
    if (w.gguf) return fmt::format("{} of GGUF", gguf_layout(*w.gguf).name);
    if (w.packing == importer::Packing::kDense) return std::string(dtype_name(w.dtype));
    const importer::Quantization& q = w.quantization;
    return fmt::format("{} ({}, {}{})", w.dtype,
                       w.packing == importer::Packing::kMatMulNBits ? "MatMulNBits"
                       : w.packing == importer::Packing::kGptq      ? "GPTQ"
                       : w.packing == importer::Packing::kAwq       ? "AWQ"
                       : q.dynamic_activations                      ? "MatMulInteger"
                                                                    : "DequantizeLinear",
                       q.block              ? fmt::format("blocks of {}", q.block)
                       : q.scale_count == 1 ? "one scale"
                                            : "one scale a row",
                       q.zero_points.has_data() ? ", zero points" : "");
}

// "q_proj 64 -> 64 + bias": the operator without its layer's number.
std::string describe_op(const Graph& graph, const importer::Op& op) {
    const size_t dot =
        op.layer >= 0 && op.name.starts_with("layers.") ? op.name.find('.', 7) : std::string::npos;
    std::string text = dot == std::string::npos ? op.name : op.name.substr(dot + 1);
    using importer::OpKind;
    switch (op.kind) {
        case OpKind::kRmsNorm: {
            const auto& a = op.as<importer::RmsNormAttrs>();
            const std::vector<int64_t>& weight = graph.weight(op.weights.at(0)).shape;
            text += fmt::format(
                " {} eps {:.6g}{}", weight.at(0), a.epsilon,
                a.weight_offset != 0 ? fmt::format(" ({:.6g} + weight)", a.weight_offset) : "");
            break;
        }
        case OpKind::kLinear: {
            const importer::Weight& w = graph.weight(op.weights.at(0));
            text += fmt::format(
                " {} -> {}{}{}", w.shape.at(1), w.shape.at(0),
                op.as<importer::LinearAttrs>().has_bias ? " + bias" : "",
                w.packing == importer::Packing::kDense && !w.gguf ? "" : " " + describe_storage(w));
            break;
        }
        case OpKind::kRope: {
            const auto& a = op.as<importer::RopeAttrs>();
            text += fmt::format(" {} of {}{}", a.rotary_dim, a.head_dim,
                                a.interleaved ? " interleaved" : "");
            break;
        }
        case OpKind::kAttention: {
            const auto& a = op.as<importer::AttentionAttrs>();
            text +=
                fmt::format(" {} heads over {}, scale {:.6g}{}{}{}", a.num_heads, a.num_kv_heads,
                            a.scale, a.window ? fmt::format(", window {}", a.window) : "",
                            a.softcap != 0 ? fmt::format(", softcap {:.6g}", a.softcap) : "",
                            a.causal ? "" : ", not causal");
            break;
        }
        case OpKind::kGatedActivation:
            text += fmt::format(" {}", importer::activation_name(
                                           op.as<importer::GatedActivationAttrs>().activation));
            break;
        case OpKind::kScale:
            text += fmt::format(" by {:.6g}", op.as<importer::ScaleAttrs>().factor);
            break;
        default: break;
    }
    return text;
}

std::vector<LayerGroup> group_layers(const Graph& graph) {
    std::vector<LayerGroup> groups;
    for (size_t i = 0; i < graph.ops.size();) {
        const int layer = graph.ops[i].layer;
        std::vector<std::string> operators;
        for (; i < graph.ops.size() && graph.ops[i].layer == layer; ++i)
            operators.push_back(describe_op(graph, graph.ops[i]));
        if (layer < 0 || layer >= graph.config.num_layers) continue;
        if (!groups.empty() && groups.back().operators == operators)
            groups.back().last = layer;
        else
            groups.push_back({layer, layer, operators});
    }
    return groups;
}

std::string describe_rope(const importer::RopeTable& t, double theta) {
    if (t.frequencies.empty())
        return fmt::format("stored tables of {} positions, {} dimensions", t.max_positions,
                           t.rotary_dim);
    std::string text = fmt::format("{} dimensions, ", t.rotary_dim);
    text += theta > 0 ? fmt::format("theta {:.10g}", theta) : "scaled frequencies";
    text += fmt::format(" ({:.6g} to {:.6g})", t.frequencies.front(), t.frequencies.back());
    if (t.magnitude != 1.0) text += fmt::format(", magnitude {:.6g}", t.magnitude);
    return text;
}

// What the table of operators counts; an operator over tensors by its ONNX name.
std::string operator_name(const importer::Op& op) {
    if (op.kind == importer::OpKind::kTensor) return op.as<importer::TensorAttrs>().op_type;
    return std::string(importer::op_kind_name(op.kind));
}

Summary summarise(const Graph& graph) {
    Summary s;
    for (const importer::Op& op : graph.ops) {
        ++s.ops[operator_name(op)];
        if (op.kind != importer::OpKind::kOpaque) continue;
        const auto& attrs = op.as<importer::OpaqueAttrs>();
        const std::string type =
            attrs.domain.empty() ? attrs.op_type : attrs.domain + "." + attrs.op_type;
        ++s.opaque[type];
        s.left[type].push_back(op.onnx_nodes.empty() ? op.name : op.onnx_nodes.front());
    }
    for (const importer::Weight& w : graph.weights) {
        s.parameters += w.num_elements();
        s.bytes += w.packed_bytes();
        s.weight_bytes[std::string(dtype_name(w.dtype))] += w.packed_bytes();
        s.storage[describe_storage(w)] += w.packed_bytes();
    }
    s.layers = group_layers(graph);
    for (const importer::RopeTable& t : graph.rope_tables)
        s.rope.push_back(describe_rope(t, graph.config.rope_theta));
    return s;
}

Json layers_json(const std::vector<LayerGroup>& layers) {
    Json json = Json::array();
    for (const LayerGroup& g : layers)
        json.push_back({{"first", g.first}, {"last", g.last}, {"operators", g.operators}});
    return json;
}

Json to_json(const Graph& graph, const Summary& s, int64_t max_positions) {
    const importer::ModelConfig& c = graph.config;
    Json json{{"model", graph.name},
              {"path", graph.path},
              {"exporter", graph.exporter},
              {"opset", graph.opset},
              {"config",
               {{"vocab_size", c.vocab_size},
                {"hidden_size", c.hidden_size},
                {"intermediate_size", c.intermediate_size},
                {"num_layers", c.num_layers},
                {"num_heads", c.num_heads},
                {"num_kv_heads", c.num_kv_heads},
                {"head_dim", c.head_dim},
                {"max_positions", max_positions},
                {"rms_norm_eps", c.rms_norm_eps},
                {"rope_theta", c.rope_theta},
                {"tied_embeddings", c.tied_embeddings}}},
              {"layers", layers_json(s.layers)},
              {"rope", s.rope},
              {"dtype", dtype_name(graph.dtype)},
              {"parameters", s.parameters},
              {"weight_bytes", s.bytes},
              {"weight_bytes_by_dtype", s.weight_bytes},
              {"weight_bytes_by_storage", s.storage},
              {"operators", s.ops},
              {"opaque", s.opaque},
              {"opaque_nodes", s.left},
              {"folded", graph.notes},
              {"interface",
               {{"past", graph.interface.has_past},
                {"position_ids", graph.interface.has_position_ids},
                {"attention_mask", graph.interface.has_attention_mask},
                {"assumes_right_padding", graph.interface.assumes_right_padding}}},
              {"files", Json::array()}};
    for (const importer::SourceFile& f : graph.files)
        json["files"].push_back({{"path", f.path}, {"bytes", f.size}, {"present", f.present}});
    return json;
}

std::string join_counts(const std::map<std::string, int64_t>& counts) {
    std::string text;
    for (const auto& [name, count] : counts)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
    return text;
}

// A line of the listing; long ones go on under their first word.
void print_line(const std::string& label, const std::string& text) {
    if (text.empty()) return;
    constexpr size_t kIndent = 15;
    const size_t width = static_cast<size_t>(prose_width()) - kIndent;
    std::string head = fmt::format("  {} ", dim(fmt::format("{:<12}", label)));
    for (size_t at = 0; at < text.size();) {
        size_t end = text.size();
        if (end - at > width) {
            end = text.rfind(' ', at + width);
            if (end == std::string::npos || end <= at)
                end = std::min(text.find(' ', at + width), text.size());
        }
        show("{}{}\n", head, text.substr(at, end - at));
        head = std::string(kIndent, ' ');
        at = std::min(text.find_first_not_of(' ', end), text.size());
    }
}

void print_model(const Graph& graph, const Summary& s) {
    const importer::ModelConfig& c = graph.config;
    if (c.num_layers == 0) return;
    print_line("model", fmt::format("{}, {} layers, hidden {}, intermediate {}, vocabulary {}{}",
                                    c.model_type, c.num_layers, c.hidden_size, c.intermediate_size,
                                    c.vocab_size, c.tied_embeddings ? " (tied)" : ""));
    print_line("attention", fmt::format("{} heads, {} KV heads, head_dim {}, rms_norm_eps {:.6g}",
                                        c.num_heads, c.num_kv_heads, c.head_dim, c.rms_norm_eps));
    for (const std::string& rope : s.rope) print_line("rope", rope);
    for (const LayerGroup& g : s.layers)
        print_line(g.first == g.last ? fmt::format("layer {}", g.first)
                                     : fmt::format("layers {}-{}", g.first, g.last),
                   fmt::format("{}", fmt::join(g.operators, "; ")));
}

void print_opaque(const Summary& s) {
    if (s.opaque.empty()) print_line("opaque", "none");
    for (const auto& [type, nodes] : s.left) {
        constexpr size_t kShown = 3;
        const auto shown = nodes.begin() + static_cast<ptrdiff_t>(std::min(kShown, nodes.size()));
        print_line("opaque", fmt::format("{} {}: {}{}", nodes.size(), type,
                                         fmt::join(nodes.begin(), shown, ", "),
                                         nodes.size() > kShown ? ", ..." : ""));
    }
}

void print_text(const Graph& graph, const Summary& s, int64_t max_positions) {
    show("{}\n", bold(graph.name));
    print_line("exporter", graph.exporter);
    print_model(graph, s);
    print_line("context",
               max_positions ? fmt::format("{} positions", max_positions) : "not stated");
    std::string storage;
    for (const auto& [name, bytes] : s.storage)
        storage += fmt::format("{}{} {}", storage.empty() ? "" : ", ", format_bytes(bytes), name);
    print_line("weights", s.parameters == 0 ? "none"
                                            : fmt::format("{} parameters, {}",
                                                          format_count(s.parameters), storage));
    print_line("activations", std::string(dtype_name(graph.dtype)));
    print_line("interface",
               fmt::format("{}past, {}position_ids, {}attention_mask{}",
                           graph.interface.has_past ? "" : "no ",
                           graph.interface.has_position_ids ? "" : "no ",
                           graph.interface.has_attention_mask ? "" : "no ",
                           graph.interface.assumes_right_padding ? "; assumes right padding" : ""));
    print_line("operators", join_counts(s.ops));
    print_opaque(s);
    for (const std::string& note : graph.notes) print_line("folded", note);
    for (const importer::SourceFile& f : graph.files)
        print_line("file",
                   fmt::format("{} ({}{})", f.path, format_bytes(static_cast<int64_t>(f.size)),
                               f.present ? "" : ", absent"));
}

void run_import(const ImportArguments& flags) {
    LoadedModel model = load_model(flags.model, "");
    Summary summary = summarise(model.graph);
    if (flags.json)
        show_exactly(to_json(model.graph, summary, model.max_positions).dump(2) + "\n");
    else if (flags.graph)
        show("{}", importer::to_text(model.graph));
    else
        print_text(model.graph, summary, model.max_positions);
}

}  // namespace

void add_import(CLI::App& app) {
    auto flags = std::make_shared<ImportArguments>();
    CLI::App* command = app.add_subcommand("import", "show the model that an ONNX file holds");
    add_model_flags(*command, flags->model);
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->add_flag("--graph", flags->graph, "print every recovered operator");
    command->footer("Example: cleave import models/bundled/model.onnx --graph");
    command->callback([flags] { run_import(*flags); });
}

}  // namespace cleave::tools
