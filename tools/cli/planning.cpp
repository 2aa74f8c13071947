// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/planning.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "codegen/compile/object_cache.h"
#include "importer/onnx/affinities.h"
#include "planner/ask/case.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/machine_file.h"
#include "planner/machine/prices.h"
#include "planner/plan/workload_request.h"
#include "planner/search/affinity_pins.h"
#include "planner/verify/verify.h"
#include "runtime/base/errors.h"
#include "runtime/base/thread_team.h"
#include "runtime/cards/cards.h"
#include "runtime/drivers/host/numa_node.h"
#include "runtime/session/follow.h"
#include "tools/cli/calibrate.h"
#include "tools/cli/hosts.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

// Devices of a machine file in the order that --devices names them, with the links among them.
planner::Machine select_devices(const planner::Machine& all, const std::string& text,
                                const std::string& file) {
    std::vector<planner::DeviceId> chosen;
    std::string known;
    for (const planner::DeviceInfo& d : all.devices) known += (known.empty() ? "" : ", ") + d.name;
    const auto choose = [&](auto matches) {
        const size_t before = chosen.size();
        for (size_t d = 0; d < all.devices.size(); ++d)
            if (matches(all.devices[d])) chosen.emplace_back(d);
        return chosen.size() > before;
    };
    // Names and models of the file itself come first: its author may call devices anything.
    for (const std::string& entry : planner::device_entries(text)) {
        const bool is_kind = std::ranges::any_of(planner::kDeviceKinds, [&](auto kind) {
            return entry == planner::device_kind_name(kind);
        });
        if (!entry.empty() && !is_kind &&
            (choose([&](const planner::DeviceInfo& d) { return d.name == entry; }) ||
             choose([&](const planner::DeviceInfo& d) { return d.model == entry; })))
            continue;
        for (const planner::DeviceSpec& spec : planner::parse_devices(entry, true)) {
            if (spec.per_node > 0)
                throw UserError(
                    "--devices {}: {} says which nodes its devices are in, by their \"host\"; "
                    "leave "
                    "out /{}, or change the file",
                    entry, file, spec.per_node);
            if (!choose([&](const planner::DeviceInfo& d) { return d.name == spec.text; }))
                throw UserError("--devices {}: {} has no such device; it has {}", spec.text, file,
                                known);
        }
    }
    const std::set<planner::DeviceId> once(chosen.begin(), chosen.end());
    if (once.size() < chosen.size())
        throw UserError("--devices {}: a device of {} is named twice; name each once", text, file);
    planner::Machine part = part_of(all, chosen);
    part.name = all.name;
    return part;
}

// The devices that the file names for its nodes, as pins beside the user's; a note if the machine
// lacks them.
void add_affinities(const importer::Graph& graph, const planner::Machine& machine,
                    planner::PlanOptions& options) {
    if (graph.path.empty() || graph.path.ends_with("config.json")) return;  // not of an ONNX file
    importer::Affinities affinities = importer::read_affinities(graph.path);
    if (affinities.nodes.empty()) return;
    planner::AffinityPins found = planner::pins_from_affinities(graph, affinities, machine);
    if (!found.left_out.empty()) say("the file's affinities are left out: {}\n", found.left_out);
    options.pins.insert(options.pins.end(), found.pins.begin(), found.pins.end());
}

// The option of it that was given, as written; empty without.
std::string wiring_given(const planner::Wiring& wiring) {
    return !wiring.fabric.empty()  ? "--fabric " + wiring.fabric
           : wiring.pcie_group > 0 ? fmt::format("--pcie-group {}", wiring.pcie_group)
           : wiring.sum_skew_ns > 0
               ? fmt::format("--sum-skew {}", static_cast<double>(wiring.sum_skew_ns) / 1e3)
               : "";
}

bool changes_a_plan(const PlanFlags& flags) {
    return !flags.devices.empty() || !flags.machine_file.empty() || flags.tensor_parallel ||
           flags.pipeline_stages || !flags.replicas.empty() || !flags.pins.empty() ||
           !wiring_given(flags.wiring).empty() || flags.whole_layers || flags.no_metis ||
           flags.batch || flags.concurrency || flags.max_ttft > 0 || flags.max_tpot > 0 ||
           flags.context || !flags.dtype.empty() || !flags.kv_dtype.empty() ||
           !flags.compute.empty() || !flags.activation_dtype.empty() || !flags.kv_tokens.empty();
}

void check_simt_seed(const planner::Machine& machine, const RunFlags& run) {
    if (run.simt_seed && std::none_of(machine.devices.begin(), machine.devices.end(),
                                      [](const planner::DeviceInfo& device) {
                                          return device.kind == planner::DeviceKind::kSimt;
                                      }))
        throw UserError(
            "--simt-seed {}: it orders the threads of imitated GPUs, and none is among the "
            "devices; "
            "leave it out, or give --devices simt:ARCH[0-N]",
            *run.simt_seed);
}

// Ranks share one plan and its passes.
void plan_one_replica(planner::PlanOptions& options, const PlanFlags& flags) {
    if (!flags.replicas.empty() && flags.replicas != "1")
        throw UserError("--replicas {}: a run of several hosts has one; leave it out",
                        flags.replicas);
    options.replicas = 1;
}

}  // namespace

std::string gpus_at_hand(runtime::Drivers& drivers) {
    const runtime::FoundGpus gpus = runtime::found_gpus(drivers);
    if (!gpus.left_out.empty()) say("note: {}\n", gpus.left_out);
    return gpus.list;
}

planner::Machine machine_from_flags(const PlanFlags& flags, const RunFlags& run,
                                    runtime::Drivers& drivers) {
    if (!flags.machine_file.empty()) {
        if (const std::string given = wiring_given(flags.wiring); !given.empty())
            throw UserError("{}: the machine of {} has its own links; leave one out", given,
                            flags.machine_file);
        planner::Machine machine = planner::load_machine(flags.machine_file);
        return flags.devices.empty() ? machine
                                     : select_devices(machine, flags.devices, flags.machine_file);
    }
    if (!flags.alone && host_job()) {
        if (const std::string given = wiring_given(flags.wiring); !given.empty())
            throw UserError("{}: a run of several hosts measures its links; leave it out", given);
        return machine_of_hosts(flags.devices, run, drivers);
    }
    const std::string list = flags.devices.empty() ? gpus_at_hand(drivers) : flags.devices;
    return machine_of_devices(planner::parse_devices(list.empty() ? "host" : list), run, drivers,
                              flags.wiring);
}

planner::Machine machine_of_devices(const std::vector<planner::DeviceSpec>& specs,
                                    const RunFlags& run, runtime::Drivers& drivers,
                                    const planner::Wiring& wiring) {
    bool on_host = std::any_of(specs.begin(), specs.end(), [](const planner::DeviceSpec& spec) {
        return spec.kind == planner::DeviceKind::kHost;
    });
    std::string note;
    planner::HostFacts facts =
        on_host ? facts_of_this_host(run.threads, &note) : planner::read_host_facts();
    if (std::ranges::any_of(specs, &planner::DeviceSpec::numa))
        facts.numa_nodes = runtime::read_numa_nodes();
    if (!note.empty()) say("note: {}\n", note);
    const runtime::RealGpus gpus(drivers);
    return planner::build_machine(specs, facts, &gpus, wiring);
}

planner::Workload workload_from_flags(const PlanFlags& flags, const LoadedModel& model) {
    planner::Workload workload =
        planner::fill_workload({flags.concurrency > 0 ? flags.concurrency : flags.batch,
                                flags.context, flags.prompt_tokens, flags.prefill_chunk},
                               model.max_positions);
    std::optional<DType> dtype =
        flags.dtype.empty() ? std::nullopt : std::optional(dtype_flag("--dtype", flags.dtype));
    if (dtype && (model.kind != ModelKind::kShape || dtype_bits(*dtype) < 16))
        workload.dtype = dtype;
    if (!flags.kv_tokens.empty())
        workload.kv_tokens = flags.kv_tokens == "auto" ? planner::Workload::kAllThatIsLeft
                                                       : std::stoll(flags.kv_tokens);
    if (!flags.compute.empty())
        workload.compute =
            flags.compute == "fast" ? planner::ComputeMode::kFast : planner::ComputeMode::kExact;
    if (!flags.kv_dtype.empty()) workload.kv_dtype = dtype_flag("--kv-dtype", flags.kv_dtype);
    if (!flags.activation_dtype.empty())
        workload.activation_dtype = dtype_flag("--activation-dtype", flags.activation_dtype);
    return workload;
}

planner::Case case_from_flags(LoadedModel model, const PlanFlags& flags, const RunFlags& run,
                              const planner::Workload& workload, runtime::Drivers& drivers) {
    planner::Case asked{{}, machine_from_flags(flags, run, drivers), workload, {}};
    for (const std::string& price : flags.prices) planner::set_price(asked.machine, price);
    check_simt_seed(asked.machine, run);
    asked.options = plan_options(flags);
    if (!flags.alone && host_job()) plan_one_replica(asked.options, flags);
    if (!flags.ignore_affinities) add_affinities(model.graph, asked.machine, asked.options);
    asked.graph = std::move(model.graph);
    return asked;
}

namespace {

// The pass of the planner that has run, on a terminal, until the plan is made or refused.
class PlanningLine {
public:
    explicit PlanningLine(planner::PassControl& control) {
        if (control.note || !stderr_is_terminal()) return;
        control.note = [](const planner::PassNote& note) {
            redraw_line(fmt::format("planning: {} is done", note.pass));
        };
        is_shown_ = true;
    }
    ~PlanningLine() {
        if (is_shown_) redraw_line("");
    }
    PlanningLine(const PlanningLine&) = delete;
    PlanningLine& operator=(const PlanningLine&) = delete;

private:
    bool is_shown_ = false;
};

}  // namespace

planner::Plan plan_from_flags(LoadedModel model, const PlanFlags& flags, const RunFlags& run,
                              const planner::Workload& workload, runtime::Drivers& drivers,
                              const planner::PassControl& control) {
    if (model.plan) {
        if (changes_a_plan(flags))
            throw UserError(
                "a plan file is executed as it is: make a new plan from the model to change "
                "devices, shape, batch, "
                "context or dtype");
        for (const std::string& price : flags.prices) {
            const auto set_prices = [&price](planner::Plan& make) {
                planner::set_price(make.machine, price);
                for (planner::Machine& copy : make.copies) planner::set_price(copy, price);
            };
            set_prices(*model.plan);
            for (planner::Plan& other : model.plan->others) set_prices(other);
        }
        planner::verify_plan(*model.plan);
        check_simt_seed(model.plan->machine, run);
        return std::move(*model.plan);
    }
    const planner::Case asked = case_from_flags(std::move(model), flags, run, workload, drivers);
    planner::PassControl watched = control;
    const PlanningLine line(watched);
    planner::Plan plan =
        planner::make_plan(asked.graph, asked.machine, asked.workload, asked.options, watched);
    if (flags.no_metis) plan.why.metis += " (--no-metis)";
    return plan;
}

void note_threads(const RunFlags& run) {
    if (const int cores = runtime::available_cores(); run.threads > cores)
        say("note: --threads {} on {} core{}: more threads than cores wait for one another, and "
            "are slower; leave it out for one a core\n",
            run.threads, cores, cores == 1 ? "" : "s");
}

void note_kernels_not_kept(bool at_the_end) {
    static std::atomic<bool> is_told = false;
    const std::string why = at_the_end ? codegen::why_not_stored() : codegen::why_not_kept();
    if (why.empty() || is_told.exchange(true)) return;
    say("note: kernels {}: {}\n", at_the_end ? "were compiled and not kept" : "are not cached",
        why);
}

runtime::SessionOptions session_options(const RunFlags& run, runtime::Drivers& drivers) {
    note_kernels_not_kept(false);
    runtime::SessionOptions options;
    options.drivers = &drivers;
    options.job = host_job();
    options.plan_message = [](const planner::Plan& plan) {
        return runtime::plan_message(plan, false);
    };
    options.threads = run.threads;
    options.compile.cpu_arch = run.cpu_arch;
    options.compile.reproducible = run.reproducible;
    options.compile.nvrtc = run.nvrtc;
    options.simt_seed = run.simt_seed;
    options.compile.cancel = options.cancel = &cancel_token();
    options.keep_packed = run.keep_packed;
    options.note = [](const std::string& line) { say("{}\n", line); };
    return options;
}

}  // namespace cleave::tools
