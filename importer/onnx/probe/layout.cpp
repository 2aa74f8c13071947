// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "importer/onnx/probe/evaluate.h"

namespace cleave::importer::from_onnx {
namespace {

// out[i] = x[source(i)], for a map given as strides over the output's dims plus a start.
Tensor gather_strided(const Tensor& x, const Dims& dims, const Dims& strides, int64_t start) {
    Tensor out = Tensor::of(dims, x.real);
    for_each_index(dims, {strides},
                   [&](int64_t i, const Dims& at) { out.copy(i, x, start + at[0]); });
    return out;
}

Dims row_major(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    return strides;
}

bool normalize_axis(int64_t& axis, size_t rank) {
    if (axis < 0) axis += static_cast<int64_t>(rank);
    return axis >= 0 && axis < static_cast<int64_t>(rank);
}

// The same elements in another shape.
void reshaped(Evaluation& e, Dims dims) {
    const Dims* s = e.shape(0);
    if (!s || product(*s) != product(dims)) return;
    e.set_shape(0, dims);
    const Tensor* x = e.with_data ? e.data(0) : nullptr;
    if (!x) return;
    Tensor out = *x;
    out.dims = std::move(dims);
    e.set_data(0, std::move(out));
}

void reshape(Evaluation& e) {
    const Dims* s = e.shape(0);
    std::optional<std::vector<int64_t>> to = e.integers(1, "shape");
    if (!s || !to) return;
    int64_t rest = product(*s), infer = -1;
    for (size_t i = 0; i < to->size(); ++i) {
        int64_t& d = (*to)[i];
        if (d == 0 && e.node.integer("allowzero", 0) == 0) {
            if (i >= s->size()) return;
            d = (*s)[i];
        }
        if (d == -1) {
            infer = static_cast<int64_t>(i);
        } else if (d < 0) {
            return;
        } else if (d > 0) {
            rest /= d;
        }
    }
    if (infer >= 0) (*to)[infer] = rest;
    reshaped(e, *to);
}

void flatten(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    int64_t axis = e.node.integer("axis", 1);
    if (axis < 0) axis += static_cast<int64_t>(s->size());
    if (axis < 0 || axis > static_cast<int64_t>(s->size())) return;
    const int64_t first = product(Dims(s->begin(), s->begin() + axis));
    const int64_t second = product(Dims(s->begin() + axis, s->end()));
    reshaped(e, {first, second});
}

void unsqueeze(Evaluation& e) {
    const Dims* s = e.shape(0);
    std::optional<std::vector<int64_t>> axes = e.integers(1, "axes");
    if (!s || !axes) return;
    const size_t rank = s->size() + axes->size();
    Dims dims(rank, 0);
    for (int64_t axis : *axes) {
        if (!normalize_axis(axis, rank)) return;
        dims[axis] = 1;
    }
    size_t next = 0;
    for (int64_t& d : dims)
        if (d == 0) {
            if (next >= s->size()) return;
            d = (*s)[next++];
        }
    reshaped(e, dims);
}

void squeeze(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    std::optional<std::vector<int64_t>> axes = e.integers(1, "axes");
    if (!axes && e.given(1)) return;
    std::vector<bool> drop(s->size(), false);
    for (size_t i = 0; i < s->size() && !axes; ++i) drop[i] = (*s)[i] == 1;
    if (axes)
        for (int64_t axis : *axes) {
            if (!normalize_axis(axis, s->size())) return;
            drop[axis] = true;
        }
    Dims dims;
    for (size_t i = 0; i < s->size(); ++i)
        if (!drop[i]) dims.push_back((*s)[i]);
    reshaped(e, dims);
}

void transpose(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    std::vector<int64_t> perm(s->size());
    std::iota(perm.rbegin(), perm.rend(), 0);
    if (auto given = e.node.integers("perm")) perm = *given;
    if (perm.size() != s->size()) return;
    const Dims from = row_major(*s);
    Dims dims, strides;
    std::vector<bool> used(s->size());
    for (int64_t p : perm) {
        if (p < 0 || p >= static_cast<int64_t>(s->size()) || used[p]) return;
        used[p] = true;
        dims.push_back((*s)[p]);
        strides.push_back(from[p]);
    }
    e.set_shape(0, dims);
    if (const Tensor* x = e.with_data ? e.data(0) : nullptr)
        e.set_data(0, gather_strided(*x, dims, strides, 0));
}

void expand_to(Evaluation& e, const Dims& to) {
    const Dims* s = e.shape(0);
    Dims dims;
    if (!s || !is_reasonable(to) || !broadcast(*s, to, dims) || !is_reasonable(dims)) return;
    e.set_shape(0, dims);
    const Tensor* x = e.with_data && product(dims) <= kMostElements ? e.data(0) : nullptr;
    if (x) e.set_data(0, gather_strided(*x, dims, broadcast_strides(*s, dims), 0));
}

void expand(Evaluation& e) {
    if (std::optional<std::vector<int64_t>> to = e.integers(1, "")) expand_to(e, *to);
}

void tile(Evaluation& e) {
    const Dims* s = e.shape(0);
    std::optional<std::vector<int64_t>> repeats = e.integers(1, "");
    if (!s || !repeats || repeats->size() != s->size()) return;
    Dims dims = *s;
    for (size_t i = 0; i < dims.size(); ++i) {
        const int64_t n = std::max<int64_t>(0, (*repeats)[i]);
        if (!is_reasonable({dims[i], n})) return;
        dims[i] *= n;
    }
    if (!is_reasonable(dims)) return;
    e.set_shape(0, dims);
    const Tensor* x = e.with_data && product(dims) <= kMostElements ? e.data(0) : nullptr;
    if (!x) return;
    Tensor out = Tensor::of(dims, x->real);
    const Dims from = row_major(*s), to = row_major(dims);
    for (int64_t i = 0; i < out.count(); ++i) {
        int64_t source = 0;
        for (size_t a = 0; a < dims.size(); ++a)
            source += (i / to[a]) % dims[a] % (*s)[a] * from[a];
        out.copy(i, *x, source);
    }
    e.set_data(0, std::move(out));
}

void slice(Evaluation& e) {
    const Dims* s = e.shape(0);
    const auto starts = e.integers(1, "starts"), ends = e.integers(2, "ends");
    auto axes = e.integers(3, "axes"), steps = e.integers(4, "");
    if (!s || !starts || !ends || (!axes && e.given(3)) || (!steps && e.given(4))) return;
    if (!axes) {
        axes.emplace(starts->size());
        std::iota(axes->begin(), axes->end(), 0);
    }
    if (!steps) steps.emplace(starts->size(), 1);
    if (ends->size() != starts->size() || axes->size() != starts->size() ||
        steps->size() != starts->size())
        return;
    Dims dims = *s, strides = row_major(*s);
    int64_t begin = 0;
    for (size_t i = 0; i < starts->size(); ++i) {
        int64_t axis = (*axes)[i], step = (*steps)[i];
        if (!normalize_axis(axis, s->size()) || step == 0) return;
        const int64_t n = (*s)[axis];
        const auto clamp = [&](int64_t v, int64_t low, int64_t high) {
            if (v < 0) v = v < -n ? low : v + n;
            return std::clamp(v, low, high);
        };
        const int64_t from = step > 0 ? clamp((*starts)[i], 0, n) : clamp((*starts)[i], 0, n - 1);
        const int64_t to = step > 0 ? clamp((*ends)[i], 0, n) : clamp((*ends)[i], -1, n - 1);
        const int64_t span = step > 0 ? to - from : from - to;
        const int64_t size = step > 0 ? step : (step < -n ? n + 1 : -step);
        dims[axis] = span <= 0 ? 0 : (span - 1) / size + 1;
        begin += from * strides[axis];
        strides[axis] *= step > 0 ? size : -size;
    }
    e.set_shape(0, dims);
    if (const Tensor* x = e.with_data ? e.data(0) : nullptr)
        e.set_data(0, gather_strided(*x, dims, strides, begin));
}

// Rows of a table that may be too large to load: only those asked for are read.
bool gather_rows(Evaluation& e, const Tensor& indices, Dims dims) {
    const Constant* table = e.constant(0);
    if (!table || !table->is_floating() || table->dims.empty() || product(dims) > kMostElements)
        return false;
    if (table->data.file.valid() && !e.model().files[table->data.file.index()].present)
        return false;
    const DType dtype = *dtype_of(table->elem_type);
    const int64_t rows = table->dims[0], width = rows ? table->count() / rows : 0;
    const size_t row_bytes = dtype_bytes(dtype, width);
    std::span<const std::byte> bytes = e.model().bytes(table->data);
    Tensor out = Tensor::of(std::move(dims), true);
    for (int64_t i = 0; i < indices.count(); ++i) {
        int64_t row = indices.integers[i];
        if (!normalize_axis(row, rows)) return false;
        to_doubles(dtype, bytes.data() + row * row_bytes, out.reals.data() + i * width, width);
    }
    e.set_data(0, std::move(out));
    return true;
}

void gather(Evaluation& e) {
    const Dims *s = e.shape(0), *is = e.shape(1);
    int64_t axis = e.node.integer("axis", 0);
    if (!s || !is || !normalize_axis(axis, s->size())) return;
    Dims dims(s->begin(), s->begin() + axis);
    dims.insert(dims.end(), is->begin(), is->end());
    dims.insert(dims.end(), s->begin() + axis + 1, s->end());
    e.set_shape(0, dims);
    const Tensor* indices = e.with_data ? e.data(1) : nullptr;
    if (!indices || indices->real) return;
    if (axis == 0 && gather_rows(e, *indices, dims)) return;
    const Tensor* x = e.data(0);
    if (!x) return;
    const int64_t n = (*s)[axis], inner = product(Dims(s->begin() + axis + 1, s->end()));
    const int64_t outer = product(Dims(s->begin(), s->begin() + axis)), count = indices->count();
    Tensor out = Tensor::of(dims, x->real);
    for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < count; ++i) {
            int64_t at = indices->integers[i];
            if (!normalize_axis(at, n)) return;
            for (int64_t k = 0; k < inner; ++k) {
                const int64_t from = (o * n + at) * inner + k, to = (o * count + i) * inner + k;
                out.copy(to, *x, from);
            }
        }
    e.set_data(0, std::move(out));
}

void gather_nd(Evaluation& e) {
    const Dims *s = e.shape(0), *is = e.shape(1);
    if (!s || !is || is->empty() || e.node.integer("batch_dims", 0) != 0) return;
    const int64_t depth = is->back();
    if (depth < 1 || depth > static_cast<int64_t>(s->size())) return;
    Dims dims(is->begin(), is->end() - 1);
    dims.insert(dims.end(), s->begin() + depth, s->end());
    e.set_shape(0, dims);
    const Tensor *x = e.with_data ? e.data(0) : nullptr,
                 *indices = e.with_data ? e.data(1) : nullptr;
    if (!x || !indices || indices->real || product(dims) > kMostElements) return;
    const int64_t inner = product(Dims(s->begin() + depth, s->end()));
    const Dims strides = row_major(*s);
    Tensor out = Tensor::of(dims, x->real);
    for (int64_t i = 0; i < indices->count() / depth; ++i) {
        int64_t from = 0;
        for (int64_t d = 0; d < depth; ++d) {
            int64_t at = indices->integers[i * depth + d];
            if (!normalize_axis(at, (*s)[d])) return;
            from += at * strides[d];
        }
        for (int64_t k = 0; k < inner; ++k) out.copy(i * inner + k, *x, from + k);
    }
    e.set_data(0, std::move(out));
}

void concat(Evaluation& e) {
    const Dims* first = e.shape(0);
    if (!first) return;
    int64_t axis = e.node.integer("axis", 0);
    if (!normalize_axis(axis, first->size())) return;
    Dims dims = *first;
    for (size_t i = 1; i < e.num_inputs(); ++i) {
        const Dims* s = e.shape(i);
        if (!s || s->size() != dims.size()) return;
        for (size_t d = 0; d < dims.size(); ++d)
            if (static_cast<int64_t>(d) != axis && (*s)[d] != dims[d]) return;
        dims[axis] += (*s)[axis];
    }
    e.set_shape(0, dims);
    if (!e.with_data || product(dims) > kMostElements) return;
    const Tensor* x = e.data(0);
    if (!x) return;
    Tensor out = Tensor::of(dims, x->real);
    const int64_t outer = product(Dims(dims.begin(), dims.begin() + axis));
    const int64_t inner = product(Dims(dims.begin() + axis + 1, dims.end()));
    int64_t offset = 0;
    for (size_t i = 0; i < e.num_inputs(); ++i) {
        const Tensor* t = e.data(i);
        if (!t || t->real != out.real) return;
        const int64_t run = t->dims[axis] * inner;
        if (t->count() != outer * run) return;
        for (int64_t o = 0; o < outer; ++o)
            for (int64_t k = 0; k < run; ++k) {
                const int64_t to = o * dims[axis] * inner + offset + k;
                out.copy(to, *t, o * run + k);
            }
        offset += run;
    }
    e.set_data(0, std::move(out));
}

void split(Evaluation& e) {
    const Dims* s = e.shape(0);
    int64_t axis = e.node.integer("axis", 0);
    if (!s || !normalize_axis(axis, s->size())) return;
    const int64_t outputs = static_cast<int64_t>(e.node.out.size()), n = (*s)[axis];
    auto sizes = e.integers(1, "split");
    if (!sizes && e.given(1)) return;
    if (!sizes) {
        // There may be more parts than outputs; those at the end are then left out.
        const int64_t parts = e.node.integer("num_outputs", outputs);
        if (parts < outputs || parts > std::max(n, outputs)) return;
        const int64_t each = (n + parts - 1) / parts;
        sizes.emplace(outputs, each);
        if (parts == outputs) sizes->back() = n - each * (parts - 1);
    }
    if (static_cast<int64_t>(sizes->size()) != outputs) return;
    const Dims strides = row_major(*s);
    int64_t begin = 0;
    for (int64_t i = 0; i < outputs; ++i) {
        Dims dims = *s;
        dims[axis] = (*sizes)[i];
        if (dims[axis] < 0 || dims[axis] > n - begin) return;
        e.set_shape(i, dims);
        if (const Tensor* x = e.with_data ? e.data(0) : nullptr)
            e.set_data(i, gather_strided(*x, dims, strides, begin * strides[axis]));
        begin += dims[axis];
    }
}

void trilu(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s || s->size() < 2) return;
    e.set_shape(0, *s);
    const Tensor* x = e.with_data ? e.data(0) : nullptr;
    if (!x) return;
    int64_t k = 0;
    if (e.given(1)) {
        const Tensor* t = e.data(1);
        if (!t || t->count() != 1 || t->real) return;
        k = t->integers[0];
    }
    const bool upper = e.node.integer("upper", 1) != 0;
    Tensor out = *x;
    const int64_t rows = (*s)[s->size() - 2], columns = s->back();
    for (int64_t i = 0; i < out.count(); ++i) {
        const int64_t r = i / columns % rows, c = i % columns;
        if (upper ? c - r >= k : c - r <= k) continue;
        if (out.real)
            out.reals[i] = 0;
        else
            out.integers[i] = 0;
    }
    e.set_data(0, std::move(out));
}

// ScatterND without reduction: the data's shape; its values where all are known.
void scatter_nd(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    e.set_shape(0, *s);
    if (!e.with_data || e.node.text("reduction", "none") != "none") return;
    const Tensor *x = e.data(0), *indices = e.data(1), *updates = e.data(2);
    if (!x || !indices || !updates || indices->real || indices->dims.empty() ||
        x->real != updates->real)
        return;
    const int64_t depth = indices->dims.back();
    if (depth < 1 || depth > static_cast<int64_t>(s->size())) return;
    const Dims strides = row_major(*s);
    const int64_t inner = product(Dims(s->begin() + depth, s->end()));
    if (updates->count() != indices->count() / depth * inner) return;
    Tensor out = *x;
    for (int64_t i = 0; i < indices->count() / depth; ++i) {
        int64_t to = 0;
        for (int64_t d = 0; d < depth; ++d) {
            int64_t at = indices->integers[i * depth + d];
            if (!normalize_axis(at, (*s)[d])) return;
            to += at * strides[d];
        }
        for (int64_t k = 0; k < inner; ++k) out.copy(to + k, *updates, i * inner + k);
    }
    e.set_data(0, std::move(out));
}

}  // namespace

std::vector<NamedRule> layout_rules() {
    return {{"Reshape", reshape},    {"Flatten", flatten},     {"Unsqueeze", unsqueeze},
            {"Squeeze", squeeze},    {"Transpose", transpose}, {"Expand", expand},
            {"Tile", tile},          {"Slice", slice},         {"Gather", gather},
            {"GatherND", gather_nd}, {"Concat", concat},       {"Split", split},
            {"Trilu", trilu},        {"ScatterND", scatter_nd}};
}

}  // namespace cleave::importer::from_onnx
