// SPDX-License-Identifier: Apache-2.0
// The ONNX file as plain data: what the reading passes make and the recovering passes look at.
//
// Invariants: nodes are in topological order; every value is a graph input, a constant, or the
// output of exactly one node; constants (initializers and Constant nodes) are only located, never
// expanded; functions are inlined. Attributes stay in the NodeProto, which `proto` owns.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "importer/graph/graph.h"
#include "runtime/base/mapped_file.h"

namespace cleave::importer::from_onnx {

using Ref = int;  // index into Model::values; kNone: an optional input that is not given
constexpr Ref kNone = -1;

struct Node {
    std::string name;
    std::string domain;  // "" for ai.onnx
    std::string op;
    std::vector<Ref> in, out;
    const onnx::NodeProto* proto = nullptr;
    int element = -1;  // of a ConstantOfShape that gives one: its constant

    bool is(std::string_view op_type) const { return domain.empty() && op == op_type; }
    bool is_contrib(std::string_view op_type) const {
        return domain == "com.microsoft" && op == op_type;
    }
    Ref input(size_t i) const { return i < in.size() ? in[i] : kNone; }
    Ref output(size_t i) const { return i < out.size() ? out[i] : kNone; }

    const onnx::AttributeProto* attribute(std::string_view key) const;
    int64_t integer(std::string_view key, int64_t otherwise) const;
    double real(std::string_view key, double otherwise) const;
    std::string text(std::string_view key, const std::string& otherwise) const;
    std::optional<std::vector<int64_t>> integers(std::string_view key) const;
};

// An initializer, or the value of a Constant node.
struct Constant {
    std::string name;
    int32_t elem_type = 0;  // onnx::TensorProto::DataType
    std::vector<int64_t> dims;
    DataRef data;  // file and blob ids of the Model

    int64_t count() const;
    bool is_floating() const;
};

struct ModelValue {
    std::string name;
    int producer = -1;  // node
    int constant = -1;
    int input = -1;
};

struct ModelInput {
    Ref value = kNone;
    int32_t elem_type = 0;
    std::vector<Dim> dims;
    bool static_cache = false;  // a cache of fixed capacity, written in place (TensorScatter)
};

// Numbers that probes evaluated and hold now, in all of one import: what a hostile graph may cost.
struct ProbeWork {
    int64_t evaluated = 0;
    int64_t held = 0;
};

struct Model {
    std::string path;
    std::string producer, producer_version;
    int64_t opset = 0;
    std::unique_ptr<onnx::ModelProto> proto;
    std::vector<Node> nodes;
    std::vector<ModelValue> values;
    std::vector<Constant> constants;
    std::vector<ModelInput> inputs;  // without those that are initializers
    std::vector<Ref> outputs;
    std::vector<SourceFile> files;  // files[0] is the .onnx file
    std::vector<std::vector<std::byte>> blobs;
    std::vector<std::string> notes;
    mutable ProbeWork probe_work;

    const Node* producer_of(Ref v) const {
        return v == kNone || values[v].producer < 0 ? nullptr : &nodes[values[v].producer];
    }
    const Constant* constant_of(Ref v) const {
        return v == kNone || values[v].constant < 0 ? nullptr : &constants[values[v].constant];
    }
    std::span<const std::byte> bytes(const DataRef& ref) const;  // maps the file at first use

private:
    mutable std::vector<std::unique_ptr<MappedFile>> maps_;
};

// "node '/model/layers.0/mlp/Mul' (Mul)"; an unnamed node is called by its first output.
std::string describe(const Model& model, const Node& node);

// The Cleave type of an ONNX element type, when it has one.
std::optional<DType> dtype_of(int32_t elem_type);
std::string elem_type_name(int32_t elem_type);
int elem_type_bits(int32_t elem_type);  // 0: no fixed size (strings)

}  // namespace cleave::importer::from_onnx
