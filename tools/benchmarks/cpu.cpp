// SPDX-License-Identifier: Apache-2.0
// `tools/bench cpu`: decode and prefill of a Llama shape with random weights on host devices, as
// shares of what the same machine reaches in a plain read loop over memory, and beside what the
// planner predicts from the rates that `cleave devices
// --measure` takes. Rounds of that measurement and of the generations take turns, so that both see
// what the machine does meanwhile. --steps adds each kernel. Prints one table; nothing here is a
// test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "models/stand_in_weights.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/generate/generate.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/cli/calibrate.h"
#include "tools/cli/host_bench.h"

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

// What one case gave: predictions beside it.
struct Result {
    double decode_ms = 0, prefill_ms = 0, predicted_decode_ms = 0, predicted_prefill_ms = 0;
    double least_ms = 0, most_ms = 0;  // of the rounds' decode
};

constexpr int64_t kPrompt = 256, kContext = 512;
constexpr int kNewTokens = 24;
// This many short rounds: where memory changes its speed every few seconds, predictions and
// generations must see each state for the same share of the time. Every tenth begins with the
// prompt.
constexpr int kRounds = 60, kRoundsAPrompt = 10;
constexpr int64_t kTokensARound = 5;
constexpr size_t kAtOnce = 3;  // sessions that are open together

// Median microseconds a step and a pass, by kernel or collective, as the trace has them, beside the
// plan's.
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

struct Case {
    const char* devices;
    int tp, pp;
};

// A case with its session open. Cases take turns, so that a machine that slows down for some
// seconds slows them all.
class Runner {
public:
    Runner(const importer::Graph& graph, const planner::HostFacts& facts, const Case& c, bool trace)
        : plan_(make_plan(graph, facts, c)),
          prediction_(plan_.prediction),
          session_(plan_, options(trace)),
          prompt_(bench::prompt(kPrompt, graph.config.vocab_size)) {}

    // Predicts for the machine as `facts` have it, where they do not choose another plan.
    void predict(const importer::Graph& graph, const planner::HostFacts& facts, const Case& c) {
        if (c.tp > 0) prediction_ = make_plan(graph, facts, c).prediction;
    }

    void prefill() {
        runtime::GenerateOptions generate;
        generate.max_new_tokens = kNewTokens;
        prefill_ms_.push_back(runtime::generate(session_, plan_, {prompt_}, generate).prefill_ms);
    }

    // Some tokens in the middle of a generation, over and over: greedy, as `generate` takes them.
    void decode() {
        std::vector<double> token_ms;
        int32_t token = prompt_.back();
        for (int64_t i = 0; i <= kTokensARound; ++i) {
            const auto position =
                static_cast<int32_t>(kPrompt + (kNewTokens - kTokensARound) / 2 + i);
            const Clock::time_point start = Clock::now();
            const runtime::Batch pass{{token}, {position}, {0}, {0, 1}, {0}, false};
            token = session_.run_greedy({&pass, 1}).front().front();
            CLEAVE_CHECK(token >= 0) << "the model's logits are not numbers";
            // The first one finds the caches full of another session's weights.
            if (i > 0) token_ms.push_back(1e3 * seconds_since(start));
        }
        decode_ms_.push_back(tools::median(token_ms));
    }

    Result result() const {
        Result result;
        result.decode_ms = tools::usual(decode_ms_);
        result.least_ms = *std::min_element(decode_ms_.begin(), decode_ms_.end());
        result.most_ms = *std::max_element(decode_ms_.begin(), decode_ms_.end());
        result.prefill_ms = tools::usual(prefill_ms_);
        result.predicted_decode_ms = static_cast<double>(prediction_.decode_ns_per_token) / 1e6;
        result.predicted_prefill_ms = static_cast<double>(prediction_.prefill_ns) / 1e6;
        return result;
    }

    void print() const {
        for (bool is_prefill : {true, false}) {
            fmt::print("  {}\n", is_prefill ? "prefill" : "decode");
            print_steps(plan_, session_.trace(), is_prefill);
        }
    }

private:
    static planner::Plan make_plan(const importer::Graph& graph, const planner::HostFacts& facts,
                                   const Case& c) {
        planner::Workload workload;
        // Decode is predicted at prompt + (context - prompt) / 2: the middle of the tokens
        // generated here.
        workload.context = kPrompt + kNewTokens;
        workload.prompt_tokens = kPrompt;
        planner::PlanOptions options;
        options.tensor_parallel = c.tp;
        options.pipeline_stages = c.pp;
        return planner::make_plan(graph,
                                  planner::build_machine(planner::parse_devices(c.devices), facts),
                                  workload, options);
    }
    static runtime::SessionOptions options(bool trace) {
        runtime::SessionOptions options;
        options.record_trace = trace;
        return options;
    }

    planner::Plan plan_;
    planner::Prediction prediction_;
    runtime::Session session_;
    std::vector<int32_t> prompt_;
    std::vector<double> decode_ms_, prefill_ms_;  // by round
};

struct Flags {
    std::string shape = "llama-110m", dtype, machine_file;
    bool steps = false, few = false;
};

void print_row(const Case& c, const Result& r, const importer::Graph& graph, DType dtype,
               int64_t bytes, double bandwidth, double one) {
    const double rate = static_cast<double>(bytes) / (r.decode_ms * 1e-3);
    // Every weight meets every token once, but lm_head's: its rows are computed for the last token
    // alone.
    const int64_t head = dtype_bytes(dtype, graph.config.vocab_size * graph.config.hidden_size);
    const double flops = 2.0 * static_cast<double>(bytes - head) /
                         static_cast<double>(dtype_bytes(dtype, 1)) * kPrompt;
    std::string name =
        fmt::format("{}{}", c.devices,
                    c.tp ? fmt::format(" tp {} pp {}", c.tp, c.pp) : std::string(" (chosen)"));
    fmt::print(
        "{:<22} {:>10.2f} {:>6.2f}-{:>7.2f} {:>8.1f} {:>9.0f}% {:>11.2f}x {:>7.2f} ms {:>+6.1f}% "
        "{:>9.1f} ms {:>7.1f} ms {:>12.0f}\n",
        name, r.decode_ms, r.least_ms, r.most_ms, rate / 1e9, 100 * rate / bandwidth,
        r.decode_ms / one, r.predicted_decode_ms, 100 * (r.predicted_decode_ms / r.decode_ms - 1),
        r.prefill_ms, r.predicted_prefill_ms, flops / (r.prefill_ms * 1e-3) / 1e9);
    std::fflush(stdout);
}

void print_measurement(const planner::HostFacts& facts, const tools::Measurement& measurement) {
    const planner::HostCalibration& c = facts.calibration;
    fmt::print(
        "measured: {:.1f} GB/s of weights, {:.1f} by two devices, {:.1f} with one thread, {:.1f} "
        "from {} MB of cache; "
        "{:.1f} G narrow elements/s; "
        "products {:.0f} and {:.0f} GFLOP/s;\n          attention {:.1f} GB/s, {:.0f} GFLOP/s; "
        "launch {:.1f} us, {:.1f} "
        "with one thread; transfer {:.1f} us, {:.1f} GB/s; all-reduce {:.1f} us, {:.1f} GB/s\n",
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
    fmt::print(
        "          times of the same work differ by {:.0f} %, others used {:.0f} % of the "
        "cores{}\n\n",
        100 * measurement.spread, 100 * measurement.other_load,
        measurement.warning().empty() ? "" : "; warning: " + measurement.warning());
    fmt::print("{:<22} {:>10} {:>14} {:>8} {:>10} {:>12} {:>10} {:>7} {:>12} {:>10} {:>12}\n",
               "devices", "ms/token", "least to most", "GB/s", "of limit", "of 1 device",
               "predicted", "error", "prefill 256", "predicted", "GFLOP/s");
}

void table(const Flags& flags) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const double bandwidth = read_bandwidth(cores, size_t{1} << 30);
    const DType dtype = flags.dtype.empty()
                            ? flags.shape == "llama-110m" ? DType::kF32 : DType::kBF16
                        : flags.dtype == "f32"  ? DType::kF32
                        : flags.dtype == "bf16" ? DType::kBF16
                                                : DType::kF16;
    importer::Graph graph = bench::graph_of(flags.shape, dtype);
    models::StandInWeights weights(graph);
    const int64_t bytes = bench::decode_weight_bytes(graph);
    fmt::print(
        "{} {}, random weights, {} cores; plain read loop {:.1f} GB/s; a token reads {:.0f} MB of "
        "weights\n\n",
        flags.shape, dtype_name(dtype), cores, bandwidth / 1e9, static_cast<double>(bytes) / 1e6);
    std::vector<Case> cases{{"host", 1, 1}, {"host[0-1]", 2, 1}, {"host[0-1]", 1, 2}};
    if (!flags.few)
        cases.insert(cases.end(), {{"host[0-3]", 2, 2}, {"host[0-7]", 8, 1}, {"host[0-7]", 0, 0}});
    double one = 0;
    // Forced shapes of equal devices are planned alike for any rates, so the first may run before
    // the machine is known.
    planner::HostFacts facts = planner::read_host_facts();
    for (size_t first = 0; first < cases.size(); first += kAtOnce) {
        const std::span<const Case> some(cases.data() + first,
                                         std::min(cases.size() - first, kAtOnce));
        std::vector<std::unique_ptr<Runner>> runners;
        for (const Case& c : some)
            runners.push_back(std::make_unique<Runner>(graph, facts, c, flags.steps));
        tools::HostCalibrator calibrator(facts, {1, kTokensARound + 1, true});
        for (int round = 0; round < kRounds; ++round) {
            for (auto& runner : runners)
                if (round % kRoundsAPrompt == 0) runner->prefill();
            calibrator.round([] {}, nullptr);
            for (auto& runner : runners) runner->decode();
        }
        print_measurement(facts, calibrator.result(facts));
        for (size_t i = 0; i < some.size(); ++i) {
            runners[i]->predict(graph, facts, some[i]);
            const Result r = runners[i]->result();
            if (one == 0) one = r.decode_ms;
            if (flags.steps) runners[i]->print();
            print_row(some[i], r, graph, dtype, bytes, bandwidth, one);
        }
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
