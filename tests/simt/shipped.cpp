// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/shipped.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "codegen/kernel/occupancy.h"
#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/peer_rig.h"

namespace cleave::test {

namespace simt = runtime::simt;

namespace {

using Make = std::function<KernelCase()>;

// Whether no other architecture of the list compiles the same code for the kernel, for the same
// instruction.
bool is_its_own(const KernelCase& c, const codegen::Kernel& kernel, const std::string& arch) {
    if (arch == "sm_90a")  // else sm_80's
        return kernel.launch.overlaps || kernel.tile.main_loop == planner::MainLoop::kWarpgroups;
    if (arch == "gfx942" || arch == "sm_75") return false;  // gfx90a's, gfx1030's
    const bool tiles = kernel.form == codegen::KernelForm::kGemm ||
                       kernel.form == codegen::KernelForm::kPrefillAttention;
    if (arch == "gfx908")  // gfx90a's, but for bf16
        return tiles && std::any_of(c.operands.begin(), c.operands.end(), [](const auto& operand) {
                   return operand.dtype() == DType::kBF16;
               });
    if (arch == "gfx906")  // no instruction in wide warps
        return tiles;
    if (arch == "gfx1030" ||
        arch == "gfx1201")  // gfx1100's, but products of 16 bits have another instruction, or none
        return c.matrix_tolerance > 1e-4 && tiles;
    return true;
}

codegen::CompiledKernel compile(const std::string& source, const std::string& name,
                                const std::string& arch, bool checked = true) {
    codegen::SimtCompileOptions options;
    options.file_name = "stub";
    options.checks = checked;
    return codegen::compile_simt_kernel(source, name, codegen::gpu_arch(arch), options);
}

// Which row it was, and what was wrong.
std::string wrong_in_row(const Make& make, const Target& target, const SourceChange& change,
                         uint64_t first, int orders) {
    const KernelCase drawn = make();
    const codegen::Kernel kernel = make_kernel(drawn, target);
    const simt::SimtProgram program(
        compile(change ? change(kernel.source) : kernel.source, kernel.name, target.name),
        codegen::gpu_arch(target.name));
    for (uint64_t seed = first; seed < first + static_cast<uint64_t>(orders); ++seed) {
        KernelCase c = drawn;
        const Outcome outcome = run_on_simt(c, kernel, program, {seed, seed > 0, 0});
        const std::string wrong =
            outcome.report.clean() ? outcome.wrong : outcome.report.finding->text();
        if (!wrong.empty())
            return fmt::format("{} on {}, seed {}: {}", c.name, target.name, seed, wrong);
    }
    return "";
}

std::vector<std::byte> bytes_of(const GuardedBuffer& buffer) {
    const auto* begin = reinterpret_cast<const std::byte*>(buffer.word());
    return {begin, begin + buffer.bytes()};
}

bool has_same_bits(const Make& make, const Target& target, const SourceChange& change, int orders) {
    const KernelCase drawn = make();
    const codegen::Kernel kernel = make_kernel(drawn, target);
    std::vector<std::vector<std::byte>> want;
    for (const std::string& source : {kernel.source, change(kernel.source)}) {
        const simt::SimtProgram program(compile(source, kernel.name, target.name, false),
                                        codegen::gpu_arch(target.name));
        const bool changed = !want.empty();
        for (int seed = 1; seed <= (changed ? orders : 1); ++seed) {
            KernelCase c = drawn;
            const Outcome outcome =
                run_on_simt(c, kernel, program, {static_cast<uint64_t>(seed), true, 0});
            std::vector<std::vector<std::byte>> got;
            for (const KernelCase::Result& result : c.results)
                got.push_back(bytes_of(c.operand(result.operand)));
            if (!changed) want = got;
            if (!outcome.report.clean() || got != want) return false;
        }
    }
    return true;
}

Shipped row(const Make& make, const Target& target) {
    const KernelCase c = make();
    const auto kernel = [=] { return make_kernel(make(), target); };
    Shipped shipped;
    shipped.name = fmt::format("{}, {} units", c.name, target.units);
    shipped.own = is_its_own(c, kernel(), target.name);
    shipped.sources = [=] { return std::vector{kernel().source}; };
    shipped.wrong = [=](const SourceChange& change, uint64_t first, int orders) {
        return wrong_in_row(make, target, change, first, orders);
    };
    shipped.objects = [=](const SourceChange& change) {
        const codegen::Kernel k = kernel();
        return std::vector<std::vector<std::byte>>{
            compile(change ? change(k.source) : k.source, k.name, target.name).object};
    };
    shipped.same_bits = [=](const SourceChange& change, int orders) {
        return has_same_bits(make, target, change, orders);
    };
    return shipped;
}

std::string wrong_in_exchange(const PeerScenario& scenario, const SourceChange& change,
                              uint64_t first, int orders,
                              std::map<std::string, codegen::CompiledKernel>& compiled) {
    for (uint64_t seed = first; seed < first + static_cast<uint64_t>(orders); ++seed) {
        PeerRig rig(scenario.arch, scenario.devices,
                    {.seed = seed,
                     .activations = scenario.activations,
                     .change = [&](const std::string& source,
                                   size_t) { return change ? change(source) : source; },
                     .compiled = &compiled});
        std::string wrong;
        try {
            wrong = scenario.wrong(rig);
        } catch (const InternalError& error) {
            wrong = error.what();
        }
        if (!wrong.empty())
            return fmt::format("{} on {}, seed {}: {}", scenario.name, scenario.arch, seed, wrong);
    }
    return "";
}

// Its sums have the staged sum's bits or are wrong, so that nothing but `wrong` is to be asked.
Shipped exchange(const PeerScenario& scenario) {
    using Compiled = std::map<std::string, codegen::CompiledKernel>;
    Shipped shipped;
    shipped.name = scenario.name;
    shipped.sources = [&scenario] {
        Compiled compiled;
        wrong_in_exchange(scenario, {}, 1, 1, compiled);
        std::vector<std::string> sources;
        for (const auto& [source, kernel] : compiled) sources.push_back(source);
        return sources;
    };
    shipped.wrong = [&scenario](const SourceChange& change, uint64_t first, int orders) {
        Compiled compiled;
        return wrong_in_exchange(scenario, change, first, orders, compiled);
    };
    shipped.objects = [&scenario](const SourceChange& change) {
        Compiled compiled;
        wrong_in_exchange(scenario, change, 1, 1, compiled);
        std::vector<std::vector<std::byte>> objects;
        for (const auto& [source, kernel] : compiled) objects.push_back(kernel.object);
        std::sort(objects.begin(), objects.end());
        return objects;
    };
    shipped.same_bits = [wrong = shipped.wrong](const SourceChange& change, int orders) {
        return wrong(change, 1, orders).empty();
    };
    return shipped;
}

}  // namespace

const std::vector<std::string>& shipped_archs() {
    static const std::vector<std::string> kArchs{
        "sm_90a", "sm_80", "gfx90a", "gfx942", "gfx1100", "gfx1030", "gfx1201", "gfx908", "gfx906"};
    return kArchs;
}

planner::Tile tile_of_parts(const std::string& arch) {
    planner::ProductShape shape{512, 24, 1, 4};
    planner::Tile tile = planner::product_tile(limits_of(arch, 8), shape);
    planner::set_arch(arch, shape);
    tile.depth = 128;
    tile.stages = shape.async_copies ? 2 : 0;  // of four that a row has
    tile.shared_bytes = planner::product_shared_bytes(limits_of(arch, 8), shape, tile);
    return tile;
}

std::vector<Shipped> shipped_exchanges(const std::string& arch) {
    std::vector<Shipped> all;
    for (const PeerScenario& scenario : peer_scenarios())
        if (scenario.arch == arch) all.push_back(exchange(scenario));
    return all;
}

std::vector<Shipped> shipped_kernels(const std::string& arch) {
    std::vector<Shipped> all;
    if (codegen::gpu_arch(arch).warpgroups)
        for (int64_t units : {1, 8})  // large tiles, and small ones
            for (const Make& make : warpgroup_cases()) all.push_back(row(make, {arch, units, {}}));
    all.push_back(row([] { return linear_case(DType::kF32, 512, 24, 1, {.norm = true}); },
                      {arch, 8, tile_of_parts(arch)}));
    for (Shipped& shipped : shipped_exchanges(arch)) all.push_back(std::move(shipped));
    for (const Make& make : all_cases()) all.push_back(row(make, {arch, 8, {}}));
    return all;
}

}  // namespace cleave::test
