// SPDX-License-Identifier: Apache-2.0
// Graphs of files, of shape names, and of another compiler's operators.
#include <filesystem>
#include <memory>

#include "importer/weights/formats.h"
#include "models/convert.h"
#include "models/open_model.h"
#include "models/shapes.h"
#include "planner/plan/foreign_op.h"
#include "runtime/base/control_characters.h"
#include "runtime/base/path_state.h"
#include "tools/cli/context_limit.h"
#include "tools/libcleave/handles.h"

#include <fmt/ranges.h>

using namespace cleave;
using namespace cleave::c_api;
using namespace cleave::importer;
using planner::ForeignOp;
using planner::ForeignSplit;

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMost = int64_t{1}
                          << 50;  // of bytes, operations, columns: their sums stay in 64 bits

// Shown in lines of messages and tables.
std::string name_of(const char* given, const char* what) {
    std::string name = text_of(given, what);
    if (has_control_characters(name))
        throw UserError("{} '{}' has control characters; names are printable text", what,
                        without_control_characters(name));
    return name;
}

void within(int64_t value, int64_t least, int64_t most, const std::string& op, const char* field) {
    if (value < least || value > most)
        throw UserError("operator '{}': {} is {}, and may be {} to {}", op, field, value, least,
                        most);
}

DType dtype_of(const char* name, DType otherwise) {
    if (!name) return otherwise;
    if (std::optional<DType> dtype = parse_dtype(name)) return *dtype;
    throw UserError("{}: no such dtype; supported are {}", name, importer::weight_dtype_names());
}

models::Shape shape_of(const std::string& name) {
    if (std::optional<models::Shape> shape = models::find_shape(name)) return *shape;
    if (fs::path(name).extension() == ".json") return models::shape_from_config(name);
    throw UserError("{}: no shape name and no config.json; shape names are {}", name,
                    fmt::join(models::shape_names(), ", "));
}

int64_t columns_of(const Graph& graph, ValueId value) {
    return graph.value(value).shape.back().value;
}

// A matrix of about that many bytes, a byte an element, whose rows or columns are what is divided.
Weight weight_of(const cleave_operator& op, const std::string& name, ForeignSplit split,
                 int64_t input_columns) {
    const int64_t along = split == ForeignSplit::kByInput ? input_columns : op.columns;
    const int64_t across = (op.weight_bytes + along - 1) / along;
    Weight weight;
    weight.name = name + ".weight";
    weight.dtype = DType::kF8E4M3;
    weight.shape = {along, across};
    if (split == ForeignSplit::kByInput) weight.shape = {across, along};
    weight.source_shape = weight.shape;
    weight.rows = {0, weight.shape[0]};
    weight.columns = {0, weight.shape[1]};
    return weight;
}

void check_operator(const cleave_graph& g, const cleave_operator& op, const std::string& name) {
    if (!g.of_operators)
        throw ArgumentError("operators are added to graphs of cleave_graph_new alone");
    for (const Op& other : g.graph.ops)
        if (other.name == name) throw UserError("operator '{}': there is one of that name", name);
    within(op.sharding, CLEAVE_ONCE, CLEAVE_ELEMENTWISE, name, "sharding");
    within(op.columns, 1, int64_t{1} << 32, name, "columns");
    within(op.split_units, 0, kMost, name, "split_units");
    within(op.layer, 0, 1 << 20, name, "layer");
    within(op.flops, 0, kMost, name, "flops");
    within(op.flops_per_token, 0, kMost, name, "flops_per_token");
    within(op.weight_bytes, 0, kMost, name, "weight_bytes");
    within(op.bytes, 0, kMost, name, "bytes");
    within(op.bytes_per_token, 0, kMost, name, "bytes_per_token");
    if (op.num_inputs > 0) needed(op.inputs, "operator.inputs");
    for (size_t i = 0; i < op.num_inputs; ++i)
        if (op.inputs[i] >= g.graph.ops.size())
            throw UserError("operator '{}': input {} is operator {}, and there are {} before it",
                            name, i, op.inputs[i], g.graph.ops.size());
}

// Units of what is divided, and that the inputs have the width of the rule.
int64_t units_of(const Graph& graph, const Op& op, const cleave_operator& given) {
    const bool by_input = given.sharding == CLEAVE_BY_INPUT;
    if ((by_input || given.sharding == CLEAVE_ELEMENTWISE) && op.inputs.empty())
        throw UserError("operator '{}': it is divided by its input, and has none", op.name);
    if (given.sharding == CLEAVE_ELEMENTWISE)
        for (ValueId v : op.inputs)
            if (columns_of(graph, v) != given.columns)
                throw UserError("operator '{}': elementwise with {} columns, and reads {} of {}",
                                op.name, given.columns, columns_of(graph, v), graph.value(v).name);
    const int64_t divided = by_input ? columns_of(graph, op.inputs[0]) : given.columns;
    const int64_t units = given.split_units > 0 ? given.split_units : divided;
    if (divided % units != 0)
        throw UserError("operator '{}': {} columns are not {} equal units", op.name, divided,
                        units);
    return units;
}

void add_operator(cleave_graph& g, const cleave_operator& given) {
    const std::string name = name_of(given.name, "operator.name");
    check_operator(g, given, name);
    Graph& graph = g.graph;
    Op op;
    op.kind = OpKind::kTensor;
    op.name = name;
    op.layer = given.layer - 1;
    for (size_t i = 0; i < given.num_inputs; ++i)
        op.inputs.push_back(graph.ops[given.inputs[i]].outputs[0]);
    const ForeignOp foreign{static_cast<ForeignSplit>(given.sharding), units_of(graph, op, given),
                            given.flops_per_token, given.bytes, given.bytes_per_token};
    TensorAttrs attrs;
    attrs.op_type = given.type ? given.type : name;
    attrs.flops = given.flops;
    planner::set_foreign_op(attrs, foreign);
    op.attrs = std::move(attrs);
    if (given.weight_bytes > 0) {
        const int64_t in = op.inputs.empty() ? 1 : columns_of(graph, op.inputs[0]);
        op.weights = {WeightId(graph.weights.size())};
        graph.weights.push_back(weight_of(given, name, foreign.split, in));
    }
    Value out;
    out.name = name;
    out.kind = ValueKind::kTensor;
    out.dtype = dtype_of(given.dtype, DType::kF32);
    out.shape = {given.rows_are_tokens ? Dim(std::string("num_tokens")) : Dim(1),
                 Dim(given.columns)};
    op.outputs = {ValueId(graph.values.size())};
    for (ValueId v : op.inputs) std::erase(graph.outputs, v);
    graph.outputs.push_back(op.outputs[0]);
    graph.config.num_layers = std::max<int64_t>(graph.config.num_layers, given.layer);
    graph.values.push_back(std::move(out));
    graph.ops.push_back(std::move(op));
}

}  // namespace

cleave_status cleave_graph_import(const char* path, const cleave_import_options* options,
                                  cleave_graph** out) {
    return guard([&] {
        needed(out, "out") = nullptr;
        const fs::path file = text_of(path, "path");
        const cleave_import_options known = options_of(options, "cleave_import_options");
        auto made = std::make_unique<cleave_graph>();
        made->graph = models::open_model(file, {known.weights_may_be_absent != 0});
        made->max_positions =
            tools::context_limit(made->graph, is_folder(file) ? file : file.parent_path());
        *out = made.release();
    });
}

cleave_status cleave_graph_from_shape(const char* shape, const char* dtype, cleave_graph** out) {
    return guard([&] {
        needed(out, "out") = nullptr;
        const models::Shape found = shape_of(text_of(shape, "shape"));
        const DType stored = dtype_of(dtype, found.dtype);
        if (dtype_bits(stored) < 16)
            throw UserError(
                "{}: weights of a shape by its name are f32, f16 or bf16; a plan's dtype makes "
                "them {} on devices",
                dtype_name(stored), dtype_name(stored));
        auto made = std::make_unique<cleave_graph>();
        made->graph = models::graph_of_shape(found, stored);
        made->max_positions = found.config.max_positions;
        *out = made.release();
    });
}

cleave_status cleave_graph_new(const char* name, cleave_graph** out) {
    return guard([&] {
        needed(out, "out") = nullptr;
        auto made = std::make_unique<cleave_graph>();
        made->graph.name = name_of(name, "name");
        made->graph.config.model_type = "operators";
        made->of_operators = true;
        *out = made.release();
    });
}

void cleave_graph_free(cleave_graph* graph) { delete graph; }

cleave_status cleave_graph_num_operators(const cleave_graph* graph, size_t* out) {
    return guard([&] { needed(out, "out") = needed(graph, "graph").graph.ops.size(); });
}

cleave_status cleave_graph_operator_name(const cleave_graph* graph, size_t index,
                                         const char** out) {
    return guard([&] {
        const auto& ops = needed(graph, "graph").graph.ops;
        if (index >= ops.size())
            throw ArgumentError(fmt::format("operator {} of {}", index, ops.size()));
        needed(out, "out") = ops[index].name.c_str();
    });
}

cleave_status cleave_graph_to_text(const cleave_graph* graph, char** out) {
    return guard([&] { needed(out, "out") = copy_text(to_text(needed(graph, "graph").graph)); });
}

cleave_status cleave_graph_add_operator(cleave_graph* graph, const cleave_operator* op,
                                        size_t* index) {
    return guard([&] {
        needed(op, "operator");
        add_operator(needed(graph, "graph"), options_of(op, "cleave_operator"));
        if (index) *index = graph->graph.ops.size() - 1;
    });
}
