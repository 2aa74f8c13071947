// SPDX-License-Identifier: Apache-2.0
// RMSNormalization of whole tensors, a row an item: y = x / sqrt(mean(x^2) + epsilon) * scale, the
// mean summed in double. Config: X, Scale and Held (element types), kEpsilon.
#pragma once

#include "tensor_chain.h"
#include "tensor_sink.h"

namespace cleave {

template <class Config>
struct TensorNormArgs {
    const typename Config::X* X;          // [rows, features]
    const typename Config::Scale* scale;  // [scales], repeated over the features
    typename Config::Out* out;            // [rows, features]
    Chain<Config> chain;
    i64 features, scales;
};

template <class Config>
CLEAVE_INLINE void tensor_rms_norm(const TensorNormArgs<Config>& a, i64 begin, i64 end, void*) {
    using Results = Sink<Config, typename Config::Held>;
    Results sink(a.out, a.chain, begin * a.features);
    for (i64 row = begin; row < end; ++row) {
        const auto* x = a.X + row * a.features;
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
            for (i64 at = 0, n = 0; at < a.scales; at += n) {
                n = min(Results::kMost, a.scales - at);
                auto* y = sink.next(n);
                for (i64 j = 0; j < n; ++j)
                    store_one(y + j,
                              load_one(x + first + at + j) * factor * load_one(a.scale + at + j));
            }
    }
}

}  // namespace cleave
