// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/arenas.h"

#include <algorithm>

#include "planner/build/assign_memory.h"
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

Arenas::Arenas(const Plan& plan, std::span<const std::unique_ptr<Device>> devices)
    : plan_(plan),
      base_(devices.size()),
      batch_(devices.size()),
      exchange_(devices.size()),
      peers_(devices.size()) {
    allocate(devices);
    find_staging(devices);
}

void Arenas::allocate(std::span<const std::unique_ptr<Device>> devices) {
    std::vector<std::array<int64_t, kNumArenas>> used(devices.size(), {0, 0, 0, 0, 0});
    std::vector<bool> has_peers(devices.size(), false);
    for (const Buffer& buffer : plan_.buffers) {
        int64_t& end = used[buffer.device.index()][static_cast<size_t>(buffer.arena)];
        end = std::max(end, buffer.offset + buffer.size);
        if (buffer.name == "staging.signals") has_peers[buffer.device.index()] = true;
    }
    for (size_t d = 0; d < devices.size(); ++d) {
        const DeviceMemory& memory = memory_of(plan_, DeviceId(d));
        for (size_t a = 0; a < kNumArenas; ++a) {
            Arena arena = static_cast<Arena>(a);
            int64_t bytes = account(memory, arena);
            CHECK(used[d][a] <= bytes)
                << "the " << arena_name(arena) << " arena of " << devices[d]->info().name
                << " needs " << used[d][a] << " bytes; the plan counts " << bytes;
            const std::string what = fmt::format("the {} arena", arena_name(arena));
            // Peers signal in a device's staging memory while its kernels run.
            if (bytes > 0)
                base_[d][a] = arena == Arena::kStaging && has_peers[d]
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
    const Workload& workload = plan_.workload;
    struct Field {
        const char* name;
        DeviceAddress BatchAddresses::* where;
        int64_t count;
    };
    const Field fields[] = {
        {"batch.token_ids", &BatchAddresses::token_ids, workload.max_tokens()},
        {"batch.positions", &BatchAddresses::positions, workload.max_tokens()},
        {"batch.slots", &BatchAddresses::slots, workload.max_tokens()},
        {"batch.sequence_starts", &BatchAddresses::sequence_starts, workload.batch + 1},
        {"batch.output_rows", &BatchAddresses::output_rows, workload.max_outputs()}};
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
        const Buffer& buffer = plan_.buffers[i];
        if (buffer.arena != Arena::kStaging) continue;
        size_t d = buffer.device.index();
        if (buffer.name == "staging.exchange") exchange_[d] = {address(BufferId(i)), buffer.size};
        if (buffer.name == "staging.peers") peers_[d].area = address(BufferId(i));
        if (buffer.name == "staging.signals") {
            // Zero before any peer can signal.
            peers_[d].signals = address(BufferId(i));
            devices[d]->fill(peers_[d].signals, buffer.size, 0);
            devices[d]->synchronize();
        }
        for (const Field& field : fields) {
            if (buffer.name != field.name) continue;
            CHECK(buffer.size >= field.count * static_cast<int64_t>(sizeof(int32_t)))
                << buffer.name << " has " << buffer.size << " bytes for " << field.count
                << " numbers";
            batch_[d].*field.where = address(BufferId(i));
        }
    }
    if (const BufferId tokens = tokens_buffer(plan_); tokens.valid()) {
        CHECK(plan_.buffer(tokens).size >= workload.max_outputs() * int64_t{sizeof(int32_t)})
            << "no room for the tokens of " << workload.max_outputs() << " outputs";
        tokens_ = address(tokens);
    }
    for (size_t d = 0; d < batch_.size(); ++d) {
        for (const Field& field : fields) {
            CHECK(batch_[d].*field.where != 0) << "the plan has no staging buffer '" << field.name
                                               << "' on " << plan_.machine.devices[d].name;
        }
    }
}

DeviceAddress Arenas::address(BufferId id) const {
    const Buffer& buffer = plan_.buffer(id);
    return base_[buffer.device.index()][static_cast<size_t>(buffer.arena)] +
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
            CHECK(d.is_static()) << value.name << " has a dimension '" << d.symbol << "'";
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
