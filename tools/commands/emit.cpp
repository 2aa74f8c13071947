// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codegen/compile/compiler.h"
#include "codegen/generate.h"
#include "codegen/gpu/kernels.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/kernel/program.h"
#include "codegen/text/stub_writer.h"
#include "planner/build/choose_tiles.h"
#include "tools/cli/groups.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

struct EmitArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    RunFlags run;
    bool json = false;
    bool compile = false;
    bool no_source = false;
    std::string gpu_compiler;
};

// Without --compile there are no objects; with it the plan has the tiles that were taken.
std::vector<codegen::CompiledProgram> generate(planner::Plan& plan, const EmitArguments& flags) {
    if (!flags.compile) {
        std::vector<codegen::CompiledProgram> all;
        for (size_t d = 0; d < plan.machine.devices.size(); ++d)
            all.push_back(
                {codegen::generate_program(plan, planner::DeviceId(d), flags.run.reproducible),
                 {}});
        return all;
    }
    Interruptible interruptible;
    ProgressBar bar("compiling kernels");
    codegen::CompileOptions options;
    options.cpu_arch = flags.run.cpu_arch;
    options.reproducible = flags.run.reproducible;
    options.threads = flags.run.threads;
    options.nvrtc = flags.run.nvrtc;
    options.gpu_compiler = flags.gpu_compiler;
    options.drivers = flags.drivers.versions(plan.machine);
    options.cancel = &cancel_token();
    options.progress = [&](int done, int total) { bar.update(done, total); };
    return codegen::compile_plan(plan, options);
}

// Whether a phase launches a kernel. The choice of tokens runs after passes of both phases; devices
// meet before the first pass, which is a prefill.
bool runs_in(bool is_prefill, const codegen::Program& program, int kernel) {
    const auto has = [kernel](const codegen::Instruction& i) {
        return i.kernel == kernel ||
               std::any_of(i.narrow.begin(), i.narrow.end(),
                           [kernel](const auto& narrow) { return narrow.kernel == kernel; });
    };
    const std::vector<codegen::Instruction>& phase = is_prefill ? program.prefill : program.decode;
    return std::any_of(phase.begin(), phase.end(), has) ||
           (program.greedy && has(*program.greedy)) ||
           (is_prefill && program.meeting && has(*program.meeting));
}

Json extent_json(const codegen::Extent& e) {
    return {{"constant", e.constant},     {"per_token", e.per_token},
            {"per_output", e.per_output}, {"per_sequence", e.per_sequence},
            {"per_single", e.per_single}, {"divisor", e.divisor}};
}

// Null for hosts.
const codegen::GpuArch* find_arch(const codegen::Program& program) {
    return codegen::find_gpu_arch(codegen::gpu_arch_of(program.arch));
}

codegen::Occupancy occupancy_of(const codegen::GpuArch& arch, const codegen::Kernel& kernel,
                                const codegen::Resources& resources) {
    return codegen::predict_occupancy(arch, kernel.launch.block[0],
                                      std::max(kernel.launch.shared_bytes, resources.shared_bytes),
                                      resources.registers);
}

// How a limit of the device reduced a kernel's tile before anything was compiled: of its first
// launch, in the first phase that launches it.
std::optional<planner::ShrunkTile> shrunk_tile(const planner::Plan& plan,
                                               const codegen::Program& program, size_t k,
                                               bool is_prefill) {
    const planner::Phase& phase = plan.phase(is_prefill);
    for (const codegen::Instruction& i : is_prefill ? program.prefill : program.decode) {
        if (i.kernel != static_cast<int>(k) || !i.step.valid() || i.of_singles) continue;
        if (const planner::Compute* compute = phase.steps[i.step.index()].compute())
            return planner::shrunk_tile(plan, phase, *compute);
    }
    return std::nullopt;
}

// Null for kernels without one: those of hosts, and those that exchange.
Json tile_json(const planner::Tile& tile) {
    if (tile.threads == 0) return nullptr;
    return {{"tokens", tile.tokens}, {"rows", tile.rows},
            {"depth", tile.depth},   {"threads", tile.threads},
            {"splits", tile.splits}, {"shared_memory_bytes", tile.shared_bytes}};
}

// A figure of the object for a thread of a GPU; null if nothing was compiled, or for the CPU.
Json measured_json(const codegen::Resources& measured, int64_t value) {
    return measured.known && measured.registers > 0 ? Json(value) : Json(nullptr);
}

Json kernel_json(const planner::Plan& plan, const codegen::CompiledProgram& device, size_t k,
                 bool is_prefill) {
    const codegen::Kernel& kernel = device.program.kernels[k];
    const char* phase = is_prefill ? "prefill" : "decode";
    const planner::DeviceInfo& info = plan.machine.device(device.program.device);
    codegen::Resources r = kernel.claimed;
    std::string compiler, counted_in;
    Json counts = Json::object();  // nobody counted where `counted_in` is empty
    if (!device.objects.empty()) {
        counted_in = device.objects[k].counted_in;
        for (const auto& [name, count] : device.objects[k].matrix_instructions)
            counts[name] = count;
        if (device.objects[k].measured.known) r = device.objects[k].measured;
        compiler = device.objects[k].compiler;
    }
    Json given_up = Json::array();
    if (!device.objects.empty())
        for (const std::string& tile : device.objects[k].given_up) given_up.push_back(tile);
    Json json = {{"name", kernel.name},
                 {"device", info.name},
                 {"arch", device.program.arch},
                 {"phase", phase},
                 {"fused", kernel.fused},
                 {"shared_memory_bytes", std::max(kernel.launch.shared_bytes, r.shared_bytes)},
                 {"claimed_shared_memory_bytes", kernel.launch.shared_bytes},
                 {"limit_shared_memory_bytes", info.limits.shared_memory_per_block},
                 {"registers", measured_json(r, r.registers)},
                 {"spill_bytes", measured_json(r, r.spill_bytes)},
                 {"matrix_instructions", counts},
                 {"matrix_instructions_counted_in", counted_in},
                 {"launch",
                  {{"grid",
                    {extent_json(kernel.launch.grid[0]), extent_json(kernel.launch.grid[1]),
                     extent_json(kernel.launch.grid[2])}},
                   {"block", kernel.launch.block},
                   {"overlaps", kernel.launch.overlaps}}},
                 {"tile", find_arch(device.program) ? tile_json(kernel.tile) : Json(nullptr)},
                 {"larger_tiles_given_up", given_up},
                 {"compiler", compiler},
                 {"source_hash", kernel.hash}};
    if (std::optional<planner::ShrunkTile> shrunk =
            shrunk_tile(plan, device.program, k, is_prefill))
        json["tile_limited_by"] = {{"limit", shrunk->excess.limit},
                                   {"need", shrunk->excess.need},
                                   {"available", shrunk->excess.available},
                                   {"preferred", tile_json(shrunk->preferred)}};
    if (!device.objects.empty() && device.objects[k].measured.known)
        json["measured_shared_memory_bytes"] = r.shared_bytes;
    if (const codegen::GpuArch* arch = find_arch(device.program)) {
        codegen::Occupancy o = occupancy_of(*arch, kernel, r);
        json["occupancy"] = {
            {"blocks", o.blocks}, {"warps", o.warps}, {"most_warps", o.most_warps}};
    }
    return json;
}

std::string phases_of(const codegen::Program& program, size_t k) {
    const bool prefill = runs_in(true, program, static_cast<int>(k));
    const bool decode = runs_in(false, program, static_cast<int>(k));
    return prefill && decode ? "prefill and decode" : prefill ? "prefill" : "decode";
}

std::string join(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& p : parts) text += (text.empty() ? "" : " + ") + p;
    return text;
}

// A kernel's claimed resources, without the end of the line. Its occupancy is that of the measured
// ones, if known.
void print_claim(const planner::DeviceInfo& info, const codegen::Program& program,
                 const codegen::Kernel& kernel, const codegen::Resources& measured) {
    const codegen::GpuArch* arch = find_arch(program);
    if (!arch) {
        show("    {} bytes of scratch claimed", kernel.launch.shared_bytes);
        return;
    }
    const codegen::Launch& launch = kernel.launch;
    show("    grid [{}] x [{}] x [{}], {} threads a block{}\n",
         codegen::describe_extent(launch.grid[0]), codegen::describe_extent(launch.grid[1]),
         codegen::describe_extent(launch.grid[2]), launch.block[0],
         launch.overlaps ? ", begins before the launches before it have ended" : "");
    codegen::Occupancy o = occupancy_of(*arch, kernel, measured);
    show("    {} of {} bytes of shared memory claimed; {} blocks, {} of {} warps on a {}",
         launch.shared_bytes, info.limits.shared_memory_per_block, o.blocks, o.warps, o.most_warps,
         codegen::unit_name(*arch));
}

// The larger tile that limits of the device ruled out, by arithmetic.
void print_shrunk(const planner::Plan& plan, const codegen::Program& program, size_t k) {
    static const std::map<std::string_view, const char*> kWhat = {
        {"shared_memory_per_block", "bytes of shared memory a block"},
        {"max_threads_per_block", "threads a block"},
        {"registers_per_block", "registers a block"},
        {"max_grid_x", "blocks in x of a grid"},
        {"max_grid_y", "blocks in y of a grid"},
        {"max_grid_z", "blocks in z of a grid"}};
    for (bool is_prefill : {true, false}) {
        std::optional<planner::ShrunkTile> shrunk = shrunk_tile(plan, program, k, is_prefill);
        if (!shrunk) continue;
        show("\n    a limit changed the tile of {} from {}, which takes {} {}; the device has {}",
             is_prefill ? "prefill" : "decode",
             codegen::describe_tile(program.kernels[k].kind, shrunk->preferred),
             shrunk->excess.need, kWhat.at(shrunk->excess.limit), shrunk->excess.available);
    }
}

// The resources that the object states, after the claim.
void print_compiled(const codegen::Program& program, const codegen::CompiledKernel& compiled) {
    const codegen::Resources& r = compiled.measured;
    const bool on_cpu = !codegen::simt_arch_of(program.arch).empty();
    show(", {}, {}{}",
         r.known  ? fmt::format("{} bytes of code", r.code_bytes)
         : on_cpu ? "not measured (runs on the CPU)"
                  : "not measured (the object does not say)",
         compiled.compiler, compiled.from_cache ? ", cached" : "");
    if (r.registers > 0)
        show(
            "\n    measured: {} registers a thread, {} bytes of shared memory, {} of stack, {} "
            "spilled",
            r.registers, r.shared_bytes, r.stack_bytes, r.spill_bytes);
    std::string counts;
    for (const auto& [name, count] : compiled.matrix_instructions)
        counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, name);
    for (const std::string& tile : compiled.given_up) show("\n    the tile shrank from {}", tile);
    if (!compiled.counted_in.empty())
        show("\n    matrix instructions ({}): {}", compiled.counted_in,
             counts.empty() ? "none" : counts);
}

void print_text(const planner::Plan& plan, const std::vector<codegen::CompiledProgram>& all,
                bool with_source) {
    std::map<std::string, std::string> printed;  // source hash -> device that showed it
    for (const codegen::CompiledProgram& device : all) {
        const std::string& name = plan.machine.device(device.program.device).name;
        show("{}  {}  {} kernels, {} prefill and {} decode launches{}\n", bold(name),
             device.program.arch, device.program.kernels.size(), device.program.prefill.size(),
             device.program.decode.size(),
             device.program.greedy ? ", and one that chooses tokens after each pass" : "");
        for (size_t k = 0; k < device.program.kernels.size(); ++k) {
            const codegen::Kernel& kernel = device.program.kernels[k];
            show("  {} ({}): {}\n", kernel.name, phases_of(device.program, k), join(kernel.fused));
            print_claim(plan.machine.device(device.program.device), device.program, kernel,
                        device.objects.empty() ? codegen::Resources{} : device.objects[k].measured);
            if (!device.objects.empty()) print_compiled(device.program, device.objects[k]);
            print_shrunk(plan, device.program, k);
            show("\n");
            auto [first, fresh] = printed.try_emplace(kernel.hash, name);
            if (with_source && fresh)
                show("\n{}\n", kernel.source);
            else if (with_source)
                show("    source as on {}\n", first->second);
        }
    }
}

void run_emit(const EmitArguments& flags) {
    if (follows(flags.run, flags.drivers)) return;
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    planner::Workload workload =
        model.plan ? model.plan->workload : workload_from_flags(flags.plan, model);
    planner::Plan plan =
        plan_from_flags(std::move(model), flags.plan, flags.run, workload, flags.drivers);
    const std::vector<codegen::CompiledProgram> all = generate(plan, flags);
    if (!flags.json) {
        print_text(plan, all, !flags.no_source);
        return;
    }
    Json json{{"kernels", Json::array()}};
    for (const codegen::CompiledProgram& device : all)
        for (size_t k = 0; k < device.program.kernels.size(); ++k) {
            // A kernel that serves both phases is listed in both.
            if (runs_in(true, device.program, static_cast<int>(k)))
                json["kernels"].push_back(kernel_json(plan, device, k, true));
            if (runs_in(false, device.program, static_cast<int>(k)))
                json["kernels"].push_back(kernel_json(plan, device, k, false));
        }
    show_exactly(json.dump(2) + "\n");
}

}  // namespace

void add_emit(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<EmitArguments>(EmitArguments{.drivers = drivers});
    CLI::App* command =
        app.add_subcommand("emit", "print the kernels of a plan: source, launch, resources");
    add_model_flags(*command, flags->model);
    add_plan_flags(*command, flags->plan);
    add_run_flags(*command, flags->run);
    command->add_flag("--compile", flags->compile,
                      "compile them, and report what the compiled objects use");
    command
        ->add_option("--gpu-compiler", flags->gpu_compiler,
                     "nvrtc, hiprtc or clang; default: NVRTC for sm_*, for gfx* hipRTC where it "
                     "is found and knows the arch, else Clang")
        ->check(CLI::IsMember({"nvrtc", "hiprtc", "clang"}))
        ->group(kForExperts);
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->add_flag("--no-source", flags->no_source, "leave the sources out");
    command->footer("Example: cleave emit models/bundled --devices host --compile --no-source");
    command->callback([flags] { run_emit(*flags); });
}

}  // namespace cleave::tools
