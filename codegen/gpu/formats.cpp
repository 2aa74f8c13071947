// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu/formats.h"

#include <string>

#include "codegen/text/stub_writer.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

void settle(WeightFormat& format) {
    const importer::QuantizedType* type = importer::find_quantized_type(format.dtype);
    if (!format.quantized && type && type->round && !is_floating(format.dtype))
        format = importer::rounded_format(*type);
}
template <class Spec>
void settle_formats(Spec&) {}
void settle_formats(LinearSpec& s) { settle(s.weight); }
void settle_formats(EmbeddingSpec& s) { settle(s.weight); }
void settle_formats(GateUpSpec& s) {
    settle(s.gate);
    settle(s.up);
}
void settle_formats(QkvSpec& s) {
    settle(s.q);
    settle(s.k);
    settle(s.v);
}

}  // namespace

void one_format(std::string_view what, const std::vector<WeightFormat>& formats) {
    std::string names;
    bool equal = true;
    for (const WeightFormat& f : formats) {
        equal = equal && f.dtype == formats[0].dtype && f.quantized == formats[0].quantized;
        names += (names.empty() ? "" : "; ") + describe(f);
    }
    if (!equal)
        throw UserError(
            "weights of {} have different forms ({}): GPU kernels read them in one; convert with "
            "$dtype f32, f16 or bf16",
            what, names);
}

void set_format(const WeightFormat& format, std::string_view what, planner::ProductShape& shape) {
    if (format.dynamic())
        throw UserError(
            "GPU kernels cannot read {} as {}: a product of integers (DynamicQuantizeLinear, "
            "MatMulInteger) runs on host devices; use $devices host, or the model that it was "
            "quantised from",
            what, describe(format));
    planner::set_weight_type(format.dtype, format.quantized.has_value(), shape);
}

KernelSpec with_settled_formats(KernelSpec spec) {
    std::visit([](auto& s) { settle_formats(s); }, spec);
    return spec;
}

}  // namespace cleave::codegen
