// SPDX-License-Identifier: Apache-2.0
// RMSNormalization: y = x / sqrt(mean(x^2) + epsilon) * scale, the mean over the dimensions from
// `axis` on.
#include "importer/onnx/tensor/tensor_reader.h"

namespace cleave::importer::from_onnx {

void read_rms_normalization(TensorReader& r) {
    const TensorType &x = r.operand(0, "X"), &scale = r.operand(1, "scale");
    r.require_float(x, "X");
    r.require_float(scale, "scale");
    const int64_t stash = r.node().integer("stash_type", 1);
    r.require(stash == 1, "its stash_type is {}; the mean is taken in f32", stash);
    const int64_t axis = r.axis_of(r.node().integer("axis", -1), x.rank(), "axis");
    int64_t features = 1;
    for (int64_t i = axis; i < x.rank(); ++i) features *= x.shape[i];

    // Broadcast to the normalised dimensions: dimensions of one in front, then those of x to the
    // end.
    auto first = scale.shape.begin();
    while (first != scale.shape.end() && *first == 1) ++first;
    const int64_t covered = scale.shape.end() - first;
    r.require(
        covered <= x.rank() - axis && std::equal(first, scale.shape.end(), x.shape.end() - covered),
        "its scale {} does not repeat over the dimensions from {} on of {}",
        shape_text(scale.shape), axis, shape_text(x.shape));

    r.number("rows", x.count() / features);
    r.number("features", features);
    r.number("scales", scale.count());
    r.real("epsilon", r.node().real("epsilon", 1e-5));
    r.flops(4.0 * static_cast<double>(x.count()));
    r.result(0, "Y", {scale.dtype, x.shape});
}

}  // namespace cleave::importer::from_onnx
