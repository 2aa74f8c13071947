// SPDX-License-Identifier: Apache-2.0
// What a plan is best at: one row an objective. Search, simulation, bound and views read the row;
// flags, files and the C ABI read its name or its position.
//
// To add one: an enumerator and its row here; its constant in cleave.h; its name in
// tools/schema/plan.schema.json and in tools/CLI.md. Nothing else names one to choose by it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::planner {

enum class Objective : uint8_t { kLatency, kThroughput, kMemory, kFleet };

// Times of a plan, of an estimate or of a bound: ns per generated token, the token's share of the
// prompt's time included.
struct TokenTimes {
    int64_t pass_ns = 0;     // one batch alone, from its tokens to its logits
    int64_t busiest_ns = 0;  // the busiest device's work, which no number in flight shortens
};

struct ObjectiveRow {
    std::string_view name;
    std::string_view figure;  // what score() is, in words
    int64_t (*score)(const TokenTimes&);
    bool fewest_devices;          // a device less is worth any time
    bool wants_balance;           // stages of equal time are worth a slower pass
    bool serves;                  // many at once: replicas and groups (planner/cost/serving.h)
    bool fewest_for_load;         // of the machine's devices as few as serve them all
    std::string_view leaves_out;  // why a device may stay unused
    std::string_view bound;       // what the bound leaves out that plans cannot
};

inline constexpr std::array<ObjectiveRow, 4> kObjectives{{
    {"latency", "decode, and its share of prefill", [](const TokenTimes& t) { return t.pass_ns; },
     false, false, false, false, "each doubling of the devices has to gain 2 %",
     "it divides each launch by itself, over the best links, whatever the launches beside it need"},
    // The score bounds a round from below: all devices work at once.
    {"throughput", "a round, a token of every user and their prompts' share",
     [](const TokenTimes& t) { return t.busiest_ns; }, false, true, true, false,
     "a plan without them is faster",
     "it spreads all work over all devices, with no exchange and no copy of the weights"},
    {"memory", "decode, and its share of prefill", [](const TokenTimes& t) { return t.pass_ns; },
     true, false, false, false, "the objective is fewest devices",
     "it has the time of all devices"},
    {"fleet", "a round, a token of every user and their prompts' share",
     [](const TokenTimes& t) { return t.busiest_ns; }, false, true, true, true,
     "a plan without them is faster",
     "it spreads all work over all devices, with no exchange and no copy of the weights"},
}};

constexpr const ObjectiveRow& row_of(Objective objective) {
    return kObjectives[static_cast<size_t>(objective)];
}

// UserError for a name that no row has; it lists those that are.
Objective parse_objective(std::string_view name);

// "latency, throughput, ...".
std::string objective_names();

}  // namespace cleave::planner
