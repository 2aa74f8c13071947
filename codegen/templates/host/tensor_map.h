// SPDX-License-Identifier: Apache-2.0
// Elementwise operators over whole tensors, and those that move elements or change their type: one,
// or a chain of them (tensor_chain.h). Reals are computed as f32, integers and booleans as 64-bit
// integers. Config: kItemElements (of the result, that are an item).
#pragma once

#include "tensor_chain.h"

namespace cleave {

template <class Config>
struct TensorMapArgs {
    typename Config::Out* out;
    Chain<Config> chain;
    i64 elements;
};

template <class Config>
CLEAVE_INLINE void tensor_map(const TensorMapArgs<Config>& a, i64 begin, i64 end, void*) {
    const i64 first = begin * Config::kItemElements;
    const u8* held = nullptr;
    run_chain<Config>(a.chain, held, a.out + first, first,
                      min(end * Config::kItemElements, a.elements) - first);
}

}  // namespace cleave
