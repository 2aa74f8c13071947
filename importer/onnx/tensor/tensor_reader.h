// SPDX-License-Identifier: Apache-2.0
// ONNX operators over whole tensors, in graphs that are no Llama: one reader for each operator
// checks a node against the standard and gives the numbers that a kernel needs. In: a node and the
// types of its operands. Out: TensorAttrs, or the reason why the node stays Opaque. Invariant: all
// shapes are numbers.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "importer/onnx/model.h"
#include "importer/onnx/probe/probe.h"
#include "importer/onnx/probe/tensor.h"

namespace cleave::importer::from_onnx {

struct TensorType {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;

    int64_t count() const { return product(shape); }
    int64_t rank() const { return static_cast<int64_t>(shape.size()); }
};

// Sizes, and numbers of elements, beyond which nothing is computed: products of two fit into 64
// bits.
constexpr int64_t kMostTensorElements = int64_t{1} << 31;

// Why a node is none that Cleave computes.
struct NotComputed {
    std::string reason;
};

// What a reader looks at, and what it fills in.
class TensorReader {
public:
    // types[i] is that of input i; nothing where it is not known. The probe knows what depends on
    // no data.
    TensorReader(const Model& model, const Node& node, std::vector<std::optional<TensorType>> types,
                 Probe& probe)
        : model_(model), node_(node), types_(std::move(types)), probe_(probe) {
        attrs_.op_type = node.op;
    }

    const Node& node() const { return node_; }
    int64_t opset() const { return model_.opset; }
    bool has(size_t i) const { return node_.input(i) != kNone; }
    bool wants(size_t i) const { return node_.output(i) != kNone; }

    // The type of input i, which the standard calls `name`; NotComputed when it is absent or not
    // known.
    const TensorType& type(size_t i, std::string_view name) const;
    // The same, of an input that the kernel reads.
    const TensorType& operand(size_t i, std::string_view name);
    bool is_graph_input(size_t i) const {
        return has(i) && model_.values[node_.input(i)].input >= 0;
    }
    // Integers of input i, or of an attribute, that depend on no data; nothing when there are none.
    std::optional<std::vector<int64_t>> integers(size_t i, std::string_view attribute) const;
    // The shape of output i, if it depends on no data.
    std::optional<std::vector<int64_t>> shape_of_result(size_t i) const;
    const TensorType* optional_operand(size_t i, std::string_view name) {
        return has(i) ? &operand(i, name) : nullptr;
    }
    // Input i has no elements.
    bool is_empty(size_t i) const { return has(i) && types_[i] && types_[i]->count() == 0; }
    // Output i, where the graph wants it. One without elements is none that a kernel writes.
    void result(size_t i, std::string_view name, TensorType type);

    void number(std::string_view name, int64_t value) { numbers(name, {value}); }
    void numbers(std::string_view name, std::vector<int64_t> values) {
        attrs_.attributes.push_back({std::string(name), std::move(values), {}});
    }
    void real(std::string_view name, double value) {
        attrs_.attributes.push_back({std::string(name), {}, {value}});
    }
    void flops(double n) { attrs_.flops = static_cast<int64_t>(std::min(n, 1e15)); }

    template <class... Args>
    [[noreturn]] static void refuse(fmt::format_string<Args...> format, Args&&... args) {
        throw NotComputed{fmt::format(format, std::forward<Args>(args)...)};
    }
    template <class... Args>
    static void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
        if (!holds) refuse(format, std::forward<Args>(args)...);
    }
    // f32, f16 or bf16, as the kernels read them.
    static void require_float(const TensorType& type, std::string_view name);
    // Axis counted from the front.
    static int64_t axis_of(int64_t axis, int64_t rank, std::string_view name);

    const TensorAttrs& attrs() const { return attrs_; }
    std::span<const Ref> operand_refs() const { return operand_refs_; }  // beside attrs().operands
    std::span<const Ref> result_refs() const { return result_refs_; }
    std::span<const std::pair<Ref, TensorType>> empty_results() const { return empty_results_; }

private:
    const Model& model_;
    const Node& node_;
    std::vector<std::optional<TensorType>> types_;
    Probe& probe_;
    TensorAttrs attrs_;
    std::vector<Ref> operand_refs_, result_refs_;
    std::vector<std::pair<Ref, TensorType>> empty_results_;
};

// Reads the node with its operator's reader; NotComputed when there is none, or it refuses.
void read_tensor_operator(TensorReader& reader);

// One each; see table.cpp.
void read_attention(TensorReader& r);
void read_rms_normalization(TensorReader& r);
void read_rotary_embedding(TensorReader& r);
void read_dequantize_linear(TensorReader& r);
void read_quantize_linear(TensorReader& r);
void read_dynamic_quantize_linear(TensorReader& r);
void read_elementwise(TensorReader& r);
void read_cast(TensorReader& r);
void read_reshape(TensorReader& r);
void read_transpose(TensorReader& r);
void read_expand(TensorReader& r);
void read_slice(TensorReader& r);
void read_concat(TensorReader& r);
void read_split(TensorReader& r);
void read_gather(TensorReader& r);
void read_gather_nd(TensorReader& r);
void read_pad(TensorReader& r);
void read_tensor_scatter(TensorReader& r);
void read_reduce(TensorReader& r);
void read_softmax(TensorReader& r);
void read_matmul(TensorReader& r);

std::string shape_text(std::span<const int64_t> shape);

}  // namespace cleave::importer::from_onnx
