// SPDX-License-Identifier: Apache-2.0
// The KV cache as kernels see it: a slab [slots, kv_heads, context, head_dim] of keys, then one of
// values. Kernels reach rows through this accessor alone, so that another arrangement changes no
// kernel.
#pragma once

#include "prelude.cuh"

namespace cleave {

// Config: kSlabHeads, kHeadDim, kVHeadDim.
template <class C, class T>
struct KvCache {
    T* base;
    i64 num_slots, context;

    DEVICE T* key(i64 slot, i64 head, i64 position) const {
        return base + ((slot * C::kSlabHeads + head) * context + position) * C::kHeadDim;
    }
    DEVICE T* value(i64 slot, i64 head, i64 position) const {
        return base + num_slots * C::kSlabHeads * context * C::kHeadDim +
               ((slot * C::kSlabHeads + head) * context + position) * C::kVHeadDim;
    }
};

}  // namespace cleave
