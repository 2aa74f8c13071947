// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/residency.h"

#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

using namespace planner;

class Replay {
public:
    Replay(const Plan& plan, bool is_prefill)
        : plan_(plan),
          phase_(plan.phase(is_prefill)),
          is_prefill_(is_prefill),
          present_(phase_.values.size(), false) {
        for (PlacedId id : phase_.inputs) present_[checked(id)] = true;
    }

    void run() {
        for (size_t i = 0; i < phase_.steps.size(); ++i) {
            step_ = StepId(i);
            std::visit([&](const auto& action) { visit(action); }, phase_.steps[i].action);
        }
        for (PlacedId id : phase_.outputs) read(id, plan_.output_device);
    }

private:
    void visit(const Compute& step) {
        for (PlacedId id : step.inputs) read(id, step.device);
        for (WeightShardId id : step.weights)
            owned("weight", plan_.weights[id.index()].device, step.device);
        for (RopeShardId id : step.rope_tables) {
            owned("rotary table", plan_.rope_tables[id.index()].device, step.device);
        }
        if (step.kv.valid()) owned("cache", plan_.kv_slabs[step.kv.index()].device, step.device);
        if (step.scratch.valid()) owned("scratch", plan_.buffer(step.scratch).device, step.device);
        for (PlacedId id : step.outputs) write(id, step.device);
    }

    void visit(const Transfer& step) {
        read(step.source, value(step.source).device);
        write(step.destination, value(step.destination).device);
    }

    void visit(const Collective& step) {
        if (!step.weights.empty() && step.weights.size() != step.group.size())
            fail("has not one norm's weight for each member");
        // With a norm, its result on each member follows the sums.
        const size_t results = step.weights.empty() ? 1 : 2;
        if (step.outputs.size() != results * step.group.size()) {
            fail(results == 1 ? "has not one output for each member"
                              : "has not a sum and a normalised sum for each member");
        }
        if (!step.epilogue_inputs.empty() && step.epilogue_inputs.size() != step.group.size()) {
            fail("has not one epilogue input for each member");
        }
        for (PlacedId id : step.contributions) read(id, value(id).device);
        for (size_t i = 0; i < step.group.size(); ++i) {
            if (!step.epilogue_inputs.empty()) read(step.epilogue_inputs[i], step.group[i]);
            write(step.outputs[i], step.group[i]);
            if (step.weights.empty()) continue;
            owned("weight", plan_.weights[step.weights[i].index()].device, step.group[i]);
            write(step.outputs[step.group.size() + i], step.group[i]);
        }
    }

    size_t checked(PlacedId id) {
        if (!id.valid() || id.index() >= phase_.values.size())
            fail(fmt::format("names value {}, which is none", id));
        return id.index();
    }
    const PlacedValue& value(PlacedId id) { return phase_.values[checked(id)]; }

    void read(PlacedId id, DeviceId reader) {
        const PlacedValue& placed = value(id);
        const std::string& name = value_name(id);
        if (placed.device != reader) {
            fail(fmt::format("on {} reads '{}' in the memory of {}", device(reader), name,
                             device(placed.device)));
        }
        if (!present_[id.index()]) {
            fail(fmt::format("on {} reads '{}', which no earlier step computed there or sent there",
                             device(reader), name));
        }
    }

    void write(PlacedId id, DeviceId writer) {
        const PlacedValue& placed = value(id);
        if (placed.device != writer) {
            fail(fmt::format("on {} writes '{}' in the memory of {}", device(writer),
                             value_name(id), device(placed.device)));
        }
        if (placed.buffer.valid()) owned("buffer", plan_.buffer(placed.buffer).device, writer);
        present_[id.index()] = true;
    }

    void owned(const char* what, DeviceId owner, DeviceId user) {
        if (owner != user)
            fail(fmt::format("on {} uses a {} of {}", device(user), what, device(owner)));
    }

    const std::string& device(DeviceId id) const { return plan_.machine.device(id).name; }
    const std::string& value_name(PlacedId id) const {
        return plan_.graph.value(phase_.values[id.index()].value).name;
    }

    [[noreturn]] void fail(const std::string& message) const {
        std::string where = step_.valid() ? step_label(plan_, is_prefill_, step_) : "the plan";
        throw UserError("{} {}; the plan is broken: make it anew with $save_plan", where, message);
    }

    const Plan& plan_;
    const Phase& phase_;
    bool is_prefill_;
    std::vector<bool> present_;
    StepId step_;
};

}  // namespace

void check_presence(const Plan& plan) {
    Replay(plan, true).run();
    Replay(plan, false).run();
}

}  // namespace cleave::runtime
