// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "importer/graph/graph.h"
#include "runtime/base/control_characters.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

// Ends the walk at what does not hold. Caught by `graph_fault` alone.
struct Broken {
    std::string what;
};

template <class... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds) throw Broken{fmt::format(format, std::forward<Args>(args)...)};
}

// Each operand and result is there, and its value has that shape and type.
void require_tensors(const Graph& graph, const Op& op) {
    const auto look = [&](const TensorOperand& o, const std::vector<ValueId>& values) {
        require(o.index >= -static_cast<int32_t>(op.weights.size()) &&
                    o.index < static_cast<int32_t>(values.size()),
                "{}: {} is out of range", op.name, o.name);
        if (o.index < 0) return;
        const Value& v = graph.value(values[static_cast<size_t>(o.index)]);
        require(v.kind == ValueKind::kTensor && v.dtype == o.dtype &&
                    std::equal(v.shape.begin(), v.shape.end(), o.shape.begin(), o.shape.end(),
                               [](const Dim& a, int64_t b) { return a.value == b; }),
                "{}: {} and its value {} disagree", op.name, o.name, v.name);
    };
    for (const TensorOperand& o : op.as<TensorAttrs>().operands) look(o, op.inputs);
    for (const TensorOperand& o : op.as<TensorAttrs>().results) {
        require(o.index >= 0, "{}: {} is no output", op.name, o.name);
        look(o, op.outputs);
    }
}

void require_op(const Graph& graph, const Op& op, std::vector<bool>& produced) {
    require(op.attrs.index() == static_cast<size_t>(op.kind), "{}: kind and attributes disagree",
            op.name);
    for (ValueId v : op.inputs) {
        require(v.valid() && v.index() < graph.values.size(), "{}: input out of range", op.name);
        require(produced[v.index()], "{}: {} is used before it is produced", op.name,
                graph.value(v).name);
    }
    for (WeightId w : op.weights) {
        require(w.valid() && w.index() < graph.weights.size(), "{}: weight out of range", op.name);
        const Weight& weight = graph.weight(w);
        require(
            keeps_onnx_form(op) || weight.packing != Packing::kDense || is_floating(weight.dtype),
            "{}: its weight {} is of {}", op.name, weight.name, dtype_name(weight.dtype));
    }
    for (ValueId v : op.outputs) {
        require(v.valid() && v.index() < graph.values.size(), "{}: output out of range", op.name);
        require(!produced[v.index()], "{}: {} has two producers", op.name, graph.value(v).name);
        produced[v.index()] = true;
    }
    if (op.kind == OpKind::kTensor) require_tensors(graph, op);
}

// A logical range of `size` lies in the source's `stored` rows or columns. Without a range it is
// the first of them (of a table of rotations whose halves are equal, one).
bool lies_in(Range range, int64_t size, int64_t stored) {
    if (range.empty()) return size >= 0 && size <= stored;
    return range.begin >= 0 && range.end <= stored && range.size() == size;
}

// A weight is a rectangle of what is stored, and what is dense has its bytes. Those of codes,
// scales and zero points are counted as they are read.
void require_storage(const Graph& graph, const Weight& w) {
    // A model without weights has no files, and its scales are nowhere either.
    if (!w.data.has_data()) return;
    for (const DataRef* data : {&w.data, &w.quantization.scales, &w.quantization.zero_points}) {
        require(data->file.value < static_cast<int32_t>(graph.files.size()),
                "{}: file out of range", w.name);
        require(data->blob.value < static_cast<int32_t>(graph.blobs.size()),
                "{}: blob out of range", w.name);
        if (!data->blob.valid()) continue;
        const uint64_t size = graph.blobs[data->blob.index()].size();
        require(data->offset <= size && data->length <= size - data->offset,
                "{}: it reaches beyond its blob", w.name);
    }
    int64_t elements = 1;
    for (int64_t d : w.source_shape)
        require(d >= 0 && !__builtin_mul_overflow(elements, d, &elements),
                "{}: its stored shape makes no sense", w.name);
    if (w.gguf)
        require(gguf_layout(*w.gguf).elements > 1, "{}: {} is no type of blocks", w.name,
                gguf_layout(*w.gguf).name);
    const std::optional<DType> rounded = w.quantization.rounded_from;
    const bool dense = w.packing == Packing::kDense || rounded;
    if (dense && !w.gguf) {
        int64_t bits = 0;
        require(!__builtin_mul_overflow(elements, dtype_bits(rounded.value_or(w.dtype)), &bits) &&
                    (static_cast<uint64_t>(bits) + 7) / 8 <= w.data.length,
                "{}: fewer bytes are stored than its shape needs", w.name);
    }
    require(dense || w.gguf || w.quantization.scales.has_data(), "{}: codes without scales",
            w.name);
    if (w.shape.size() == 1)
        require(lies_in(w.rows, w.shape[0], elements), "{}: it reaches beyond what is stored",
                w.name);
    if (w.shape.size() != 2) return;
    require(!w.source_shape.empty(), "{}: a matrix without a stored shape", w.name);
    const int64_t columns = w.source_shape.back();
    const int64_t rows = columns > 0 ? elements / columns : 0;
    require(lies_in(w.rows, w.shape[0], w.transposed ? columns : rows) &&
                lies_in(w.columns, w.shape[1], w.transposed ? rows : columns),
            "{}: rows {} to {} and columns {} to {} are not of the stored [{}]", w.name,
            w.rows.begin, w.rows.end, w.columns.begin, w.columns.end,
            fmt::join(w.source_shape, ", "));
}

}  // namespace

std::string unprintable_name(const Graph& graph) {
    std::string found;
    const auto look = [&](const std::string& text) {
        if (found.empty() && has_control_characters(text)) found = text;
    };
    look(graph.exporter);
    look(graph.config.model_type);
    for (const Op& op : graph.ops) {
        look(op.name);
        for (const std::string& node : op.onnx_nodes) look(node);
        if (const auto* kept = std::get_if<OpaqueAttrs>(&op.attrs))
            for (const std::string* text : {&kept->domain, &kept->op_type, &kept->reason})
                look(*text);
        if (const auto* kept = std::get_if<TensorAttrs>(&op.attrs)) look(kept->op_type);
    }
    for (const Value& value : graph.values) look(value.name);
    for (const Weight& weight : graph.weights) look(weight.name);
    for (const RopeTable& table : graph.rope_tables) look(table.name);
    for (const std::string& note : graph.notes) look(note);
    return without_control_characters(std::move(found));
}

std::string graph_fault(const Graph& graph) {
    try {
        const std::string name = unprintable_name(graph);
        require(name.empty(), "the name '{}' has control characters", name);
        std::vector<bool> produced(graph.values.size());
        for (ValueId v : graph.inputs) {
            require(v.valid() && v.index() < graph.values.size(), "graph input out of range");
            produced[v.index()] = true;
        }
        std::set<std::string> names;
        for (const Op& op : graph.ops) {
            require(names.insert(op.name).second, "two operators are called {}", op.name);
            require_op(graph, op, produced);
        }
        for (ValueId v : graph.outputs)
            require(produced[v.index()], "{} is never produced", graph.value(v).name);
        for (const Weight& w : graph.weights) require_storage(graph, w);
    } catch (const Broken& broken) {
        return broken.what;
    }
    return "";
}

void check_graph(const Graph& graph) {
    const std::string fault = graph_fault(graph);
    CLEAVE_CHECK(fault.empty()) << fault;
}

}  // namespace cleave::importer
