// SPDX-License-Identifier: Apache-2.0
#include "planner/build/placement_of.h"

#include <algorithm>
#include <map>
#include <optional>

#include "planner/analysis/analysis.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using importer::Op;

// The ranges of one stage, as its steps show them.
class StageRanges {
public:
    StageRanges(const Analysis& analysis, const Plan& plan, const Stage& stage)
        : a_(analysis), plan_(plan), devices_(stage.devices) {}

    void see(const Phase& phase, const Compute& c) {
        for (OpId id : c.ops) {
            const Op& op = a_.graph.op(id);
            const OpSplit& split = a_.splits.ops[id.index()];
            if (op.kind == importer::OpKind::kAttention) note(split.work, c.device, c.heads);
            for (WeightShardId shard : c.weights) {
                const WeightShard& s = plan_.weights[shard.index()];
                if (op.weights.empty() || s.weight != op.weights[0]) continue;
                if (split.weight == WeightCut::kRows) note_features(split.work, c.device, s.rows);
                if (split.weight == WeightCut::kColumns)
                    note_features(split.work, c.device, s.columns);
            }
        }
        if (c.kv.valid()) {
            const KvSlab& slab = plan_.kv_slabs[c.kv.index()];
            note(a_.splits.values[slab.state.index()], c.device, slab.kv_heads);
        }
        for (const std::vector<PlacedId>* placed : {&c.inputs, &c.outputs})
            for (PlacedId id : *placed) {
                const PlacedValue& v = phase.values[id.index()];
                if (!v.box.empty() && v.box.back().end != kWhole && !v.partial)
                    note_features(a_.splits.values[v.value.index()], c.device, v.box.back());
            }
    }

    StageShares shares() const {
        StageShares shares{.weights = std::vector<int64_t>(devices_.size(), 1)};
        for (const auto& [split, seen] : seen_) {
            std::vector<Range> ranges;
            int64_t end = 0;  // of the device before
            for (const std::optional<Range>& range : seen) {
                ranges.push_back(range.value_or(Range{end, end}));
                end = ranges.back().end;
            }
            shares.known.emplace_back(split, std::move(ranges));
        }
        return shares;
    }

private:
    void note(const Split& split, DeviceId device, Range units) {
        if (split.whole() || units.empty()) return;
        const Split counted{split.axis, split.units, 1, split.group};
        auto& seen = seen_[counted];
        seen.resize(devices_.size());
        const auto at = std::find(devices_.begin(), devices_.end(), device);
        CLEAVE_CHECK(at != devices_.end()) << "a step of a stage on a device of another";
        seen[static_cast<size_t>(at - devices_.begin())] = units;
    }
    void note_features(const Split& split, DeviceId device, Range features) {
        if (!split.whole())
            note(split, device, {features.begin / split.unit_size, features.end / split.unit_size});
    }

    const Analysis& a_;
    const Plan& plan_;
    const std::vector<DeviceId>& devices_;
    std::map<Split, std::vector<std::optional<Range>>> seen_;
};

}  // namespace

Placement placement_of(const Analysis& analysis, const Plan& plan) {
    std::vector<StageRanges> ranges;
    for (const Stage& stage : plan.stages) ranges.emplace_back(analysis, plan, stage);
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute())
            ranges[static_cast<size_t>(step.stage)].see(plan.decode, *c);
    Placement placement;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
        const Stage& stage = plan.stages[s];
        const auto inside = [&](const FusedGroup& g) {
            return g.first >= stage.first_op && g.last <= stage.last_op;
        };
        const auto& groups = analysis.groups;
        const auto begin = std::find_if(groups.begin(), groups.end(), inside);
        const auto end = std::find_if_not(begin, groups.end(), inside);
        placement.stages.push_back({stage.devices, static_cast<int>(begin - groups.begin()),
                                    static_cast<int>(end - groups.begin()), ranges[s].shares()});
    }
    return placement;
}

}  // namespace cleave::planner
