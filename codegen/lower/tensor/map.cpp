// SPDX-License-Identifier: Apache-2.0
// Elementwise operators, and those that move single elements: alone, in a chain, or behind another
// kernel's own work.
#include <algorithm>

#include "codegen/lower/tensor/tensor_kernels.h"
#include "planner/analysis/tensor_chain.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

using importer::Op;
using importer::TensorAttrs;
using planner::kChainDims;
using planner::TensorMap;

namespace {

constexpr int64_t kItemElements = 4096;  // of a chain that stands alone

// Operators that only move elements, or change their type.
bool is_move(std::string_view op) {
    constexpr std::string_view kMoves[] = {"Cast",    "CastLike",  "Identity", "Reshape",
                                           "Squeeze", "Unsqueeze", "Flatten",  "Transpose",
                                           "Expand",  "Slice"};
    return std::find(std::begin(kMoves), std::end(kMoves), op) != std::end(kMoves);
}

DType result_type(const Op& op) { return op.as<TensorAttrs>().results.at(0).dtype; }

std::string function_of(const Op& op, DType last) {
    const std::string& type = op.as<TensorAttrs>().op_type;
    if (!is_move(type)) return type;
    return result_type(op) == DType::kBool && last != DType::kBool ? "Truth" : "Identity";
}

double alpha_of(const Op& op) {
    for (const importer::TensorAttribute& a : op.as<TensorAttrs>().attributes)
        if (a.name == "alpha" && a.reals.size() == 1) return a.reals[0];
    throw InternalError(fmt::format("{} has no alpha", op.name));
}

TensorMap map_of(const Op& op) {
    std::optional<TensorMap> map = planner::read_tensor_map(op);
    CLEAVE_CHECK(map.has_value()) << op.name << " is not computed element by element";
    return std::move(*map);
}

// What all operators of the step walk over.
std::vector<int64_t> dims_of(const StepReader& step) {
    std::optional<planner::TensorChain> chain = planner::TensorChain::behind(step.op(0));
    CLEAVE_CHECK(chain.has_value())
        << "no operator can follow " << step.op(0).name << " in its launch";
    for (size_t i = 1; i < step.num_ops(); ++i)
        CLEAVE_CHECK(chain->join(step.op(i), step.op(i - 1).outputs[0]))
            << step.op(i).name << " cannot follow " << step.op(i - 1).name << " in its launch";
    return chain->dims();
}

// The last dimension of the kernel is the innermost; in front of what there is, `filler`.
std::vector<int64_t> padded(const std::vector<int64_t>& values, int64_t filler) {
    std::vector<int64_t> all(kChainDims - values.size(), filler);
    all.insert(all.end(), values.begin(), values.end());
    return all;
}

}  // namespace

void TensorLowering::chain(size_t first) {
    const std::vector<int64_t> dims = dims_of(step_);
    const bool stands_alone = first == 0;
    struct Outer {
        Arg arg;
        std::vector<int64_t> strides;
        int64_t offset;
    };
    std::vector<Outer> outers;
    line("template <i64 N, class Walk, class Held>");
    line("CLEAVE_INLINE static void chain(const Walk& w, const Held* held, Out* out) {");
    line("    using F = Function;");
    line("    (void)w, (void)held;");
    for (size_t i = first; i < step_.num_ops(); ++i) {
        const Op& op = step_.op(i);
        const TensorMap map = map_of(op);
        const DType last = map.operands.back().operand->dtype;
        // Reals are computed as f32, all integers as 64-bit ones.
        const char* real = is_floating(last) ? "true" : "false";
        std::string sources;
        for (const TensorMap::Operand& x : map.operands) {
            const int32_t index = x.operand->index;
            const bool inner = i > 0 && index >= 0 &&
                               op.inputs[static_cast<size_t>(index)] == step_.op(i - 1).outputs[0];
            if (inner) {
                sources += fmt::format(", inner<{}, N>({})", real,
                                       i == first ? "held" : fmt::format("v{}", i - first - 1));
                continue;
            }
            const std::vector<int64_t> strides = planner::strides_along(dims, map.dims, x.strides);
            const int64_t along = strides.back();
            sources +=
                fmt::format(", fetch<{}, {}, {}, N>(w, {})", real, tensor_element(x.operand->dtype),
                            along == 0 || along == 1 ? along : -1, outers.size());
            outers.push_back({operand_arg(op, *x.operand), strides, x.offset});
        }
        const std::string& type = op.as<TensorAttrs>().op_type;
        if (type == "Swish") {
            const char* none = ", FloatN<N>(0.0f), FloatN<N>(0.0f)";
            sources += fmt::format("{}, static_cast<float>({:.17g})", none, alpha_of(op));
        }
        std::string to = "out";
        if (i + 1 < step_.num_ops()) {
            to = fmt::format("v{}", i - first);
            line(fmt::format("    {} {}[N];", tensor_element(result_type(op)), to));
        }
        line(fmt::format("    map<F::k{}, {}, N>({}{});  // {}", function_of(op, last),
                         map.operands.size(), to, sources, type));
    }
    line("}");
    constant("kOthers", static_cast<int64_t>(outers.size()));
    arguments("chain.dims", padded(dims, 1), kChainDims, 1);
    for (size_t k = 0; k < outers.size(); ++k) {
        pointer("const void*", fmt::format("chain.x[{}]", k), std::move(outers[k].arg));
        arguments(fmt::format("chain.strides[{}]", k), padded(outers[k].strides, 0), kChainDims, 0);
        argument(fmt::format("chain.offset[{}]", k), outers[k].offset);
    }
    if (stands_alone) return;
    note(fmt::format("then {} elementwise operators, to {}", step_.num_ops() - first,
                     result_type(step_.last())));
}

void TensorLowering::result_in_order(std::string_view name, bool bytes) {
    const bool epilogue = step_.num_ops() > 1;
    const DType held = bytes && !epilogue ? DType::kUInt8 : find_result(name)->dtype;
    type("Held", held);
    final_result(epilogue ? result_type(step_.last()) : held);
    flag("kEpilogue", epilogue);
    if (epilogue)
        chain(1);
    else
        kernel_.spec.left_out.emplace_back("host/tensor_chain.h");
}

void TensorLowering::final_result(DType dtype) {
    type("Out", dtype);
    pointer(fmt::format("{}*", tensor_element(dtype)), "out", step_.output_arg("out"));
}

TensorKernel lower_tensor_map(const StepReader& step) {
    TensorLowering l(step, "host/tensor_map.h", "tensor_map", "TensorMapArgs");
    const Op& last = step.last();
    int64_t elements = 1;
    for (int64_t d : last.as<TensorAttrs>().results.at(0).shape) elements *= d;
    l.items((elements + kItemElements - 1) / kItemElements);
    l.note(fmt::format("dtype: {} to {}; sizes and strides are arguments",
                       map_of(step.op(0)).operands.back().operand->dtype, result_type(last)));
    l.final_result(result_type(last));
    l.flag("kEpilogue", true);
    l.constant("kItemElements", kItemElements);
    l.chain(0);
    l.argument("elements", elements);
    return l.finish();
}

}  // namespace cleave::codegen
