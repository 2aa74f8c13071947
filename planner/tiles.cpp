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
        if (box.size() > 1 && box.back().end != kWhole)
            widest = std::max(widest, box.back().size());
    }
    return widest;
}

// Bounds over all CPUs of the host templates' vectors, register tiles and conversion strips (codegen/templates/host);
// and the scratch that a thread's tokens may fill: about what stays in its second-level cache.
constexpr int64_t kMaxLanes = 16;
constexpr int64_t kMaxTileRows = 12;
constexpr int64_t kConvertDepth = 256;
constexpr int64_t kBlockBytes = 1 << 20;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Tokens that a thread makes ready together: as many as its cache holds, in whole vectors.
int64_t host_tokens(int64_t depth) {
    int64_t fit = kBlockBytes / (std::max<int64_t>(1, round_up(depth, kMaxLanes)) * 4);
    return std::clamp<int64_t>(fit / (2 * kMaxLanes) * (2 * kMaxLanes), 2 * kMaxLanes, 128);
}

// Rows of a work item: whole register tiles, few enough that every thread gets several items.
int64_t host_rows(int64_t outputs, int64_t threads) {
    int64_t wanted = outputs / std::max<int64_t>(8 * threads, 1);
    return std::clamp<int64_t>(wanted / kMaxTileRows * kMaxTileRows, kMaxTileRows, 96);
}

// The token block, the sums of `copies` results and a strip of converted weights, f32.
int64_t host_scratch(int64_t depth, int64_t tokens, int64_t rows, int64_t copies) {
    int64_t floats = round_up(tokens, kMaxLanes) * round_up(depth, kMaxLanes) +
                     copies * tokens * (rows + kMaxLanes) + kMaxTileRows * kConvertDepth;
    return round_up(floats * 4, 64);
}

Tile host_tile(const Plan& plan, const Phase& phase, const Compute& c, int64_t threads) {
    Tile tile;
    tile.threads = 1;
    tile.tokens = 1;
    int64_t outputs = features_of(phase, c.outputs);
    tile.rows = outputs;
    bool products = c.kernel == KernelKind::kLinear || c.kernel == KernelKind::kNormGateUp ||
                    c.kernel == KernelKind::kNormQkvRopeAppend ||
                    c.kernel == KernelKind::kNormLinear;
    if (c.kernel == KernelKind::kAttention) tile.rows = 1;  // a query head
    if (!products || c.inputs.empty()) return tile;
    const Box& x = phase.values[c.inputs[0].index()].box;
    tile.depth = x.empty() ? 0 : x.back().size();
    tile.tokens = host_tokens(tile.depth);
    tile.rows = host_rows(outputs, threads);
    if (c.kernel == KernelKind::kNormQkvRopeAppend && c.kv.valid()) {
        const KvSlab& slab = plan.kv_slabs[c.kv.index()];
        tile.rows = std::max(slab.head_dim, slab.v_head_dim);
    }
    tile.shared_bytes = host_scratch(tile.depth, tile.tokens, tile.rows,
                                     c.kernel == KernelKind::kNormGateUp ? 2 : 1);
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

int64_t host_threads(const Plan& plan, DeviceId device) {
    int64_t most = 1;
    for (const Stage& stage : plan.stages) {
        int64_t hosts = 0, position = -1;
        for (DeviceId d : stage.devices) {
            if (d == device) position = hosts;
            hosts += plan.machine.device(d).kind == DeviceKind::kHost;
        }
        if (position < 0) continue;
        int64_t cores = plan.machine.device(device).limits.num_compute_units;
        most = std::max(most, cores / hosts + (position < cores % hosts ? 1 : 0));
    }
    return most;
}

void choose_tiles(Plan& plan) {
    std::vector<int64_t> threads(plan.machine.devices.size(), 1);
    for (size_t d = 0; d < threads.size(); ++d)
        if (plan.machine.devices[d].kind == DeviceKind::kHost)
            threads[d] = host_threads(plan, DeviceId(d));
    for (Phase* phase : {&plan.prefill, &plan.decode}) {
        int64_t max_tokens =
            phase == &plan.prefill ? plan.workload.max_tokens() : plan.workload.batch;
        for (Step& step : phase->steps)
            if (auto* c = std::get_if<Compute>(&step.action)) {
                bool host = plan.machine.device(c->device).limits.warp_width <= 1;
                c->tile = host ? host_tile(plan, *phase, *c, threads[c->device.index()])
                               : gpu_tile(plan, *phase, *c, max_tokens);
            }
    }
}

}  // namespace cleave::planner
