// SPDX-License-Identifier: Apache-2.0
#include "planner/tiles.h"

#include <algorithm>

namespace cleave::planner {

using namespace importer;

namespace {

// Output features a launch computes per row, over all its outputs; its widest input row.
int64_t features_of(const Phase& phase, const std::vector<PlacedId>& ids) {
    int64_t widest = 0;
    for (PlacedId id : ids) {
        const Box& box = phase.values[id.index()].box;
        if (box.size() > 1 && box.back().end != kWhole) widest = std::max(widest, box.back().size());
    }
    return widest;
}

// Work items small enough that every thread gets several, large enough that a row's dot product pays for the call.
Tile host_tile(const Plan& plan, const Phase& phase, const Compute& c, int64_t max_tokens) {
    const DeviceLimits& limits = plan.machine.device(c.device).limits;
    Tile tile;
    tile.threads = 1;
    int64_t outputs = features_of(phase, c.outputs), inputs = features_of(phase, c.inputs);
    int64_t items = std::max<int64_t>(1, limits.num_compute_units) * 8;
    switch (c.kernel) {
        case KernelKind::kAttention:
            tile.rows = 1;  // a query head of a token
            tile.tokens = 1;
            tile.shared_bytes = align_up(plan.workload.context * 4);  // scores of one query
            break;
        case KernelKind::kLinear:
        case KernelKind::kNormGateUp:
        case KernelKind::kNormQkvRopeAppend:
        case KernelKind::kNormLinear:
            tile.rows = std::clamp<int64_t>((outputs / items + 7) / 8 * 8, 8, 256);
            tile.tokens = std::min<int64_t>(max_tokens, 64);
            tile.depth = inputs;
            // Normalised rows of the token tile.
            tile.shared_bytes = c.kernel == KernelKind::kLinear ? 0 : align_up(tile.tokens * inputs * 4);
            break;
        default:
            tile.rows = outputs;
            tile.tokens = 1;
    }
    return tile;
}

// Kept simple until GPUs run: 64 x 64 tiles of depth 64, double buffered where shared memory allows.
Tile gpu_tile(const Plan& plan, const Phase& phase, const Compute& c, int64_t max_tokens) {
    const DeviceLimits& limits = plan.machine.device(c.device).limits;
    Tile tile;
    tile.threads = std::min<int64_t>(256, limits.max_threads_per_block);
    tile.rows = c.kernel == KernelKind::kAttention ? 1 : 64;
    tile.tokens = std::min<int64_t>(64, max_tokens);
    tile.depth = std::min<int64_t>(64, std::max<int64_t>(1, features_of(phase, c.inputs)));
    int64_t stage = (tile.rows + tile.tokens) * tile.depth * 2;
    tile.shared_bytes = std::min(2 * stage, limits.shared_memory_per_block);
    return tile;
}

}  // namespace

void choose_tiles(Plan& plan) {
    for (Phase* phase : {&plan.prefill, &plan.decode}) {
        int64_t max_tokens = phase == &plan.prefill ? plan.workload.max_tokens() : plan.workload.batch;
        for (Step& step : phase->steps)
            if (auto* c = std::get_if<Compute>(&step.action)) {
                bool host = plan.machine.device(c->device).limits.warp_width <= 1;
                c->tile = host ? host_tile(plan, *phase, *c, max_tokens) : gpu_tile(plan, *phase, *c, max_tokens);
            }
    }
}

}  // namespace cleave::planner
