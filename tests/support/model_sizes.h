// SPDX-License-Identifier: Apache-2.0
// What the sweeps over GPU tiles and kernels run over: published sizes of Llama models, 7B to 405B,
// heads of other sizes on them, and the shared memory that a block may have.
#pragma once

#include <array>
#include <cstdint>

namespace cleave::test {

struct ModelSize {
    const char* name;
    int64_t hidden, intermediate, heads, kv_heads, head_dim, vocabulary;
};
inline constexpr std::array<ModelSize, 9> kModelSizes = {
    {{"7B", 4096, 11008, 32, 32, 128, 32000},
     {"8B", 4096, 14336, 32, 8, 128, 128256},
     {"13B", 5120, 13824, 40, 40, 128, 32000},
     {"70B", 8192, 28672, 64, 8, 128, 128256},
     {"405B", 16384, 53248, 128, 8, 128, 128256},
     {"heads of 64", 2048, 8192, 32, 8, 64, 128256},
     {"heads of 80", 2560, 6912, 32, 32, 80, 32000},
     {"heads of 96", 3072, 8192, 32, 32, 96, 32064},
     {"heads of 256", 3072, 24576, 16, 16, 256, 256000}}};

inline constexpr std::array<int64_t, 7> kSharedKiB = {32, 48, 64, 99, 160, 163, 227};

}  // namespace cleave::test
