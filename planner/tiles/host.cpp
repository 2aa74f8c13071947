// SPDX-License-Identifier: Apache-2.0
#include "planner/tiles/host.h"

#include <algorithm>

#include "runtime/base/rounding.h"

namespace cleave::planner {

namespace {

// Bounds over all CPUs of the host templates' vectors, register tiles and conversion strips; each
// kernel's text asserts that they hold (codegen/templates/host).
constexpr int64_t kMaxLanes = 16;
constexpr int64_t kMaxTileRows = 12;
constexpr int64_t kConvertDepth = 256;
constexpr int64_t kPreparedBytes = 64;  // what is said of the block of tokens, before it

// Features that share a scale where tokens are int8, and the bytes of such a group: its codes, the
// scale, their sum. A strip of weights has at most kMaxLanes groups of 2 * kMaxLanes rows, each 8
// words of codes, a scale and a zero point; for tiles as much and more, with sums that are carried.
constexpr int64_t kGroup = 32, kGroupBytes = kGroup + 8;
constexpr int64_t kStripFloats = 8192;
static_assert(kMaxLanes * 2 * kMaxLanes * 10 <= kStripFloats);

// Of the second- and third-level cache, for a thread's block of tokens. Rows of weights are read
// and transposed, or widened, for each block, which costs more than tokens that come from the third
// level: with blocks of 1 MiB prompts of 1.1B took 1 to 6 % longer, beside other work up to 15 %.
// Of more tokens prompts are no faster.
constexpr int64_t kBlockBytes = 3 << 20;
constexpr int64_t kMostTokens = 256;

}  // namespace

int64_t host_tokens(int64_t depth, std::optional<DType> rounding) {
    const int64_t padded = std::max<int64_t>(kMaxLanes, round_up(depth, kMaxLanes));
    const int64_t bytes = rounding == DType::kInt8   ? ceil_div(depth, kGroup) * kGroupBytes
                          : rounding == DType::kBF16 ? padded * 2
                                                     : padded * 4;
    const int64_t fit = kBlockBytes / std::max<int64_t>(1, bytes);
    return std::clamp<int64_t>(fit / (2 * kMaxLanes) * (2 * kMaxLanes), 2 * kMaxLanes, kMostTokens);
}

int64_t host_rows(int64_t outputs, int64_t threads, std::optional<DType> rounding) {
    const int64_t unit = rounding ? kMaxLanes : kMaxTileRows;
    const int64_t wanted = outputs / std::max<int64_t>(8 * threads, 1);
    return std::clamp<int64_t>(wanted / unit * unit, unit, 96);
}

int64_t host_scratch_bytes(int64_t depth, int64_t tokens, int64_t rows, int64_t copies,
                           std::optional<DType> rounding) {
    const int64_t sums = copies * tokens * (rows + kMaxLanes) * 4 + kPreparedBytes;
    const int64_t padded = round_up(depth, kMaxLanes);
    // Strips come after the tokens; a row that is normalised takes the place of one.
    if (rounding == DType::kInt8)
        return round_up(tokens * ceil_div(depth, kGroup) * kGroupBytes, 64) +
               std::max(kStripFloats, padded + kMaxLanes) * 4 + round_up(sums, 64);
    // Rounded to bf16 they take as much as in f32 where the CPU has no unit for bf16.
    return round_up(
        round_up(tokens, kMaxLanes) * padded * 4 + sums + kMaxTileRows * kConvertDepth * 4, 64);
}

}  // namespace cleave::planner
