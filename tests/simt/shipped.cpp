// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/shipped.h"

#include <set>

#include <fmt/format.h>

#include "codegen/gpu_arch.h"
#include "planner/gpu_tiles.h"
#include "runtime/base/errors.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/peer_rig.h"

namespace cleave::test {

namespace simt = runtime::simt;

namespace {

using Make = std::function<KernelCase()>;

// Whether no other architecture of the list has the same code for the kernel and runs it in all orders: else one is enough.
bool is_its_own(const KernelCase& c, const codegen::Kernel& kernel, const std::string& arch) {
    const auto has = [&](const char* text) {
        return kernel.source.find(text) != std::string::npos;
    };
    if (arch == "sm_90a") return has("kWarpgroups = true") || has("attention_warpgroups<Config>");
    if (arch == "gfx942") return false;  // gfx90a's
    const bool tiles = has("kMany = true") || has("kQueries = ");
    if (arch == "gfx908")  // gfx90a's, but for bf16
        return tiles && has("= bf16;");
    if (arch == "gfx906")  // no instruction for f32 in wide warps
        return tiles && c.matrix_tolerance <= 1e-4;
    if (arch == "gfx1030" ||
        arch == "gfx1201")  // products of 16 bits have another instruction, or none
        return c.matrix_tolerance > 1e-4 && tiles;
    return true;
}

// Which row it was, and what was wrong.
std::string wrong_in_row(const Make& make, const Target& target, const SourceChange& change,
                         uint64_t first, int orders) {
    const KernelCase drawn = make();
    const codegen::Kernel kernel = make_kernel(drawn, target);
    codegen::SimtCompileOptions options;
    options.file_name = "stub";
    const simt::SimtProgram program = simt::compile_simt(
        change ? change(kernel.source) : kernel.source, kernel.name, target.name, options);
    if (!is_its_own(drawn, kernel, target.name)) orders = 1;
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

Shipped row(const Make& make, const Target& target) {
    return {[=] { return std::vector<std::string>{make_kernel(make(), target).source}; },
            [=](const SourceChange& change, uint64_t first, int orders) {
                return wrong_in_row(make, target, change, first, orders);
            }};
}

// In every second order the threads of one device after another are late behind each barrier: what they still have to write or
// to read, a peer may not have, or change, before.
std::string wrong_in_exchange(const PeerScenario& scenario, const SourceChange& change,
                              uint64_t first, int orders) {
    std::map<std::string, codegen::CompiledKernel> compiled;
    for (uint64_t seed = first; seed < first + static_cast<uint64_t>(orders); ++seed) {
        PeerRig rig(scenario.arch, scenario.devices,
                    {.seed = seed,
                     .activations = scenario.activations,
                     .change =
                         [&](const std::string& source, size_t d) {
                             std::string text = change ? change(source) : source;
                             const bool late = seed % 2 == 0 && seed / 2 % scenario.devices == d;
                             return late ? with_late_threads(std::move(text)) : text;
                         },
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

Shipped exchange(const PeerScenario& scenario) {
    return {[&scenario] {
                std::set<std::string> sources;
                wrong_in_exchange(
                    scenario,
                    [&](const std::string& source) {
                        sources.insert(source);
                        return source;
                    },
                    1, 1);
                return std::vector<std::string>(sources.begin(), sources.end());
            },
            [&scenario](const SourceChange& change, uint64_t first, int orders) {
                return wrong_in_exchange(scenario, change, first, orders);
            }};
}

}  // namespace

const std::vector<std::string>& shipped_archs() {
    static const std::vector<std::string> archs{"sm_90a",  "sm_80",   "gfx90a", "gfx942", "gfx1100",
                                                "gfx1030", "gfx1201", "gfx908", "gfx906"};
    return archs;
}

std::vector<Shipped> shipped_kernels(const std::string& arch) {
    std::vector<Shipped> all;
    if (codegen::has_warpgroups(codegen::gpu_arch(arch)))
        for (int64_t units : {1, 8})  // large tiles, and small ones
            for (const Make& make : warpgroup_cases()) all.push_back(row(make, {arch, units, {}}));
    // Activations that do not fit at once: staged in four turns.
    planner::Tile tile = planner::product_tile(limits_of(arch, 8), {512, 24, 1, 4});
    tile.depth = 128;
    all.push_back(
        row([] { return linear_case(DType::kF32, 512, 24, 1, {.norm = true}); }, {arch, 8, tile}));
    for (const PeerScenario& scenario : peer_scenarios())
        if (scenario.arch == arch) all.push_back(exchange(scenario));
    for (const Make& make : all_cases()) {
        // What they share with gfx1100 or gfx90a is run there.
        if (arch == "gfx1201" || arch == "gfx908" || arch == "gfx906") {
            const KernelCase c = make();
            if (!is_its_own(c, make_kernel(c, {arch, 8, {}}), arch)) continue;
        }
        all.push_back(row(make, {arch, 8, {}}));
    }
    return all;
}

}  // namespace cleave::test
