// SPDX-License-Identifier: Apache-2.0
// Plans: made, read, proved, looked into, exported.
#include <memory>

#include "importer/weights/formats.h"
#include "planner/file/plan_file.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/workload_request.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tools/cli/spelling.h"
#include "tools/libcleave/handles.h"

using namespace cleave;
using namespace cleave::c_api;
using namespace cleave::planner;

namespace {

std::optional<DType> dtype_option(const char* field, const char* name) {
    if (!name) return std::nullopt;
    if (std::optional<DType> dtype = parse_dtype(name)) return dtype;
    throw UserError("{} {}: no such dtype; supported are {}", field, name,
                    importer::weight_dtype_names());
}

PlanOptions options_from(const cleave_plan_options& given) {
    PlanOptions options;
    if (given.objective < 0 || given.objective >= static_cast<int32_t>(kObjectives.size()))
        throw ArgumentError(fmt::format("objective {}: they are 0 to {} ({})", given.objective,
                                        kObjectives.size() - 1, objective_names()));
    if (given.tensor_parallel < 0 || given.pipeline_stages < 0)
        throw UserError(
            "tensor_parallel {} and pipeline_stages {} are counts of devices and stages",
            given.tensor_parallel, given.pipeline_stages);
    options.objective = static_cast<Objective>(given.objective);
    options.tensor_parallel = given.tensor_parallel;
    options.pipeline_stages = given.pipeline_stages;
    options.use_metis = given.no_metis == 0;
    options.seed = given.seed;
    if (given.num_pins > 0) needed(given.pins, "pins");
    for (size_t i = 0; i < given.num_pins; ++i)
        options.pins.push_back(parse_pin(text_of(given.pins[i], "a pin")));
    return options;
}

std::optional<ComputeMode> compute_option(const char* given) {
    if (!given) return std::nullopt;
    const std::string_view name = given;
    for (ComputeMode mode : {ComputeMode::kExact, ComputeMode::kFast})
        if (name == compute_mode_name(mode)) return mode;
    throw ArgumentError(fmt::format("compute {}: it is exact or fast", name));
}

Workload workload_from(const cleave_plan_options& given, const cleave_graph& graph) {
    WorkloadRequest request;
    request.batch = given.batch;
    request.context = given.context;
    request.prompt_tokens = given.prompt_tokens;
    if (given.prefill_chunk != 0) request.prefill_chunk = given.prefill_chunk;
    request.kv_tokens = given.kv_tokens;
    Workload workload = fill_workload(request, graph.max_positions);
    workload.dtype = dtype_option("dtype", given.dtype);
    workload.kv_dtype = dtype_option("kv_dtype", given.kv_dtype);
    workload.compute = compute_option(given.compute);
    if (const auto dtype = dtype_option("activation_dtype", given.activation_dtype))
        workload.activation_dtype = *dtype;
    if (workload.dtype && graph.of_operators)
        throw UserError(
            "dtype {}: the weights of a graph of operators are as large as their weight_bytes say; "
            "change those",
            given.dtype);
    return workload;
}

std::vector<size_t> indices(const auto& ids) {
    std::vector<size_t> list;
    for (auto id : ids) list.push_back(id.index());
    return list;
}

cleave_plan::StepLists lists_of(const Plan& plan, const Phase& phase, const Step& step) {
    cleave_plan::StepLists lists;
    lists.devices = indices(step_devices(phase, step));
    if (const Transfer* t = step.transfer())
        lists.devices = {phase.values[t->source.index()].device.index(),
                         phase.values[t->destination.index()].device.index()};
    if (const Compute* c = step.compute()) lists.operators = indices(c->ops);
    if (const Collective* c = step.collective()) lists.operators = indices(c->epilogue);
    const ValueId value = step_value(plan, phase, step);
    if (value.valid()) lists.value = plan.graph.value(value).name;
    lists.implementation = step_implementation(plan, phase, step);
    return lists;
}

cleave_plan* handle_of(Plan plan) {
    auto made = std::make_unique<cleave_plan>();
    made->plan = std::move(plan);
    const Plan& p = made->plan;
    for (const Step& s : p.prefill.steps) made->prefill.push_back(lists_of(p, p.prefill, s));
    for (const Step& s : p.decode.steps) made->decode.push_back(lists_of(p, p.decode, s));
    for (const Stage& s : p.stages) made->stage_devices.push_back(indices(s.devices));
    return made.release();
}

void check_index(size_t index, size_t count, const char* what) {
    if (index >= count) throw ArgumentError(fmt::format("{} {} of {}", what, index, count));
}

const Plan& plan_of(const cleave_plan* plan) { return needed(plan, "plan").plan; }

}  // namespace

const char* cleave_objective_name(size_t objective) {
    return objective < kObjectives.size() ? kObjectives[objective].name.data() : nullptr;
}

cleave_status cleave_plan_make(const cleave_graph* graph, const cleave_machine* machine,
                               const cleave_plan_options* options, cleave_plan** out) {
    return guard([&] {
        needed(out, "out") = nullptr;
        const cleave_graph& g = needed(graph, "graph");
        if (g.graph.ops.empty()) throw UserError("{}: a graph without operators", g.graph.name);
        const cleave_plan_options given = options_of(options, "cleave_plan_options");
        *out = handle_of(make_plan(g.graph, needed(machine, "machine").machine,
                                   workload_from(given, g), options_from(given)));
    });
}

cleave_status cleave_plan_load(const char* path, cleave_plan** out) {
    return guard([&] {
        needed(out, "out") = nullptr;
        Plan plan = load_plan(text_of(path, "path"));
        verify_plan(plan);
        *out = handle_of(std::move(plan));
    });
}

cleave_status cleave_plan_save(const cleave_plan* plan, const char* path) {
    return guard([&] { save_plan(plan_of(plan), text_of(path, "path")); });
}

void cleave_plan_free(cleave_plan* plan) { delete plan; }

cleave_status cleave_plan_verify(const cleave_plan* plan, char** violations) {
    return guard([&] {
        if (violations) *violations = nullptr;
        std::string lines;
        for (const Violation& v : find_violations(plan_of(plan)))
            lines += fmt::format("{}: {}\n", v.rule, v.message);
        if (lines.empty()) return;
        if (violations) *violations = copy_text(lines);
        throw UserError("the plan is not sound: {}", lines.substr(0, lines.find('\n')));
    });
}

cleave_status cleave_plan_to_text(const cleave_plan* plan, char** out) {
    return guard([&] { needed(out, "out") = copy_text(plan_to_text(plan_of(plan))); });
}

cleave_status cleave_plan_to_json(const cleave_plan* plan, char** out) {
    return guard(
        [&] { needed(out, "out") = copy_text(plan_to_json(plan_of(plan), tools::spell_for_api)); });
}

cleave_status cleave_plan_get_info(const cleave_plan* plan, cleave_plan_info* out) {
    return guard([&] {
        const Plan& p = plan_of(plan);
        cleave_plan_info info{};
        info.model = p.graph.name.c_str();
        info.graph_digest = p.graph_digest.c_str();
        info.num_devices = p.machine.devices.size();
        info.num_stages = p.stages.size();
        info.num_prefill_steps = p.prefill.steps.size();
        info.num_decode_steps = p.decode.steps.size();
        info.prefill_ns = p.prediction.prefill_ns;
        info.decode_ns_per_token = p.prediction.decode_ns_per_token;
        info.objective_ns = p.prediction.objective_ns;
        info.lower_bound_ns = p.prediction.lower_bound_ns;
        info.binding = p.why.binding.c_str();
        fill(out, info, "cleave_plan_info");
    });
}

cleave_status cleave_plan_get_device(const cleave_plan* plan, size_t index,
                                     cleave_device_info* out) {
    return guard([&] {
        const Plan& p = plan_of(plan);
        check_index(index, p.memory.size(), "device");
        const DeviceMemory& m = p.memory[index];
        const DeviceInfo& d = p.machine.device(m.device);
        cleave_device_info info{};
        info.name = d.name.c_str();
        info.kind = device_kind_name(d.kind).data();
        info.arch = d.arch.c_str();
        info.host = d.host.c_str();
        info.memory_bytes = m.capacity;
        info.weights_bytes = m.weights;
        info.kv_bytes = m.kv;
        info.activation_bytes = m.activations;
        info.staging_bytes = m.staging;
        info.scratch_bytes = m.scratch;
        info.reserved_bytes = m.reserved;
        info.free_bytes = m.free();
        info.collectives_bytes = m.collectives;
        if (index < p.prediction.decode_busy_ns.size())
            info.decode_busy_ns = p.prediction.decode_busy_ns[index];
        fill(out, info, "cleave_device_info");
    });
}

cleave_status cleave_plan_get_stage(const cleave_plan* plan, size_t index, cleave_stage_info* out) {
    return guard([&] {
        const Plan& p = plan_of(plan);
        check_index(index, p.stages.size(), "stage");
        const Stage& s = p.stages[index];
        cleave_stage_info info{};
        info.num_devices = plan->stage_devices[index].size();
        info.devices = plan->stage_devices[index].data();
        info.first_operator = p.graph.op(s.first_op).name.c_str();
        info.last_operator = p.graph.op(s.last_op).name.c_str();
        info.first_layer = s.first_layer;
        info.last_layer = s.last_layer;
        fill(out, info, "cleave_stage_info");
    });
}

cleave_status cleave_plan_get_step(const cleave_plan* plan, cleave_phase phase, size_t index,
                                   cleave_step_info* out) {
    return guard([&] {
        const Plan& p = plan_of(plan);
        if (phase != CLEAVE_PREFILL && phase != CLEAVE_DECODE)
            throw ArgumentError(fmt::format("phase {}", phase));
        const bool is_prefill = phase == CLEAVE_PREFILL;
        check_index(index, p.phase(is_prefill).steps.size(), "step");
        const Step& s = p.phase(is_prefill).steps[index];
        const cleave_plan::StepLists& lists = (is_prefill ? plan->prefill : plan->decode)[index];
        const PassPoint point = pass_point(p, is_prefill);
        cleave_step_info info{};
        info.kind = static_cast<cleave_step_kind>(s.action.index());
        info.stage = s.stage;
        info.layer = s.layer;
        info.num_devices = lists.devices.size();
        info.devices = lists.devices.data();
        info.num_operators = lists.operators.size();
        info.operators = lists.operators.data();
        info.value = lists.value.c_str();
        info.implementation = lists.implementation.c_str();
        info.collective = s.collective() ? collective_op_name(s.collective()->op).data() : "";
        info.bytes = step_bytes(s, point);
        info.link_bytes = s.link_bytes.at(point);
        info.start_ns = s.start_ns;
        info.predicted_ns = s.predicted_ns;
        fill(out, info, "cleave_step_info");
    });
}
