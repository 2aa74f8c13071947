// SPDX-License-Identifier: Apache-2.0
// The KV cache as kernels see it: a slab [slots, kv_heads, context, head_dim] of keys, then one of values.
// Kernels reach rows through this accessor alone, so that another arrangement changes no kernel.
#pragma once

#include "prelude.h"

namespace cleave {

template <class T>
struct KvCache {
    T* base;
    i64 num_slots, context;
    i64 kv_heads, head_dim, v_head_dim;

    CLEAVE_INLINE T* key(i64 slot, i64 kv_head, i64 position) const {
        return base + ((slot * kv_heads + kv_head) * context + position) * head_dim;
    }
    CLEAVE_INLINE T* value(i64 slot, i64 kv_head, i64 position) const {
        return base + num_slots * kv_heads * context * head_dim +
               ((slot * kv_heads + kv_head) * context + position) * v_head_dim;
    }
};

}  // namespace cleave
