// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/greedy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/base/errors.h"

namespace cleave::runtime {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

struct Largest {
    float value = kLeast;
    bool are_numbers = true;
};

// In lanes, which compilers make registers of: this is read for each token of each sequence.
Largest largest_of(std::span<const float> block) {
    constexpr size_t kLanes = 16;
    std::array<float, kLanes> most{};
    most.fill(kLeast);
    std::array<int32_t, kLanes> not_numbers{};
    size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes)
        for (size_t lane = 0; lane < kLanes; ++lane) {
            const float x = block[i + lane];
            most[lane] = x > most[lane] ? x : most[lane];
            not_numbers[lane] |= std::isnan(x) ? 1 : 0;
        }
    for (; i < block.size(); ++i) {
        most[0] = block[i] > most[0] ? block[i] : most[0];
        not_numbers[0] |= std::isnan(block[i]) ? 1 : 0;
    }
    return {*std::max_element(most.begin(), most.end()),
            *std::max_element(not_numbers.begin(), not_numbers.end()) == 0};
}

}  // namespace

bool are_numbers(std::span<const float> logits) { return largest_of(logits).are_numbers; }

int32_t largest_logit(std::span<const float> logits) {
    CLEAVE_CHECK(!logits.empty()) << "no logits to choose a token from";
    constexpr size_t kBlock = 1024;
    float most = kLeast;
    size_t at = 0;  // the first block that has it
    for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
        const Largest here =
            largest_of(logits.subspan(begin, std::min(kBlock, logits.size() - begin)));
        if (!here.are_numbers) return kNoToken;
        if (here.value > most) most = here.value, at = begin;
    }
    const auto first = logits.begin() + static_cast<ptrdiff_t>(at);
    return static_cast<int32_t>(std::find(first, logits.end(), most) - logits.begin());
}

}  // namespace cleave::runtime
