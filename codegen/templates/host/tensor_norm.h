// SPDX-License-Identifier: Apache-2.0
// RMSNormalization of whole tensors, a row an item: y = x / sqrt(mean(x^2) + epsilon) * scale, the mean summed in
// double. Config: X, Scale and Y (element types), kEpsilon.
#pragma once

#include "prelude.h"

namespace cleave {

template <class Config>
struct TensorNormArgs {
    const typename Config::X* X;          // [rows, features]
    const typename Config::Scale* scale;  // [scales], repeated over the features
    typename Config::Y* Y;                // [rows, features]
    i64 features, scales;
};

template <class Config>
CLEAVE_INLINE void tensor_rms_norm(const TensorNormArgs<Config>& a, i64 begin, i64 end, void*) {
    for (i64 row = begin; row < end; ++row) {
        const auto* x = a.X + row * a.features;
        auto* y = a.Y + row * a.features;
        DoubleN<kLanes> sums = 0.0;
        i64 i = 0;
        for (; i + kLanes <= a.features; i += kLanes) {
            DoubleN<kLanes> v = __builtin_convertvector(load(x + i), DoubleN<kLanes>);
            sums += v * v;
        }
        double total = sum(sums);
        for (; i < a.features; ++i) {
            double v = static_cast<double>(load_one(x + i));
            total += v * v;
        }
        double mean = total / static_cast<double>(a.features);
        float factor =
            static_cast<float>(1.0 / __builtin_sqrt(mean + static_cast<double>(Config::kEpsilon)));
        for (i64 first = 0; first < a.features; first += a.scales)
            for (i64 j = 0; j < a.scales; ++j)
                store_one(y + first + j, load_one(x + first + j) * factor * load_one(a.scale + j));
    }
}

}  // namespace cleave
