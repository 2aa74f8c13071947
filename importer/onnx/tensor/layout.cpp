// SPDX-License-Identifier: Apache-2.0
// Operators that move elements: reshapes, transpositions, slices, expansion; Concat and Split;
// Gather and TensorScatter.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "importer/onnx/probe/tensor.h"
#include "importer/onnx/tensor/map.h"

namespace cleave::importer::from_onnx {
namespace {

// The sizes before, along and behind an axis.
struct Around {
    int64_t outer = 1, size = 1, inner = 1;
};
Around around(const std::vector<int64_t>& shape, int64_t axis) {
    Around a;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i)
        (i < axis ? a.outer : i == axis ? a.size : a.inner) *= shape[i];
    return a;
}

int64_t element_bytes(const TensorType& type) {
    TensorReader::require(dtype_bits(type.dtype) >= 8, "{} is not moved: two share a byte",
                          type.dtype);
    return dtype_bits(type.dtype) / 8;
}

// Rows that are looked up must be in [low, high]: constants are checked here, inputs when they are
// given.
void read_indices(TensorReader& r, size_t input, std::string_view name, int64_t low, int64_t high) {
    const TensorType& indices = r.operand(input, name);
    TensorReader::require(indices.dtype == DType::kInt64, "its {} are {}; int64 is computed", name,
                          indices.dtype);
    if (const auto known = r.integers(input, ""))
        for (int64_t i : *known)
            TensorReader::require(i >= low && i <= high, "one of its {} is {}, outside {} to {}",
                                  name, i, low, high);
    else
        TensorReader::require(r.is_graph_input(input),
                              "its {} are computed by the graph, so that they cannot be checked",
                              name);
    r.numbers(fmt::format("{}_range", name), {low, high});
}

}  // namespace

// Reshape, Squeeze, Unsqueeze and Flatten: the elements stay in order.
void read_reshape(TensorReader& r) {
    const TensorType& x = r.type(0, "data");
    const std::optional<std::vector<int64_t>> shape = r.shape_of_result(0);
    TensorReader::require(shape.has_value(), "its new shape depends on data");
    const TensorType y{x.dtype, *shape};
    TensorReader::require(y.count() == x.count(), "it makes {} out of {}", shape_text(y.shape),
                          shape_text(x.shape));
    write_map(r, y.dtype, y.shape, {{0, dense_strides(y.shape), 0}});
}

void read_transpose(TensorReader& r) {
    const TensorType& x = r.type(0, "data");
    std::vector<int64_t> order(x.shape.size());
    std::iota(order.rbegin(), order.rend(), 0);
    if (const auto perm = r.node().integers("perm")) order = *perm;
    std::vector<int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    sorted.resize(x.shape.size(), -1);
    for (size_t i = 0; i < sorted.size(); ++i)
        TensorReader::require(order.size() == sorted.size() && sorted[i] == static_cast<int64_t>(i),
                              "its perm is no order of {} dimensions", x.rank());
    const std::vector<int64_t> dense = dense_strides(x.shape);
    std::vector<int64_t> shape, strides;
    for (int64_t axis : order) {
        shape.push_back(x.shape[axis]);
        strides.push_back(dense[axis]);
    }
    write_map(r, x.dtype, shape, {{0, strides, 0}});
}

void read_expand(TensorReader& r) {
    const TensorType& x = r.type(0, "input");
    const auto shape = r.integers(1, "");
    TensorReader::require(shape.has_value(), "its shape is an input whose numbers are not known");
    std::vector<int64_t> joined;
    TensorReader::require(broadcast(x.shape, *shape, joined), "{} does not expand to {}",
                          shape_text(x.shape), shape_text(*shape));
    write_map(r, x.dtype, joined, {{0, broadcast_strides(x.shape, joined), 0}});
}

void read_slice(TensorReader& r) {
    const TensorType& x = r.type(0, "data");
    const auto starts = r.integers(1, "starts"), ends = r.integers(2, "ends");
    TensorReader::require(starts && ends && starts->size() == ends->size(),
                          "its starts or ends are not known");
    std::vector<int64_t> axes(starts->size()), steps(starts->size(), 1);
    std::iota(axes.begin(), axes.end(), 0);
    if (r.has(3) || r.node().integers("axes")) {
        const auto given = r.integers(3, "axes");
        TensorReader::require(given && given->size() == starts->size(), "its axes are not known");
        axes = *given;
    }
    if (r.has(4)) {
        const auto given = r.integers(4, "");
        TensorReader::require(given && given->size() == starts->size(), "its steps are not known");
        steps = *given;
    }
    std::vector<int64_t> shape = x.shape, strides = dense_strides(x.shape);
    int64_t offset = 0;
    for (size_t i = 0; i < axes.size(); ++i) {
        const int64_t axis = TensorReader::axis_of(axes[i], x.rank(), "axis"), step = steps[i];
        TensorReader::require(step != 0 && std::abs(step + 1) <= kMostTensorElements,
                              "one of its steps is {}", step);
        const int64_t size = x.shape[axis], low = step > 0 ? 0 : -1,
                      high = step > 0 ? size : size - 1;
        const auto clamp = [&](int64_t at) {
            return std::clamp<int64_t>(at < 0 && at >= -size ? at + size
                                       : at < 0              ? low
                                                             : at,
                                       low, high);
        };
        const int64_t begin = clamp((*starts)[i]), end = clamp((*ends)[i]);
        shape[axis] = std::max<int64_t>(0, (end - begin + step + (step > 0 ? -1 : 1)) / step);
        TensorReader::require(shape[axis] > 0, "it gives nothing along axis {}", axis);
        offset += begin * strides[axis];
        strides[axis] *= step;
    }
    write_map(r, x.dtype, shape, {{0, strides, offset}});
}

void read_concat(TensorReader& r) {
    std::vector<size_t> parts;  // that have elements
    for (size_t i = 0; i < r.node().in.size(); ++i)
        if (!r.is_empty(i)) parts.push_back(i);
    constexpr size_t kMost = 8;
    TensorReader::require(!parts.empty() && parts.size() <= kMost,
                          "it joins {} tensors; 1 to {} are computed", parts.size(), kMost);
    TensorType whole = r.operand(parts[0], "x0");
    const int64_t axis = TensorReader::axis_of(r.node().integer("axis", 0), whole.rank(), "axis");
    std::vector<int64_t> sizes{whole.shape[axis]};
    for (size_t i = 1; i < parts.size(); ++i) {
        TensorType part = r.operand(parts[i], fmt::format("x{}", i));
        sizes.push_back(part.shape.size() == whole.shape.size() ? part.shape[axis] : 0);
        if (sizes.back() > 0) part.shape[axis] = whole.shape[axis];
        TensorReader::require(part.dtype == whole.dtype && part.shape == whole.shape,
                              "it joins tensors of other types or shapes along axis {}", axis);
    }
    const Around a = around(whole.shape, axis);
    const int64_t run = a.inner * element_bytes(whole);
    for (int64_t& size : sizes) size *= run;
    whole.shape[axis] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) / run;
    r.number("outer", a.outer);
    r.numbers("run_bytes", sizes);
    r.flops(static_cast<double>(whole.count()));
    r.result(0, "y", whole);
}

void read_split(TensorReader& r) {
    const TensorType& x = r.operand(0, "x");
    const int64_t axis = TensorReader::axis_of(r.node().integer("axis", 0), x.rank(), "axis");
    const size_t count = r.node().out.size();
    constexpr size_t kMost = 8;
    TensorReader::require(count >= 1 && count <= kMost,
                          "it gives {} tensors; up to {} are computed", count, kMost);
    const auto parts = static_cast<int64_t>(count);
    std::vector<int64_t> sizes(count, (x.shape[axis] + parts - 1) / parts);
    sizes.back() = x.shape[axis] - sizes[0] * (parts - 1);
    if (r.has(1) || r.node().integers("split")) {
        const auto given = r.integers(1, "split");
        TensorReader::require(given.has_value(), "its split is not known");
        sizes = *given;
    }
    for (int64_t size : sizes)
        TensorReader::require(size >= 0 && size <= x.shape[axis],
                              "one of its parts has the size {}", size);
    TensorReader::require(sizes.size() == count && std::accumulate(sizes.begin(), sizes.end(),
                                                                   int64_t{0}) == x.shape[axis],
                          "its parts {} do not make up {}", shape_text(sizes), x.shape[axis]);
    const Around a = around(x.shape, axis);
    r.number("outer", a.outer);
    std::vector<int64_t> runs;
    for (size_t i = 0; i < count; ++i) {
        TensorType part = x;
        part.shape[axis] = sizes[i];
        runs.push_back(sizes[i] * a.inner * element_bytes(x));
        r.result(i, fmt::format("y{}", i), part);
    }
    r.numbers("run_bytes", runs);
    r.flops(static_cast<double>(x.count()));
}

void read_gather(TensorReader& r) {
    const TensorType& x = r.operand(0, "data");
    const bool each = r.node().op == "GatherElements";
    const int64_t axis = TensorReader::axis_of(r.node().integer("axis", 0), x.rank(), "axis");
    read_indices(r, 1, "indices", -x.shape[axis], x.shape[axis] - 1);
    const TensorType indices = r.type(1, "indices");
    Around a = around(x.shape, axis);
    TensorType y{x.dtype, {}};
    if (each) {
        for (int64_t i = 0; i < x.rank(); ++i)
            TensorReader::require(
                indices.rank() == x.rank() && (i == axis || indices.shape[i] == x.shape[i]),
                "its indices {} do not go with its data {}", shape_text(indices.shape),
                shape_text(x.shape));
        y.shape = indices.shape;
    } else {
        y.shape.assign(x.shape.begin(), x.shape.begin() + axis);
        y.shape.insert(y.shape.end(), indices.shape.begin(), indices.shape.end());
        y.shape.insert(y.shape.end(), x.shape.begin() + axis + 1, x.shape.end());
    }
    r.number("outer", a.outer);
    r.number("axis", a.size);
    r.number("inner", a.inner);
    r.number("rows", each ? indices.shape[axis] : indices.count());
    r.number("each", each);
    r.number("element_bytes", element_bytes(x));
    r.flops(static_cast<double>(y.count()));
    r.result(0, "y", y);
}

// Slices of data at index tuples; the first `batch_dims` dimensions of both go together.
void read_gather_nd(TensorReader& r) {
    const TensorType &x = r.operand(0, "data"), &indices = r.operand(1, "indices");
    TensorReader::require(indices.dtype == DType::kInt64 && indices.rank() >= 1,
                          "its indices are no int64 tuples");
    const int64_t batch_dims = r.node().integer("batch_dims", 0), length = indices.shape.back();
    TensorReader::require(
        batch_dims >= 0 && batch_dims < indices.rank() && batch_dims + length <= x.rank() &&
            std::equal(x.shape.begin(), x.shape.begin() + batch_dims, indices.shape.begin()),
        "its indices {} with {} batch dimensions do not go into {}", shape_text(indices.shape),
        batch_dims, shape_text(x.shape));
    constexpr int64_t kMost = 6;
    TensorReader::require(length <= kMost, "its indices have {} numbers; {} are computed", length,
                          kMost);
    TensorReader::require(r.is_graph_input(1), "its indices are no input of the graph");
    const std::vector<int64_t> dense = dense_strides(x.shape);
    std::vector<int64_t> dims, strides, range,
        shape(indices.shape.begin(), indices.shape.end() - 1);
    for (int64_t i = batch_dims; i < batch_dims + length; ++i) {
        dims.push_back(x.shape[i]);
        strides.push_back(dense[i]);
        range.insert(range.end(), {-x.shape[i], x.shape[i] - 1});
    }
    int64_t batches = 1, slice = 1;
    for (int64_t i = 0; i < batch_dims; ++i) batches *= x.shape[i];
    for (int64_t i = batch_dims + length; i < x.rank(); ++i) {
        slice *= x.shape[i];
        shape.push_back(x.shape[i]);
    }
    const int64_t tuples = indices.count() / length;
    r.numbers("indices_range", range);  // a pair for each number of a tuple
    r.numbers("dims", dims);
    r.numbers("strides", strides);
    r.number("tuples", tuples);
    r.number("tuples_per_batch", tuples / batches);
    r.number("batch_stride", x.count() / batches);
    r.number("slice", slice);
    r.number("element_bytes", element_bytes(x));
    r.flops(static_cast<double>(tuples * slice));
    r.result(0, "y", {x.dtype, shape});
}

// Rows of a number around, or (negative) elements taken away.
void read_pad(TensorReader& r) {
    const TensorType& x = r.operand(0, "data");
    const auto pads = r.integers(1, "pads");
    const std::string mode = r.node().text("mode", "constant");
    TensorReader::require(mode == "constant", "its mode is '{}'; 'constant' is computed", mode);
    TensorReader::require(pads.has_value(), "its pads are an input whose numbers are not known");
    std::vector<int64_t> axes(x.shape.size()), before(x.shape.size(), 0), shape = x.shape;
    std::iota(axes.begin(), axes.end(), 0);
    if (r.has(3)) {
        const auto given = r.integers(3, "");
        TensorReader::require(given.has_value(), "its axes are not known");
        axes = *given;
    }
    TensorReader::require(pads->size() == 2 * axes.size(), "it has {} pads for {} axes",
                          pads->size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
        const int64_t axis = TensorReader::axis_of(axes[i], x.rank(), "axis");
        const int64_t low = (*pads)[i], high = (*pads)[i + axes.size()];
        TensorReader::require(
            std::abs(low) <= kMostTensorElements && std::abs(high) <= kMostTensorElements,
            "it pads by {} and {}", low, high);
        before[axis] = low;
        shape[axis] += low + high;
    }
    constexpr size_t kMost = 6;
    TensorReader::require(shape.size() <= kMost, "it has {} dimensions; {} are computed",
                          shape.size(), kMost);
    if (const TensorType* value = r.optional_operand(2, "constant_value"))
        TensorReader::require(value->dtype == x.dtype && value->count() == 1,
                              "its constant_value is not one {}", x.dtype);
    else
        TensorReader::require(
            r.node().attribute("value") == nullptr || r.node().real("value", 0.0) == 0.0,
            "its value is an attribute of an opset before 11");
    r.numbers("dims", shape);
    r.numbers("before", before);
    r.numbers("x_dims", x.shape);
    r.number("element_bytes", element_bytes(x));
    TensorType y{x.dtype, shape};
    r.flops(static_cast<double>(y.count()));
    r.result(0, "y", y);
}

// A cache with rows written into it, at places of the batch.
void read_tensor_scatter(TensorReader& r) {
    const TensorType &past = r.operand(0, "past_cache"), &update = r.operand(1, "update");
    const int64_t axis = TensorReader::axis_of(r.node().integer("axis", -2), past.rank(), "axis");
    TensorReader::require(axis > 0, "its axis is that of the batch");
    TensorType same = update;
    if (update.rank() == past.rank()) same.shape[axis] = past.shape[axis];
    TensorReader::require(same.dtype == past.dtype && same.shape == past.shape &&
                              update.shape[axis] <= past.shape[axis],
                          "its update {} does not go into {}", shape_text(update.shape),
                          shape_text(past.shape));
    const std::string mode = r.node().text("mode", "linear");
    TensorReader::require(mode == "linear" || mode == "circular", "its mode is '{}'", mode);
    const Around a = around(past.shape, axis);
    if (r.has(2)) {
        TensorReader::require(r.type(2, "write_indices").shape == std::vector{past.shape[0]},
                              "its write_indices are not one for each of the batch");
        const int64_t last = past.shape[axis] - (mode == "linear" ? update.shape[axis] : 1);
        read_indices(r, 2, "write_indices", 0, last);
    }
    r.number("outer", a.outer);
    r.number("per_batch", a.outer / past.shape[0]);
    r.number("axis", a.size);
    r.number("added", update.shape[axis]);
    r.number("run_bytes", a.inner * element_bytes(past));
    r.flops(static_cast<double>(past.count()));
    r.result(0, "present_cache", past);
}

}  // namespace cleave::importer::from_onnx
