// SPDX-License-Identifier: Apache-2.0
// Passes of several groups of sequences in flight at once, on hosts, imitated GPUs and fakes of
// both vendors' libraries: whatever else is in flight, a pass gives what it gives alone.
#include <map>
#include <random>
#include <set>

#include "tests/e2e/gpu_sessions.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

constexpr int kGroups = 4, kPromptTokens = 5, kSteps = 4;

// A prompt in slot `group` and a token after the other behind it.
std::vector<Batch> passes_of(int group, std::mt19937& random) {
    const auto vocab = static_cast<uint32_t>(small_shape().config.vocab_size);
    std::vector<Batch> passes;
    for (int32_t at = 0; at < kPromptTokens + kSteps;) {
        Batch& batch = passes.emplace_back();
        batch.is_prefill = at == 0;
        const int32_t end = at == 0 ? kPromptTokens : at + 1;
        for (; at < end; ++at) {
            batch.token_ids.push_back(static_cast<int32_t>(random() % vocab));
            batch.positions.push_back(at);
            batch.slots.push_back(group);
        }
        batch.sequence_starts = {0, static_cast<int32_t>(batch.num_tokens())};
        batch.output_rows = {static_cast<int32_t>(batch.num_tokens()) - 1};
    }
    return passes;
}

planner::Plan plan_of(const DeviceShape& shape) {
    return plan_for(small_model(), shape, all_logits_workload(kGroups, 32, 8));
}

// The groups' passes shuffled, each group's in order; submitted and taken at random, logits and
// tokens by turns, against those of each group by itself.
void check_groups(const DeviceShape& shape, const SessionOptions& options, uint32_t seed) {
    INFO(shape.name << ", " << shape.devices << ", seed " << seed);
    std::mt19937 random(seed);
    std::vector<std::vector<Batch>> groups;
    std::vector<std::vector<std::vector<float>>> logits;
    std::vector<std::vector<std::vector<int32_t>>> tokens;
    planner::Plan plan = plan_of(shape);
    {
        Session alone(plan, options);
        for (int g = 0; g < kGroups; ++g) {
            groups.push_back(passes_of(g, random));
            logits.push_back(alone.run(groups.back()));
            tokens.push_back(alone.run_greedy(groups.back()));
        }
    }
    Session session(plan, options);
    std::vector<size_t> submitted(kGroups), taken(kGroups);
    std::vector<std::pair<size_t, PassResults>> order;  // group, and what is wanted
    const size_t all = kGroups * groups[0].size();
    for (size_t ended = 0; ended < all;) {
        const auto g = static_cast<size_t>(random() % kGroups);
        if (submitted[g] < groups[g].size() && (session.in_flight() == 0 || random() % 3 > 0)) {
            order.emplace_back(g, static_cast<PassResults>(random() % 3));
            CHECK(session.submit(groups[g][submitted[g]++], order.back().second) ==
                  static_cast<Ticket>(order.size()) - 1);
        } else if (session.in_flight() > 0) {
            const PassResult result = session.take();
            CHECK(result.ticket == static_cast<Ticket>(ended));
            const auto [group, wanted] = order[ended++];
            const size_t pass = taken[group]++;
            if (wanted == PassResults::kLogits)
                CHECK(result.logits == logits[group][pass]);
            else
                CHECK(result.logits.empty());
            if (wanted == PassResults::kTokens)
                CHECK(result.tokens == tokens[group][pass]);
            else
                CHECK(result.tokens.empty());
        }
    }
    CHECK(session.in_flight() == 0);
}

}  // namespace

TEST_CASE("passes of groups in flight at once give each group's own results, on hosts", "[e2e]") {
    uint32_t seed = 0;
    for (const DeviceShape& shape :
         {DeviceShape{"one", "host", 1, 1}, DeviceShape{"pp 2", "host[0-1]", 1, 2},
          DeviceShape{"pp 3", "host[0-2]", 1, 3}, DeviceShape{"pp 4", "host[0-3]", 1, 4},
          DeviceShape{"tp 2", "host[0-1]", 2, 1}, DeviceShape{"tp 3", "host[0-2]", 3, 1},
          DeviceShape{"tp 2 pp 2", "host[0-3]", 2, 2}, DeviceShape{"tp 3 pp 2", "host[0-5]", 3, 2}})
        for (int round = 0; round < 3; ++round) check_groups(shape, checked_options(), ++seed);
}

TEST_CASE("passes of groups in flight at once give each group's own results, on imitated GPUs",
          "[e2e]") {
    for (const DeviceShape& shape : {DeviceShape{"pp 2", "simt:sm_90a[0-1]", 1, 2},
                                     DeviceShape{"tp 2", "simt:gfx942[0-1]", 2, 1}})
        check_groups(shape, checked_options(), 1);
}

TEST_CASE("passes of groups in flight at once give each group's own results, on cards of fakes",
          "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const char* mixed =
            vendor.kind == planner::DeviceKind::kCuda ? "cuda[0],host[0]" : "hip[0],host[0]";
        for (const DeviceShape& shape :
             {vendor.one, vendor.two, vendor.logical, DeviceShape{"mixed pp 2", mixed, 1, 2},
              DeviceShape{"mixed tp 2", mixed, 2, 1}}) {
            const InstalledFake fake(vendor.kind);
            fake.live();
            check_groups(shape, options_for_fakes(), 5);
            CHECK(fake.alive() == 0);
        }
    }
}

TEST_CASE("a trace has the passes of all groups in flight, each device's in their order", "[e2e]") {
    for (bool whole : {false, true}) {
        planner::Plan plan = plan_of({"pp 2", "host[0-1]", 1, 2});
        SessionOptions options = checked_options();
        options.record_trace = !whole;
        options.record_passes = whole;
        Session session(plan, options);
        std::mt19937 random(3);
        std::vector<Batch> passes;
        for (int g = 0; g < kGroups; ++g)
            for (Batch& pass : passes_of(g, random)) passes.push_back(std::move(pass));
        for (const Batch& pass : passes) session.submit(pass, PassResults::kTokens);
        for (size_t i = 0; i < passes.size(); ++i) session.take();
        std::map<planner::DeviceId, std::set<int32_t>> seen;
        std::map<planner::DeviceId, std::pair<int32_t, int64_t>> last;  // pass and end
        for (const TraceEvent& event : session.trace().events) {
            CHECK(event.is_prefill == passes[static_cast<size_t>(event.pass)].is_prefill);
            auto& [pass, end] = last[event.device];
            CHECK(event.pass >= pass);
            CHECK(event.start_ns >= end);
            pass = event.pass;
            end = event.end_ns;
            seen[event.device].insert(event.pass);
        }
        CHECK(seen.size() == 2);
        for (const auto& [device, numbers] : seen) CHECK(numbers.size() == passes.size());
    }
}

TEST_CASE("a session goes with passes in flight, and gives back what it took of its cards",
          "[e2e]") {
    std::mt19937 random(7);
    const std::vector<Batch> passes = passes_of(0, random);
    for (int taken : {0, 1, 3}) {
        for (const char* hosts : {"host", "host[0-1]"}) {
            planner::Plan plan = plan_of({"hosts", hosts, 1, hosts[4] ? 2 : 1});
            Session session(plan, checked_options());
            for (const Batch& pass : passes) session.submit(pass, PassResults::kLogits);
            for (int i = 0; i < taken; ++i) session.take();
        }
        for (const GpuCalls& vendor : kBothVendors)
            for (const DeviceShape& shape : {vendor.one, vendor.two, vendor.logical}) {
                const InstalledFake fake(vendor.kind);
                fake.live();
                {
                    planner::Plan plan = plan_of(shape);
                    Session session(plan, options_for_fakes());
                    for (const Batch& pass : passes) session.submit(pass, PassResults::kLogits);
                    for (int i = 0; i < taken; ++i) session.take();
                }
                CHECK(fake.alive() == 0);
            }
    }
}
