// SPDX-License-Identifier: Apache-2.0
// Models and machines drawn at random, the same on every machine for a seed: what the planner's
// property tests share.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "models/shapes.h"
#include "planner/machine/host_facts.h"
#include "planner/machine/machine.h"
#include "tests/planner/support/machines.h"

namespace cleave::test {

// Largest values of a drawn model.
struct ModelRanges {
    int layers = 3, kv_heads = 3, queries_of_a_kv_head = 3;
    int head_dims = 16, head_dim_step = 8;  // head_dim: up to head_dims steps
    int hidden_steps = 0;                   // of 8 features; 0: heads x head_dim
    int intermediate = 3200, vocab = 6400;
    bool biases = false, bf16 = false;
};

class Drawer {
public:
    explicit Drawer(uint32_t seed) : random_(seed) {}
    int pick(int low, int high) {
        return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
    }
    template <class Range>
    auto one_of(const Range& range) {
        return range.begin()[pick(0, static_cast<int>(range.size()) - 1)];
    }

    // A Llama with any head counts, its embeddings tied or not.
    models::Shape model(const ModelRanges& ranges);

    // One to `most` devices of one kind or of two, from the catalogue.
    planner::Machine catalogue_machine(int most);

    // The same with rates, domains and links drawn as well, for a third of the machines.
    planner::Machine any_machine(int most);

    // Draws the rates of its devices, its links, and a domain that some devices share.
    void vary(planner::Machine& machine);

private:
    std::mt19937 random_;
};

}  // namespace cleave::test
