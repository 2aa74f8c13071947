// SPDX-License-Identifier: Apache-2.0
// `tools/bench cpu`: decode and prefill of a Llama shape with random weights on host devices, as shares of what the same
// machine reaches in a plain read loop over memory, and beside what the planner predicts after measuring the machine as
// `cleave devices --measure` does. --steps adds each kernel. Prints one table; nothing here is a test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/llama_graph.h"
#include "models/stand_in_weights.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/generate.h"
#include "tools/cli/calibrate.h"

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

// What one case gave: predictions beside it.
struct Result {
    double decode_ms = 0, prefill_ms = 0, predicted_decode_ms = 0, predicted_prefill_ms = 0;
    double decode_low_ms = 0, decode_high_ms = 0;  // of a tenth and of nine tenths of the tokens
};

double quantile(std::vector<double>& values, double part) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

constexpr int64_t kPrompt = 256, kContext = 512;
constexpr int kNewTokens = 48, kRepeats = 3;

// Median microseconds a step and a pass, by kernel or collective, as the trace has them, beside the plan's.
void print_steps(const planner::Plan& plan, const runtime::Trace& trace, bool is_prefill) {
    struct Line {
        std::vector<double> us;
        double predicted_us = 0;
        std::set<size_t> steps;
    };
    const planner::Phase& phase = plan.phase(is_prefill);
    std::map<std::string, Line> lines;
    for (const runtime::TraceEvent& e : trace.events) {
        if (e.is_prefill != is_prefill) continue;
        const planner::Step& step = phase.steps[e.step.index()];
        std::string name =
            step.compute()    ? std::string(planner::kernel_kind_name(step.compute()->kernel))
            : step.transfer() ? "transfer"
                              : std::string(planner::collective_op_name(step.collective()->op));
        Line& line = lines[name + " " + plan.machine.device(e.device).name];
        line.us.push_back(static_cast<double>(e.end_ns - e.start_ns) * 1e-3);
        if (line.steps.insert(e.step.index()).second)
            line.predicted_us += static_cast<double>(step.predicted_ns) * 1e-3;
    }
    for (auto& [name, line] : lines) {
        std::sort(line.us.begin(), line.us.end());
        double median = line.us[line.us.size() / 2];
        auto count = static_cast<double>(line.steps.size());
        fmt::print(
            "    {:<34} {:>4} x {:>9.1f} us  (p10 {:.1f}, p90 {:.1f})  = {:>8.2f} ms; predicted "
            "{:>9.1f} us\n",
            name, line.steps.size(), median, line.us[line.us.size() / 10],
            line.us[line.us.size() * 9 / 10], median * count * 1e-3, line.predicted_us / count);
    }
}

Result measure(const importer::Graph& graph, const planner::Machine& machine, int tensor_parallel,
               int pipeline_stages, bool steps) {
    planner::Workload workload;
    // Decode is predicted at prompt + (context - prompt) / 2: the middle of the tokens generated here.
    workload.context = kPrompt + kNewTokens;
    workload.prompt_tokens = kPrompt;
    planner::PlanOptions options;
    options.tensor_parallel = tensor_parallel;
    options.pipeline_stages = pipeline_stages;
    planner::Plan plan = planner::make_plan(graph, machine, workload, options);
    runtime::SessionOptions session_options;
    session_options.record_trace = steps;
    runtime::Session session(plan, session_options);
    std::vector<int32_t> prompt(kPrompt);
    for (size_t i = 0; i < prompt.size(); ++i)
        prompt[i] =
            static_cast<int32_t>((i * 7919 + 1) % static_cast<size_t>(graph.config.vocab_size));
    runtime::GenerateOptions generate;
    generate.max_new_tokens = kNewTokens;
    // The median token and the median prompt: a neighbour on the machine's memory slows some, and a better place for
    // its virtual cores speeds others, by half in either case.
    std::vector<double> token_ms, prefill_ms;
    std::optional<Clock::time_point> last;
    generate.on_token = [&](size_t, int32_t) {
        Clock::time_point now = Clock::now();
        if (last)
            token_ms.push_back(std::chrono::duration<double, std::milli>(now - *last).count());
        last = now;
        return true;
    };
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
        last.reset();
        prefill_ms.push_back(runtime::generate(session, plan, {prompt}, generate).prefill_ms);
    }
    Result result;
    result.predicted_decode_ms = static_cast<double>(plan.prediction.decode_ns_per_token) / 1e6;
    result.predicted_prefill_ms = static_cast<double>(plan.prediction.prefill_ns) / 1e6;
    result.decode_ms = quantile(token_ms, 0.5);
    result.decode_low_ms = quantile(token_ms, 0.1);
    result.decode_high_ms = quantile(token_ms, 0.9);
    result.prefill_ms = quantile(prefill_ms, 0.5);
    if (steps)
        for (bool is_prefill : {true, false}) {
            fmt::print("  {}\n", is_prefill ? "prefill" : "decode");
            print_steps(plan, session.trace(), is_prefill);
        }
    return result;
}

struct Flags {
    std::string shape = "llama-110m", dtype, machine_file;
    bool steps = false, few = false;
};

void table(const Flags& flags) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const double bandwidth = read_bandwidth(cores, size_t{1} << 30);
    std::optional<models::Shape> shape = models::find_shape(flags.shape);
    if (!shape)
        throw UserError("no shape '{}'; known are {}", flags.shape,
                        fmt::join(models::shape_names(), ", "));
    const DType dtype = flags.dtype.empty()
                            ? flags.shape == "llama-110m" ? DType::kF32 : DType::kBF16
                        : flags.dtype == "f32"  ? DType::kF32
                        : flags.dtype == "bf16" ? DType::kBF16
                                                : DType::kF16;
    importer::Graph graph = models::build_llama_graph(*shape, dtype);
    models::StandInWeights weights(graph);
    const int64_t bytes = decode_weight_bytes(graph);
    fmt::print(
        "{} {}, random weights, {} cores; plain read loop {:.1f} GB/s; a token reads {:.0f} MB of "
        "weights\n\n",
        flags.shape, dtype_name(dtype), cores, bandwidth / 1e9, static_cast<double>(bytes) / 1e6);
    struct Case {
        const char* devices;
        int tp, pp;
    };
    std::vector<Case> cases{{"host", 1, 1}, {"host[0-1]", 2, 1}, {"host[0-1]", 1, 2}};
    if (!flags.few)
        cases.insert(cases.end(), {{"host[0-3]", 2, 2}, {"host[0-7]", 8, 1}, {"host[0-7]", 0, 0}});
    planner::HostFacts facts = planner::read_host_facts();
    tools::calibrate_host(facts, [](int64_t, int64_t) {}, nullptr);
    const planner::HostCalibration& c = facts.calibration;
    fmt::print(
        "measured: {:.1f} GB/s of weights, {:.1f} by two devices, {:.1f} with one thread, {:.1f} "
        "from {} MB of cache; "
        "{:.1f} G narrow elements/s; "
        "products {:.0f} and {:.0f} GFLOP/s;\n          attention {:.1f} GB/s, {:.0f} GFLOP/s; "
        "launch {:.1f} us, {:.1f} "
        "with one thread; transfer {:.1f} us, {:.1f} GB/s; all-reduce {:.1f} us, {:.1f} GB/s\n\n",
        1e-9 * static_cast<double>(c.rates.bandwidth),
        1e-9 * static_cast<double>(facts.memory_bandwidth),
        1e-9 * static_cast<double>(c.rates.bandwidth_alone),
        1e-9 * static_cast<double>(c.rates.cache_bandwidth), c.rates.cache_bytes >> 20,
        1e-9 * static_cast<double>(c.rates.widening), 1e-9 * static_cast<double>(c.rates.flops_f32),
        1e-9 * static_cast<double>(c.rates.flops_narrow),
        1e-9 * static_cast<double>(c.rates.attention_bandwidth),
        1e-9 * static_cast<double>(c.rates.attention_flops),
        1e-3 * static_cast<double>(c.rates.launch_ns),
        1e-3 * static_cast<double>(c.rates.launch_alone_ns),
        1e-3 * static_cast<double>(c.transfer_latency_ns),
        1e-9 * static_cast<double>(c.transfer_bandwidth),
        1e-3 * static_cast<double>(c.exchange_latency_ns),
        1e-9 * static_cast<double>(c.exchange_bandwidth));
    fmt::print("{:<22} {:>10} {:>14} {:>8} {:>10} {:>12} {:>10} {:>7} {:>12} {:>10} {:>12}\n",
               "devices", "ms/token", "p10 to p90", "GB/s", "of limit", "of 1 device", "predicted",
               "error", "prefill 256", "predicted", "GFLOP/s");
    double one = 0;
    for (const Case& c : cases) {
        planner::Machine machine = planner::build_machine(planner::parse_devices(c.devices), facts);
        Result r = measure(graph, machine, c.tp, c.pp, flags.steps);
        if (one == 0) one = r.decode_ms;
        const double rate = static_cast<double>(bytes) / (r.decode_ms * 1e-3);
        // Every weight meets every token once, but lm_head's: its rows are computed for the last token alone.
        const int64_t head = dtype_bytes(dtype, graph.config.vocab_size * graph.config.hidden_size);
        const double flops = 2.0 * static_cast<double>(bytes - head) /
                             static_cast<double>(dtype_bytes(dtype, 1)) * kPrompt;
        std::string name =
            fmt::format("{}{}", c.devices,
                        c.tp ? fmt::format(" tp {} pp {}", c.tp, c.pp) : std::string(" (chosen)"));
        fmt::print(
            "{:<22} {:>10.2f} {:>6.2f}-{:>7.2f} {:>8.1f} {:>9.0f}% {:>11.2f}x {:>7.2f} ms "
            "{:>+6.1f}% {:>9.1f} ms "
            "{:>7.1f} ms {:>12.0f}\n",
            name, r.decode_ms, r.decode_low_ms, r.decode_high_ms, rate / 1e9,
            100 * rate / bandwidth, r.decode_ms / one, r.predicted_decode_ms,
            100 * (r.predicted_decode_ms / r.decode_ms - 1), r.prefill_ms, r.predicted_prefill_ms,
            flops / (r.prefill_ms * 1e-3) / 1e9);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Flags flags;
        int words = 0;
        for (int i = 1; i < argc; ++i) {
            std::string word = argv[i];
            if (word == "--steps")
                flags.steps = true;
            else if (word == "--few")
                flags.few = true;
            else
                (words++ == 0 ? flags.shape : flags.dtype) = word;
        }
        table(flags);
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
