// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/room.h"

#include <algorithm>
#include <optional>

#include "importer/weights/quantized_shard.h"
#include "planner/analysis/analysis.h"
#include "planner/build/assign_memory.h"
#include "planner/build/choose_tiles.h"
#include "planner/build/placement_of.h"
#include "planner/build/steps.h"
#include "planner/plan/kv_room.h"
#include "planner/search/check_sizes.h"

namespace cleave::planner {
namespace {

// The plan's placement under other workloads. Steps, most of the work, are made anew only where
// a workload's sizes change them.
class Reach {
public:
    explicit Reach(const Plan& plan)
        : plan_(plan),
          analysis_(analyse(plan.graph, plan.workload)),
          placement_(placement_of(analysis_, plan)),
          draft_{static_cast<const PlanRequest&>(plan), {}},
          passes_are_whole_(importer::has_dynamic_activations(plan.graph)) {}

    const std::vector<DeviceMemory>& memory(int64_t batch, int64_t context) {
        Workload& w = draft_.workload;
        w = plan_.workload;
        w.batch = batch;
        w.context = context;
        w.prompt_tokens = std::min(w.prompt_tokens, context);
        w.kv_tokens = 0;
        if (passes_are_whole_) w.prefill_chunk = batch * context;
        std::vector<int64_t> choices = size_choices(analysis_, placement_, draft_);
        if (draft_.stages.empty() || choices != choices_) {
            static_cast<PlanBody&>(draft_) = {};
            build_steps(analysis_, placement_, draft_);
            choices_ = std::move(choices);
        }
        draft_.buffers.clear();
        draft_.memory.clear();
        choose_tiles(draft_);
        assign_memory(draft_);
        return draft_.memory;
    }
    // Of the workload asked about last: whether launches are within their devices' limits.
    bool launches() const { return fits_limits(draft_); }

private:
    const Plan& plan_;
    Analysis analysis_;
    Placement placement_;
    Plan draft_;
    std::vector<int64_t> choices_;  // that its steps were made by
    bool passes_are_whole_;
};

// What is left at one number of sequences or positions.
struct Probe {
    int64_t number = 0;
    int64_t headroom = 0;  // of the device with the least; negative: it lacks
    DeviceId least;
    bool launches = true;
    bool fits() const { return headroom >= 0 && launches; }
};

Probe probe_of(int64_t number, const std::vector<DeviceMemory>& memory) {
    Probe probe{number, INT64_MAX, {}};
    for (const DeviceMemory& m : memory)
        if (m.capacity > 0 && m.free() < probe.headroom) {
            probe.headroom = m.free();
            probe.least = m.device;
        }
    return probe;
}

struct Largest {
    int64_t number = 0;  // 0: not even the least fits
    DeviceId bound;      // at one more
};

// The largest number in [1, most] that fits; `low`, where there is one, does. Memory is nearly
// linear in it, with a step at each multiple of the granule: what lies between the two last probes
// is interpolated, down to a granule, and halved where that does not close in.
template <class At>
Largest largest(std::optional<Probe> low, int64_t guess, int64_t most, int64_t granule, At&& at) {
    std::optional<Probe> high;  // does not fit
    const auto take = [&](int64_t number) {
        const Probe probe = at(number);
        (probe.fits() ? low : high) = probe;
    };
    guess = std::clamp<int64_t>(guess, 1, most);
    if (!low || low->number < guess) take(guess);
    for (int tries = 0;; ++tries) {
        if (low && low->number == most) return {most, {}};
        if (high && high->number == 1) return {0, high->least};
        if (low && high && high->number - low->number == 1)
            return {low->number, high->headroom < 0 ? high->least : DeviceId()};
        if (!high) {
            take(
                std::min(most, low->number + std::max<int64_t>(1, low->number >> (tries ? 0 : 6))));
            continue;
        }
        const int64_t from = low ? low->number : 0, between = high->number - from;
        int64_t next = from + between / 2;
        if (low && high->headroom < 0 && tries % 4 != 3) {
            const double share =
                static_cast<double>(low->headroom) /
                (static_cast<double>(low->headroom) - static_cast<double>(high->headroom));
            next = from + static_cast<int64_t>(share * static_cast<double>(between));
            const int64_t step = between > granule ? granule : 1;
            next -= next % step;
            if (tries % 2 == 1 && next + step < high->number) next += step;  // from above, too
        }
        // Behind a step there is hardly another before the next one.
        if (low && between <= granule && from % granule == 0) next = from + 1;
        take(std::clamp(next, from + 1, high->number - 1));
    }
}

// About as many as the KV pool of the plan, as large as it could be, has room for.
int64_t guessed(const Room& room, int64_t each) {
    return std::max<int64_t>(1, room.kv_tokens / std::max<int64_t>(1, each));
}

}  // namespace

Room room_of(const Plan& plan) {
    Room room;
    const std::optional<KvBound> bound = kv_bound(plan);
    if (!bound) return room;
    room.kv_tokens = kv_tokens(bound->num_blocks);
    room.kv_bound = bound->device;
    room.kv_tokens_now = kv_tokens(plan.kv_pool.num_blocks);
    room.positions = plan.graph.config.max_positions;
    for (const importer::RopeTable& table : plan.graph.rope_tables)
        if (table.max_positions > 0 &&
            (room.positions == 0 || table.max_positions < room.positions))
            room.positions = table.max_positions;
    Reach reach(plan);
    const Workload& w = plan.workload;
    const auto at = [&](int64_t number, int64_t batch, int64_t context) {
        Probe probe = probe_of(number, reach.memory(batch, context));
        probe.launches = probe.headroom < 0 || reach.launches();
        return probe;
    };
    // The plan itself, where its pool is that of whole contexts.
    const auto now = [&](int64_t number) {
        const bool whole = plan.kv_pool.num_blocks == w.batch * w.blocks_per_slot() + 1;
        return whole ? std::optional(probe_of(number, plan.memory)) : std::nullopt;
    };
    // Block ids are 32 bits, and block 0 is no sequence's.
    const int64_t blocks = INT32_MAX - 1;
    const Largest sequences = largest(now(w.batch), guessed(room, w.blocks_per_slot() * kKvBlock),
                                      std::min(kMostSequences, blocks / w.blocks_per_slot()), 1,
                                      [&](int64_t n) { return at(n, n, w.context); });
    room.max_sequences = sequences.number;
    room.sequences_bound = sequences.bound;
    room.whole_contexts = room.max_sequences >= w.batch;
    const Largest context = largest(now(w.context), guessed(room, w.batch),
                                    std::min(kMostPositions, blocks / w.batch * kKvBlock), kKvBlock,
                                    [&](int64_t n) { return at(n, w.batch, n); });
    room.max_context = context.number;
    room.context_bound = context.bound;
    room.positions_end = room.positions > 0 && room.max_context > room.positions;
    return room;
}

std::vector<DeviceMemory> memory_at(const Plan& plan, int64_t batch, int64_t context) {
    return Reach(plan).memory(batch, context);
}

}  // namespace cleave::planner
