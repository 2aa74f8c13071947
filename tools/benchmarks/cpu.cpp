// SPDX-License-Identifier: Apache-2.0
// `tools/bench cpu`: decode and prefill of a 110M-shape f32 model with random weights on host devices, as shares of what
// the same machine reaches in a plain read loop over memory. Prints one table; nothing here is a test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "importer/import.h"
#include "models/onnx_writer.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/generate.h"

namespace {

using namespace cleave;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Best of several sums over `bytes` of memory, split over `threads`, in bytes/s.
double read_bandwidth(int threads, size_t bytes) {
    std::vector<uint64_t> data(bytes / sizeof(uint64_t), 1);
    std::vector<uint64_t> sums(static_cast<size_t>(threads));
    double best = 0;
    for (int repeat = 0; repeat < 8; ++repeat) {
        auto start = Clock::now();
        std::vector<std::thread> team;
        for (int t = 0; t < threads; ++t)
            team.emplace_back([&, t] {
                size_t begin = data.size() * static_cast<size_t>(t) / static_cast<size_t>(threads);
                size_t end =
                    data.size() * static_cast<size_t>(t + 1) / static_cast<size_t>(threads);
                uint64_t lanes[8] = {};
                for (size_t i = begin; i + 8 <= end; i += 8)
                    for (size_t l = 0; l < 8; ++l) lanes[l] += data[i + l];
                for (uint64_t lane : lanes) sums[static_cast<size_t>(t)] += lane;
            });
        for (std::thread& thread : team) thread.join();
        best = std::max(best, static_cast<double>(bytes) / seconds_since(start));
    }
    // The sums are used, so that the loop is not optimised away.
    return sums[0] == 0 ? 0 : best;
}

// Bytes of weights that one decode step reads: all but the embedding table, of which it reads a row (a tied table is
// read whole by lm_head).
int64_t decode_weight_bytes(const importer::Graph& graph) {
    int64_t bytes = 0;
    for (const importer::Op& op : graph.ops)
        if (op.kind != importer::OpKind::kEmbedding)
            for (importer::WeightId w : op.weights) bytes += graph.weight(w).packed_bytes();
    return bytes;
}

struct Result {
    double decode_ms = 0, prefill_ms = 0, predicted_decode_ms = 0;
};

Result measure(const importer::Graph& graph, const std::string& devices, int tensor_parallel,
               int pipeline_stages) {
    planner::Workload workload;
    workload.context = 512;
    workload.prompt_tokens = 256;
    planner::PlanOptions options;
    options.tensor_parallel = tensor_parallel;
    options.pipeline_stages = pipeline_stages;
    planner::Machine machine =
        planner::build_machine(planner::parse_devices(devices), planner::read_host_facts());
    planner::Plan plan = planner::make_plan(graph, machine, workload, options);
    runtime::Session session(plan, {});
    std::vector<int32_t> prompt(256);
    for (size_t i = 0; i < prompt.size(); ++i)
        prompt[i] =
            static_cast<int32_t>((i * 7919 + 1) % static_cast<size_t>(graph.config.vocab_size));
    runtime::GenerateOptions generate;
    generate.max_new_tokens = 48;
    Result best;
    best.predicted_decode_ms = static_cast<double>(plan.prediction.decode_ns_per_token) / 1e6;
    for (int repeat = 0; repeat < 3; ++repeat) {
        runtime::GenerateResult r = runtime::generate(session, plan, {prompt}, generate);
        best.decode_ms =
            repeat ? std::min(best.decode_ms, r.decode_ms_per_token) : r.decode_ms_per_token;
        best.prefill_ms = repeat ? std::min(best.prefill_ms, r.prefill_ms) : r.prefill_ms;
    }
    return best;
}

importer::Graph random_model(const std::string& shape_name) {
    std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("cleave-bench-" + shape_name);
    if (!std::filesystem::exists(folder / "model.onnx")) {
        models::WriteOptions write;
        write.dtype = DType::kF32;
        models::write_onnx_llama(*models::find_shape(shape_name), folder.string(), write);
    }
    return importer::import_onnx(folder.string());
}

void table(const std::string& shape_name) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const double bandwidth = read_bandwidth(cores, size_t{1} << 30);
    importer::Graph graph = random_model(shape_name);
    const int64_t bytes = decode_weight_bytes(graph);
    fmt::print(
        "{} f32, random weights, {} cores; plain read loop {:.1f} GB/s; a token reads {:.0f} MB of "
        "weights\n\n",
        shape_name, cores, bandwidth / 1e9, static_cast<double>(bytes) / 1e6);
    fmt::print("{:<22} {:>10} {:>10} {:>10} {:>12} {:>10} {:>12} {:>12}\n", "devices", "ms/token",
               "GB/s", "of limit", "of 1 device", "predicted", "prefill 256", "GFLOP/s");
    struct Case {
        const char* devices;
        int tp, pp;
    };
    double one = 0;
    for (const Case& c :
         {Case{"host", 1, 1}, Case{"host[0-1]", 2, 1}, Case{"host[0-1]", 1, 2},
          Case{"host[0-3]", 2, 2}, Case{"host[0-7]", 8, 1}, Case{"host[0-7]", 0, 0}}) {
        Result r = measure(graph, c.devices, c.tp, c.pp);
        if (one == 0) one = r.decode_ms;
        const double rate = static_cast<double>(bytes) / (r.decode_ms * 1e-3);
        // Every weight meets every token once, but lm_head's: its rows are computed for the last token alone.
        const int64_t head = graph.config.vocab_size * graph.config.hidden_size * 4;
        const double flops = 2.0 * static_cast<double>(bytes - head) / 4 * 256;
        2.0 * static_cast<double>(bytes) / 4 * 256;  // every weight meets every token once
        std::string name =
            fmt::format("{}{}", c.devices,
                        c.tp ? fmt::format(" tp {} pp {}", c.tp, c.pp) : std::string(" (chosen)"));
        fmt::print(
            "{:<22} {:>10.2f} {:>10.1f} {:>9.0f}% {:>11.2f}x {:>7.2f} ms {:>9.1f} ms {:>12.0f}\n",
            name, r.decode_ms, rate / 1e9, 100 * rate / bandwidth, r.decode_ms / one,
            r.predicted_decode_ms, r.prefill_ms, flops / (r.prefill_ms * 1e-3) / 1e9);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        table(argc > 1 ? argv[1] : "llama-110m");
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
