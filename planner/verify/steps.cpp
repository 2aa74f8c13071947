// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/verify/walk.h"

namespace cleave::planner::verify {

PhaseWalk::PhaseWalk(const Plan& plan, bool is_prefill, Report& report)
    : plan_(plan), phase_(plan.phase(is_prefill)), is_prefill_(is_prefill), report_(report) {
    const size_t n = phase_.values.size();
    written_.resize(n);
    content_.resize(n);
    reductions_.resize(n);
    trace_.lifetimes.resize(n);
    trace_.appended.resize(plan.kv_slabs.size());
    trace_.weights_used.resize(plan.weights.size());
    trace_.ropes_used.resize(plan.rope_tables.size());
}

std::string PhaseWalk::where() const {
    const char* phase = is_prefill_ ? "prefill" : "decode";
    if (step_ >= phase_.steps.size()) return phase;
    const Step& step = phase_.steps[step_];
    if (const Compute* c = step.compute())
        return fmt::format("{} step {} ({}{} on {})", phase, step_,
                           c->ops.empty() ? "" : graph().op(c->ops.front()).name + ", ",
                           kernel_kind_name(c->kernel), device_name(c->device));
    if (const Transfer* t = step.transfer())
        return fmt::format("{} step {} (transfer of {} from {} to {})", phase, step_,
                           value_name(placed(t->source).value),
                           device_name(placed(t->source).device),
                           device_name(placed(t->destination).device));
    return fmt::format("{} step {} ({})", phase, step_, collective_op_name(step.collective()->op));
}

Known PhaseWalk::read_summand(PlacedId id) {
    const PlacedValue& p = placed(id);
    if (!written_[id.index()].covers(columns_of(p)))
        fail("operand-not-ready", "{} is not on {} yet", value_name(p.value),
             device_name(p.device));
    Lifetime& life = trace_.lifetimes[id.index()];
    life.last_read = static_cast<int64_t>(step_);
    Known known = content_[id.index()];
    if (!known.source.valid()) known.complete = !p.partial;
    known.columns = columns_of(p);
    return known;
}

Known PhaseWalk::read(PlacedId id, DeviceId device) {
    const PlacedValue& p = placed(id);
    if (p.device != device)
        fail("operand-device", "{} lies on {} and is needed on {}", value_name(p.value),
             device_name(p.device), device_name(device));
    Known known = read_summand(id);
    if (p.partial) {
        fail("partial-read", "{} on {} is a summand, not the value", value_name(p.value),
             device_name(p.device));
    } else {
        known = Known{.columns = known.columns};
    }
    return known;
}

void PhaseWalk::write(PlacedId id, ValueId value, DeviceId device, const Known& known,
                      bool repeats) {
    const PlacedValue& p = placed(id);
    if (p.value != value)
        fail("output-value", "{} is stored as {}", value_name(value), value_name(p.value));
    if (p.device != device)
        fail("output-device", "{} is computed on {} and stored on {}", value_name(value),
             device_name(device), device_name(p.device));
    if (known.columns != columns_of(p))
        fail("output-box", "{} is stored as columns {} and computed as {}", value_name(value),
             range_text(columns_of(p)), range_text(known.columns));
    bool twice = written_[id.index()].add(known.columns);
    if (!p.partial && held_[{p.device, p.value}].add(known.columns)) twice = twice || !repeats;
    if (twice)
        fail("computed-once", "{} is on {} already", value_name(value), device_name(p.device));
    Lifetime& life = trace_.lifetimes[id.index()];
    if (!life.written) life.first_write = static_cast<int64_t>(step_);
    life.written = true;
    content_[id.index()] = known;
}

void PhaseWalk::execute(OpId op, DeviceId device, Range columns, Range contraction) {
    trace_.executions.push_back({op, device, step_, columns, contraction});
}

// Only the last dimension is ever split; empty boxes have no buffer, others have one that holds
// them.
void PhaseWalk::check_boxes() {
    for (const PlacedValue& p : phase_.values) {
        const auto& shape = graph().value(p.value).shape;
        std::string what = fmt::format("{} on {}", value_name(p.value), device_name(p.device));
        bool fine = p.box.size() == shape.size();
        for (size_t i = 0; fine && i < p.box.size(); ++i) {
            bool last = i > 0 && i + 1 == p.box.size();
            Range whole{0, shape[i].is_static() ? shape[i].value : kWhole};
            fine = last ? contains(whole, p.box[i])
                        : p.box[i] == whole || p.box[i] == Range{0, kWhole};
        }
        if (!fine) {
            fail("value-box", "{}: its box is not one of the value", what);
            continue;
        }
        if (columns_of(p).empty()) continue;
        if (!p.buffer.valid()) {
            fail("buffer-missing", "{} has no buffer", what);
            continue;
        }
        const Buffer& b = plan_.buffer(p.buffer);
        if (b.device != p.device)
            fail("buffer-device", "{} has its buffer on {}", what, device_name(b.device));
        if (b.arena() != Arena::kActivations && b.arena() != Arena::kStaging)
            fail("buffer-arena", "{} lies in the {} arena", what, arena_name(b.arena()));
        if (int64_t bytes = placed_bytes(plan_, p, is_prefill_); b.size < bytes)
            fail("buffer-size", "{} needs {} bytes, its buffer has {}", what, bytes, b.size);
    }
}

void PhaseWalk::start_inputs() {
    for (PlacedId id : phase_.inputs) {
        const PlacedValue& p = placed(id);
        const auto& inputs = graph().inputs;
        if (std::find(inputs.begin(), inputs.end(), p.value) == inputs.end())
            fail("phase-input", "{} is no input of the model", value_name(p.value));
        if (p.partial || columns_of(p) != whole_columns(graph(), p.value))
            fail("phase-input", "{} is given in part", value_name(p.value));
        if (written_[id.index()].add(columns_of(p)))
            fail("phase-input", "{} is given twice", value_name(p.value));
        held_[{p.device, p.value}].add(columns_of(p));
        trace_.lifetimes[id.index()].written = true;
        content_[id.index()] = Known{.columns = columns_of(p)};
    }
}

void PhaseWalk::compute(const Compute& c) {
    const Step& step = phase_.steps[step_];
    const Stage& stage = plan_.stages[static_cast<size_t>(step.stage)];
    if (std::find(stage.devices.begin(), stage.devices.end(), c.device) == stage.devices.end())
        fail("stage", "{} is no device of stage {}", device_name(c.device), step.stage);
    for (OpId op : c.ops)
        if (op < stage.first_op || op > stage.last_op)
            fail("stage", "{} is no operator of stage {}", graph().op(op).name, step.stage);
    check_launch(c, most_rows(plan_, is_prefill_, c));
    if (const std::string wrong = wrong_narrow_tiles(plan_, is_prefill_, c); !wrong.empty())
        fail("narrow-tiles", "its tiles for few tokens are wrong: {}", wrong);
    for (const NarrowTile& narrow : c.narrow) {
        Compute launch = c;
        launch.tile = narrow.tile;
        check_launch(launch, narrow.tokens);
    }
    if (const std::string wrong = wrong_activations(plan_, phase_, c); !wrong.empty())
        fail("activation-path", "its activations cannot be {}: {}",
             c.activations == ActivationPath::kCopied ? "copied" : "prepared", wrong);
    if (c.scratch.valid()) {
        const Buffer& b = plan_.buffer(c.scratch);
        if (b.device != c.device)
            fail("buffer-device", "its scratch is on {}", device_name(b.device));
        if (b.role != BufferRole::kScratch)
            fail("buffer-arena", "its scratch lies in the {} arena", arena_name(b.arena()));
    }
    walk_compute(*this, c);
}

void PhaseWalk::check_launch(const Compute& c, int64_t tokens) {
    const DeviceLimits& limits = plan_.machine.device(c.device).limits;
    if (limits.has_warps() && (c.tile.shared_bytes > limits.shared_memory_per_block ||
                               c.tile.threads > limits.max_threads_per_block))
        fail("tile-limits", "{} bytes of shared memory and {} threads a block; {} has {} and {}",
             c.tile.shared_bytes, c.tile.threads, device_name(c.device),
             limits.shared_memory_per_block, limits.max_threads_per_block);
    if (limits.has_warps()) {
        if (c.tile.threads < 0 || c.tile.threads % limits.warp_width != 0)
            fail("tile-loop", "a block has {} threads, and warps of {} have {}", c.tile.threads,
                 device_name(c.device), limits.warp_width);
        const std::array<int64_t, 3> grid = least_grid(plan_, c, tokens);
        for (size_t axis = 0; axis < grid.size(); ++axis)
            if (grid[axis] > limits.max_grid[axis])
                fail("grid-limits", "{} blocks in {} of its grid; {} has at most {}", grid[axis],
                     "xyz"[axis], device_name(c.device), limits.max_grid[axis]);
    }
    if (const std::string wrong = wrong_main_loop(plan_, c); !wrong.empty())
        fail("tile-loop", "its tile cannot have its main loop: {}", wrong);
    const int64_t least = least_scratch(plan_, c, tokens);
    const int64_t size = c.scratch.valid() ? plan_.buffer(c.scratch).size : 0;
    if (size < least)
        fail("scratch-size", "its scratch has {} bytes, a launch takes {}", size, least);
    if (!is_product(c)) return;
    if (c.tile.tokens < 1 || c.tile.rows < 1 || (limits.has_warps() && c.tile.threads < 1))
        return fail("tile-loop", "its tile divides its work by nothing");
    if (limits.has_warps()) return;
    // A host's thread at least has what its tile claims, in memory that is counted.
    if (const int64_t taken = least_thread_scratch(plan_, c);
        std::min(size, c.tile.shared_bytes) < taken)
        fail("scratch-size", "a thread's scratch has {} bytes, its tile takes {}",
             std::min(size, c.tile.shared_bytes), taken);
}

// After the last step: the model's outputs are whole where they were asked for, and no summand is
// left over.
void PhaseWalk::finish() {
    step_ = phase_.steps.size();
    for (size_t i = 0; i < phase_.values.size(); ++i) {
        const PlacedValue& p = phase_.values[i];
        if (!p.partial || columns_of(p).empty()) continue;
        if (trace_.lifetimes[i].written && reductions_[i] == 0)
            fail("partial-unreduced", "a summand of {} on {} meets no collective",
                 value_name(p.value), device_name(p.device));
    }
    for (ValueId value : graph().outputs) {
        auto found = std::find_if(phase_.outputs.begin(), phase_.outputs.end(),
                                  [&](PlacedId id) { return placed(id).value == value; });
        if (found == phase_.outputs.end())
            fail("output-whole", "{} is no output of the phase", value_name(value));
    }
    for (PlacedId id : phase_.outputs) {
        const PlacedValue& p = placed(id);
        if (p.device != plan_.output_device)
            fail("output-whole", "{} ends on {}, not on {}", value_name(p.value),
                 device_name(p.device), device_name(plan_.output_device));
        if (p.partial || columns_of(p) != whole_columns(graph(), p.value) ||
            !written_[id.index()].covers(columns_of(p)))
            fail("output-whole", "{} is not whole on {} in the end", value_name(p.value),
                 device_name(p.device));
        trace_.lifetimes[id.index()].last_read = static_cast<int64_t>(step_);
    }
}

PhaseTrace PhaseWalk::run() {
    step_ = phase_.steps.size();
    check_boxes();
    start_inputs();
    for (step_ = 0; step_ < phase_.steps.size(); ++step_) {
        const Step& step = phase_.steps[step_];
        if (const Compute* c = step.compute()) compute(*c);
        if (const Transfer* t = step.transfer()) transfer(*t);
        if (const Collective* c = step.collective()) collective(*c);
    }
    finish();
    return std::move(trace_);
}

PhaseTrace check_steps(const Plan& plan, bool is_prefill, Report& report) {
    return PhaseWalk(plan, is_prefill, report).run();
}

}  // namespace cleave::planner::verify
