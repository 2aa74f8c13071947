// SPDX-License-Identifier: Apache-2.0
#include "planner/build/assign_memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "planner/analysis/storage.h"
#include "planner/analysis/work.h"
#include "planner/build/choose_tiles.h"
#include "planner/build/communicator_memory.h"
#include "planner/cost/peer_exchange.h"
#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

int64_t kv_slab_bytes(int64_t kv_heads, int64_t head_dim, int64_t v_head_dim, const Workload& w,
                      int64_t num_blocks) {
    CLEAVE_CHECK(w.kv_dtype.has_value()) << "the planner resolves the KV dtype first";
    return kv_position_bytes(*w.kv_dtype, kv_heads * num_blocks * kKvBlock, head_dim, v_head_dim);
}

int64_t rope_bytes(const RopeTable& table, const Workload& w) {
    return w.context * (table.rotary_dim / 2) * 2 * 4;
}

namespace {

// Offsets by first fit among the buffers that are live at the same time.
class LivenessArena {
public:
    // Steps must come in order: an allocation at `begin` sees everything freed before it.
    int64_t allocate(int64_t size, int begin, int end) {
        std::erase_if(live_, [&](const Interval& i) { return i.last_use < begin; });
        int64_t offset = 0;
        size_t at = 0;
        for (; at < live_.size(); ++at) {
            if (offset + size <= live_[at].offset) break;
            offset = std::max(offset, align_up(live_[at].offset + live_[at].size));
        }
        live_.insert(live_.begin() + static_cast<std::ptrdiff_t>(at), {offset, size, end});
        peak_ = std::max(peak_, align_up(offset + size));
        return offset;
    }
    void reset() { live_.clear(); }
    int64_t peak() const { return peak_; }

private:
    struct Interval {
        int64_t offset, size;
        int last_use;
    };
    std::vector<Interval> live_;  // by offset
    int64_t peak_ = 0;
};

class Assigner {
public:
    explicit Assigner(Plan& plan)
        : plan_(plan), arenas_(plan.machine.devices.size()), next_(plan.machine.devices.size()) {}

    void run() {
        constants();
        for (size_t d = 0; d < plan_.machine.devices.size(); ++d) batch(DeviceId(d));
        phase(plan_.prefill);
        phase(plan_.decode);
        exchange();
        tokens();
        account();
    }

private:
    // A buffer of its own at the end of a device's arena.
    BufferId append(DeviceId device, BufferRole role, int64_t size) {
        int64_t& end = next_[device.index()][static_cast<size_t>(arena_of(role))];
        plan_.buffers.push_back({device, role, end, size});
        end = align_up(end + size);
        return BufferId(plan_.buffers.size() - 1);
    }

    void constants() {
        for (WeightShard& s : plan_.weights) {
            const Weight& w = plan_.graph.weight(s.weight);
            s.buffer = append(s.device, BufferRole::kConstant,
                              shard_bytes(w, s.rows.size(), s.columns.size(), s.dtype));
        }
        for (RopeShard& s : plan_.rope_tables)
            s.buffer = append(s.device, BufferRole::kConstant,
                              rope_bytes(plan_.graph.rope_table(s.table), plan_.workload));
        if (plan_.kv_slabs.empty()) return;
        const int64_t num_blocks = plan_.workload.pool_blocks();
        plan_.kv_pool = {num_blocks};
        for (KvSlab& s : plan_.kv_slabs)
            s.buffer = append(s.device, BufferRole::kKvSlab,
                              kv_slab_bytes(s.kv_heads.size(), s.head_dim, s.v_head_dim,
                                            plan_.workload, num_blocks));
    }

    void batch(DeviceId device) {
        for (const BatchBuffer& array : batch_buffers(plan_.workload)) {
            const BufferId id = append(device, array.role, array.bytes());
            if (array.role == BufferRole::kTokenIds) token_ids_.push_back(id);
        }
        if (has_kv(plan_, device))
            append(device, BufferRole::kBlockTable, block_table(plan_.workload).bytes());
    }

    int64_t size_of(const PlacedValue& p) const {
        const Value& value = plan_.graph.value(p.value);
        const Workload& w = plan_.workload;
        int64_t elements = 1;
        for (size_t i = 0; i < p.box.size(); ++i) {
            int64_t extent = p.box[i].size();
            if (p.box[i].end == kWhole) {
                Rows rows = i == 0 ? rows_of(value) : Rows::kSequences;
                extent = rows == Rows::kTokens    ? w.max_tokens()
                         : rows == Rows::kOutputs ? w.max_outputs()
                                                  : w.batch;
            }
            elements *= extent;
        }
        return dtype_bytes(placed_dtype(value, w), elements);
    }

    void phase(Phase& phase) {
        std::vector<int> last_use(phase.values.size(), -1);
        auto use = [&](PlacedId id, size_t step) {
            if (id.valid()) last_use[id.index()] = static_cast<int>(step);
        };
        for (size_t i = 0; i < phase.steps.size(); ++i) {
            const Step& step = phase.steps[i];
            if (const Compute* c = step.compute())
                for (PlacedId id : c->inputs) use(id, i);
            if (const Transfer* t = step.transfer()) use(t->source, i);
            if (const Collective* c = step.collective()) {
                for (PlacedId id : c->contributions) use(id, i);
                for (PlacedId id : c->epilogue_inputs) use(id, i);
            }
        }
        for (PlacedId id : phase.outputs) use(id, phase.steps.size());
        for (LivenessArena& arena : arenas_) arena.reset();
        for (PlacedId id : phase.inputs) {
            PlacedValue& p = phase.values[id.index()];
            const Value& value = plan_.graph.value(p.value);
            p.buffer = value.kind == ValueKind::kTokenIds
                           ? token_ids_[p.device.index()]
                           : append(p.device, BufferRole::kInput, size_of(p));
        }
        for (size_t i = 0; i < phase.steps.size(); ++i) {
            const Step& step = phase.steps[i];
            auto make = [&](PlacedId id) {
                allocate(phase.values[id.index()], static_cast<int>(i),
                         std::max(static_cast<int>(i), last_use[id.index()]));
            };
            if (const Compute* c = step.compute())
                std::for_each(c->outputs.begin(), c->outputs.end(), make);
            if (const Transfer* t = step.transfer()) make(t->destination);
            if (const Collective* c = step.collective())
                std::for_each(c->outputs.begin(), c->outputs.end(), make);
        }
    }

    void allocate(PlacedValue& p, int begin, int end) {
        int64_t size = size_of(p);
        if (size == 0) return;
        int64_t offset = arenas_[p.device.index()].allocate(size, begin, end);
        // Values at the same place share one Buffer; their lifetimes do not meet.
        auto [at, fresh] =
            places_.try_emplace(std::tuple(p.device, offset, size), BufferId(plan_.buffers.size()));
        if (fresh) plan_.buffers.push_back({p.device, BufferRole::kActivations, offset, size});
        p.buffer = at->second;
    }

    // Room for the largest payload that a device sends at once: staged copies leave from here. What
    // goes by peer memory has slices of its own, and signals; a card's library reads what it sums
    // in place.
    void exchange() {
        const size_t n = plan_.machine.devices.size();
        std::vector<int64_t> largest(n, 0), slice(n, 0), arrivals(n, 0);
        std::vector<bool> signals(n, false);
        for (const Phase* phase : {&plan_.prefill, &plan_.decode})
            for (const Step& step : phase->steps) {
                const Collective* c = step.collective();
                if (c && c->path == Path::kVendor &&
                    is_card(plan_.machine.device(c->group.front()).kind)) {
                    if (c->op == CollectiveOp::kAllGather) gathered(*phase, *c, largest);
                    continue;
                }
                arrive(*phase, step, arrivals);
                const bool by_peers = goes_by_peers(step);
                const bool is_prefill = phase == &plan_.prefill;
                const PeerCut cut =
                    by_peers ? peer_cut(plan_, *phase, is_prefill, step) : PeerCut{};
                for (PlacedId id : sent_values(step)) {
                    const PlacedValue& p = phase->values[id.index()];
                    int64_t& most = (by_peers ? slice : largest)[p.device.index()];
                    most = std::max(
                        most, by_peers ? cut.slice(peer_payload(plan_, *phase, is_prefill, id))
                                       : size_of(p));
                }
                if (!by_peers) continue;
                for (DeviceId d : step_devices(*phase, step)) signals[d.index()] = true;
            }
        for (size_t d = 0; d < n; ++d) {
            auto append_if = [&](BufferRole role, int64_t bytes) {
                if (bytes > 0) append(DeviceId(d), role, bytes);
            };
            append_if(BufferRole::kExchange, largest[d]);
            append_if(BufferRole::kPeerPayloads,
                      slice[d] * peer_channels(plan_.machine, DeviceId(d)));
            append_if(BufferRole::kPeerSignals, signals[d] ? peer_signal_bytes(plan_.machine) : 0);
            append_if(BufferRole::kArrivals, arrivals[d]);
        }
    }

    // Payloads of other hosts come to each receiver apart, all of a step at once.
    void arrive(const Phase& phase, const Step& step, std::vector<int64_t>& arrivals) const {
        std::vector<DeviceId> receivers;
        if (const Transfer* t = step.transfer())
            receivers = {phase.values[t->destination.index()].device};
        if (const Collective* c = step.collective(); c && c->path != Path::kVendor)
            receivers = c->group;
        for (DeviceId to : receivers) {
            int64_t bytes = 0;
            for (PlacedId id : sent_values(step)) {
                const PlacedValue& p = phase.values[id.index()];
                if (plan_.machine.device(p.device).host != plan_.machine.device(to).host)
                    bytes += size_of(p);
            }
            arrivals[to.index()] = std::max(arrivals[to.index()], bytes);
        }
    }

    // What a card's library brings of several rows lies there until it is put side by side.
    void gathered(const Phase& phase, const Collective& c, std::vector<int64_t>& largest) const {
        const Value& value = plan_.graph.value(phase.values[c.contributions.front().index()].value);
        if (rows_of(value) == Rows::kOutputs && plan_.workload.max_outputs() == 1) return;
        for (DeviceId member : c.group) {
            int64_t bytes = 0;
            for (PlacedId id : c.contributions)
                if (phase.values[id.index()].device != member)
                    bytes += size_of(phase.values[id.index()]);
            largest[member.index()] = std::max(largest[member.index()], bytes);
        }
    }

    // By which the output device says which logits are largest.
    void tokens() {
        const std::vector<PlacedId>& outputs = plan_.decode.outputs;
        if (!plan_.machine.device(plan_.output_device).limits.has_warps() || outputs.size() != 1)
            return;
        const PlacedValue& logits = plan_.decode.values[outputs[0].index()];
        if (plan_.graph.value(logits.value).kind == ValueKind::kLogits)
            append(plan_.output_device, BufferRole::kChosenTokens,
                   plan_.workload.max_outputs() * 4);
    }

    void account() {
        // Scratch: one area per device, as large as its hungriest launch asks for.
        std::vector<int64_t> scratch(plan_.machine.devices.size(), 0), threads;
        for (size_t d = 0; d < scratch.size(); ++d)
            threads.push_back(host_threads(plan_, DeviceId(d)));
        auto each_compute = [&](auto&& visit) {
            for (Phase* phase : {&plan_.prefill, &plan_.decode})
                for (Step& step : phase->steps)
                    if (auto* c = std::get_if<Compute>(&step.action)) visit(*phase, *c);
        };
        auto scratch_of = [&](const Phase& phase, const Compute& c) {
            return align_up(c.tile.shared_bytes) *
                       threads[c.device.index()] +  // a GPU's shared memory is not in an arena
                   align_up(scratch_bytes(plan_, phase, c));
        };
        std::vector<int64_t> wanted;  // by compute
        each_compute([&](const Phase& phase, Compute& c) {
            wanted.push_back(scratch_of(phase, c));
            scratch[c.device.index()] = std::max(scratch[c.device.index()], wanted.back());
        });
        std::vector<BufferId> area(scratch.size());
        for (size_t d = 0; d < scratch.size(); ++d)
            if (scratch[d] > 0) area[d] = append(DeviceId(d), BufferRole::kScratch, scratch[d]);
        auto next = wanted.begin();
        each_compute([&](const Phase&, Compute& c) {
            c.scratch = *next++ > 0 ? area[c.device.index()] : BufferId();
        });
        const std::vector<int64_t> collectives = library_bytes(plan_);
        for (size_t d = 0; d < plan_.machine.devices.size(); ++d) {
            const DeviceInfo& device = plan_.machine.devices[d];
            const auto& end = next_[d];
            DeviceMemory m;
            m.device = DeviceId(d);
            m.capacity = device.memory_bytes;
            m.reserved = device.reserved_bytes;
            m.weights = end[static_cast<size_t>(Arena::kWeights)];
            m.kv = end[static_cast<size_t>(Arena::kKv)];
            m.staging = end[static_cast<size_t>(Arena::kStaging)];
            m.scratch = end[static_cast<size_t>(Arena::kScratch)];
            m.activations = arenas_[d].peak();
            m.collectives = collectives[d];
            plan_.memory.push_back(m);
        }
    }

    Plan& plan_;
    std::vector<LivenessArena> arenas_;
    std::vector<std::array<int64_t, 5>> next_;  // end of each arena, by device
    std::vector<BufferId> token_ids_;
    std::map<std::tuple<DeviceId, int64_t, int64_t>, BufferId> places_;
};

}  // namespace

int64_t batch_bytes(const Workload& workload) {
    int64_t bytes = 0;
    for (const BatchBuffer& array : batch_buffers(workload)) bytes += align_up(array.bytes());
    return bytes + align_up(block_table(workload).bytes());
}

void assign_memory(Plan& plan) { Assigner(plan).run(); }

}  // namespace cleave::planner
