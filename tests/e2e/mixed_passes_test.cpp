// SPDX-License-Identifier: Apache-2.0
// Passes of single tokens beside prompts, and of any number of single tokens.
#include <numeric>
#include <random>

#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

constexpr int64_t kMixedSlots = 11, kMixedContext = 48, kChunk = 40;
const DeviceShape kMixedHost{"a host", "host[0]", 1, 1};
const std::vector<DeviceShape> kMixedShapes{kMixedHost,
                                            {"two hosts", "host[0-1]", 2, 1},
                                            {"two stages", "host[0-1]", 1, 2},
                                            {"a card", "simt:sm_80[0]", 1, 1},
                                            {"two cards", "simt:sm_80[0-1]", 2, 1}};

// Tokens [first, first + count) of the sequence in `slot`, all with logits.
void add(Batch& batch, int32_t slot, int32_t first, int32_t count) {
    if (batch.sequence_starts.empty()) batch.sequence_starts.push_back(0);
    for (int32_t i = 0; i < count; ++i) {
        batch.output_rows.push_back(static_cast<int32_t>(batch.num_tokens()));
        batch.token_ids.push_back((17 * slot + 5 * (first + i)) % 90);
        batch.positions.push_back(first + i);
        batch.slots.push_back(slot);
    }
    batch.sequence_starts.push_back(static_cast<int32_t>(batch.num_tokens()));
}

Batch prompt_of(int32_t slot, int32_t first, int32_t count) {
    Batch batch;
    add(batch, slot, first, count);
    return batch;
}

std::vector<float> joined(const std::vector<std::vector<float>>& rows, size_t from) {
    std::vector<float> all;
    for (size_t i = from; i < rows.size(); ++i)
        all.insert(all.end(), rows[i].begin(), rows[i].end());
    return all;
}

// Bits on hosts; on cards, products of another number of rows are other kernels.
void check_same(const DeviceShape& shape, const std::vector<float>& got,
                const std::vector<float>& want) {
    INFO(shape.name);
    REQUIRE(got.size() == want.size());
    if (std::string(shape.devices).starts_with("host"))
        CHECK(got == want);
    else
        CHECK(largest_difference(got, want) < 1e-4);
}

}  // namespace

TEST_CASE("single tokens beside a prompt, and the prompt, have the logits of passes of their own",
          "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    const std::vector<Batch> before{prompt_of(0, 0, 20), prompt_of(3, 0, 7), prompt_of(5, 0, 9)};
    std::vector<Batch> apart = before, together = before;
    apart.push_back(prompt_of(0, 20, 1));
    apart.push_back(prompt_of(3, 7, 1));
    apart.push_back(prompt_of(5, 9, 13));
    apart.push_back(prompt_of(7, 0, 8));
    Batch& mixed = together.emplace_back();
    add(mixed, 0, 20, 1);
    add(mixed, 3, 7, 1);
    add(mixed, 5, 9, 13);
    add(mixed, 7, 0, 8);
    for (const DeviceShape& shape : kMixedShapes) {
        planner::Plan one = plan_for(graph, shape,
                                     all_logits_workload(kMixedSlots, kMixedContext, kChunk)),
                      other = one;
        Session first(one, reproducible_options()), second(other, reproducible_options());
        check_same(shape, joined(second.run(together), before.size()),
                   joined(first.run(apart), before.size()));
    }
}

TEST_CASE("a sequence decodes to the same logits in passes of any number of sequences", "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    std::vector<int32_t> slots(kMixedSlots);
    std::iota(slots.begin(), slots.end(), 0);
    std::vector<Batch> before;
    for (int32_t slot : slots) before.push_back(prompt_of(slot, 0, 2 + slot));
    const auto decoded = [&](const DeviceShape& shape, const SessionOptions& options,
                             size_t together) {
        planner::Plan plan =
            plan_for(graph, shape, all_logits_workload(kMixedSlots, kMixedContext, kChunk));
        Session session(plan, options);
        std::vector<Batch> passes = before;
        for (size_t i = 0; i < slots.size(); i += together) {
            Batch& pass = passes.emplace_back();
            pass.is_prefill = false;
            for (size_t s = i; s < std::min(i + together, slots.size()); ++s)
                add(pass, slots[s], 2 + slots[s], 1);
        }
        return joined(session.run(passes), before.size());
    };
    for (const DeviceShape& shape : kMixedShapes) {
        const std::vector<float> all = decoded(shape, reproducible_options(), slots.size());
        for (size_t together : {8, 5, 1}) {
            CAPTURE(shape.name, together);
            CHECK(decoded(shape, reproducible_options(), together) == all);
            // By kernels of few tokens, where the device has them.
            CHECK(largest_difference(decoded(shape, checked_options(), together), all) < 1e-4);
        }
    }
}
