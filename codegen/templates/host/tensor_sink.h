// SPDX-License-Identifier: Apache-2.0
// Where a kernel over tensors puts the elements of its result, in order: into memory, or, where
// elementwise operators follow in its launch, through these (tensor_chain.h). Config: kEpilogue,
// Out (element type of what is stored).
#pragma once

#include "tensor_types.h"

namespace cleave {

template <class Config, bool kEpilogue = Config::kEpilogue>
struct Chain {};  // nothing follows

template <class Config, class T, bool kEpilogue = Config::kEpilogue>
class Sink {
public:
    static constexpr i64 kMost = i64{1} << 62;  // that next() may be asked for
    // `first`: the place in the result of the element that comes first.
    CLEAVE_INLINE Sink(typename Config::Out* out, const Chain<Config>&, i64 first)
        : to_(out + first) {}
    // Room for the next n elements.
    CLEAVE_INLINE T* next(i64 n) {
        T* room = to_;
        to_ += n;
        return room;
    }

private:
    T* to_;
};

}  // namespace cleave
