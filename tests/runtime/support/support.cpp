// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/support/support.h"

#include <utility>

#include "planner/plan/plan_queries.h"
#include "runtime/base/rounding.h"
#include "runtime/load/residency.h"

namespace cleave::runtime::test {

using codegen::Arg;
using codegen::ArgKind;
using codegen::BatchField;
using codegen::HostEntry;
using importer::Dim;
using importer::ValueKind;
using planner::Arena;
using planner::BufferId;
using planner::BufferRole;
using planner::DeviceId;
using planner::kWhole;
using planner::OpId;
using planner::PlacedId;
using planner::Range;
using planner::StepId;
using planner::ValueId;

planner::DeviceInfo host_info(int index, int64_t memory) {
    planner::DeviceInfo device;
    device.name = "host[" + std::to_string(index) + "]";
    device.kind = planner::DeviceKind::kHost;
    device.index = index;
    device.memory_bytes = memory;
    return device;
}

KernelLoader fixed_kernels(const std::vector<HostEntry>& entries) {
    class Fixed : public codegen::LoadedKernels {
    public:
        explicit Fixed(std::vector<HostEntry> entries) : entries_(std::move(entries)) {}
        HostEntry entry(size_t i) const override { return entries_.at(i); }

    private:
        std::vector<HostEntry> entries_;
    };
    return [entries](const auto&) { return std::make_unique<Fixed>(entries); };
}

namespace {

enum ValueIndex { kIds, kX, kP, kY, kLogits };

// args: token ids, x. One item a token.
void embedding(const uint64_t* args, int64_t begin, int64_t end, void*) {
    const auto* ids = reinterpret_cast<const int32_t*>(args[0]);
    auto* x = reinterpret_cast<float*>(args[1]);
    for (int64_t t = begin; t < end; ++t) {
        for (int64_t c = 0; c < TinyPlan::kColumns; ++c) {
            x[t * TinyPlan::kColumns + c] =
                static_cast<float>(ids[t]) + 0.25f * static_cast<float>(c);
        }
    }
}

// args: x, p, factor. One item a token.
void scale(const uint64_t* args, int64_t begin, int64_t end, void*) {
    const auto* x = reinterpret_cast<const float*>(args[0]);
    auto* p = reinterpret_cast<float*>(args[1]);
    for (int64_t i = begin * TinyPlan::kColumns; i < end * TinyPlan::kColumns; ++i) {
        p[i] = static_cast<float>(args[2]) * x[i];
    }
}

// args: y, output rows, logits of two columns, first column. One item an output row.
void select(const uint64_t* args, int64_t begin, int64_t end, void*) {
    const auto* y = reinterpret_cast<const float*>(args[0]);
    const auto* rows = reinterpret_cast<const int32_t*>(args[1]);
    auto* logits = reinterpret_cast<float*>(args[2]);
    for (int64_t i = begin; i < end; ++i) {
        for (int64_t c = 0; c < 2; ++c) {
            logits[i * 2 + c] = y[rows[i] * TinyPlan::kColumns + static_cast<int64_t>(args[3]) + c];
        }
    }
}

// Builds the plan and the programs side by side.
class Builder {
public:
    explicit Builder(TinyPlan& tiny) : tiny_(tiny), plan_(tiny.plan), ends_(2, {0, 0, 0, 0, 0}) {
        graph();
        for (int d : {0, 1}) {
            plan_.machine.devices.push_back(host_info(d));
            tiny_.programs.push_back(program(d));
        }
        plan_.workload.batch = 2;
        plan_.workload.context = 16;
        plan_.workload.prefill_chunk = 8;
        plan_.output_device = DeviceId(1);
        for (int d : {0, 1}) {
            for (const planner::BatchBuffer& array : planner::batch_buffers(plan_.workload))
                buffer(d, array.role, 64);
            buffer(d, BufferRole::kExchange, 256);
        }
        phase(plan_.prefill, true);
        phase(plan_.decode, false);
        for (size_t d : {0u, 1u}) {
            planner::DeviceMemory memory;
            memory.device = DeviceId(d);
            memory.capacity = plan_.machine.devices[d].memory_bytes;
            memory.activations = ends_[d][static_cast<size_t>(Arena::kActivations)];
            memory.staging = ends_[d][static_cast<size_t>(Arena::kStaging)];
            plan_.memory.push_back(memory);
        }
    }

private:
    void graph() {
        plan_.graph.config.vocab_size = TinyPlan::kColumns;
        auto value = [&](const char* name, ValueKind kind, std::vector<Dim> shape) {
            plan_.graph.values.push_back({name, kind, std::move(shape), DType::kF32});
        };
        Dim tokens("num_tokens"), outputs("num_outputs"), columns(TinyPlan::kColumns);
        value("token_ids", ValueKind::kTokenIds, {tokens});
        value("x", ValueKind::kActivation, {tokens, columns});
        value("p", ValueKind::kActivation, {tokens, columns});
        value("y", ValueKind::kActivation, {tokens, columns});
        value("logits", ValueKind::kLogits, {outputs, columns});
        importer::Op add;
        add.kind = importer::OpKind::kAdd;
        add.name = "add";
        add.attrs = importer::AddAttrs{};
        plan_.graph.ops.push_back(add);
    }

    static codegen::Program program(int device) {
        codegen::Program program;
        program.device = DeviceId(device);
        program.kernels.resize(3);
        program.kernels[0].launch.grid[0] = {0, 1, 0, 0, 1};
        program.kernels[1].launch.grid[0] = {0, 1, 0, 0, 1};
        program.kernels[2].launch.grid[0] = {0, 0, 1, 0, 1};
        return program;
    }

    BufferId buffer(int device, BufferRole role, int64_t size) {
        int64_t& end = ends_[static_cast<size_t>(device)][static_cast<size_t>(arena_of(role))];
        plan_.buffers.push_back({DeviceId(device), role, end, size});
        end += round_up(size, 256);
        return BufferId(plan_.buffers.size() - 1);
    }

    PlacedId place(planner::Phase& phase, ValueIndex value, int device, Range columns,
                   bool partial = false) {
        planner::PlacedValue placed;
        placed.value = ValueId(static_cast<int>(value));
        placed.device = DeviceId(device);
        placed.box = value == kIds ? planner::Box{{0, kWhole}} : planner::Box{{0, kWhole}, columns};
        placed.partial = partial;
        if (value != kIds)
            placed.buffer = buffer(device, BufferRole::kActivations, 8 * columns.size() * 4);
        phase.values.push_back(placed);
        return PlacedId(phase.values.size() - 1);
    }

    void compute(planner::Phase& phase, bool is_prefill, int device, int kernel, PlacedId in,
                 PlacedId out, std::vector<Arg> args) {
        planner::Compute step;
        step.device = DeviceId(device);
        step.inputs = {in};
        step.outputs = {out};
        codegen::Program& program = tiny_.programs[static_cast<size_t>(device)];
        (is_prefill ? program.prefill : program.decode)
            .push_back({StepId(phase.steps.size()), kernel, std::move(args)});
        phase.steps.push_back({step});
    }

    static Arg value(PlacedId id) { return {.kind = ArgKind::kValue, .id = id.value}; }
    static Arg batch(BatchField field) { return {.kind = ArgKind::kBatch, .field = field}; }
    static Arg number(int64_t n) { return {.kind = ArgKind::kImmediate, .immediate = n}; }

    void phase(planner::Phase& phase, bool prefill) {
        Range all{0, TinyPlan::kColumns};
        PlacedId ids = place(phase, kIds, 0, {});
        phase.inputs = {ids};
        PlacedId x0 = place(phase, kX, 0, all), x1 = place(phase, kX, 1, all);
        PlacedId p0 = place(phase, kP, 0, all, true), p1 = place(phase, kP, 1, all, true);
        PlacedId y0 = place(phase, kY, 0, all), y1 = place(phase, kY, 1, all);
        PlacedId l0 = place(phase, kLogits, 0, {0, 2}), l1 = place(phase, kLogits, 1, {2, 4});
        PlacedId logits = place(phase, kLogits, 1, all);
        compute(phase, prefill, 0, 0, ids, x0, {batch(BatchField::kTokenIds), value(x0)});
        phase.steps.push_back({planner::Transfer{x0, x1}});
        compute(phase, prefill, 0, 1, x0, p0, {value(x0), value(p0), number(1)});
        compute(phase, prefill, 1, 1, x1, p1, {value(x1), value(p1), number(2)});
        planner::Collective sum;
        sum.group = {DeviceId(0), DeviceId(1)};
        sum.contributions = {p0, p1};
        sum.epilogue = {OpId(0)};
        sum.epilogue_inputs = {x0, x1};
        sum.outputs = {y0, y1};
        phase.steps.push_back({sum});
        compute(phase, prefill, 0, 2, y0, l0,
                {value(y0), batch(BatchField::kOutputRows), value(l0), number(0)});
        compute(phase, prefill, 1, 2, y1, l1,
                {value(y1), batch(BatchField::kOutputRows), value(l1), number(2)});
        planner::Collective gather;
        gather.op = planner::CollectiveOp::kAllGather;
        gather.group = {DeviceId(1)};
        gather.contributions = {l0, l1};
        gather.outputs = {logits};
        phase.steps.push_back({gather});
        phase.outputs = {logits};
    }

    TinyPlan& tiny_;
    planner::Plan& plan_;
    std::vector<std::array<int64_t, 5>> ends_;  // of each arena, by device
};

}  // namespace

TinyPlan::TinyPlan() { Builder{*this}; }

std::vector<HostEntry> TinyPlan::kernels() { return {embedding, scale, select}; }

TinySession::TinySession(const TinyPlan& tiny, const ExecutorOptions& options, bool poison,
                         const std::vector<HostEntry>& kernels) {
    check_presence(tiny.plan);
    for (const planner::DeviceInfo& info : tiny.plan.machine.devices) {
        devices.push_back(make_host_device(info, {1, poison, false}, fixed_kernels(kernels)));
        devices.back()->load(std::vector<codegen::CompiledKernel>(kernels.size()));
    }
    arenas = std::make_unique<Arenas>(tiny.plan, devices);
    executor = std::make_unique<Executor>(tiny.plan, tiny.programs, devices, *arenas, options);
}

std::vector<std::vector<float>> TinySession::run(std::span<const Batch> passes) {
    std::vector<std::vector<float>> logits;
    for (PassResult& result : executor->run(passes, PassResults::kLogits))
        logits.push_back(std::move(result.logits));
    return logits;
}

std::vector<std::vector<int32_t>> TinySession::run_greedy(std::span<const Batch> passes) {
    std::vector<std::vector<int32_t>> tokens;
    for (PassResult& result : executor->run(passes, PassResults::kTokens))
        tokens.push_back(std::move(result.tokens));
    return tokens;
}

Batch tiny_batch(std::vector<int32_t> tokens) {
    Batch batch;
    batch.token_ids = std::move(tokens);
    for (size_t i = 0; i < batch.token_ids.size(); ++i) {
        batch.positions.push_back(static_cast<int32_t>(i));
        batch.slots.push_back(0);
    }
    batch.sequence_starts = {0, static_cast<int32_t>(batch.token_ids.size())};
    batch.output_rows = {static_cast<int32_t>(batch.token_ids.size()) - 1};
    return batch;
}

}  // namespace cleave::runtime::test
