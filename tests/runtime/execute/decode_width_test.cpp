// SPDX-License-Identifier: Apache-2.0
// Decode passes filled up to the widths that are captured.
#include <algorithm>
#include <random>
#include <set>

#include "runtime/execute/decode_width.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

namespace {

// Of what fill_decode looks at.
planner::Plan pool_of(int64_t batch, int64_t context) {
    planner::Plan plan;
    plan.workload.batch = batch;
    plan.workload.context = context;
    plan.kv_pool.num_blocks = plan.workload.pool_blocks();
    return plan;
}

// A token of each of these slots.
Batch decode_of(const std::vector<int32_t>& slots) {
    Batch batch;
    batch.is_prefill = false;
    batch.sequence_starts.push_back(0);
    for (int32_t slot : slots) {
        batch.output_rows.push_back(static_cast<int32_t>(batch.num_tokens()));
        batch.token_ids.push_back(7 + slot);
        batch.positions.push_back(20 + slot);
        batch.slots.push_back(slot);
        batch.sequence_starts.push_back(static_cast<int32_t>(batch.num_tokens()));
    }
    return batch;
}

template <class T>
bool starts_with(const std::vector<T>& all, const std::vector<T>& first) {
    return all.size() >= first.size() && std::equal(first.begin(), first.end(), all.begin());
}

}  // namespace

TEST_CASE("widths of decode are few, hold their rows and never more than the batch",
          "[runtime][execute]") {
    for (int64_t most : {1, 2, 3, 8, 9, 64, 100}) {
        std::set<int64_t> widths;
        for (int64_t rows = 1; rows <= most; ++rows) {
            const int64_t width = decode_width(rows, most);
            CHECK((width >= rows && width <= most));
            CHECK(decode_width(width, most) == width);
            widths.insert(width);
        }
        CHECK(static_cast<int64_t>(widths.size()) <= 4 + (most + 7) / 8);
    }
    CHECK(decode_width(5, 64) == 8);
    CHECK(decode_width(17, 64) == 24);
    CHECK(decode_width(62, 63) == 63);
}

TEST_CASE("a decode pass that is filled up keeps its own rows and adds those of no sequence",
          "[runtime][execute]") {
    std::mt19937 rng(3);
    const planner::Plan plan = pool_of(21, 100);
    const int64_t per_slot = plan.workload.blocks_per_slot();
    for (int round = 0; round < 200; ++round) {
        std::vector<int32_t> slots;
        for (int32_t slot = 0; slot < 21; ++slot) slots.push_back(slot);
        std::shuffle(slots.begin(), slots.end(), rng);
        slots.resize(1 + rng() % 21);
        const Batch own = decode_of(slots);
        Batch filled = own;
        fill_decode(filled, plan);
        const int64_t rows = own.num_tokens(), width = decode_width(rows, 21);
        REQUIRE(filled.num_tokens() == width);
        REQUIRE(filled.num_outputs() == width);
        REQUIRE(filled.num_sequences() == width);
        CHECK(starts_with(filled.token_ids, own.token_ids));
        CHECK(starts_with(filled.positions, own.positions));
        CHECK(starts_with(filled.slots, own.slots));
        CHECK(starts_with(filled.sequence_starts, own.sequence_starts));
        CHECK(starts_with(filled.output_rows, own.output_rows));
        if (rows == width) CHECK(filled.blocks.empty());
        for (int64_t row = rows; row < width; ++row) {
            const int32_t slot = filled.slots[static_cast<size_t>(row)];
            CHECK(std::find(slots.begin(), slots.end(), slot) == slots.end());
            CHECK(filled.positions[static_cast<size_t>(row)] == 0);
            CHECK(filled.blocks[static_cast<size_t>(slot * per_slot)] == 0);
        }
        // The pass's slots have the blocks that they had.
        for (size_t i = 0; i < filled.blocks.size(); ++i) {
            const int64_t slot = static_cast<int64_t>(i) / per_slot;
            if (std::find(slots.begin(), slots.end(), slot) != slots.end())
                REQUIRE(filled.blocks[i] ==
                        identity_block(plan.workload, slot, static_cast<int64_t>(i) % per_slot));
        }
    }
}

TEST_CASE("passes that are no decode of one token a sequence with its output stay as they are",
          "[runtime][execute]") {
    const planner::Plan plan = pool_of(8, 100);
    Batch prompt = decode_of({0, 1, 2}), silent = decode_of({0, 1, 2}), two = decode_of({0, 1, 1});
    prompt.is_prefill = true;
    silent.output_rows.pop_back();
    two.positions = {20, 21, 22};
    two.sequence_starts = {0, 1, 3};
    for (Batch batch : {prompt, silent, two, decode_of({0, 1, 2, 3, 4, 5, 6, 7})}) {
        const int64_t rows = batch.num_tokens();
        fill_decode(batch, plan);
        CHECK(batch.num_tokens() == rows);
        CHECK(batch.blocks.empty());
    }
}
