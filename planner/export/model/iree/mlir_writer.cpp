// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/iree/mlir_writer.h"

#include <fmt/ranges.h>

#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

const char* size_name(int64_t size) { return size == kTokens ? "%tokens" : "%total"; }

std::string dimension(int64_t size) { return size < 0 ? "?" : std::to_string(size); }
std::string operand(int64_t size) { return size < 0 ? size_name(size) : std::to_string(size); }

// Sizes that a type leaves open, as operands.
std::vector<std::string> open_sizes(const std::vector<int64_t>& shape) {
    std::vector<std::string> names;
    for (int64_t d : shape)
        if (d < 0) names.emplace_back(size_name(d));
    return names;
}

std::string affine_map(size_t loops, std::string_view results) {
    std::string names;
    for (size_t i = 0; i < loops; ++i) names += fmt::format("{}d{}", i ? ", " : "", i);
    return fmt::format("affine_map<({}) -> ({})>", names, results);
}

std::string all_loops(size_t count) {
    std::string loops;
    for (size_t i = 0; i < count; ++i) loops += fmt::format("{}d{}", i ? ", " : "", i);
    return loops;
}

std::string brackets(const std::vector<std::string>& items) {
    return fmt::format("[{}]", fmt::join(items, ", "));
}

}  // namespace

std::string mlir_element(DType dtype) {
    CLEAVE_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16)
        << "an exported tensor of " << dtype_name(dtype);
    return std::string(dtype_name(dtype));
}

std::string mlir_float(double value) { return fmt::format("{:.9e} : f32", value); }

std::string mlir_type(const MlirTensor& t) {
    std::string type = "tensor<";
    for (int64_t d : t.shape) type += dimension(d) + "x";
    return type + t.element + ">";
}

std::string mlir_string(std::string_view text) {
    std::string quoted = "\"";
    for (char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\' || byte < 0x20 || byte >= 0x7f)
            quoted += fmt::format("\\{:02X}", byte);
        else
            quoted += c;
    }
    return quoted + "\"";
}

std::string MlirWriter::fresh() { return fmt::format("%v{}", next_++); }
void MlirWriter::line(const std::string& text) { text_ += "    " + text + "\n"; }
void MlirWriter::comment(std::string_view text) {
    std::string plain(text);
    for (char& c : plain)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    line("// " + plain);
}

MlirTensor MlirWriter::generic(std::vector<int64_t> shape, std::string_view loops,
                               std::string_view result_loops,
                               const std::vector<MlirOperand>& operands, std::string_view body,
                               const std::string& initial) {
    MlirTensor result = empty(std::move(shape));
    const std::string type = mlir_type(result);
    if (!initial.empty()) {
        const std::string number = fresh(), filled = fresh();
        line(fmt::format("{} = arith.constant {}", number, initial));
        line(fmt::format("{} = linalg.fill ins({} : f32) outs({} : {}) -> {}", filled, number,
                         result.ssa, type, type));
        result.ssa = filled;
    }
    std::vector<std::string> maps, kinds, names, types, arguments;
    std::string widen;
    for (size_t i = 0; i < operands.size(); ++i) {
        const MlirTensor& t = operands[i].tensor;
        const bool narrow = t.element == "f16" || t.element == "bf16";
        maps.push_back(affine_map(loops.size(), operands[i].loops));
        names.push_back(t.ssa);
        types.push_back(mlir_type(t));
        arguments.push_back(fmt::format("%{}{}: {}", narrow ? "n" : "i", i, t.element));
        if (narrow)
            widen += fmt::format("      %i{} = arith.extf %n{} : {} to f32\n", i, i, t.element);
    }
    maps.push_back(affine_map(loops.size(), result_loops));
    for (char c : loops) kinds.emplace_back(c == 'p' ? "\"parallel\"" : "\"reduction\"");
    arguments.emplace_back("%acc: f32");
    std::string ins;
    if (!operands.empty())
        ins = fmt::format(" ins({} : {})", fmt::join(names, ", "), fmt::join(types, ", "));
    const std::string made = fresh();
    line(fmt::format(
        "{} = linalg.generic {{indexing_maps = {}, iterator_types = {}}}{} outs({} : {}) {{", made,
        brackets(maps), brackets(kinds), ins, result.ssa, type));
    line(fmt::format("^bb0({}):", fmt::join(arguments, ", ")));
    text_ += widen;
    for (size_t at = 0; at < body.size();) {
        const size_t end = std::min(body.find('\n', at), body.size());
        line("  " + std::string(body.substr(at, end - at)));
        at = end + 1;
    }
    line("  linalg.yield %y : f32");
    line(fmt::format("}} -> {}", type));
    result.ssa = made;
    return result;
}

MlirTensor MlirWriter::elementwise(const std::vector<MlirTensor>& operands, std::string_view body) {
    const size_t rank = operands.at(0).shape.size();
    const std::string loops = all_loops(rank);
    std::vector<MlirOperand> all;
    for (const MlirTensor& t : operands) all.push_back({t, loops});
    return generic(operands[0].shape, std::string(rank, 'p'), loops, all, body);
}

MlirTensor MlirWriter::split_last(const MlirTensor& x, const std::vector<int64_t>& parts) {
    MlirTensor result{fresh(), x.shape, x.element};
    result.shape.pop_back();
    std::vector<std::string> groups, sizes;
    for (size_t i = 0; i < result.shape.size(); ++i) groups.push_back(fmt::format("[{}]", i));
    std::vector<size_t> last;
    for (int64_t p : parts) {
        last.push_back(result.shape.size());
        result.shape.push_back(p);
    }
    groups.push_back(fmt::format("[{}]", fmt::join(last, ", ")));
    for (int64_t d : result.shape) sizes.push_back(operand(d));
    line(fmt::format("{} = tensor.expand_shape {} {} output_shape {} : {} into {}", result.ssa,
                     x.ssa, brackets(groups), brackets(sizes), mlir_type(x), mlir_type(result)));
    return result;
}

MlirTensor MlirWriter::join_last(const MlirTensor& x, size_t kept) {
    MlirTensor result{
        fresh(), {x.shape.begin(), x.shape.begin() + static_cast<ptrdiff_t>(kept)}, x.element};
    std::vector<std::string> groups;
    for (size_t i = 0; i < kept; ++i) groups.push_back(fmt::format("[{}]", i));
    std::vector<size_t> last;
    int64_t joined = 1;
    for (size_t i = kept; i < x.shape.size(); ++i) {
        last.push_back(i);
        joined *= x.shape[i];
    }
    groups.push_back(fmt::format("[{}]", fmt::join(last, ", ")));
    result.shape.push_back(joined);
    line(fmt::format("{} = tensor.collapse_shape {} {} : {} into {}", result.ssa, x.ssa,
                     brackets(groups), mlir_type(x), mlir_type(result)));
    return result;
}

MlirTensor MlirWriter::slice(const MlirTensor& x, size_t dim, const std::string& begin,
                             int64_t size) {
    MlirTensor result{fresh(), x.shape, x.element};
    result.shape.at(dim) = size;
    std::vector<std::string> offsets(x.shape.size(), "0"), sizes, strides(x.shape.size(), "1");
    offsets[dim] = begin;
    for (int64_t d : result.shape) sizes.push_back(operand(d));
    line(fmt::format("{} = tensor.extract_slice {}{} {} {} : {} to {}", result.ssa, x.ssa,
                     brackets(offsets), brackets(sizes), brackets(strides), mlir_type(x),
                     mlir_type(result)));
    return result;
}

MlirTensor MlirWriter::insert(const MlirTensor& part, const MlirTensor& x,
                              const std::vector<std::string>& offsets) {
    MlirTensor result{fresh(), x.shape, x.element};
    std::vector<std::string> sizes, strides(x.shape.size(), "1");
    for (int64_t d : part.shape) sizes.push_back(operand(d));
    line(fmt::format("{} = tensor.insert_slice {} into {}{} {} {} : {} into {}", result.ssa,
                     part.ssa, x.ssa, brackets(offsets), brackets(sizes), brackets(strides),
                     mlir_type(part), mlir_type(x)));
    return result;
}

MlirTensor MlirWriter::empty(std::vector<int64_t> shape, std::string element) {
    MlirTensor result{fresh(), std::move(shape), std::move(element)};
    line(fmt::format("{} = tensor.empty({}) : {}", result.ssa,
                     fmt::join(open_sizes(result.shape), ", "), mlir_type(result)));
    return result;
}

MlirTensor MlirWriter::narrow(const MlirTensor& x, const std::string& element) {
    if (element == x.element) return x;
    MlirTensor result = empty(x.shape, element);
    const std::string made = fresh(), map = affine_map(x.shape.size(), all_loops(x.shape.size()));
    std::vector<std::string> kinds(x.shape.size(), "\"parallel\"");
    line(fmt::format(
        "{} = linalg.generic {{indexing_maps = [{}, {}], iterator_types = {}}} ins({} "
        ": {}) outs({} : {}) {{",
        made, map, map, brackets(kinds), x.ssa, mlir_type(x), result.ssa, mlir_type(result)));
    line(fmt::format("^bb0(%i0: f32, %acc: {}):", element));
    line(fmt::format("  %y = arith.truncf %i0 : f32 to {}", element));
    line(fmt::format("  linalg.yield %y : {}", element));
    line(fmt::format("}} -> {}", mlir_type(result)));
    result.ssa = made;
    return result;
}

MlirTensor MlirWriter::transfer(const MlirTensor& x, const std::string& device) {
    MlirTensor result{fresh(), x.shape, x.element};
    const std::vector<std::string> open = open_sizes(x.shape);
    line(fmt::format("{} = flow.tensor.transfer {} : {}{} to #hal.device.promise<@{}>", result.ssa,
                     x.ssa, mlir_type(x),
                     open.empty() ? "" : fmt::format("{{{}}}", fmt::join(open, ", ")), device));
    return result;
}

MlirTensor MlirWriter::load_global(const std::string& symbol, const MlirTensor& type,
                                   bool is_mutable) {
    MlirTensor result{fresh(), type.shape, type.element};
    line(fmt::format("{} = util.global.load {}@{} : {}", result.ssa, is_mutable ? "" : "immutable ",
                     symbol, mlir_type(result)));
    return result;
}

void MlirWriter::store_global(const std::string& symbol, const MlirTensor& value) {
    line(fmt::format("util.global.store {}, @{} : {}", value.ssa, symbol, mlir_type(value)));
}

}  // namespace cleave::planner
