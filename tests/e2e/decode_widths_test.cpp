// SPDX-License-Identifier: Apache-2.0
// Decode of numbers of sequences that wander, as a server has them, on fakes of both vendors'
// drivers whose cards compute.
#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "runtime/execute/decode_width.h"
#include "tests/e2e/gpu_sessions.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using planner::DeviceKind;

namespace {

constexpr int kSlots = 11, kPasses = 30;

// Some of the slots, each a position further than in its last pass.
std::vector<Batch> wandering_passes() {
    std::mt19937 rng(5);
    std::vector<int32_t> next(kSlots);
    std::vector<Batch> passes;
    for (int pass = 0; pass < kPasses; ++pass) {
        std::vector<int32_t> slots(kSlots);
        for (int32_t slot = 0; slot < kSlots; ++slot) slots[static_cast<size_t>(slot)] = slot;
        std::shuffle(slots.begin(), slots.end(), rng);
        slots.resize(1 + rng() % kSlots);
        Batch& batch = passes.emplace_back();
        batch.is_prefill = false;
        batch.sequence_starts.push_back(0);
        for (int32_t slot : slots) {
            batch.output_rows.push_back(static_cast<int32_t>(batch.num_tokens()));
            batch.token_ids.push_back(static_cast<int32_t>(rng() % 90));
            batch.positions.push_back(next[static_cast<size_t>(slot)]++);
            batch.slots.push_back(slot);
            batch.sequence_starts.push_back(static_cast<int32_t>(batch.num_tokens()));
        }
    }
    return passes;
}

planner::Plan plan_on(const DeviceShape& shape) {
    return plan_for(small_model(), shape, all_logits_workload(kSlots, 32, 32));
}

}  // namespace

TEST_CASE("decode of wandering numbers of sequences is captured once for each width", "[e2e]") {
    const std::vector<Batch> passes = wandering_passes();
    std::set<int64_t> counts, widths;
    for (const Batch& batch : passes) {
        counts.insert(batch.num_tokens());
        widths.insert(decode_width(batch.num_tokens(), kSlots));
    }
    REQUIRE(counts.size() > widths.size() + 3);
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        planner::Plan plan = plan_on(vendor.one);
        std::vector<std::vector<float>> one_by_one, replayed;
        {
            const cleave::test::Environment off("CLEAVE_GPU_GRAPHS", "0");
            Session session(plan, options_for_fakes());
            one_by_one = session.run(passes);
        }
        const char* made = vendor.kind == DeviceKind::kCuda ? "cuGraphInstantiateWithFlags"
                                                            : "hipGraphInstantiate";
        REQUIRE(fake.calls(made) == 0);
        {
            Session session(plan, options_for_fakes());
            replayed = session.run(passes);
        }
        // Rows beside them change nothing, nor does what these write.
        CHECK(replayed == one_by_one);
        CHECK(fake.calls(made) <= static_cast<int>(widths.size()));
        CHECK(fake.calls(made) > 0);
        CHECK(fake.calls(vendor.graph) > kPasses - 2 * static_cast<int>(widths.size()) - 1);
    }
}
