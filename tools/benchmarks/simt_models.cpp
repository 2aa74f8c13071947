// SPDX-License-Identifier: Apache-2.0
// The second half of `tools/bench simt`: whole models on devices that simt imitates, with and
// without checks. Prints a line a figure; nothing here is a test. Compilations are processor time;
// tokens are times of the wall, in which other work counts.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "codegen/compile/simt.h"
#include "codegen/generate.h"
#include "importer/onnx/import.h"
#include "models/onnx_writer.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/generate/generate.h"

namespace {

using namespace cleave;

// Of the whole process: what the work costs, without what else runs.
double processor_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

models::Shape shape(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads,
                    int64_t kv_heads, int64_t vocabulary) {
    models::Shape s = *models::find_shape("stories-260k");
    s.name = fmt::format("{} layers x hidden {}", layers, hidden);
    s.config.hidden_size = hidden;
    s.config.intermediate_size = intermediate;
    s.config.num_layers = static_cast<int>(layers);
    s.config.num_heads = heads;
    s.config.num_kv_heads = kv_heads;
    s.config.head_dim = hidden / heads;
    s.config.vocab_size = vocabulary;
    return s;
}

planner::Plan plan_for(const importer::Graph& graph, const std::string& devices, int tp) {
    planner::Workload workload;
    workload.context = 128;
    workload.prompt_tokens = 16;
    workload.prefill_chunk = 16;
    planner::PlanOptions options;
    options.tensor_parallel = tp;
    options.pipeline_stages = tp > 0 ? 1 : 0;
    return planner::make_plan(
        graph, planner::build_machine(planner::parse_devices(devices), planner::read_host_facts()),
        workload, options);
}

void print_compilation(const planner::Plan& plan) {
    codegen::Program program = codegen::generate_program(plan, planner::DeviceId(0));
    const codegen::GpuArch& arch = codegen::gpu_arch(plan.machine.devices[0].arch);
    auto compile = [&](const codegen::Kernel& kernel) {
        double start = processor_seconds();
        codegen::compile_simt_kernel(kernel.source, kernel.name, arch, {});
        return processor_seconds() - start;
    };
    double once = 0;
    for (const codegen::Kernel& kernel : program.kernels) once += compile(kernel);
    fmt::print("  {} kernels, each once, compiled with checks in {:.0f} ms each\n",
               program.kernels.size(), once * 1e3 / static_cast<double>(program.kernels.size()));
    for (const codegen::Kernel& kernel : program.kernels) {
        double best = 1e9;
        for (int repeat = 0; repeat < 3; ++repeat) best = std::min(best, compile(kernel));
        fmt::print("  {:<36} compiled with checks in {:.0f} ms\n", kernel.name, best * 1e3);
    }
}

void print_tokens(planner::Plan& plan, bool checks) {
    runtime::SessionOptions options;
    options.compile.simt_checks = checks;
    runtime::Session session(plan, options);
    runtime::GenerateOptions generate;
    generate.max_new_tokens = 2;
    std::vector<int32_t> prompt = {1, 403, 407, 261, 378};
    runtime::generate(session, plan, {prompt}, generate);
    constexpr int kTokens = 9;
    generate.max_new_tokens = kTokens;
    double start = processor_seconds();
    runtime::GenerateResult r = runtime::generate(session, plan, {prompt}, generate);
    double used = processor_seconds() - start;
    fmt::print(
        "  {} checks: prefill {:.0f} ms, {:.0f} ms a token; {:.0f} ms of processors in all\n",
        checks ? "with" : "without", r.prefill_ms, r.decode_ms_per_token, used * 1e3);
}

void measure(const models::Shape& s, const std::string& devices, int tp, bool compilation) {
    std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                   fmt::format("cleave-bench-{}", s.config.hidden_size);
    models::WriteOptions write;
    write.dtype = DType::kF32;
    models::write_onnx_llama(s, folder.string(), write);
    importer::Graph graph = importer::import_onnx(folder.string());
    planner::Plan plan = plan_for(graph, devices, tp);
    fmt::print("{} on {}\n", s.name, devices);
    if (compilation) print_compilation(plan);
    for (bool checks : {true, false}) print_tokens(plan, checks);
}

}  // namespace

int main() {
    try {
        models::Shape small = shape(64, 172, 5, 8, 4, 512),
                      stories15m = shape(288, 768, 6, 6, 6, 32000);
        measure(small, "simt:sm_80[0-7]", 8, true);
        measure(small, "simt:gfx90a[0-7]", 8, true);
        measure(stories15m, "simt:sm_80[0]", 1, false);
        measure(stories15m, "simt:gfx90a[0]", 1, false);
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
