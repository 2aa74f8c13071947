// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/epilogue.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace cleave::codegen {

using importer::Op;
using importer::OpKind;
using importer::ValueId;

namespace {

EpilogueStep step_of(const Op& op, ValueId value) {
    EpilogueStep step;
    switch (op.kind) {
        case OpKind::kScale:
            step.kind = EpilogueStep::Kind::kScale;
            step.factor = op.as<importer::ScaleAttrs>().factor;
            step.softcap = op.as<importer::ScaleAttrs>().softcap;
            return step;
        case OpKind::kAdd: step.kind = EpilogueStep::Kind::kAdd; return step;
        case OpKind::kGatedActivation:
            step.kind = EpilogueStep::Kind::kGated;
            step.activation = op.as<importer::GatedActivationAttrs>().activation;
            step.is_gate = op.inputs[0] == value;
            return step;
        default: break;
    }
    throw InternalError(fmt::format("{} is no elementwise operator behind another", op.name));
}

size_t num_operands(const Epilogue& epilogue) {
    return static_cast<size_t>(std::count_if(epilogue.begin(), epilogue.end(),
                                             [](const auto& s) { return s.other.has_value(); }));
}

std::string real(double value) { return fmt::format("static_cast<float>({:.17g})", value); }

// Statements on `v`; `load` is the template that reads an operand's elements.
std::vector<std::string> statements(const Epilogue& epilogue, std::string_view load) {
    std::vector<std::string> lines;
    size_t operands = 0;
    for (const EpilogueStep& s : epilogue) {
        std::string other = "v";
        if (s.other)
            other = fmt::format("{}<N>(other[{}] + row * {} + {} + i)", load, operands++,
                                s.other->stride, s.other->offset);
        switch (s.kind) {
            case EpilogueStep::Kind::kScale:
                lines.push_back(fmt::format("v = scaled<N>(v, {});", real(s.factor)));
                if (s.softcap > 0)
                    lines.push_back(fmt::format("v = soft_capped<N>(v, {});", real(s.softcap)));
                break;
            case EpilogueStep::Kind::kAdd:
                lines.push_back(fmt::format("v = plus<N>(v, {});", other));
                break;
            case EpilogueStep::Kind::kGated:
                lines.push_back(fmt::format("v = gated<Activation::{}, N>({}, {});",
                                            importer::row_of(s.activation).spelling,
                                            s.is_gate ? "v" : other, s.is_gate ? other : "v"));
                break;
        }
    }
    return lines;
}

void write_epilogue(StubWriter& w, const Epilogue& epilogue, std::string_view head,
                    std::string_view load, const std::string& pointer) {
    const size_t operands = num_operands(epilogue);
    w.constant("kEpilogue", !epilogue.empty());
    w.constant("kOthers", static_cast<int64_t>(operands));
    if (epilogue.empty()) return;
    for (std::string_view rest = head; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        w.line(std::string(rest.substr(0, end)));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    for (const std::string& line : statements(epilogue, load)) w.line("    " + line);
    w.line("    return v;");
    w.line("}");
    for (size_t i = 0; i < operands; ++i) w.arg(pointer, fmt::format("other[{}]", i));
}

}  // namespace

Epilogue read_epilogue(const StepReader& step, size_t first, ValueId value,
                       std::vector<Arg>& args) {
    Epilogue epilogue;
    size_t operands = 0;
    for (size_t i = first; i < step.num_ops(); ++i) {
        const Op& op = step.op(i);
        EpilogueStep next = step_of(op, value);
        for (ValueId v : op.inputs) {
            if (v == value) continue;
            CLEAVE_CHECK(!next.other) << op.name << " does not read " << step.value_name(value);
            next.other = step.view(v, step.columns(step.op(step.num_ops() - 1).outputs[0]).begin);
            args.push_back(step.input_arg(v, fmt::format("other[{}]", operands++)));
        }
        value = op.outputs[0];
        epilogue.push_back(next);
    }
    return epilogue;
}

int64_t epilogue_alignment(const Epilogue& epilogue) {
    int64_t all = 0;
    for (const EpilogueStep& s : epilogue)
        if (s.other) all = std::gcd(all, std::gcd(s.other->stride, s.other->offset));
    return all;
}

void write_host_epilogue(StubWriter& w, const Epilogue& epilogue) {
    write_epilogue(
        w, epilogue,
        "template <i64 N>\n"
        "CLEAVE_INLINE static FloatN<N> epilogue(FloatN<N> v, const float* const* other, "
        "i64 row, i64 i) {\n    (void)other, (void)row, (void)i;",
        "load", "const float*");
}

void write_gpu_epilogue(StubWriter& w, const Epilogue& epilogue, std::string_view x_pointer) {
    write_epilogue(
        w, epilogue,
        "template <int N, class T>\n"
        "DEVICE static Floats<N> epilogue(Floats<N> v, const T* const* other, i64 row, i64 i) "
        "{\n    (void)other, (void)row, (void)i;",
        "load_floats", std::string(x_pointer));
}

}  // namespace cleave::codegen
