// SPDX-License-Identifier: Apache-2.0
// Operators that move runs of bytes, a run of the outer dimensions an item: Concat, Split, Gather,
// GatherElements (Config: kEach) and TensorScatter. Config of all but Split and TensorScatter:
// Held, bytes where no elementwise operators follow. Indices are within bounds: the runtime has
// checked them.
#pragma once

#include "tensor_chain.h"
#include "tensor_sink.h"

namespace cleave {

CLEAVE_INLINE void copy_bytes(u8* to, const u8* from, i64 n) {
    for (i64 i = 0; i < n; ++i) to[i] = from[i];
}

// A run into the result.
template <class Results>
CLEAVE_INLINE void pour(Results& sink, const u8* from, i64 bytes) {
    constexpr i64 kSize = sizeof(*sink.next(0));
    for (i64 n = 0; bytes > 0; bytes -= n, from += n) {
        n = min(bytes / kSize, Results::kMost) * kSize;
        copy_bytes(reinterpret_cast<u8*>(sink.next(n / kSize)), from, n);
    }
}

template <class Config>
struct TensorConcatArgs {
    const u8* x[Config::kParts];  // [outer, bytes[i]]
    typename Config::Out* out;    // [outer, sum of bytes]
    Chain<Config> chain;
    i64 bytes[Config::kParts];  // 0: no such part
};

template <class Config>
CLEAVE_INLINE void tensor_concat(const TensorConcatArgs<Config>& a, i64 begin, i64 end, void*) {
    i64 whole = 0;
    for (i64 part = 0; part < Config::kParts; ++part) whole += a.bytes[part];
    using T = typename Config::Held;
    Sink<Config, T> sink(a.out, a.chain, begin * whole / static_cast<i64>(sizeof(T)));
    for (i64 row = begin; row < end; ++row)
        for (i64 part = 0; part < Config::kParts; ++part)
            pour(sink, a.x[part] + row * a.bytes[part], a.bytes[part]);
}

template <class Config>
struct TensorSplitArgs {
    u8* y[Config::kParts];      // [outer, bytes[i]]; null: nobody wants it
    const u8* x;                // [outer, sum of bytes]
    i64 bytes[Config::kParts];  // 0: no such part
};

template <class Config>
CLEAVE_INLINE void tensor_split(const TensorSplitArgs<Config>& a, i64 begin, i64 end, void*) {
    i64 whole = 0;
    for (i64 part = 0; part < Config::kParts; ++part) whole += a.bytes[part];
    for (i64 row = begin; row < end; ++row) {
        const u8* from = a.x + row * whole;
        for (i64 part = 0; part < Config::kParts; from += a.bytes[part], ++part)
            if (a.y[part]) copy_bytes(a.y[part] + row * a.bytes[part], from, a.bytes[part]);
    }
}

template <class Config>
struct TensorGatherArgs {
    const u8* data;             // [outer, axis, inner] elements
    const i64* indices;         // [rows]; each: [outer, rows, inner]
    typename Config::Out* out;  // [outer, rows, inner]
    Chain<Config> chain;
    i64 rows, axis, inner, element_bytes;
};

template <class Config>
CLEAVE_INLINE void tensor_gather(const TensorGatherArgs<Config>& a, i64 begin, i64 end, void*) {
    const i64 size = a.element_bytes;
    using T = typename Config::Held;
    Sink<Config, T> sink(a.out, a.chain, begin * a.inner * size / static_cast<i64>(sizeof(T)));
    for (i64 item = begin; item < end; ++item) {
        i64 outer = item / a.rows, row = item % a.rows;
        const u8* data = a.data + outer * a.axis * a.inner * size;
        if constexpr (Config::kEach) {
            for (i64 i = 0; i < a.inner; ++i) {
                i64 at = a.indices[item * a.inner + i];
                at = at < 0 ? at + a.axis : at;
                pour(sink, data + (at * a.inner + i) * size, size);
            }
        } else {
            i64 at = a.indices[row];
            at = at < 0 ? at + a.axis : at;
            pour(sink, data + at * a.inner * size, a.inner * size);
        }
    }
}

template <class Config>
struct TensorGatherNdArgs {
    const u8* data;             // [batches, dims..., slice] elements
    const i64* indices;         // [tuples, length]
    typename Config::Out* out;  // [tuples, slice]
    Chain<Config> chain;
    i64 dims[6], strides[6], length, tuples_per_batch, batch_stride, slice, element_bytes;
};

template <class Config>
CLEAVE_INLINE void tensor_gather_nd(const TensorGatherNdArgs<Config>& a, i64 begin, i64 end,
                                    void*) {
    using T = typename Config::Held;
    const i64 bytes = a.slice * a.element_bytes;
    Sink<Config, T> sink(a.out, a.chain, begin * bytes / static_cast<i64>(sizeof(T)));
    for (i64 tuple = begin; tuple < end; ++tuple) {
        i64 place = tuple / a.tuples_per_batch * a.batch_stride;
        for (i64 i = 0; i < a.length; ++i) {
            i64 at = a.indices[tuple * a.length + i];
            place += (at < 0 ? at + a.dims[i] : at) * a.strides[i];
        }
        pour(sink, a.data + place * a.element_bytes, bytes);
    }
}

template <class Config>
struct TensorPadArgs {
    const u8* data;
    const u8* value;  // one element; null: zero
    typename Config::Out* out;
    Chain<Config> chain;
    i64 dims[6], before[6], x_dims[6], element_bytes;  // dims of the result
};

// A row of the result an item: from data where it reaches, else the value.
template <class Config>
CLEAVE_INLINE void tensor_pad(const TensorPadArgs<Config>& a, i64 begin, i64 end, void*) {
    const i64 size = a.element_bytes;
    using T = typename Config::Held;
    Sink<Config, T> sink(a.out, a.chain, begin * a.dims[5] * size / static_cast<i64>(sizeof(T)));
    for (i64 row = begin; row < end; ++row) {
        i64 index = row, place = 0, stride = a.x_dims[5];
        bool inside = true;
        for (i64 d = 4; d >= 0; --d) {
            i64 at = index % a.dims[d] - a.before[d];
            inside = inside && at >= 0 && at < a.x_dims[d];
            place += at * stride;
            stride *= a.x_dims[d];
            index /= a.dims[d];
        }
        for (i64 i = 0; i < a.dims[5]; ++i) {
            i64 at = i - a.before[5];
            u8* to = reinterpret_cast<u8*>(sink.next(size / static_cast<i64>(sizeof(T))));
            if (inside && at >= 0 && at < a.x_dims[5])
                copy_bytes(to, a.data + (place + at) * size, size);
            else
                for (i64 byte = 0; byte < size; ++byte) to[byte] = a.value ? a.value[byte] : 0;
        }
    }
}

template <class Config>
struct TensorScatterArgs {
    const u8* past;            // [outer, axis, run]
    const u8* update;          // [outer, added, run]
    const i64* write_indices;  // [batch]; null: 0 for all
    u8* present;               // [outer, axis, run]
    i64 per_batch, axis, added, run_bytes;
};

// A row past the end goes on at the beginning: in a linear cache there is none.
template <class Config>
CLEAVE_INLINE void tensor_scatter(const TensorScatterArgs<Config>& a, i64 begin, i64 end, void*) {
    for (i64 outer = begin; outer < end; ++outer) {
        u8* to = a.present + outer * a.axis * a.run_bytes;
        copy_bytes(to, a.past + outer * a.axis * a.run_bytes, a.axis * a.run_bytes);
        i64 first = a.write_indices ? a.write_indices[outer / a.per_batch] : 0;
        for (i64 row = 0; row < a.added; ++row)
            copy_bytes(to + (first + row) % a.axis * a.run_bytes,
                       a.update + (outer * a.added + row) * a.run_bytes, a.run_bytes);
    }
}

}  // namespace cleave
