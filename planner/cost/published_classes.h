// SPDX-License-Identifier: Apache-2.0
// How far predictions are from published speeds, by class of what was run: bounds of the ratio
// predicted speed over published speed, above 1 where the prediction is too fast. `tools/bench
// published` prints every row, and fails where a class leaves its bounds; it reads this table, a
// row a line. They are what predictions had when each was last looked at, rounded outwards. A
// change of a cost that leaves them is looked at, and they move with it. Below 1 are engines that
// multiply 8-bit weights on 8-bit units: kernels here multiply them as f16. Sums of engines but
// TensorRT-LLM's are taken with `--sum-skew 2`.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace cleave::planner {

struct PublishedClass {
    std::string_view name;
    double median_low, median_high;  // of the median
    double low, high;                // of the 10th and the 90th percentile
};

// clang-format off
inline constexpr std::array kPublishedClasses{
    PublishedClass{"decode b1 1 GPU", 0.95, 1.15, 0.85, 1.5},
    PublishedClass{"tensor parallel b1", 0.95, 1.2, 0.9, 1.45},
    PublishedClass{"pipeline b1", 0.85, 1.4, 0.8, 1.6},
    PublishedClass{"batched decode", 1.2, 1.5, 1.2, 1.5},
    PublishedClass{"batched decode, closed loop", 0.95, 1.1, 0.78, 1.2},
    PublishedClass{"batched throughput", 0.9, 1.1, 0.65, 1.35},
    PublishedClass{"throughput, PCIe tensor parallel", 0.65, 0.85, 0.65, 0.85},
    PublishedClass{"prefill", 0.9, 1.1, 0.6, 1.5},
    PublishedClass{"collective in a node", 0.95, 1.05, 0.9, 1.1},
    PublishedClass{"collective in a node, TensorRT-LLM", 0.65, 0.8, 0.45, 1.2},
    PublishedClass{"collective in a node, PCIe", 1.0, 3.6, 0.6, 13.0},
    PublishedClass{"collective in a node, PCIe group", 0.9, 1.2, 0.75, 1.75},
    PublishedClass{"collective in a node, NCCL eager", 1.0, 7.0, 1.0, 7.0},
    PublishedClass{"collective across nodes", 0.95, 1.1, 0.9, 1.15},
    PublishedClass{"collective across nodes, network not named", 6.0, 10.0, 6.0, 10.0},
    PublishedClass{"AMD decode", 0.95, 1.1, 0.95, 1.1},
    PublishedClass{"AMD batched", 0.95, 1.2, 0.95, 1.4},
    PublishedClass{"AMD collective in a node", 0.95, 1.2, 0.8, 1.35},
    PublishedClass{"AMD collective across nodes", 0.9, 1.2, 0.9, 1.25},
};
// clang-format on

constexpr const PublishedClass* find_published_class(std::string_view name) {
    const auto at = std::ranges::find(kPublishedClasses, name, &PublishedClass::name);
    return at == kPublishedClasses.end() ? nullptr : &*at;
}

}  // namespace cleave::planner
