// SPDX-License-Identifier: Apache-2.0
#include "planner/search/nearest.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "importer/weights/quantize.h"
#include "planner/search/check_sizes.h"
#include "planner/search/propose.h"

namespace cleave::planner {
namespace {

constexpr int64_t kMostRoom = 4 * kMostBytes;  // of a device, when looking for what a model lacks

// Whether any plan fits; builds only until one does.
bool any_plan_fits(const Analysis& analysis, const Machine& machine, Workload workload,
                   const PlanOptions& options) {
    const Shape shape = check_options(analysis, machine, workload, options);
    PlanBuilder builder(analysis, {"", analysis.graph, machine, workload, options});
    for (int64_t slack : kSlacks) {
        const Proposals proposals = propose(analysis, machine, workload, options, shape, slack);
        if (proposals.found.empty()) return false;
        for (size_t i = 0; i < std::min<size_t>(3, proposals.found.size()); ++i)
            if (builder.fits(proposals.found[i].placement)) return true;
    }
    return false;
}

// In proportion, so that shares by memory stay the same.
Machine with_more_memory(Machine machine, int64_t factor) {
    for (DeviceInfo& d : machine.devices)
        d.memory_bytes = d.memory_bytes > kMostRoom / factor ? kMostRoom : d.memory_bytes * factor;
    return machine;
}

}  // namespace

bool quantizes(const Workload& workload) {
    return workload.dtype && importer::is_quantizing(*workload.dtype);
}

PlanBody nearest_plan(const Analysis& analysis, const Shape& shape, PlanBuilder& builder) {
    const PlanRequest& request = builder.request();
    Proposals proposals;
    // As far as the largest model needs.
    for (int64_t factor = 64; proposals.found.empty() && factor <= int64_t{1} << 42; factor *= 64)
        proposals = propose(analysis, with_more_memory(request.machine, factor), request.workload,
                            request.options, shape, 0);
    if (proposals.found.empty() && !request.options.pins.empty())
        throw UserError(
            "no pipeline of this shape on these devices was found that meets the pins; leave the "
            "shape to the planner (no $tensor_parallel, no $pipeline_stages), or leave out pins");
    CLEAVE_CHECK(!proposals.found.empty()) << "no shape at all";
    std::optional<PlanBody> nearest;
    int64_t least = INT64_MAX;
    size_t tried = 0;
    for (const Proposal& p : proposals.found) {
        const bool spread = p.devices_used == static_cast<int>(request.machine.devices.size());
        if (!spread || tried++ >= 12) continue;
        PlanBody plan = builder.build(p.placement);
        int64_t lacking = 0;
        for (const DeviceMemory& m : plan.memory)
            lacking = std::max(lacking, m.needed() - m.capacity);
        if (lacking < least) {
            least = lacking;
            nearest = std::move(plan);
        }
    }
    return nearest ? std::move(*nearest) : builder.build(proposals.found[0].placement);
}

Fits fits_of(const Graph& given, const Analysis& analysis, const Workload& workload,
             std::optional<ComputeMode> requested) {
    return [&, requested](const Machine& m, Workload w, const PlanOptions& o) {
        if (w.dtype == workload.dtype) return any_plan_fits(analysis, m, w, o);
        w.compute = requested;
        const auto fits = [&](const Graph& graph) {
            w = settled_compute(graph, m, w);
            return any_plan_fits(analyse(graph, w), m, w, o);
        };
        if (!quantizes(w)) return fits(given);
        if (!importer::why_not_quantized(given, *w.dtype).empty()) return false;
        return fits(importer::quantize_weights(given, *w.dtype));
    };
}

}  // namespace cleave::planner
