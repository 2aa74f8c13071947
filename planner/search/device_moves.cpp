// SPDX-License-Identifier: Apache-2.0
#include "planner/search/device_moves.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/search/cost_tables.h"
#include "planner/search/device_order.h"

namespace cleave::planner {
namespace {

using Devices = std::vector<DeviceId>;  // in the user's order

class DeviceMoves {
public:
    DeviceMoves(const Analysis& a, const PlanRequest& request, Placement placement,
                const std::function<bool(Placement)>& takes_more)
        : a_(a), request_(request), placement_(std::move(placement)), takes_more_(takes_more) {
        for (DeviceId d : user_order(request.machine)) {
            const bool used =
                std::any_of(placement_.stages.begin(), placement_.stages.end(),
                            [&](const StageChoice& s) { return contains(s.devices, d); });
            if (!used) unused_.push_back(d);
        }
    }

    void make() {
        std::vector<const StageChoice*> groups;  // of devices, each once
        for (const StageChoice& stage : placement_.stages)
            if (std::none_of(groups.begin(), groups.end(),
                             [&](const StageChoice* g) { return g->devices == stage.devices; }))
                groups.push_back(&stage);
        for (const StageChoice* group : groups) other_devices(group->devices);
        for (size_t g = 0; g < groups.size(); ++g)
            for (size_t h = g + 1; h < groups.size() && !ended_; ++h)
                exchange(*groups[g], *groups[h]);
        for (DeviceId d : user_order(request_.machine)) alone(d);
        for (size_t s = 0; s < placement_.stages.size() && !ended_; ++s) {
            hand_over(s);
            divide(s);
            if (s + 1 < placement_.stages.size()) join(s);
        }
    }

private:
    void offer(Placement move) { ended_ = ended_ || !takes_more_(std::move(move)); }

    static bool contains(const Devices& devices, DeviceId d) {
        return std::find(devices.begin(), devices.end(), d) != devices.end();
    }
    static Devices with(Devices devices, DeviceId more) {
        devices.insert(std::upper_bound(devices.begin(), devices.end(), more), more);
        return devices;
    }
    static Devices without(Devices devices, DeviceId less) {
        std::erase(devices, less);
        return devices;
    }

    void other_devices(const Devices& now) {
        for (DeviceId own : now) {
            if (now.size() > 1) replace(now, without(now, own));
            for (DeviceId fresh : unused_) replace(now, with(without(now, own), fresh));
        }
        for (DeviceId fresh : unused_) replace(now, with(now, fresh));
    }

    // Wherever a stage has these devices, it gets those.
    void replace(const Devices& from, const Devices& to) {
        if (ended_) return;
        for (const StageShares& shares : ways_to_share(to)) {
            Placement p = placement_;
            for (StageChoice& stage : p.stages)
                if (stage.devices == from) {
                    stage.devices = to;
                    stage.shares = shares;
                }
            offer(std::move(p));
        }
    }

    void exchange(const StageChoice& one, const StageChoice& two) {
        Placement p = placement_;
        for (StageChoice& stage : p.stages) {
            const StageChoice* other = stage.devices == one.devices   ? &two
                                       : stage.devices == two.devices ? &one
                                                                      : nullptr;
            if (!other) continue;
            stage.devices = other->devices;
            stage.shares = other->shares;
        }
        offer(std::move(p));
    }

    void hand_over(size_t s) {
        const StageChoice& stage = placement_.stages[s];
        for (const Unit& unit : a_.units) {
            if (unit.begin <= stage.begin || unit.begin >= stage.end) continue;
            for (DeviceId fresh : unused_)
                for (bool last : {true, false}) {
                    if (ended_) return;
                    Placement p = placement_;
                    StageChoice part = stage;
                    part.devices = {fresh};
                    part.shares = ways_to_share(part.devices).front();
                    (last ? part.begin : part.end) = unit.begin;
                    (last ? p.stages[s].end : p.stages[s].begin) = unit.begin;
                    p.stages.insert(p.stages.begin() + static_cast<std::ptrdiff_t>(s) + last,
                                    std::move(part));
                    offer(std::move(p));
                }
        }
    }

    // All work on one device.
    void alone(DeviceId d) {
        if (ended_) return;
        StageChoice stage;
        stage.devices = {d};
        stage.begin = placement_.stages.front().begin;
        stage.end = placement_.stages.back().end;
        stage.shares = ways_to_share(stage.devices).front();
        offer({{std::move(stage)}});
    }

    // One of the stage's devices takes the last units alone, or the first.
    void divide(size_t s) {
        const StageChoice& stage = placement_.stages[s];
        for (const Unit& unit : a_.units) {
            if (stage.devices.size() < 2 || unit.begin <= stage.begin || unit.begin >= stage.end)
                continue;
            for (DeviceId own : stage.devices)
                for (bool last : {true, false}) {
                    if (ended_) return;
                    Placement p = placement_;
                    StageChoice part = stage, rest = stage;
                    part.devices = {own};
                    rest.devices = without(stage.devices, own);
                    part.shares = ways_to_share(part.devices).front();
                    rest.shares = ways_to_share(rest.devices).front();
                    (last ? part.begin : part.end) = unit.begin;
                    (last ? rest.end : rest.begin) = unit.begin;
                    p.stages[s] = last ? rest : part;
                    p.stages.insert(p.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1,
                                    last ? part : rest);
                    offer(std::move(p));
                }
        }
    }

    // Of two neighbouring stages one does the work of both.
    void join(size_t s) {
        for (const size_t keeps : {s, s + 1}) {
            Placement p = placement_;
            p.stages[keeps].begin = placement_.stages[s].begin;
            p.stages[keeps].end = placement_.stages[s + 1].end;
            p.stages.erase(p.stages.begin() + static_cast<std::ptrdiff_t>(keeps == s ? s + 1 : s));
            offer(std::move(p));
        }
    }

    const std::vector<StageShares>& ways_to_share(const Devices& devices) {
        auto [at, fresh] = ways_.try_emplace(devices);
        if (!fresh) return at->second;
        const auto count = static_cast<int>(devices.size());
        CostTables tables(a_, request_.machine, request_.workload, devices, 0);
        at->second.push_back(tables.range(0, count, ShareMode::kBySpeed).shares);
        if (tables.unequal(0, count))
            at->second.push_back(tables.range(0, count, ShareMode::kByMemory).shares);
        return at->second;
    }

    const Analysis& a_;
    const PlanRequest& request_;
    const Placement placement_;
    const std::function<bool(Placement)>& takes_more_;
    bool ended_ = false;
    Devices unused_;
    std::map<Devices, std::vector<StageShares>> ways_;
};

}  // namespace

void device_moves(const Analysis& analysis, const PlanRequest& request, const Placement& placement,
                  const std::function<bool(Placement)>& takes_more) {
    CostTables tables(analysis, request.machine, request.workload, user_order(request.machine), 0);
    if (tables.unequal(0, tables.num_devices()))
        DeviceMoves(analysis, request, placement, takes_more).make();
}

}  // namespace cleave::planner
