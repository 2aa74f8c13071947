// SPDX-License-Identifier: Apache-2.0
// `tools/bench gpu`: what a Llama shape with random weights in bf16 reaches on a GPU, as shares of what the same card reaches
// otherwise: decode against its copy bandwidth (bytes read and written), prefill against the rate of PyTorch's matmul where a
// Python with it is named. Times are the host's, over passes in a row. The gaps between launches are not measured yet.
//   cleave_bench_gpu benchmark|random_model [--device cuda[0]] [--shape llama-3-8b] [--python PYTHON] [--nvrtc PATH]
//       [--copy-mib 4096] [--tokens 512]
// --tokens: of past in decode; prefill takes four times as many. random_model only generates, twice, and compares. Exit code 1 with the reason where no GPU is at hand.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codegen/compiler.h"
#include "codegen/kernel_spec.h"
#include "models/stand_in_weights.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/generate.h"
#include "runtime/gpu_devices.h"
#include "runtime/open_devices.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/gpu_check/process.h"

namespace {

using namespace cleave;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kNewTokens = 64, kRepeats = 5, kMatmulSeconds = 120;

struct BenchFlags {
    std::string mode, device, shape = "llama-3-8b", python, nvrtc, copy_mib = "4096",
                              tokens = "512";
};

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
double middle(std::vector<double> values) {
    std::nth_element(values.begin(),
                     values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

planner::Machine machine_of(const std::string& device) {
    std::string list = device.empty() ? runtime::found_gpus() : device;
    if (list.empty()) {
        std::string why;
        for (planner::DeviceKind kind : {planner::DeviceKind::kCuda, planner::DeviceKind::kHip})
            why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", planner::device_kind_name(kind),
                               runtime::gpu_driver(kind).reason);
        throw UserError("no GPU is at hand, nothing was measured: {}", why);
    }
    std::vector<planner::DeviceSpec> specs = planner::parse_devices(list);
    if (device.empty()) specs.resize(1);
    return planner::build_machine(specs, planner::read_host_facts(), &runtime::real_gpus());
}

class GpuBench {
public:
    explicit GpuBench(const BenchFlags& flags)
        : flags_(flags),
          machine_(machine_of(flags.device)),
          graph_(bench::graph_of(flags.shape, DType::kBF16)),
          weights_(graph_) {
        compile_.nvrtc = flags.nvrtc;
    }

    Json random_model() {
        const planner::Plan plan = plan_for(256, kNewTokens);
        runtime::Session session(plan, options());
        std::vector<std::vector<int32_t>> tokens;
        for (int i = 0; i < 2; ++i) {
            runtime::GenerateOptions generate;
            generate.max_new_tokens = kNewTokens;
            tokens.push_back(
                runtime::generate(session, plan, {prompt(256)}, generate).sequences[0].token_ids);
        }
        if (tokens[0] != tokens[1])
            throw UserError("{}: the same prompt gave other tokens the second time", flags_.shape);
        const std::vector<float> logits = session.run(std::vector{first_pass(256)}).front();
        if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
            throw UserError("{}: logits that are no numbers", flags_.shape);
        return {{"shape", flags_.shape},
                {"dtype", "bf16"},
                {"tokens", tokens[0]},
                {"peak_memory_bytes", session.peak_memory_bytes()}};
    }

    Json benchmark() {
        Json json{{"device", machine_.devices[0].name},
                  {"model", machine_.devices[0].model},
                  {"shape", flags_.shape},
                  {"dtype", "bf16"},
                  {"clock", "host"}};
        const double copy = copy_bandwidth();
        json["copy_mib"] = std::stoll(flags_.copy_mib);
        json["copy_gb_per_s"] = copy / 1e9;
        decode(json, copy);
        prefill(json);
        return json;
    }

private:
    planner::Plan plan_for(int64_t prompt_tokens, int64_t new_tokens) const {
        planner::Workload workload;
        workload.prompt_tokens = prompt_tokens;
        workload.prefill_chunk = prompt_tokens;
        workload.context = prompt_tokens + new_tokens;
        return planner::make_plan(graph_, machine_, workload, {});
    }
    runtime::SessionOptions options() const {
        runtime::SessionOptions options;
        options.compile = compile_;
        return options;
    }
    std::vector<int32_t> prompt(int64_t tokens) const {
        return bench::prompt(tokens, graph_.config.vocab_size);
    }
    runtime::Batch first_pass(int64_t tokens) const {
        runtime::Batch batch;
        batch.is_prefill = true;
        batch.token_ids = prompt(tokens);
        batch.positions.resize(batch.token_ids.size());
        std::iota(batch.positions.begin(), batch.positions.end(), 0);
        batch.slots.assign(batch.token_ids.size(), 0);
        batch.sequence_starts = {0, static_cast<int32_t>(tokens)};
        batch.output_rows = {static_cast<int32_t>(tokens) - 1};
        return batch;
    }

    // Bytes read and written a second, by a kernel that copies 4 GiB unless told, or a quarter of what is free.
    double copy_bandwidth() const {
        planner::Plan plan;
        plan.machine.devices = {machine_.devices[0]};
        auto device = std::move(runtime::open_devices(plan, {}).front());
        const planner::Device& info = device->info();
        constexpr int64_t kRow = 4096;
        const int64_t room = (info.memory_bytes - info.reserved_bytes) / 4;
        const int64_t rows =
            std::min<int64_t>(std::stoll(flags_.copy_mib) << 20, room) / (4 * kRow);
        const int64_t bytes = rows * kRow * 4;
        codegen::GpuTarget target;
        target.device = info.arch;
        target.limits = info.limits;
        codegen::Program program;
        program.arch = info.arch;
        program.kernels = {
            codegen::make_gpu_helper(codegen::CopySpec{kRow, DType::kF32, DType::kF32}, target)};
        const codegen::Kernel& kernel = program.kernels[0];
        device->load(codegen::compile_program(program, compile_));
        const runtime::DeviceAddress from = device->allocate(bytes, "the source of a copy");
        const runtime::DeviceAddress to = device->allocate(bytes, "its destination");
        device->fill(from, bytes, 1);
        const uint64_t args[] = {from, static_cast<uint64_t>(kRow), to,
                                 static_cast<uint64_t>(kRow)};
        std::array<int64_t, 3> grid;
        for (size_t i = 0; i < 3; ++i) grid[i] = kernel.launch.grid[i].at(rows, rows, 1);
        std::vector<double> ms;
        for (int repeat = 0; repeat <= kRepeats; ++repeat) {
            device->synchronize();
            const auto start = Clock::now();
            device->launch(0, args, grid, kernel.launch);
            device->synchronize();
            if (repeat > 0) ms.push_back(ms_since(start));  // the first warms up
        }
        return 2.0 * static_cast<double>(bytes) / (middle(ms) * 1e-3);
    }

    double weight_bytes() const { return static_cast<double>(bench::decode_weight_bytes(graph_)); }

    void decode(Json& json, double copy) const {
        const int64_t past = std::stoll(flags_.tokens);
        const planner::Plan plan =
            plan_for(std::max<int64_t>(1, past - kNewTokens / 2), kNewTokens);
        runtime::Session session(plan, options());
        std::vector<double> token_ms;
        std::optional<Clock::time_point> last;
        runtime::GenerateOptions generate;
        generate.max_new_tokens = kNewTokens;
        generate.on_token = [&](size_t, int32_t) {
            if (last) token_ms.push_back(ms_since(*last));
            last = Clock::now();
            return true;
        };
        runtime::generate(session, plan, {prompt(std::max<int64_t>(1, past - kNewTokens / 2))},
                          generate);
        const double ms = middle(token_ms);
        json["decode"] = {
            {"past", past},
            {"ms_per_token", ms},
            {"weight_gb_per_s", weight_bytes() / ms / 1e6},
            {"of_copy_bandwidth", weight_bytes() / (ms * 1e-3) / copy},
            {"goal", 0.9},
            {"launch_gaps_of_token", nullptr},
            {"launch_gaps_reason", "not measured: a step of the trace ends where the next begins"}};
    }

    void prefill(Json& json) const {
        const int64_t tokens = 4 * std::stoll(flags_.tokens);
        const planner::Plan plan = plan_for(tokens, 1);
        runtime::Session session(plan, options());
        std::vector<double> ms;
        for (int repeat = 0; repeat <= kRepeats; ++repeat) {
            const auto start = Clock::now();
            session.run(std::vector{first_pass(tokens)});
            if (repeat > 0) ms.push_back(ms_since(start));
        }
        // Each weight meets each token once, two operations; lm_head's only the last one. Attention is not counted.
        const double head = static_cast<double>(
            dtype_bytes(DType::kBF16, graph_.config.vocab_size * graph_.config.hidden_size));
        const double flops = (weight_bytes() - head) / 2 * 2 * static_cast<double>(tokens);
        const double rate = flops / (middle(ms) * 1e-3);
        json["prefill"] = {
            {"tokens", tokens}, {"ms", middle(ms)}, {"tflops", rate / 1e12}, {"goal", 0.7}};
        std::string why = "no --python with PyTorch was named";
        if (const double matmul = flags_.python.empty() ? 0 : matmul_rate(why); matmul > 0) {
            json["prefill"]["matmul_tflops"] = matmul / 1e12;
            json["prefill"]["of_matmul"] = rate / matmul;
        } else {
            json["prefill"]["of_matmul"] = nullptr;
            json["prefill"]["reason"] = why;
        }
    }

    // What PyTorch's matmul of 8192 x 8192 in bf16 reaches on the same card; 0 with the reason.
    double matmul_rate(std::string& why) const {
        const std::string script = fmt::format(
            "import torch,time\n"
            "d=torch.device('cuda',{})\n"
            "n=8192\n"
            "a=torch.randn(n,n,device=d,dtype=torch.bfloat16);b=torch.randn_like(a)\n"
            "for _ in range(10): a@b\n"
            "torch.cuda.synchronize(d);t=time.perf_counter()\n"
            "for _ in range(50): a@b\n"
            "torch.cuda.synchronize(d);print(2*n**3*50/(time.perf_counter()-t))\n",
            machine_.devices[0].index);
        const gpu_check::Outcome ran =
            gpu_check::run({flags_.python, "-c", script}, kMatmulSeconds);
        if (ran.code == 0) return std::strtod(ran.output.c_str(), nullptr);
        why = ran.timed_out
                  ? fmt::format("{} with PyTorch: not done in {} s", flags_.python, kMatmulSeconds)
                  : fmt::format("{} with PyTorch: {}{}", flags_.python, ran.output, ran.errors);
        return 0;
    }

    BenchFlags flags_;
    planner::Machine machine_;
    importer::Graph graph_;
    models::StandInWeights weights_;
    codegen::CompileOptions compile_;
};

BenchFlags parse(int argc, char** argv) {
    BenchFlags flags;
    const std::map<std::string, std::string*> values{
        {"--device", &flags.device},     {"--shape", &flags.shape},   {"--python", &flags.python},
        {"--copy-mib", &flags.copy_mib}, {"--tokens", &flags.tokens}, {"--nvrtc", &flags.nvrtc}};
    flags.mode = "benchmark";
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "benchmark" || word == "random_model")
            flags.mode = word;
        else if (auto found = values.find(word); found != values.end() && i + 1 < argc)
            *found->second = argv[++i];
        else
            throw UserError("{} is no flag; see the first lines of tools/benchmarks/gpu.cpp", word);
    }
    return flags;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const BenchFlags flags = parse(argc, argv);
        GpuBench bench(flags);
        const Json json = flags.mode == "benchmark" ? bench.benchmark() : bench.random_model();
        fmt::print("{}\n", json.dump(2));
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
