// SPDX-License-Identifier: Apache-2.0
// Every kernel that ships, on each architecture whose code differs: the rows of the kernel table,
// and the exchanges between devices. One list for what is proved of all of them: right and silent
// in any order of threads, and no barrier too few.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::test {

// What becomes of a source before it is compiled; empty: nothing.
using SourceChange = std::function<std::string(const std::string& source)>;

struct Shipped {
    std::string name;
    // false: the list has the same code for another architecture, where its barriers are tried
    bool own = true;
    // As they ship: one kernel, or those of an exchange.
    std::function<std::vector<std::string>()> sources;
    // Runs it in `orders` orders of its threads, from seed `first` on (0: by index); with its name,
    // what was reported or wrong first. Empty: nothing.
    std::function<std::string(const SourceChange& change, uint64_t first, int orders)> wrong;
    // What is compiled of it.
    std::function<std::vector<std::vector<std::byte>>(const SourceChange& change)> objects;
    // Without any checks, in fresh memory without numbers: whether the results have the very bits
    // of the unchanged kernel's in `orders` orders.
    std::function<bool(const SourceChange& change, int orders)> same_bits;
};

// Of each warp width, each matrix instruction and none. Kernels come with what only few of them
// have first.
const std::vector<std::string>& shipped_archs();
// Of a product of 512 features of f32 in 24 rows, on 8 units: activations in four parts, and two
// slots of a ring of weights.
planner::Tile tile_of_parts(const std::string& arch);
std::vector<Shipped> shipped_kernels(const std::string& arch);
// Of them, the exchanges between devices.
std::vector<Shipped> shipped_exchanges(const std::string& arch);

}  // namespace cleave::test
