// SPDX-License-Identifier: Apache-2.0
// What plans of Llamas really emit, through every run-time compiler: no device is needed; a
// compiler that is absent is a skip with the reason. [slow]: every arch that a compiler knows, with
// a report in the folder $CLEAVE_SWEEP_REPORT (tools/test --all: tests/reports). And how many
// launches a layer takes.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/compile/choose.h"
#include "codegen/compile/vendor.h"
#include "codegen/compile/worker_pool.h"
#include "codegen/generate.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/codegen/support/plan_programs.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using test::absence;
using test::KernelTotals;
using test::through;

namespace {

std::set<int> kernels_of(const std::vector<Instruction>& phase) {
    std::set<int> kernels;
    for (const Instruction& instruction : phase) kernels.insert(instruction.kernel);
    return kernels;
}

// What the names of the arch's matrix instructions begin with, where they are counted.
std::string family_of(const GpuArch& arch) {
    switch (arch.matrix) {
        case MatrixInstruction::kNone: return "";
        case MatrixInstruction::kMmaSync: return arch.warpgroups ? "wgmma.mma_async" : "mma.sync";
        case MatrixInstruction::kMfma:
        case MatrixInstruction::kMfmaGfx908:
        case MatrixInstruction::kMfmaGfx90a: return "v_mfma";
        case MatrixInstruction::kWmmaGfx11:
        case MatrixInstruction::kWmmaGfx12: return "v_wmma";
    }
    return "";
}

// Every kernel of a prompt, products and attention each, multiplies by the instruction that its
// arch has for 16 bits, and no other kernel does. Where warpgroups have one of their own, it is
// theirs, without a spilled register.
void check_census(const Program& program, const std::vector<CompiledKernel>& compiled,
                  const GpuArch& arch) {
    int products = 0, attentions = 0;
    for (size_t i = 0; i < compiled.size(); ++i) {
        CAPTURE(compiled[i].name, compiled[i].counted_in);
        const KernelForm form = program.kernels[i].form;
        const bool attends = form == KernelForm::kPrefillAttention;
        const bool multiplies = form == KernelForm::kGemm;
        products += multiplies;
        attentions += attends;
        const auto& counts = compiled[i].matrix_instructions;
        const bool expected = (attends || multiplies) && arch.matrix != MatrixInstruction::kNone;
        CHECK(counts.empty() != expected);
        for (const auto& [name, count] : counts) {
            CAPTURE(name);
            CHECK(name.starts_with(family_of(arch)));
            CHECK(count > 0);
        }
        if (expected && arch.warpgroups) CHECK(compiled[i].measured.spill_bytes == 0);
    }
    CHECK(products >= 4);  // q, k and v; o; gate and up; down
    CHECK(attentions >= 1);
}

struct PlanKernels {
    std::string compiler;
    KernelTotals decode, prompt;  // what both run counts as decode's
};

// Compiles a plan's kernels and checks what their objects say.
PlanKernels check_plan(const std::string& shape, int devices, const GpuArch& arch,
                       const std::string& compiler) {
    CAPTURE(shape, arch.name, compiler);
    const auto [program, compiled] =
        compile(test::program_for(shape, arch, devices), through(compiler));
    REQUIRE(compiled.size() == program.kernels.size());
    const std::set<int> decode = kernels_of(program.decode);
    // NVRTC 13.0 takes 40 registers and 12 bytes of stack for q, k and v of 405B on sm_80 with
    // every tile.
    const int64_t spills_allowed = shape == "llama-3.1-405b" ? 12 : 0;
    PlanKernels found;
    for (size_t i = 0; i < compiled.size(); ++i) {
        const Resources& r = compiled[i].measured;
        CAPTURE(compiled[i].name, compiled[i].compiler, r.registers, r.spill_bytes, r.stack_bytes,
                r.shared_bytes);
        CHECK(compiled[i].name == program.kernels[i].name);
        CHECK(r.known);
        CHECK(r.registers > 0);
        CHECK(r.code_bytes > 0);
        CHECK(r.shared_bytes >= program.kernels[i].launch.shared_bytes);
        CHECK(r.shared_bytes <= arch.shared_bytes);
        CHECK_FALSE(compiled[i].counted_in.empty());
        const bool in_decode = decode.count(static_cast<int>(i)) > 0;
        const bool by_multiply_adds =
            arch.matrix == MatrixInstruction::kNone && compiled[i].name.starts_with("attention");
        if (by_multiply_adds || in_decode) CHECK(r.spill_bytes <= spills_allowed);
        (in_decode ? found.decode : found.prompt).add(compiled[i]);
        found.compiler = compiled[i].compiler;
    }
    CHECK(found.decode.kernels >= 6);  // five of a layer, the head
    CHECK(found.prompt.kernels >= 5);
    check_census(program, compiled, arch);
    return found;
}

// ---- Every arch of a compiler

// Those that Cleave writes kernels for, and why a compiler has nothing for some of them.
struct KnownArchs {
    std::vector<const GpuArch*> known;
    std::vector<std::string> unknown;
};
KnownArchs ask_compiler(const std::string& compiler) {
    KnownArchs answer;
    for (const GpuArch& arch : gpu_archs()) {
        if ((arch.vendor == planner::Vendor::kNvidia) != (compiler == "nvrtc")) continue;
        try {
            make_gpu_compiler(arch, through(compiler));
            answer.known.push_back(&arch);
        } catch (const UserError& error) {
            CAPTURE(arch.name);
            // No other reason will do.
            CHECK_THAT(error.what(), Catch::Contains(fmt::format("not know {}", arch.name)) ||
                                         Catch::Contains(fmt::format("GPU '{}'", arch.name)));
            answer.unknown.emplace_back(arch.name);
        }
    }
    return answer;
}

std::string report_line(const GpuArch& arch, const std::string& plan, const char* phase,
                        const KernelTotals& k) {
    return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", arch.name, plan, phase,
                       k.kernels, k.shrunk, k.registers, k.shared, k.spilling, k.spills);
}

// `required`: those that every version of the compiler in use knows.
void compile_plans(const std::string& compiler, const std::vector<const char*>& required) {
    if (std::string why = absence(compiler); !why.empty())
        CLEAVE_SKIP("no " + compiler + ": " + why);
    const KnownArchs archs = ask_compiler(compiler);
    for (const char* name : required) {
        CAPTURE(name);
        CHECK(std::any_of(archs.known.begin(), archs.known.end(),
                          [&](const GpuArch* arch) { return arch->name == name; }));
    }
    std::string table, by;
    for (const GpuArch* arch : archs.known)
        for (auto [shape, devices] : {std::pair("llama-3-8b", 1), std::pair("llama-3-70b", 8),
                                      std::pair("llama-3.1-405b", 8)}) {
            const PlanKernels found = check_plan(shape, devices, *arch, compiler);
            const std::string plan = fmt::format("{}, tp {}", shape, devices);
            table += report_line(*arch, plan, "decode", found.decode) +
                     report_line(*arch, plan, "prompt", found.prompt);
            by = found.compiler.substr(0, found.compiler.rfind(", "));
        }
    const char* folder = std::getenv("CLEAVE_SWEEP_REPORT");
    if (!folder || !*folder) return;
    const char* source = std::getenv("CLEAVE_SWEEP_SOURCE");
    std::ofstream out(fmt::format("{}/plans_{}.md", folder, compiler));
    out << fmt::format(
        "# Kernels of whole plans: {}\n\nWritten by `tools/test --all` ({}): every kernel that the "
        "first device of a plan has, bf16, context 4096, prompts of 512, for each architecture "
        "that this compiler knows{}. A kernel of decode that a prompt runs, too, is counted with "
        "decode. A tile shrank where the object of the larger one spilled registers or was over a "
        "limit. Most of any kernel of the row.\n\n"
        "| arch | plan | phase | kernels | shrunk | registers | shared bytes | that spill | bytes "
        "spilled |\n|---|---|---|---|---|---|---|---|---|\n{}",
        by, source && *source ? source : "source unknown",
        archs.unknown.empty()
            ? ""
            : fmt::format(" (it does not know {})", fmt::join(archs.unknown, ", ")),
        table);
}

// ---- Launches of a layer

// What a device launches for a prompt's layer, by what each computes.
std::vector<std::string> fused_in_prompt(const planner::Plan& plan, const Program& program,
                                         int layer) {
    std::vector<std::string> fused;
    for (const Instruction& i : program.prefill)
        if (plan.prefill.steps[i.step.index()].layer == layer && !i.of_singles)
            fused.push_back(fmt::format(
                "{}", fmt::join(program.kernels[static_cast<size_t>(i.kernel)].fused, " ")));
    return fused;
}

// What a device launches for one token of a layer, in order; an exchange by its name.
std::vector<std::string> launches_of_layer(const planner::Plan& plan, const Program& program,
                                           int layer) {
    std::vector<std::string> launches;
    for (const Instruction& instruction : program.decode) {
        const planner::Step& step = plan.decode.steps[instruction.step.index()];
        if (step.layer != layer) continue;
        const Kernel& kernel = program.kernels[static_cast<size_t>(instruction.kernel)];
        launches.emplace_back(step.collective() ? "sum" : planner::kernel_kind_name(kernel.kind));
    }
    return launches;
}

}  // namespace

TEST_CASE("products of a prompt add and store 16 bytes at a time, and wait for several at once",
          "[codegen]") {
    if (std::string why = absence("nvrtc"); !why.empty()) CLEAVE_SKIP("no NVRTC: " + why);
    CompileWorkers workers("nvrtc", {nvrtc_info({}).library}, 60, nullptr);
    for (const char* name : {"sm_80", "sm_90a", "sm_100"}) {
        const Program program = test::program_for("llama-3-8b", gpu_arch(name), 1);
        int with_residual = 0;
        for (const Kernel& kernel : program.kernels) {
            if (kernel.form != KernelForm::kGemm ||
                kernel.kind == planner::KernelKind::kNormQkvRopeAppend)
                continue;
            CAPTURE(name, kernel.name);
            const WorkerResult result =
                workers.compile(kernel.name + ".cu", kernel.source,
                                {fmt::format("--gpu-architecture={}", name), "--std=c++17"});
            REQUIRE(result.status == WorkerResult::Status::kOk);
            // Global memory is read by nothing but asynchronous copies and for the residual.
            const auto accesses = [&](const std::string& which) {
                int count = 0;
                for (size_t at = 0; (at = result.ptx.find(which, at)) != std::string::npos; ++at) {
                    CHECK(result.ptx.substr(at, which.size() + 3) == which + ".v4");
                    ++count;
                }
                return count;
            };
            const int loads = accesses("ld.global"), stores = accesses("st.global");
            CHECK(stores > 0);
            if (loads == 0) continue;
            ++with_residual;
            CHECK(loads == stores);
            CHECK(loads >= 4);
            CHECK(result.ptx.rfind("ld.global") < result.ptx.find("st.global"));
        }
        CHECK(with_residual == 2);  // output and down projections
    }
}

TEST_CASE("Clang compiles every kernel of 8B and 70B plans for an AMD GPU without ROCm",
          "[codegen]") {
    check_plan("llama-3-8b", 1, gpu_arch("gfx942"), "clang");
    check_plan("llama-3-70b", 8, gpu_arch("gfx90a"), "clang");
}

TEST_CASE("NVRTC compiles every kernel of an 8B plan to cubins that say what they need",
          "[codegen]") {
    if (std::string why = absence("nvrtc"); !why.empty()) CLEAVE_SKIP("no NVRTC: " + why);
    check_plan("llama-3-8b", 1, gpu_arch("sm_90a"), "nvrtc");
}

TEST_CASE("hipRTC compiles every kernel of an 8B plan, in a process of its own", "[codegen]") {
    if (std::string why = absence("hiprtc"); !why.empty()) CLEAVE_SKIP("no hipRTC: " + why);
    check_plan("llama-3-8b", 1, gpu_arch("gfx90a"), "hiprtc");
}

// sm_100 came with CUDA 12.8, and sm_70 went with 13.0; what else a compiler knows it compiles,
// too.
TEST_CASE("every kernel of 8B, 70B and 405B plans compiles for every arch that NVRTC knows",
          "[codegen][slow]") {
    compile_plans("nvrtc", {"sm_80", "sm_86", "sm_89", "sm_90a"});
}

TEST_CASE("every kernel of 8B, 70B and 405B plans compiles for every arch that hipRTC knows",
          "[codegen][slow]") {
    compile_plans("hiprtc", {"gfx906", "gfx908", "gfx90a", "gfx1030"});
}

TEST_CASE("every kernel of 8B, 70B and 405B plans compiles for every arch that Clang knows",
          "[codegen][slow]") {
    compile_plans("clang", {"gfx90a", "gfx942", "gfx1100", "gfx1201"});
}

TEST_CASE("a plan whose tile has less shared memory than its kernel needs is refused by name",
          "[codegen]") {
    const planner::Plan plan = test::plan_for_arch("tinyllama-1.1b", gpu_arch("sm_90a"), 1);
    // Each tile of a pass, those for few tokens too.
    for (const bool is_prefill : {true, false})
        for (size_t i = 0; i < plan.phase(is_prefill).steps.size(); ++i) {
            const planner::Compute* of = plan.phase(is_prefill).steps[i].compute();
            if (!of || of->tile.main_loop == planner::MainLoop::kNone) continue;
            if (plan.phase(is_prefill).steps[i].layer > 0) continue;
            for (size_t n = 0; n <= of->narrow.size(); ++n) {
                planner::Plan broken = plan;
                planner::Phase& phase = is_prefill ? broken.prefill : broken.decode;
                auto& compute = std::get<planner::Compute>(phase.steps[i].action);
                planner::Tile& tile = n == 0 ? compute.tile : compute.narrow[n - 1].tile;
                if (tile.shared_bytes == 0) continue;
                CAPTURE(is_prefill, i, n);
                tile.shared_bytes = 1;
                const std::string refusal =
                    test::user_error([&] { generate_program(broken, planner::DeviceId(0)); });
                CHECK_THAT(refusal,
                           Catch::Matchers::Contains("bytes of shared memory, and the plan has"));
            }
        }
}

TEST_CASE("a token of a Llama's layer takes five launches, and its two sums where devices share it",
          "[codegen]") {
    const std::vector<std::string> alone = {"norm_qkv_rope_append", "attention", "linear",
                                            "norm_gate_up", "linear"};
    const std::vector<std::string> shared = {"norm_qkv_rope_append", "attention", "linear", "sum",
                                             "norm_gate_up",         "linear",    "sum"};
    // A device without query heads: fewer key and value heads than devices.
    const std::vector<std::string> headless = {"sum", "norm_gate_up", "linear", "sum"};
    for (auto [arch, devices, idle] :
         {std::tuple("sm_90a", 1, 0), std::tuple("sm_90a", 2, 0), std::tuple("gfx942", 3, 0),
          std::tuple("gfx942", 5, 1), std::tuple("sm_90a", 8, 0)}) {
        const planner::Plan plan = test::plan_for_arch("tinyllama-1.1b", gpu_arch(arch), devices);
        int without_heads = 0;
        for (int device = 0; device < devices; ++device) {
            const Program program = generate_program(plan, planner::DeviceId(device));
            const bool computes = launches_of_layer(plan, program, 7).front() != "sum";
            without_heads += !computes;
            for (int layer : {0, 7, 21}) {
                CAPTURE(arch, devices, device, layer);
                CHECK(launches_of_layer(plan, program, layer) == (devices == 1 ? alone
                                                                  : computes   ? shared
                                                                               : headless));
            }
        }
        CHECK(without_heads == idle);
    }
}

TEST_CASE("a prompt's activations are prepared once for each product where copies are asynchronous",
          "[codegen]") {
    const std::string qkv = "linear linear linear rope rope kv_append", gate = "linear linear",
                      norm = "rms_norm";
    for (const char* arch : {"sm_80", "sm_90a", "sm_100", "gfx942", "sm_75"}) {
        const GpuArch& known = gpu_arch(arch);
        const bool prepares = known.vendor == planner::Vendor::kNvidia && known.number >= 80;
        CAPTURE(arch);
        const planner::Plan plan = test::plan_for_arch("llama-3-8b", known, 1);
        const Program program = generate_program(plan, planner::DeviceId(0));
        const std::vector<std::string> together = {
            fmt::format("{} {}", norm, qkv), "attention", "linear add",
            fmt::format("{} {} gated_activation", norm, gate), "linear add"};
        const std::vector<std::string> apart = {"rms_norm narrow",
                                                qkv,
                                                "attention",
                                                "narrow",
                                                "linear add",
                                                "rms_norm narrow",
                                                gate + " gated_activation",
                                                "narrow",
                                                "linear add"};
        CHECK(fused_in_prompt(plan, program, 7) == (prepares ? apart : together));
        // What the first launch writes the second one reads, from the scratch of their step.
        int pairs = 0;
        for (size_t i = 1; i < program.prefill.size(); ++i) {
            const Instruction &first = program.prefill[i - 1], &second = program.prefill[i];
            if (first.step != second.step || first.of_singles) continue;
            ++pairs;
            CHECK(first.args.back().kind == ArgKind::kScratch);
            CHECK(second.args.front().kind == ArgKind::kScratch);
            CHECK(first.args.back().id == second.args.front().id);
            const GpuOrigin& origin = *program.kernels[static_cast<size_t>(second.kernel)].origin;
            CHECK(std::visit(
                [](const auto& s) {
                    if constexpr (requires { s.prepared; }) return s.prepared;
                    return false;
                },
                origin.spec));
        }
        CHECK(pairs == (prepares ? 4 * 32 : 0));
    }
}
