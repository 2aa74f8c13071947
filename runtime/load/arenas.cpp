// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/arenas.h"

#include <algorithm>

#include "planner/cost/peer_exchange.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

using namespace planner;

namespace {

int64_t account(const DeviceMemory& memory, Arena arena) {
    switch (arena) {
        case Arena::kWeights: return memory.weights;
        case Arena::kKv: return memory.kv;
        case Arena::kActivations: return memory.activations;
        case Arena::kStaging: return memory.staging;
        case Arena::kScratch: return memory.scratch;
    }
    return 0;
}

const DeviceMemory& memory_of(const Plan& plan, DeviceId device) {
    for (const DeviceMemory& memory : plan.memory) {
        if (memory.device == device) return memory;
    }
    throw InternalError(
        fmt::format("the plan has no memory account of {}", plan.machine.device(device).name));
}

}  // namespace

DeviceAddress& BatchAddresses::of(BufferRole role) {
    switch (role) {
        case BufferRole::kTokenIds: return token_ids;
        case BufferRole::kPositions: return positions;
        case BufferRole::kSlots: return slots;
        case BufferRole::kSequenceStarts: return sequence_starts;
        case BufferRole::kOutputRows: return output_rows;
        case BufferRole::kBlockTable: return blocks;
        default: break;
    }
    throw InternalError(fmt::format("'{}' is no array of a batch", buffer_role_name(role)));
}

Arenas::Arenas(const Plan& plan, std::span<const std::unique_ptr<Device>> devices)
    : plan_(plan),
      base_(devices.size()),
      placed_(plan.buffers.size(), 0),
      batch_(devices.size()),
      exchange_(devices.size()),
      arrivals_(devices.size()),
      peers_(devices.size()) {
    allocate(devices);
    find_staging(devices);
}

void Arenas::allocate(std::span<const std::unique_ptr<Device>> devices) {
    std::vector<std::array<int64_t, kNumArenas>> used(devices.size(), {0, 0, 0, 0, 0});
    for (const Buffer& buffer : plan_.buffers) {
        int64_t& end = used[buffer.device.index()][static_cast<size_t>(buffer.arena())];
        end = std::max(end, buffer.offset + buffer.size);
    }
    for (size_t d = 0; d < devices.size(); ++d) {
        if (!devices[d]) continue;  // another rank's
        const DeviceMemory& memory = memory_of(plan_, DeviceId(d));
        const bool has_peers = find_buffer(plan_, DeviceId(d), BufferRole::kPeerSignals).valid();
        for (size_t a = 0; a < kNumArenas; ++a) {
            Arena arena = static_cast<Arena>(a);
            int64_t bytes = account(memory, arena);
            CLEAVE_CHECK(used[d][a] <= bytes)
                << "the " << arena_name(arena) << " arena of " << devices[d]->info().name
                << " needs " << used[d][a] << " bytes; the plan counts " << bytes;
            const std::string what = fmt::format("the {} arena", arena_name(arena));
            // Peers signal in a device's staging memory while its kernels run.
            if (bytes > 0)
                base_[d][a] = arena == Arena::kStaging && has_peers
                                  ? devices[d]->allocate_exchange(bytes, what)
                                  : devices[d]->allocate(bytes, what);
            // Kernels of GPUs count arrivals in scratch and leave their counters zero.
            if (arena == Arena::kScratch && bytes > 0 &&
                devices[d]->info().kind != DeviceKind::kHost)
                devices[d]->fill(base_[d][a], bytes, 0);
        }
    }
}

void Arenas::find_staging(std::span<const std::unique_ptr<Device>> devices) {
    for (size_t d = 0; d < devices.size(); ++d) {
        if (!devices[d]) continue;
        const DeviceId device(d);
        const auto place = [&](const planner::BatchBuffer& array) {
            DeviceAddress& where = batch_[d].of(array.role);
            where = find(device, array.role, array.bytes());
            CLEAVE_CHECK(where != 0)
                << "the plan has no staging buffer '" << buffer_role_name(array.role) << "' on "
                << devices[d]->info().name;
        };
        for (const planner::BatchBuffer& array : batch_buffers(plan_.workload)) place(array);
        if (has_kv(plan_, device)) place(block_table(plan_.workload));
        if (const BufferId id = find_buffer(plan_, device, BufferRole::kExchange); id.valid())
            exchange_[d] = {address(id), plan_.buffer(id).size};
        if (const BufferId id = find_buffer(plan_, device, BufferRole::kArrivals); id.valid())
            arrivals_[d] = {address(id), plan_.buffer(id).size};
        peers_[d].payloads = find(device, BufferRole::kPeerPayloads, 0);
        const int64_t signal_bytes = peer_signal_bytes(plan_.machine);
        peers_[d].signals = find(device, BufferRole::kPeerSignals, signal_bytes);
        if (peers_[d].signals == 0) continue;
        // Zero before any peer can signal.
        devices[d]->fill(peers_[d].signals, signal_bytes, 0);
        devices[d]->synchronize();
    }
    tokens_ = find(plan_.output_device, BufferRole::kChosenTokens,
                   plan_.workload.max_outputs() * int64_t{sizeof(int32_t)});
}

DeviceAddress Arenas::find(DeviceId device, BufferRole role, int64_t bytes) const {
    const BufferId id = find_buffer(plan_, device, role);
    if (!id.valid()) return 0;
    CLEAVE_CHECK(plan_.buffer(id).size >= bytes)
        << buffer_role_name(role) << " on " << plan_.machine.device(device).name << " has "
        << plan_.buffer(id).size << " bytes of " << bytes;
    return address(id);
}

void Arenas::place(BufferId buffer, const std::byte* where) {
    placed_[buffer.index()] = reinterpret_cast<DeviceAddress>(where);
}

DeviceAddress Arenas::address(BufferId id) const {
    if (const DeviceAddress elsewhere = placed_[id.index()]) return elsewhere;
    const Buffer& buffer = plan_.buffer(id);
    return base_[buffer.device.index()][static_cast<size_t>(buffer.arena())] +
           static_cast<DeviceAddress>(buffer.offset);
}

PlacedView Arenas::view(const Phase& phase, PlacedId id) const {
    const PlacedValue& placed = phase.values[id.index()];
    const importer::Value& value = plan_.graph.value(placed.value);
    PlacedView view;
    view.dtype = placed_dtype(value, plan_.workload);
    view.per_output = rows_of(value) == Rows::kOutputs;
    if (value.kind == importer::ValueKind::kTokenIds) {
        view.columns = {0, 1};
        view.address = batch(placed.device).token_ids;
        return view;
    }
    if (value.kind == importer::ValueKind::kTensor) {
        view.whole = true;
        view.columns = {0, 1};
        for (const importer::Dim& d : value.shape) {
            CLEAVE_CHECK(d.is_static()) << value.name << " has a dimension '" << d.symbol << "'";
            view.columns.end *= d.value;
        }
        if (placed.buffer.valid()) view.address = address(placed.buffer);
        return view;
    }
    if (!placed.buffer.valid() || placed.box.empty()) return view;
    view.columns = placed.box.back();
    if (view.columns.end == kWhole) view.columns.end = value.shape.back().value;
    view.address = address(placed.buffer);
    return view;
}

}  // namespace cleave::runtime
