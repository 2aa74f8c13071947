// SPDX-License-Identifier: Apache-2.0
// `tools/bench cpu`: decode and prefill of a Llama shape with random weights on host devices, as
// shares of what the same machine reaches in a plain read loop and in plain loops of products, and
// beside what the planner predicts from the rates that `cleave devices --measure` takes. --batches:
// decode of 1 to 32 sequences in place of the table; --many: of 4 to 16 as replicas and groups in
// flight; --peers: beside llama.cpp. Rounds of that measurement and of the generations take turns,
// so that both see what the machine does meanwhile. --steps adds each kernel. Prints one table;
// nothing here is a test.
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
#include "tools/benchmarks/cpu_limits.h"
#include "tools/benchmarks/cpu_many.h"
#include "tools/benchmarks/cpu_peers.h"
#include "tools/cli/calibrate.h"
#include "tools/cli/host_bench.h"

namespace {

using namespace cleave;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
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

struct Flags {
    std::string shape = "llama-110m", compute;
    DType dtype = DType::kF32;
    bool steps = false, few = false, batches = false, many = false;
    int64_t batch = 1;
};

planner::Workload workload_of(const Flags& flags) {
    planner::Workload workload;
    // Decode is predicted at prompt + (context - prompt) / 2: the middle of the tokens generated
    // here.
    workload.context = kPrompt + kNewTokens;
    workload.prompt_tokens = kPrompt;
    workload.batch = flags.batch;
    if (dtype_bits(flags.dtype) < 16) workload.dtype = flags.dtype;
    workload.compute.reset();
    if (!flags.compute.empty())
        workload.compute =
            flags.compute == "exact" ? planner::ComputeMode::kExact : planner::ComputeMode::kFast;
    return workload;
}

// A case with its session open. Cases take turns, so that a machine that slows down for some
// seconds slows them all.
class Runner {
public:
    Runner(const importer::Graph& graph, const planner::HostFacts& facts, const Case& c,
           const Flags& flags)
        : flags_(flags),
          plan_(make_plan(graph, facts, c, flags)),
          prediction_(plan_.prediction),
          session_(plan_, options(flags.steps)),
          prompt_(bench::prompt(kPrompt, graph.config.vocab_size)) {}

    // Predicts for the machine as `facts` have it, where they do not choose another plan.
    void predict(const importer::Graph& graph, const planner::HostFacts& facts, const Case& c) {
        if (c.tp > 0) prediction_ = make_plan(graph, facts, c, flags_).prediction;
    }
    const planner::Plan& plan() const { return plan_; }

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

    // Milliseconds of a pass of so many sequences, a token of each.
    double decode_many(int64_t sequences) {
        const runtime::Batch pass = bench::decode_pass(0, sequences, kPrompt);
        const Clock::time_point start = Clock::now();
        session_.run_greedy({&pass, 1});
        return 1e3 * seconds_since(start);
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
                                   const Case& c, const Flags& flags) {
        planner::PlanOptions options;
        options.tensor_parallel = c.tp;
        options.pipeline_stages = c.pp;
        return planner::make_plan(graph,
                                  planner::build_machine(planner::parse_devices(c.devices), facts),
                                  workload_of(flags), options);
    }
    static runtime::SessionOptions options(bool trace) {
        runtime::SessionOptions options;
        options.record_trace = trace;
        return options;
    }

    Flags flags_;
    planner::Plan plan_;
    planner::Prediction prediction_;
    runtime::Session session_;
    std::vector<int32_t> prompt_;
    std::vector<double> decode_ms_, prefill_ms_;  // by round
};

// Operations of a prompt. Every weight meets every token once, but lm_head's: its rows are computed
// for the last token alone.
double prompt_flops(const importer::Graph& graph) {
    int64_t elements = 0;
    for (const importer::Op& op : graph.ops)
        if (op.kind == importer::OpKind::kLinear)
            elements += graph.weight(op.weights[0]).num_elements();
    elements -= graph.config.vocab_size * graph.config.hidden_size;
    return 2.0 * static_cast<double>(elements) * kPrompt;
}

// That of products as the plan computes them.
double unit_rate(const planner::Plan& plan, DType dtype, const bench::CpuLimits& limits) {
    if (plan.workload.compute != planner::ComputeMode::kFast) return limits.f32;
    const double unit = dtype == DType::kBF16 ? limits.bf16 : limits.int8;
    return unit > 0 ? unit : limits.f32;
}

void print_row(const Case& c, const Result& r, const planner::Plan& plan, DType dtype,
               int64_t bytes, const bench::CpuLimits& limits, double one) {
    const double rate = static_cast<double>(bytes) / (r.decode_ms * 1e-3);
    const double flops = prompt_flops(plan.graph) / (r.prefill_ms * 1e-3);
    std::string name =
        fmt::format("{}{}", c.devices,
                    c.tp ? fmt::format(" tp {} pp {}", c.tp, c.pp) : std::string(" (chosen)"));
    fmt::print(
        "{:<22} {:>10.2f} {:>6.2f}-{:>7.2f} {:>8.1f} {:>9.0f}% {:>11.2f}x {:>7.2f} ms {:>+6.1f}% "
        "{:>9.1f} ms {:>7.1f} ms {:>12.0f} {:>7.0f}%\n",
        name, r.decode_ms, r.least_ms, r.most_ms, rate / 1e9, 100 * rate / limits.read,
        r.decode_ms / one, r.predicted_decode_ms, 100 * (r.predicted_decode_ms / r.decode_ms - 1),
        r.prefill_ms, r.predicted_prefill_ms, flops / 1e9,
        100 * flops / unit_rate(plan, dtype, limits));
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
    fmt::print("{:<22} {:>10} {:>14} {:>8} {:>10} {:>12} {:>10} {:>7} {:>12} {:>10} {:>12} {:>8}\n",
               "devices", "ms/token", "least to most", "GB/s", "of limit", "of 1 device",
               "predicted", "error", "prefill 256", "predicted", "GFLOP/s", "of unit");
}

int64_t bytes_a_token(const importer::Graph& graph, const Flags& flags) {
    const Runner runner(graph, planner::read_host_facts(), {"host", 1, 1}, flags);
    return bench::decode_weight_bytes(runner.plan().graph);
}

bench::CpuLimits print_limits(const Flags& flags, int64_t bytes) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const bench::CpuLimits limits = bench::measure_limits(cores, size_t{1} << 30);
    fmt::print("{} {}, random weights, {} cores; a token reads {:.0f} MB of weights\n", flags.shape,
               dtype_name(flags.dtype), cores, static_cast<double>(bytes) / 1e6);
    fmt::print("plain loops: read {:.1f} GB/s", limits.read / 1e9);
    for (auto [unit, name] : {std::pair(limits.f32, limits.f32_unit),
                              {limits.bf16, limits.bf16_unit},
                              {limits.int8, limits.int8_unit}})
        if (unit > 0) fmt::print("; {} {:.0f} G operations/s", name, unit / 1e9);
    fmt::print("\n\n");
    std::fflush(stdout);
    return limits;
}

// Tokens/s of n sequences at once, as a share of what reading the weights or multiplying allows.
void batches(Flags flags) {
    flags.batch = 32;
    importer::Graph graph = bench::graph_of(flags.shape, flags.dtype);
    const models::StandInWeights weights(graph);
    Runner runner(graph, planner::read_host_facts(), {"host", 1, 1}, flags);
    const int64_t bytes = bench::decode_weight_bytes(runner.plan().graph);
    const bench::CpuLimits limits = print_limits(flags, bytes);
    const std::vector<int64_t> counts{1, 2, 4, 8, 9, 12, 16, 24, 32};
    std::map<int64_t, std::vector<double>> ms;
    for (int round = 0; round < 12; ++round)
        for (int64_t n : counts) ms[n].push_back(runner.decode_many(n));
    const double elements = prompt_flops(runner.plan().graph) / (2.0 * kPrompt) +
                            static_cast<double>(graph.config.vocab_size * graph.config.hidden_size);
    fmt::print("{:>9} {:>10} {:>10} {:>10}\n", "sequences", "ms a pass", "tokens/s", "of limit");
    for (auto& [n, times] : ms) {
        const double usual = tools::usual(times);
        const double least = 1e3 * std::max(static_cast<double>(bytes) / limits.read,
                                            2 * elements * static_cast<double>(n) /
                                                unit_rate(runner.plan(), flags.dtype, limits));
        fmt::print("{:>9} {:>10.2f} {:>10.1f} {:>9.0f}%\n", n, usual,
                   1e3 * static_cast<double>(n) / usual, 100 * least / usual);
    }
}

void table(const Flags& flags) {
    importer::Graph graph = bench::graph_of(flags.shape, flags.dtype);
    models::StandInWeights weights(graph);
    const int64_t bytes = bytes_a_token(graph, flags);
    const bench::CpuLimits limits = print_limits(flags, bytes);
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
            runners.push_back(std::make_unique<Runner>(graph, facts, c, flags));
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
            print_row(some[i], r, runners[i]->plan(), flags.dtype, bytes, limits, one);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Flags flags;
        bench::PeersOptions with_peers;
        const std::map<std::string, std::string*> files{{"--llama-cpp", &with_peers.llama_cpp},
                                                        {"--python", &with_peers.python},
                                                        {"--cleave", &with_peers.cleave},
                                                        {"--json", &with_peers.json}};
        std::string dtype;
        bool peers = false;
        int words = 0;
        for (int i = 1; i < argc; ++i) {
            std::string word = argv[i];
            if (word == "--steps")
                flags.steps = true;
            else if (word == "--few")
                flags.few = true;
            else if (word == "--batches")
                flags.batches = true;
            else if (word == "--many")
                flags.many = true;
            else if (word == "--exact" || word == "--fast")
                flags.compute = word.substr(2);
            else if (word == "--peers")
                peers = true;
            else if (const auto to = files.find(word); to != files.end() && i + 1 < argc)
                *to->second = argv[++i];
            else
                (words++ == 0 ? flags.shape : dtype) = word;
        }
        const bool any_dtype = dtype.empty();
        if (any_dtype) dtype = flags.shape == "llama-110m" ? "f32" : "bf16";
        const std::optional<DType> parsed = parse_dtype(dtype);
        if (!parsed) throw UserError("no type '{}'; give f32, f16, bf16, int8 or int4", dtype);
        flags.dtype = *parsed;
        if (peers) {
            with_peers.shape = flags.shape;
            if (!any_dtype) with_peers.dtype = parsed;
            with_peers.compute = workload_of(flags).compute;
            bench::beside_peers(with_peers);
        } else if (flags.many)
            bench::many_sequences(flags.shape, flags.dtype, workload_of(flags).compute);
        else if (flags.batches)
            batches(flags);
        else
            table(flags);
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
