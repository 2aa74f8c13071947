// SPDX-License-Identifier: Apache-2.0
#include "planner/search/check_options.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "importer/weights/quantized_shard.h"
#include "planner/analysis/storage.h"
#include "planner/plan/foreign_op.h"
#include "planner/search/check_sizes.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

void check_kv_tokens(const Graph& graph, const Workload& w) {
    if (w.kv_tokens == 0) return;
    if (std::none_of(graph.ops.begin(), graph.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::kKvAppend; }))
        throw UserError("$kv_tokens: {} keeps no keys and values; leave it out", graph.name);
    if (w.kv_tokens == Workload::kAllThatIsLeft) return;
    if (w.kv_tokens < 0) throw UserError("$kv_tokens {}: give 1 or more", w.kv_tokens);
    const int64_t least = w.blocks_per_slot() * kKvBlock;
    if (w.kv_tokens < w.context)
        throw UserError(
            "$kv_tokens {}: one sequence as long as the context of {} takes {}; give $kv_tokens "
            "{} or more, or a shorter $context",
            w.kv_tokens, w.context, least, least);
    if (w.kv_tokens / kKvBlock >= INT32_MAX - 1)
        throw UserError("$kv_tokens {}: at most {} is supported; give a smaller one", w.kv_tokens,
                        (int64_t{INT32_MAX} - 1) * kKvBlock);
}

void check_workload(const Graph& graph, const Workload& w) {
    if (w.batch < 1) throw UserError("$batch {}: a batch has at least one sequence", w.batch);
    if (w.prompt_tokens < 1)
        throw UserError("$prompt_tokens {}: a prompt has at least one token", w.prompt_tokens);
    if (w.prefill_chunk < 1)
        throw UserError("$prefill_chunk {}: a chunk has at least one token", w.prefill_chunk);
    if (w.context < 1)
        throw UserError("$context {}: the context has at least one token", w.context);
    if (w.prompt_tokens > w.context)
        throw UserError(
            "the prompt has {} tokens and the context only {}; give $context {} or more, or a "
            "shorter prompt",
            w.prompt_tokens, w.context, w.prompt_tokens + 1);
    check_kv_tokens(graph, w);
    for (const RopeTable& table : graph.rope_tables)
        if (table.max_positions > 0 && w.context > table.max_positions)
            throw UserError(
                "$context {}: the model's rotary table '{}' has {} positions; give $context {} "
                "or less",
                w.context, table.name, table.max_positions, table.max_positions);
    if (w.activation_dtype != DType::kF32 && w.activation_dtype != DType::kF16 &&
        w.activation_dtype != DType::kBF16)
        throw UserError("activations of type {} are not supported; use f32, f16 or bf16",
                        w.activation_dtype);
    if (w.kv_dtype && !is_kv_dtype(*w.kv_dtype))
        throw UserError("$kv_dtype {}: a KV cache of that type is not supported; use one of {}",
                        *w.kv_dtype, fmt::join(kKvDTypes, ", "));
}

}  // namespace

DType settled_kv_dtype(const Graph& graph, const Machine& machine, const Workload& w) {
    if (w.kv_dtype) return *w.kv_dtype;
    // The type of most of the weights: as stored on hosts, as converted where a GPU holds them.
    std::array<int64_t, kDTypes.size()> elements{};
    bool gpu = std::any_of(machine.devices.begin(), machine.devices.end(),
                           [](const DeviceInfo& d) { return d.limits.has_warps(); });
    for (const Weight& weight : graph.weights)
        elements.at(static_cast<size_t>(gpu ? device_dtype(weight, w) : weight.dtype)) +=
            weight.num_elements();
    auto dtype =
        static_cast<DType>(std::max_element(elements.begin(), elements.end()) - elements.begin());
    bool direct = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
    return direct ? dtype : gpu ? DType::kF16 : DType::kF32;
}

namespace {

// Kernels of hosts have activations of f32 alone.
void check_activation_dtype(const Machine& machine, const Workload& w) {
    if (w.activation_dtype == DType::kF32) return;
    const auto host = std::find_if(machine.devices.begin(), machine.devices.end(),
                                   [](const DeviceInfo& d) { return !d.limits.has_warps(); });
    if (host != machine.devices.end())
        throw UserError(
            "$activation_dtype {}: {} is a host, which computes activations in f32; leave "
            "$activation_dtype out, or give $devices that are all GPUs",
            w.activation_dtype, host->name);
}

std::string count_of(const Machine& machine) {
    auto n = machine.devices.size();
    return n == 1 ? "1 device" : std::to_string(n) + " devices";
}

// DynamicQuantizeLinear is of a whole tensor: a prompt in several passes would give other logits
// than in one.
void settle_prefill_chunk(const Graph& graph, Workload& w) {
    if (has_dynamic_activations(graph)) w.prefill_chunk = w.batch * w.context;
}

void check_dtype(const Graph& graph, const Workload& w) {
    if (w.dtype && has_dynamic_activations(graph))
        throw UserError(
            "$dtype {}: {} multiplies integers (DynamicQuantizeLinear, MatMulInteger), which "
            "other "
            "weights would not reproduce; leave $dtype out, or use the model that it was "
            "quantised "
            "from",
            *w.dtype, graph.name);
    if (!w.dtype || *w.dtype == DType::kF32 || *w.dtype == DType::kF16 || *w.dtype == DType::kBF16)
        return;
    if (!is_quantizing(*w.dtype))
        throw UserError("$dtype {}: weights cannot be converted to that; use one of {}", *w.dtype,
                        importer::weight_dtype_names());
}

// What has no bytes has no buffer, and steps are proved by their buffers.
void check_values(const Graph& graph) {
    for (const Op& op : graph.ops)
        for (const ValueId id : op.outputs) {
            const Value& value = graph.value(id);
            const auto is_zero = [](const importer::Dim& dim) { return dim.value == 0; };
            if (std::none_of(value.shape.begin(), value.shape.end(), is_zero)) continue;
            throw UserError(
                "operator '{}' ({}): its result '{}' has no elements, and only values that have "
                "some can be planned; remove the operator from the model",
                op.name, onnx_op_type(op), value.name);
        }
}

// Stages that units can be cut into, at most.
int most_stages(const Analysis& a, const PlanOptions& o) {
    int most = 1;
    for (size_t u = 1; u < a.units.size(); ++u)
        most += !o.whole_layers || a.units[u].first_layer < 0 ||
                a.units[u].first_layer != a.units[u - 1].last_layer;
    return most;
}

// Pins that part a layer.
void check_whole_layers(const Analysis& a, const PinnedUnits& pins) {
    for (size_t u = 1; u < pins.size(); ++u)
        if (pins[u].valid() && pins[u - 1].valid() && pins[u] != pins[u - 1] &&
            a.units[u].first_layer >= 0 && a.units[u].first_layer == a.units[u - 1].last_layer)
            throw UserError(
                "$whole_layers: the pins put the two halves of layer {} on different devices; "
                "leave out one of these pins, or $whole_layers",
                a.units[u].first_layer);
}

Shape check_shape(const Machine& machine, const PlanOptions& o) {
    auto devices = static_cast<int>(machine.devices.size());
    Shape shape{o.tensor_parallel, o.pipeline_stages, {}};
    if (shape.tensor_parallel < 0)
        throw UserError("$tensor_parallel {}: the number of devices of a stage is positive",
                        shape.tensor_parallel);
    if (shape.pipeline_stages < 0)
        throw UserError("$pipeline_stages {}: the number of stages is positive",
                        shape.pipeline_stages);
    if (shape.tensor_parallel > 0 && shape.pipeline_stages > 0) {
        int64_t uses = int64_t{shape.tensor_parallel} * shape.pipeline_stages;
        if (uses != devices)
            throw UserError(
                "$tensor_parallel {} x $pipeline_stages {} uses {} of {}; give {} devices with "
                "$devices, or choose "
                "factors whose product is {}",
                shape.tensor_parallel, shape.pipeline_stages, uses, count_of(machine), uses,
                devices);
    } else if (shape.tensor_parallel > 0) {
        if (devices % shape.tensor_parallel != 0)
            throw UserError(
                "$tensor_parallel {} does not divide {}: {} would be left over; give a multiple of "
                "{} devices, "
                "or a $tensor_parallel that divides {}",
                shape.tensor_parallel, count_of(machine), devices % shape.tensor_parallel,
                shape.tensor_parallel, devices);
        shape.pipeline_stages = devices / shape.tensor_parallel;
    } else if (shape.pipeline_stages > devices) {
        throw UserError(
            "$pipeline_stages {} needs {} devices and {} given; give more with $devices, or "
            "$pipeline_stages {} or less",
            shape.pipeline_stages, shape.pipeline_stages,
            count_of(machine) + (devices == 1 ? " is" : " are"), devices);
    }
    return shape;
}

}  // namespace

// GPUs' kernels have one arithmetic each, which is neither.
Workload settled_compute(const Graph& graph, const Machine& machine, Workload w) {
    const auto gpu = std::find_if(machine.devices.begin(), machine.devices.end(),
                                  [](const DeviceInfo& d) { return d.limits.has_warps(); });
    if (w.compute == ComputeMode::kFast && gpu != machine.devices.end())
        throw UserError(
            "$compute fast: {} is a GPU, whose kernels round activations in one way of their own; "
            "leave $compute out, or give $devices that are all hosts",
            gpu->name);
    if (w.compute) return w;
    const bool is_fast = gpu == machine.devices.end() && any_product_rounds(graph, w);
    w.compute = is_fast ? ComputeMode::kFast : ComputeMode::kExact;
    return w;
}

Shape check_options(const Analysis& analysis, const Machine& machine, Workload& workload,
                    const PlanOptions& options) {
    const Graph& graph = analysis.graph;
    if (machine.devices.empty())
        throw UserError(
            "no devices to plan for; give some with $devices, for example $devices 'host[0-3]'");
    if (graph.ops.empty()) throw UserError("{}: the graph has no operators", graph.name);
    check_values(graph);
    check_workload(graph, workload);
    check_dtype(graph, workload);
    check_limits(analysis, machine, workload);
    check_activation_dtype(machine, workload);
    workload.kv_dtype = settled_kv_dtype(graph, machine, workload);
    settle_prefill_chunk(graph, workload);
    Shape shape = check_shape(machine, options);
    if (const int most = most_stages(analysis, options); shape.pipeline_stages > most)
        throw UserError(
            "$pipeline_stages {}: {} can be cut into at most {} stages; give $pipeline_stages {} "
            "or less",
            shape.pipeline_stages, graph.name, most, most);
    if (shape.tensor_parallel > 1)
        for (const Op& op : graph.ops)
            if (stays_on_one_device(op))
                throw UserError(
                    "$tensor_parallel {}: operator '{}' ({}) is not one that tensor parallelism "
                    "can split; use "
                    "$pipeline_stages {} $tensor_parallel 1 instead",
                    shape.tensor_parallel, op.name, onnx_op_type(op), machine.devices.size());
    // --tp alone says how wide stages are; pins that return to a device make them more than the
    // devices allow.
    int stages = options.pipeline_stages > 0 ? shape.pipeline_stages : 0;
    shape.pins = resolve_pins(analysis, machine, workload, options.pins, stages);
    if (options.whole_layers) check_whole_layers(analysis, shape.pins);
    if (pins_return(shape.pins))
        shape.pipeline_stages = stages;
    else
        check_stage_count(shape.pins, shape.pipeline_stages);
    return shape;
}

}  // namespace cleave::planner
