// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/cli/model_source.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

using importer::Graph;
using Json = nlohmann::ordered_json;

struct Flags {
    ModelFlags model;
    bool json = false;
    bool graph = false;
};

struct Summary {
    std::map<std::string, int64_t> ops;           // by kind
    std::map<std::string, int64_t> weight_bytes;  // by dtype
    std::map<std::string, int64_t> opaque;        // by domain and type
    int64_t parameters = 0, bytes = 0;
};

Summary summarise(const Graph& graph) {
    Summary s;
    for (const importer::Op& op : graph.ops) {
        ++s.ops[std::string(importer::op_kind_name(op.kind))];
        if (op.kind != importer::OpKind::kOpaque) continue;
        const auto& attrs = op.as<importer::OpaqueAttrs>();
        ++s.opaque[attrs.domain.empty() ? attrs.op_type : attrs.domain + "." + attrs.op_type];
    }
    for (const importer::Weight& w : graph.weights) {
        s.parameters += w.num_elements();
        s.bytes += w.packed_bytes();
        s.weight_bytes[std::string(dtype_name(w.dtype))] += w.packed_bytes();
    }
    return s;
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
              {"dtype", dtype_name(graph.dtype)},
              {"parameters", s.parameters},
              {"weight_bytes", s.bytes},
              {"weight_bytes_by_dtype", s.weight_bytes},
              {"operators", s.ops},
              {"opaque", s.opaque},
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

void print_text(const Graph& graph, const Summary& s, int64_t max_positions) {
    const importer::ModelConfig& c = graph.config;
    auto line = [](const char* label, const std::string& text) {
        if (!text.empty()) fmt::print("  {} {}\n", dim(fmt::format("{:<12}", label)), text);
    };
    fmt::print("{}\n", bold(graph.name));
    line("exporter", graph.exporter);
    if (c.num_layers > 0) {
        line("model", fmt::format("{}, {} layers, hidden {}, intermediate {}, vocabulary {}{}",
                                  c.model_type, c.num_layers, c.hidden_size, c.intermediate_size,
                                  c.vocab_size, c.tied_embeddings ? " (tied)" : ""));
        line("attention", fmt::format("{} heads, {} KV heads, head_dim {}, rms_norm_eps {:.6g}",
                                      c.num_heads, c.num_kv_heads, c.head_dim, c.rms_norm_eps));
    }
    line("context", max_positions ? fmt::format("{} positions", max_positions) : "not stated");
    std::string dtypes;
    for (const auto& [name, bytes] : s.weight_bytes)
        dtypes += fmt::format("{}{} {}", dtypes.empty() ? "" : ", ", format_bytes(bytes), name);
    line("weights", fmt::format("{} parameters, {}", format_count(s.parameters), dtypes));
    line("interface",
         fmt::format("{}past, {}position_ids, {}attention_mask{}",
                     graph.interface.has_past ? "" : "no ",
                     graph.interface.has_position_ids ? "" : "no ",
                     graph.interface.has_attention_mask ? "" : "no ",
                     graph.interface.assumes_right_padding ? "; assumes right padding" : ""));
    line("operators", join_counts(s.ops));
    line("opaque", s.opaque.empty() ? "none" : join_counts(s.opaque));
    for (const std::string& note : graph.notes) line("folded", note);
    for (const importer::SourceFile& f : graph.files)
        line("file", fmt::format("{} ({}{})", f.path, format_bytes(static_cast<int64_t>(f.size)),
                                 f.present ? "" : ", absent"));
}

void run_import(const Flags& flags) {
    LoadedModel model = load_model(flags.model, "");
    Summary summary = summarise(model.graph);
    if (flags.json)
        fmt::print("{}\n", to_json(model.graph, summary, model.max_positions).dump(2));
    else if (flags.graph)
        fmt::print("{}", importer::to_text(model.graph));
    else
        print_text(model.graph, summary, model.max_positions);
}

}  // namespace

void add_import(CLI::App& app) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("import", "show the model that an ONNX file holds");
    add_model_flags(*command, flags->model);
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->add_flag("--graph", flags->graph, "print every recovered operator");
    command->footer("Example: cleave import models/bundled/model.onnx --graph");
    command->callback([flags] { run_import(*flags); });
}

}  // namespace cleave::tools
