// SPDX-License-Identifier: Apache-2.0
#include "runtime/arenas.h"

#include <algorithm>
#include <cstring>

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
    throw InternalError(fmt::format("the plan has no memory account of {}", plan.machine.device(device).name));
}

}  // namespace

BatchLayout batch_layout(const Workload& workload, bool is_prefill) {
    int64_t tokens = is_prefill ? workload.max_tokens() : workload.batch;
    int64_t outputs = is_prefill ? workload.max_outputs() : workload.batch;
    BatchLayout layout;
    int64_t at = 0;
    auto place = [&](int64_t count) {
        int64_t offset = at;
        at += count * static_cast<int64_t>(sizeof(int32_t));
        return offset;
    };
    layout.token_ids = place(tokens);
    layout.positions = place(tokens);
    layout.slots = place(tokens);
    layout.sequence_starts = place(workload.batch + 1);
    layout.output_rows = place(outputs);
    layout.bytes = at;
    return layout;
}

std::vector<std::byte> pack_batch(const Batch& batch, const BatchLayout& layout) {
    std::vector<std::byte> bytes(static_cast<size_t>(layout.bytes));
    auto put = [&](int64_t offset, const std::vector<int32_t>& values) {
        if (!values.empty()) std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(int32_t));
    };
    put(layout.token_ids, batch.token_ids);
    put(layout.positions, batch.positions);
    put(layout.slots, batch.slots);
    put(layout.sequence_starts, batch.sequence_starts);
    put(layout.output_rows, batch.output_rows);
    return bytes;
}

Arenas::Arenas(const Plan& plan, std::span<const std::unique_ptr<Device>> devices)
    : plan_(plan), base_(devices.size()), batch_(devices.size(), 0) {
    std::vector<std::array<int64_t, kNumArenas>> used(devices.size(), {0, 0, 0, 0, 0});
    for (const Buffer& buffer : plan.buffers) {
        int64_t& end = used[buffer.device.index()][static_cast<size_t>(buffer.arena)];
        end = std::max(end, buffer.offset + buffer.size);
    }
    for (size_t d = 0; d < devices.size(); ++d) {
        const DeviceMemory& memory = memory_of(plan, DeviceId(d));
        for (size_t a = 0; a < kNumArenas; ++a) {
            Arena arena = static_cast<Arena>(a);
            int64_t bytes = account(memory, arena);
            CHECK(used[d][a] <= bytes) << "the " << arena_name(arena) << " arena of " << devices[d]->info().name
                                       << " needs " << used[d][a] << " bytes; the plan counts " << bytes;
            base_[d][a] = bytes == 0 ? 0 : devices[d]->allocate(bytes, fmt::format("{} arena", arena_name(arena)));
        }
    }
    for (const Buffer& buffer : plan.buffers) {
        if (buffer.arena == Arena::kStaging && buffer.name == "batch") {
            int64_t needed = std::max(batch_layout(plan.workload, true).bytes, batch_layout(plan.workload, false).bytes);
            CHECK(buffer.size >= needed) << "the batch buffer has " << buffer.size << " of " << needed << " bytes";
            size_t d = buffer.device.index();
            batch_[d] = base_[d][static_cast<size_t>(buffer.arena)] + static_cast<DeviceAddress>(buffer.offset);
        }
    }
    for (size_t d = 0; d < devices.size(); ++d) {
        CHECK(batch_[d] != 0) << "the plan has no staging buffer 'batch' on " << devices[d]->info().name;
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
    view.dtype = value.kind == importer::ValueKind::kLogits ? DType::kF32 : plan_.workload.activation_dtype;
    view.per_output = !value.shape.empty() && value.shape.front().symbol == "num_outputs";
    if (value.kind == importer::ValueKind::kTokenIds) {
        view.dtype = DType::kInt32;
        view.columns = {0, 1};
        view.address = batch_address(placed.device);
        return view;
    }
    if (!placed.buffer.valid() || placed.box.empty()) return view;
    view.columns = placed.box.back();
    if (view.columns.end == kWhole) view.columns.end = value.shape.back().value;
    view.address = address(placed.buffer);
    return view;
}

}  // namespace cleave::runtime
