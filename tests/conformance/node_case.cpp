// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/node_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <fmt/ranges.h>
#include <onnx/onnx_pb.h>

#include "importer/onnx/import.h"
#include "importer/onnx/model.h"
#include "planner/machine/build_machine.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"
#include "tests/support/test.h"

namespace cleave::test {

using runtime::Tensor;

namespace {

template <class Proto>
Proto load_proto(const std::filesystem::path& path) {
    Proto proto;
    std::ifstream in(path, std::ios::binary);
    if (!proto.ParseFromIstream(&in)) throw UserError("{} cannot be read", path.string());
    return proto;
}

template <class To, class From>
void put_all(const From& values, std::vector<std::byte>& data) {
    for (const auto& value : values) {
        const To stored = static_cast<To>(value);
        const auto* bytes = reinterpret_cast<const std::byte*>(&stored);
        data.insert(data.end(), bytes, bytes + sizeof(To));
    }
}

// The typed fields of a tensor that has no raw data.
void put_typed(const onnx::TensorProto& proto, DType dtype, std::vector<std::byte>& data) {
    switch (dtype) {
        case DType::kF32: return put_all<float>(proto.float_data(), data);
        case DType::kF64: return put_all<double>(proto.double_data(), data);
        case DType::kInt64: return put_all<int64_t>(proto.int64_data(), data);
        case DType::kInt32: return put_all<int32_t>(proto.int32_data(), data);
        case DType::kF16:
        case DType::kBF16:
        case DType::kInt16: return put_all<uint16_t>(proto.int32_data(), data);
        default: return put_all<uint8_t>(proto.int32_data(), data);
    }
}

Tensor load_tensor(const std::filesystem::path& path, const std::string& name) {
    const auto proto = load_proto<onnx::TensorProto>(path);
    const std::optional<DType> dtype = importer::from_onnx::dtype_of(proto.data_type());
    if (!dtype)
        throw UserError("{} is of type {}, which Cleave has none for", name,
                        onnx::TensorProto::DataType_Name(
                            static_cast<onnx::TensorProto::DataType>(proto.data_type())));
    Tensor tensor{name, *dtype, {proto.dims().begin(), proto.dims().end()}, {}};
    if (proto.has_raw_data()) {
        const auto* bytes = reinterpret_cast<const std::byte*>(proto.raw_data().data());
        tensor.data.assign(bytes, bytes + proto.raw_data().size());
    } else {
        put_typed(proto, *dtype, tensor.data);
    }
    return tensor;
}

double element(const Tensor& t, size_t i) {
    const auto at = [&]<class T>(T) {
        T value;
        std::memcpy(&value, t.data.data() + i * sizeof(T), sizeof(T));
        return value;
    };
    switch (t.dtype) {
        case DType::kF32: return at(float{});
        case DType::kF64: return at(double{});
        case DType::kF16: return f16_to_f32(at(uint16_t{}));
        case DType::kBF16: return bf16_to_f32(at(uint16_t{}));
        case DType::kF8E4M3: return f8e4m3_to_f32(at(uint8_t{}));
        case DType::kInt64: return static_cast<double>(at(int64_t{}));
        case DType::kInt32: return at(int32_t{});
        case DType::kInt16: return at(int16_t{});
        case DType::kInt8: return at(int8_t{});
        case DType::kUInt8:
        case DType::kBool: return at(uint8_t{});
        case DType::kMxfp4:
        case DType::kF8E8M0: break;  // no operator gives them
        case DType::kInt4:
        case DType::kUInt4: {
            const int bits = std::to_integer<int>(t.data[i / 2]) >> (i % 2 * 4) & 15;
            return t.dtype == DType::kInt4 && bits > 7 ? bits - 16 : bits;
        }
    }
    return 0;
}

// Relative and absolute bound of a type: f16 and bf16 as many roundings as the reference makes in
// that type.
std::pair<double, double> bound_of(DType dtype) {
    switch (dtype) {
        case DType::kF32: return {1e-5, 1e-6};
        case DType::kF16: return {2e-3, 1e-3};
        case DType::kBF16: return {1.6e-2, 8e-3};
        default: return {0, 0};
    }
}

}  // namespace

std::vector<double> elements_of(const Tensor& tensor) {
    int64_t n = 1;
    for (int64_t d : tensor.shape) n *= d;
    std::vector<double> elements;
    for (int64_t i = 0; i < n; ++i) elements.push_back(element(tensor, static_cast<size_t>(i)));
    return elements;
}

std::vector<std::string> node_case_names(const std::filesystem::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

NodeCase load_node_case(const std::filesystem::path& folder, const std::string& name) {
    NodeCase node_case;
    const auto model = load_proto<onnx::ModelProto>(folder / name / "model.onnx");
    const std::filesystem::path data = folder / name / "test_data_set_0";
    for (int i = 0; i < model.graph().input_size(); ++i)
        node_case.inputs.push_back(
            load_tensor(data / fmt::format("input_{}.pb", i), model.graph().input(i).name()));
    for (int i = 0; i < model.graph().output_size(); ++i)
        node_case.outputs.push_back(
            load_tensor(data / fmt::format("output_{}.pb", i), model.graph().output(i).name()));
    return node_case;
}

planner::Plan plan_tensors(const importer::Graph& graph, const std::string& devices,
                           const planner::PlanOptions& options) {
    planner::Workload workload;
    workload.prompt_tokens = workload.context = workload.prefill_chunk = 1;
    return planner::make_plan(
        graph,
        planner::build_machine(planner::parse_devices(devices),
                               {2, int64_t{2} << 30, 10'000'000'000, 100'000'000'000, "x86-64-v3"}),
        workload, options);
}

std::string run_node_case(const std::filesystem::path& folder, const std::string& name,
                          const std::string& cpu) {
    const importer::Graph graph = importer::import_onnx((folder / name / "model.onnx").string());
    planner::Plan plan = plan_tensors(graph);
    runtime::SessionOptions options;
    options.poison = true;
    options.threads = 2;
    options.compile.cpu_arch = cpu;
    runtime::Session session(plan, options);
    const NodeCase node_case = load_node_case(folder, name);
    const std::vector<Tensor> got = session.run_tensors(node_case.inputs);
    if (got.size() != node_case.outputs.size())
        return fmt::format("{} outputs, not {}", got.size(), node_case.outputs.size());
    for (size_t i = 0; i < got.size(); ++i)
        if (std::string difference = first_difference(got[i], node_case.outputs[i]);
            !difference.empty())
            return difference;
    return "";
}

std::string first_difference(const Tensor& got, const Tensor& expected) {
    if (got.name != expected.name || got.dtype != expected.dtype || got.shape != expected.shape)
        return fmt::format("{} is {} [{}], not {} [{}]", got.name, got.dtype,
                           fmt::join(got.shape, ", "), expected.dtype,
                           fmt::join(expected.shape, ", "));
    const auto [relative, absolute] = bound_of(expected.dtype);
    const std::vector<double> a = elements_of(got), b = elements_of(expected);
    for (size_t i = 0; i < a.size(); ++i) {
        const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                          std::abs(a[i] - b[i]) <= absolute + relative * std::abs(b[i]);
        if (!same) return fmt::format("{} at place {}: {}, not {}", got.name, i, a[i], b[i]);
    }
    return "";
}

}  // namespace cleave::test
