// SPDX-License-Identifier: Apache-2.0
// What `cleave inspect` shows beside a plan's own views (planner/view/plan_text.h): how each layer
// is placed on devices, what fills their memory, where a pass spends its time, and the kernels that
// it launches. In: a sound plan. Out: plain values; the text, the JSON and the page are views of
// them. Nothing is compiled or run: times are the plan's predictions, kernels those that codegen
// writes for it. With the trace of a run, what that measured is beside them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel/occupancy.h"
#include "planner/plan/plan.h"
#include "planner/view/plan_csv.h"
#include "tools/inspect/measured.h"

namespace cleave::tools {

// Of one device in a layer. Ranges are empty where it has none; an idle member of a stage has
// nothing but its part in the sums.
struct LayerShare {
    planner::DeviceId device;
    planner::Range query_heads, kv_heads;  // of the model
    planner::Range mlp;                    // features between gate/up and down
    int64_t weight_bytes = 0, kv_bytes = 0;
};

// Consecutive layers with the same placement. `first` is -1 before the layers, the model's number
// of layers behind them.
struct LayerRun {
    int first = 0, last = 0, stage = 0;
    std::vector<LayerShare> shares;  // of each device of the stage
    int64_t compute_ns = 0;   // of one layer in a decode pass: of the device that computes longest
    int64_t exchange_ns = 0;  // its transfers and collectives, one after the other
};

// Buffers of one arena of a device that hold the same thing in every layer.
struct MemoryItem {
    planner::Arena arena = planner::Arena::kWeights;
    std::string what;  // "layers.*.q_proj.weight"
    int64_t buffers = 0, bytes = 0;
};
struct DeviceMap {
    std::vector<MemoryItem> items;  // activations: what lives while they need most
    std::string
        fullest;  // that moment: "prefill, layer 0, norm_gate_up"; empty without activations
};

// Of one device in one pass. Waiting: from the pass's begin to its end, less the other two.
struct DeviceTime {
    int64_t compute_ns = 0, exchange_ns = 0, waiting_ns = 0;
};

// A kernel of a device in one pass of a phase.
struct KernelUse {
    planner::DeviceId device;
    bool is_prefill = false;
    std::string name, arch;
    std::vector<std::string> fused;
    std::vector<std::string> operators;  // its projections' last names: "q_proj", "down_proj"
    int64_t launches = 0;
    int64_t predicted_ns = 0;  // of all launches together; a step of several counts for its first
    int64_t bytes =
        0;  // weights, activations, keys and values that they read and write, or payloads
    std::array<int64_t, 3> grid{};  // at the phase's point; of hosts: work items
    int threads = 0;
    int64_t shared_bytes = 0, shared_limit = 0;  // of hosts: scratch of a thread
    bool is_gpu = false;
    codegen::Occupancy occupancy;  // of GPUs, without knowledge of registers
};

// The text of a kernel: once for all devices and steps that launch it.
struct KernelText {
    std::string name, arch, source;
    planner::Tile tile;
};

struct Inspection {
    const planner::Plan* plan = nullptr;  // not owned
    std::vector<LayerRun> layers;
    std::vector<DeviceMap> memory;                // by device
    std::array<int64_t, 2> pass_ns{};             // decode, prefill (one chunk)
    std::array<std::vector<DeviceTime>, 2> time;  // decode, prefill; by device
    std::vector<KernelUse> kernels;       // by device, prefill first, in order of first launch
    std::vector<std::string> no_kernels;  // devices without, and why: "sim:x: ..."
    std::vector<KernelText> texts;        // in order of first use
    std::array<std::vector<int>, 2> step_texts;  // decode, prefill; by step: of texts, -1: none
    std::optional<Measured> measured;            // of a run of the plan, where there is a trace
};

// The plan must outlive the result.
Inspection inspect_plan(const planner::Plan& plan);

// The parts of the text, in its order; what runs measured ends it, where there is a trace.
std::vector<std::string> inspection_parts();
// Columns of at most `width` characters. `parts`: of inspection_parts(), or "all"; none: the plan,
// and each further part that keeps the text within 100 lines; the last line names the others.
std::string inspection_text(const Inspection& inspection, const std::vector<std::string>& parts,
                            int width, bool color);
// Schema tools/schema/inspect.schema.json.
std::string inspection_json(const Inspection& inspection, int indent = 2,  // -1: one line
                            const Inspection* against = nullptr);
// One HTML page that needs nothing beside it: no script, style or font from elsewhere.
std::string inspection_page(const Inspection& inspection);
// "layers", "memory", "kernels", the plan's own tables, and with a trace "measured" and
// "differences", as CSV.
std::vector<planner::NamedTable> inspection_tables(const Inspection& inspection);

}  // namespace cleave::tools
