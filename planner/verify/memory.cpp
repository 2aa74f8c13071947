// SPDX-License-Identifier: Apache-2.0
// The verifier's own account of memory. Values that are alive together do not overlap. Each arena
// ends where the plan says, and all fit the device.
#include <algorithm>
#include <map>
#include <set>

#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"
#include "planner/verify/report.h"
#include "runtime/base/rounding.h"

namespace cleave::planner::verify {
namespace {

struct Live {
    size_t value;
    int64_t first, last;
};

void check_device(const Plan& plan, const Phase& phase, const char* name, std::vector<Live>& values,
                  Report& report) {
    std::sort(values.begin(), values.end(), [](const Live& a, const Live& b) {
        return std::tie(a.first, a.value) < std::tie(b.first, b.value);
    });
    std::vector<Live> alive;
    for (const Live& now : values) {
        std::erase_if(alive, [&](const Live& l) { return l.last < now.first; });
        const PlacedValue& p = phase.values[now.value];
        const Buffer& b = plan.buffer(p.buffer);
        for (const Live& l : alive) {
            const PlacedValue& q = phase.values[l.value];
            const Buffer& c = plan.buffer(q.buffer);
            if (b.arena() != c.arena() || b.offset + b.size <= c.offset ||
                c.offset + c.size <= b.offset)
                continue;
            report.add("live-overlap",
                       "{} step {} writes {} on {} over {}, which is read until step {}", name,
                       now.first, plan.graph.value(p.value).name,
                       plan.machine.device(p.device).name, plan.graph.value(q.value).name, l.last);
        }
        alive.push_back(now);
    }
}

// The arrays of the largest pass, int32, on a device that computes.
void check_batch(const Plan& plan, DeviceId device, Report& report) {
    const Workload& w = plan.workload;
    const std::pair<BufferRole, int64_t> arrays[] = {{BufferRole::kTokenIds, w.max_tokens()},
                                                     {BufferRole::kPositions, w.max_tokens()},
                                                     {BufferRole::kSlots, w.max_tokens()},
                                                     {BufferRole::kSequenceStarts, w.batch + 1},
                                                     {BufferRole::kOutputRows, w.max_outputs()}};
    for (auto [role, count] : arrays) {
        const BufferId id = find_buffer(plan, device, role);
        const int64_t size = id.valid() ? plan.buffer(id).size : 0;
        if (size < 4 * count)
            report.add("memory-batch", "{}: {} takes {} bytes and has {}",
                       plan.machine.device(device).name, buffer_role_name(role), 4 * count, size);
    }
}

// What is found by its role is on each device once at most. The tokens of the largest logits are
// chosen where the logits are, and have room.
void check_roles(const Plan& plan, Report& report) {
    std::set<std::pair<DeviceId, BufferRole>> seen;
    for (const Buffer& b : plan.buffers) {
        const std::string& device = plan.machine.device(b.device).name;
        if (b.role > BufferRole::kScratch && !seen.emplace(b.device, b.role).second)
            report.add("buffer-role", "{} has two buffers '{}'", device, buffer_role_name(b.role));
        if (b.role == BufferRole::kChosenTokens &&
            (b.device != plan.output_device || b.size < 4 * plan.workload.max_outputs()))
            report.add("memory-tokens",
                       "{} bytes on {} for the tokens of {} outputs, which are on {}", b.size,
                       device, plan.workload.max_outputs(),
                       plan.machine.device(plan.output_device).name);
    }
}

// What the vendor's library keeps on each of its cards, by the rules of
// planner/build/communicator_memory.h: 16 MiB a communicator, 256 MiB for the first, and 12 MiB for
// each channel of each connection to a card in reach; or what the machine says of one.
void check_libraries(const Plan& plan, Report& report) {
    struct Asked {
        bool sums = false, gathers = false;
    };
    std::map<std::vector<DeviceId>, Asked> groups;
    for (const Phase* phase : {&plan.prefill, &plan.decode})
        for (const Step& step : phase->steps) {
            const Collective* c = step.collective();
            if (!c || c->path != Path::kVendor) continue;
            std::vector<DeviceId> who = c->group;
            for (PlacedId id : c->contributions) who.push_back(phase->values[id.index()].device);
            std::sort(who.begin(), who.end());
            who.erase(std::unique(who.begin(), who.end()), who.end());
            Asked& asked = groups[who];
            asked.sums |= c->op == CollectiveOp::kAllReduce;
            asked.gathers |= c->op == CollectiveOp::kAllGather;
        }
    for (size_t i = 0; i < plan.memory.size(); ++i) {
        const DeviceInfo& d = plan.machine.devices[i];
        int64_t mib = 0, told = 0;
        for (const auto& [who, asked] : groups) {
            if (std::find(who.begin(), who.end(), DeviceId(i)) == who.end()) continue;
            told += d.collectives_bytes;
            mib += mib == 0 ? 256 + 16 : 16;
            int64_t reached = 0, width = 0;
            for (const Link& l : plan.machine.links) {
                if (l.from != DeviceId(i) || l.to == l.from ||
                    std::find(who.begin(), who.end(), l.to) == who.end())
                    continue;
                if (l.kind == LinkKind::kPcie && !l.peer_access) continue;
                ++reached;
                const VendorFacts* own = vendor_of(l.kind);
                width = std::max<int64_t>(width, own ? own->collectives_channels : 8);
            }
            if (asked.sums) mib += 12 * width * (reached > 1 ? 3 : 2 * reached);
            if (asked.gathers) mib += 12 * width * reached;
        }
        const int64_t expected = d.collectives_bytes > 0 ? told : mib << 20;
        if (plan.memory[i].collectives != expected)
            report.add("memory-collectives",
                       "{}: the library that joins it keeps {} bytes, the plan counts {}", d.name,
                       expected, plan.memory[i].collectives);
    }
}

}  // namespace

void check_liveness(const Plan& plan, bool is_prefill, const PhaseTrace& trace, Report& report) {
    const Phase& phase = plan.phase(is_prefill);
    std::map<DeviceId, std::vector<Live>> devices;
    for (size_t i = 0; i < phase.values.size(); ++i) {
        const Lifetime& life = trace.lifetimes[i];
        const PlacedValue& p = phase.values[i];
        if (!life.written || !p.buffer.valid() || columns_of(p).empty()) continue;
        devices[plan.buffer(p.buffer).device].push_back(
            {i, life.first_write, std::max(life.first_write, life.last_read)});
    }
    for (auto& [device, values] : devices)
        check_device(plan, phase, is_prefill ? "prefill" : "decode", values, report);
}

void check_account(const Plan& plan, Report& report) {
    check_roles(plan, report);
    const size_t n = plan.machine.devices.size();
    std::vector<std::array<int64_t, 5>> ends(n);
    for (const Buffer& b : plan.buffers) {
        int64_t& end = ends[b.device.index()][static_cast<size_t>(b.arena())];
        end = std::max(end, b.offset + b.size);
    }
    if (plan.memory.size() != n)
        return report.add("memory-account", "{} accounts for {} devices", plan.memory.size(), n);
    check_libraries(plan, report);
    for (size_t i = 0; i < n; ++i) {
        const DeviceMemory& m = plan.memory[i];
        const DeviceInfo& d = plan.machine.devices[i];
        if (m.device.index() != i)
            report.add("memory-account", "the account of {} is another device's", d.name);
        if (m.capacity != d.memory_bytes || m.reserved != d.reserved_bytes)
            report.add("memory-account",
                       "{} has {} bytes, {} of them reserved; the plan says {} and {}", d.name,
                       d.memory_bytes, d.reserved_bytes, m.capacity, m.reserved);
        const std::array<int64_t, 5> stated{m.weights, m.kv, m.activations, m.staging, m.scratch};
        for (size_t a = 0; a < stated.size(); ++a)
            if (stated[a] < ends[i][a] || stated[a] > round_up(ends[i][a], 256))
                report.add("memory-account",
                           "{}: the buffers of the {} arena end at {}, the plan says {}", d.name,
                           arena_name(static_cast<Arena>(a)), ends[i][a], stated[a]);
        bool used = std::any_of(plan.stages.begin(), plan.stages.end(), [&](const Stage& s) {
            return std::find(s.devices.begin(), s.devices.end(), m.device) != s.devices.end();
        });
        if (used) check_batch(plan, DeviceId(i), report);
        if (m.needed() > m.capacity)
            report.add("memory-capacity", "{} needs {} bytes and has {}", d.name, m.needed(),
                       m.capacity);
    }
}

}  // namespace cleave::planner::verify
