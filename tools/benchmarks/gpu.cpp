// SPDX-License-Identifier: Apache-2.0
// `tools/bench gpu`: what a Llama shape with random weights in bf16 reaches on a GPU, as shares of
// what the same card reaches otherwise: decode against its copy bandwidth (bytes read and written;
// the fastest copy that is known), prefill against the faster of two rates of PyTorch's matmul
// where a Python with it is at hand. Times are the device's, between events around whole passes
// with decode replayed from its graph; the host's clock is given beside them.
//   cleave_bench_gpu benchmark|checked_model|random_model [--device cuda[0]] [--shape llama-3-8b]
//   [--python python3]
//       [--nvrtc PATH] [--copy-mib 4096] [--tokens 512]
// --tokens: of past in decode; prefill takes four times as many. checked_model compares logits with
// the host's, random_model generates twice and compares the tokens. Exit code 1 with the reason
// where no GPU is at hand.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/stand_in_weights.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/cards/cards.h"
#include "runtime/generate/generate.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/benchmarks/flags.h"
#include "tools/benchmarks/gpu_rates.h"
#include "tools/cli/spelling.h"

namespace {

using namespace cleave;
using bench::middle;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int64_t kNewTokens = 64, kPrompt = 256;
constexpr int kRepeats = 5, kTracedTokens = 8, kTracedPrompts = 3;
constexpr double kDecodeGoal = 0.9, kPrefillGoal = 0.7, kGapsGoal = 0.05;
constexpr int64_t kWarmTokens = 2;  // the first loads what it needs, the second is captured
// Of random weights in bf16: the deviation from the host's logits, by their own spread.
constexpr double kCheckedBound = 0.08;

struct BenchFlags {
    std::string mode = "benchmark", device, shape = "llama-3-8b", python = "python3", nvrtc;
    int64_t copy_mib = 4096, tokens = 512;
    std::vector<std::string> own_settings = bench::unset_driver_variables();
};

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

planner::Machine machine_of(runtime::Drivers& drivers, const std::string& device) {
    std::string list = device.empty() ? runtime::found_gpus(drivers).list : device;
    if (list.empty()) {
        std::string why;
        for (const planner::VendorFacts& vendor : planner::vendors())
            why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", vendor.kind_name,
                               drivers.driver(vendor.kind).reason);
        throw UserError("no GPU is at hand, nothing was measured: {}", why);
    }
    std::vector<planner::DeviceSpec> specs = planner::parse_devices(list);
    if (device.empty()) specs.resize(1);
    if (specs.size() != 1 || !planner::is_card(specs[0].kind))
        throw UserError("--device {}: takes one GPU, such as cuda[0] or hip[0]", device);
    const runtime::RealGpus gpus(drivers);
    return planner::build_machine(specs, planner::read_host_facts(), &gpus);
}

planner::Machine host_machine() {
    return planner::build_machine(planner::parse_devices("host"), planner::read_host_facts(),
                                  nullptr);
}

class GpuBench {
public:
    explicit GpuBench(const BenchFlags& flags)
        : flags_(flags),
          machine_(machine_of(drivers_, flags.device)),
          graph_(bench::graph_of(flags.shape, DType::kBF16)),
          weights_(graph_) {
        compile_.nvrtc = flags.nvrtc;
    }

    Json random_model() {
        planner::Plan plan = plan_for(machine_, kPrompt, kNewTokens);
        runtime::Session session(plan, options());
        std::vector<std::vector<int32_t>> tokens;
        for (int i = 0; i < 2; ++i) {
            runtime::GenerateOptions generate;
            generate.max_new_tokens = kNewTokens;
            tokens.push_back(runtime::generate(session, plan, {prompt(kPrompt)}, generate)
                                 .sequences[0]
                                 .token_ids);
        }
        if (tokens[0] != tokens[1])
            throw UserError("{}: the same prompt gave other tokens the second time", flags_.shape);
        const std::vector<float> logits = session.run(std::vector{first_pass(kPrompt)}).front();
        if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
            throw UserError("{}: logits that are no numbers", flags_.shape);
        return {{"shape", flags_.shape},
                {"dtype", "bf16"},
                {"tokens", tokens[0]},
                {"peak_memory_bytes", session.peak_memory_bytes()}};
    }

    // Logits after a prompt and a few tokens more, on the GPU and on the host.
    Json checked_model() {
        constexpr int64_t kTokens = 4;
        std::vector<runtime::Batch> passes{first_pass(kPrompt)};
        for (int64_t i = 0; i < kTokens; ++i) passes.push_back(next_pass(kPrompt + i));
        const auto logits_on = [&](const planner::Machine& machine) {
            planner::Plan plan = plan_for(machine, kPrompt, kTokens);
            return runtime::Session(plan, options()).run(passes);
        };
        const auto here = logits_on(machine_), host = logits_on(host_machine());
        Json deviations = Json::array();
        double worst = 0;
        for (size_t i = 0; i < passes.size(); ++i) {
            deviations.push_back(deviation(here[i], host[i]));
            const double is = deviations.back();
            if (!(is <= worst)) worst = is;  // no number stays
            if (!(is < kCheckedBound))
                throw UserError(
                    "{}: the logits of pass {} (0: the prompt) deviate from the host's by {} of "
                    "their spread, over {}",
                    flags_.shape, i, is, kCheckedBound);
        }
        return {{"shape", flags_.shape},    {"dtype", "bf16"},        {"prompt_tokens", kPrompt},
                {"deviations", deviations}, {"bound", kCheckedBound}, {"worst", worst}};
    }

    static void show(const Json& json) {
        fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
        std::fflush(stdout);
    }

    // Printed again, a line each time, after each figure. Each by itself: what one fails at does
    // not take the others along. `errors` names those that failed.
    Json benchmark() {
        const int64_t copied = flags_.copy_mib << 20;
        Json json{{"device", machine_.devices[0].name},
                  {"model", machine_.devices[0].model},
                  {"shape", flags_.shape},
                  {"dtype", "bf16"},
                  {"clock", "events of the device"},
                  {"errors", Json::array()}};
        const auto measure = [&](const char* what, const std::function<void()>& act) {
            try {
                act();
            } catch (const std::exception& error) {
                json["errors"].push_back(
                    fmt::format("{}: {}", what, tools::spell_for_command_line(error.what())));
            }
            show(json);  // if it is ended later, this much was reported
        };
        const bench::TorchRates torch = torch_rates(copied);
        json["pytorch"] = torch_json(torch);
        // The fastest copy counts: a slow one must not flatter decode.
        double copy = torch.copy_bytes_per_second;
        measure("copy", [&] {
            const bench::Card::Copies own =
                bench::Card(machine_, drivers_, compile_).copy_bandwidth(copied);
            copy = std::max(copy, own.fastest());
            json["copy"] = {{"mib", static_cast<double>(own.bytes) / (1 << 20)},
                            {"kernel_gb_per_s", own.kernel / 1e9},
                            {"driver_gb_per_s", own.driver / 1e9},
                            {"pytorch_gb_per_s", nullptr},
                            {"gb_per_s", copy / 1e9}};
            if (torch.copy_bytes_per_second > 0)
                json["copy"]["pytorch_gb_per_s"] = torch.copy_bytes_per_second / 1e9;
        });
        measure("decode", [&] { decode(json, copy); });
        measure("prefill", [&] { prefill(json, torch); });
        return json;
    }

private:
    static planner::Workload workload_for(int64_t prompt_tokens, int64_t new_tokens) {
        planner::Workload workload;
        workload.prompt_tokens = prompt_tokens;
        workload.prefill_chunk = prompt_tokens;
        workload.context = prompt_tokens + new_tokens;
        return workload;
    }
    planner::Plan plan_for(const planner::Machine& machine, int64_t prompt_tokens,
                           int64_t new_tokens) const {
        return planner::make_plan(graph_, machine, workload_for(prompt_tokens, new_tokens), {});
    }
    runtime::SessionOptions options() const {
        runtime::SessionOptions options;
        options.drivers = &drivers_;
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
    // Which token it is changes nothing about its time.
    runtime::Batch next_pass(int64_t position) const {
        return {{static_cast<int32_t>((position * 31) % graph_.config.vocab_size)},
                {static_cast<int32_t>(position)},
                {0},
                {0, 1},
                {0},
                false};
    }
    std::vector<runtime::Batch> next_passes(int64_t position, int64_t count) const {
        std::vector<runtime::Batch> passes;
        for (int64_t i = 0; i < count; ++i) passes.push_back(next_pass(position + i));
        return passes;
    }

    static double deviation(const std::vector<float>& got, const std::vector<float>& want) {
        double square = 0, spread = 0;
        for (size_t i = 0; i < want.size(); ++i) {
            square += std::pow(static_cast<double>(got[i]) - want[i], 2);
            spread += std::pow(static_cast<double>(want[i]), 2);
        }
        return std::sqrt(square / spread);
    }

    int64_t prefill_tokens() const { return 4 * flags_.tokens; }
    bench::TorchRates torch_rates(int64_t copied) const {
        const importer::ModelConfig& c = graph_.config;
        const planner::DeviceInfo& card = machine_.devices[0];
        const int64_t queries = c.num_heads * c.head_dim, keys = c.num_kv_heads * c.head_dim;
        bench::TorchWork work;
        work.card_name = card.model;
        work.card = card.index;
        work.copy_bytes = copied;
        work.tokens = prefill_tokens();
        work.products = {{c.hidden_size, queries + 2 * keys},
                         {queries, c.hidden_size},
                         {c.hidden_size, 2 * c.intermediate_size},
                         {c.intermediate_size, c.hidden_size}};
        return bench::torch_rates(flags_.python, work, flags_.own_settings);
    }
    Json torch_json(const bench::TorchRates& torch) const {
        if (!torch.reason.empty()) return {{"reason", torch.reason}};
        Json json{{"version", torch.version},
                  {"matmul_8192_tflops", torch.square_flops / 1e12},
                  {"matmul_of_model_tflops", torch.model_flops / 1e12},
                  {"what",
                   fmt::format("matmul of 8192 x 8192 in bf16, and a layer's q/k/v, o, gate/up and "
                               "down products of {} tokens; the faster counts",
                               prefill_tokens())}};
        if (!torch.copy_reason.empty()) json["copy_reason"] = torch.copy_reason;
        return json;
    }

    double weight_bytes() const { return static_cast<double>(bench::decode_weight_bytes(graph_)); }

    void decode(Json& json, double copy) const {
        const int64_t prompt_tokens = std::max<int64_t>(1, flags_.tokens - kNewTokens / 2);
        planner::Plan plan = plan_for(machine_, prompt_tokens, kNewTokens + kWarmTokens);
        const TokenTimes times = token_times(plan, prompt_tokens);
        const TokenTimes one_by_one =
            times.overlap.launches > 0
                ? without_overlap([&] { return token_times(plan, prompt_tokens); })
                : TokenTimes{};
        const TracedSteps steps = traced_steps(plan, prompt_tokens, kWarmTokens + kTracedTokens);
        const double traced = steps.sum();
        const auto launches = static_cast<int64_t>(plan.decode.steps.size()) + 1;  // the choice
        const double empty = bench::Card(machine_, drivers_, compile_).empty_launch_ms(launches) *
                             static_cast<double>(launches);
        json["decode"] = {
            {"past", flags_.tokens},
            {"tokens", kNewTokens},
            {"predicted_ms", static_cast<double>(plan.prediction.decode_ns_per_token) * 1e-6},
            {"ms_per_token", times.ms},
            {"ms_per_token_host_clock", times.host_ms},
            {"ms_of_graph", times.graph_ms},
            {"weight_gb_per_s", weight_bytes() / times.ms / 1e6},
            {"of_copy_bandwidth", nullptr},
            {"goal", kDecodeGoal},
            {"launches", launches}};
        if (copy > 0) {
            const double share = weight_bytes() / (times.ms * 1e-3) / copy;
            json["decode"]["of_copy_bandwidth"] = share;
            json["decode"]["reached"] = share >= kDecodeGoal;
        }
        json["decode"]["overlap"] = {{"launches", times.overlap.launches},
                                     {"reasons", times.overlap.reasons}};
        if (times.overlap.launches > 0)
            json["decode"]["without_overlap"] = {
                {"ms_per_token", one_by_one.ms},
                {"ms_per_token_host_clock", one_by_one.host_ms},
                {"ms_of_graph", one_by_one.graph_ms},
                {"weight_gb_per_s", weight_bytes() / one_by_one.ms / 1e6}};
        json["decode"]["launch_gaps"] = {
            {"token_less_traced_steps_ms", times.ms - traced},
            {"token_less_traced_steps_of_token", (times.ms - traced) / times.ms},
            {"empty_launches_ms", empty},
            {"empty_launches_of_token", empty / times.ms},
            {"goal", kGapsGoal},
            {"reached", std::max(times.ms - traced, empty) < kGapsGoal * times.ms},
            {"what",
             "token_less_traced_steps: a token's time less the sum of its steps' in a traced pass, "
             "each between two events and launched by itself, so that a step's time holds its own "
             "launch, too, and the choice of the token, which is no step, counts as gap; "
             "empty_launches: a graph of as many launches that do almost nothing: an estimate from "
             "above; reached: by both"}};
        json["decode"]["steps"] = steps.rows();
    }

    struct TokenTimes {
        double ms = 0;        // from a token's begin to the next one's: the host's turn is in it
        double graph_ms = 0;  // of that the device's, from the copy of its batch to its choice
        double host_ms = 0;   // by the host's clock
        runtime::OverlapReport overlap;
    };
    // What `measure` gives where each launch begins when the one before it has ended.
    static TokenTimes without_overlap(const std::function<TokenTimes()>& measure) {
        ::setenv("CLEAVE_GPU_OVERLAP", "0", 1);
        const TokenTimes times = measure();
        ::unsetenv("CLEAVE_GPU_OVERLAP");  // it was not set, or nothing had overlapped
        return times;
    }
    TokenTimes token_times(planner::Plan& plan, int64_t prompt_tokens) const {
        runtime::SessionOptions marked = options();
        marked.record_passes = true;
        runtime::Session session(plan, marked);
        session.run_greedy(std::vector{first_pass(prompt_tokens)});
        session.run_greedy(next_passes(prompt_tokens, kWarmTokens));
        const std::vector<runtime::Batch> passes =
            next_passes(prompt_tokens + kWarmTokens, kNewTokens);
        std::vector<double> ms, graph, host;
        for (int repeat = 0; repeat < kRepeats; ++repeat) {
            const size_t before = session.trace().events.size();
            const auto start = Clock::now();
            session.run_greedy(passes);
            host.push_back(ms_since(start) / static_cast<double>(kNewTokens));
            const auto& events = session.trace().events;
            CLEAVE_CHECK(events.size() == before + passes.size()) << "a trace event of each pass";
            double busy = 0;
            for (size_t i = before; i < events.size(); ++i)
                busy += static_cast<double>(events[i].end_ns - events[i].start_ns) * 1e-6;
            graph.push_back(busy / static_cast<double>(kNewTokens));
            ms.push_back(static_cast<double>(events.back().start_ns - events[before].start_ns) *
                         1e-6 / static_cast<double>(kNewTokens - 1));
        }
        return {middle(ms), middle(graph), middle(host), session.overlap()};
    }

    // Steps of passes that are launched one by one, each between two events: milliseconds of a
    // pass by what the step is, layers together; the middle of the passes. Beside them, what the
    // plan said.
    struct TracedSteps {
        std::map<std::string, double> ms, predicted_ms;
        std::map<std::string, int64_t> count;

        double sum() const {
            return std::accumulate(ms.begin(), ms.end(), 0.0,
                                   [](double all, const auto& one) { return all + one.second; });
        }
        Json rows() const {
            std::vector<std::pair<std::string, double>> order(ms.begin(), ms.end());
            std::stable_sort(order.begin(), order.end(),
                             [](const auto& a, const auto& b) { return a.second > b.second; });
            Json rows = Json::array();
            for (const auto& [name, time] : order)
                rows.push_back({{"step", name},
                                {"count", count.at(name)},
                                {"ms", time},
                                {"predicted_ms", predicted_ms.at(name)}});
            return rows;
        }
    };
    // "linear layers.#.down_proj": one name for a step of all layers.
    static std::string step_of_any_layer(const planner::Plan& plan, const planner::Phase& phase,
                                         const planner::Step& step) {
        std::string name = planner::step_implementation(plan, phase, step);
        if (const planner::Compute* compute = step.compute(); compute && !compute->ops.empty())
            name += " " + plan.graph.op(compute->ops.front()).name;
        std::string out;
        for (char c : name) {
            const bool digit = c >= '0' && c <= '9';
            if (!digit) out += c;
            if (digit && (out.empty() || out.back() != '#')) out += '#';
        }
        return out;
    }
    // Of the passes after those that warm up; of the prompt's where there are no others.
    TracedSteps traced_steps(planner::Plan& plan, int64_t prompt_tokens, int64_t new_tokens) const {
        runtime::SessionOptions traced = options();
        traced.record_trace = true;
        runtime::Session session(plan, traced);
        const bool is_prefill = new_tokens == 0;
        const int64_t prompts = is_prefill ? 1 + kTracedPrompts : 1;
        const int64_t warm = is_prefill ? 0 : kWarmTokens;
        for (int64_t i = 0; i < prompts; ++i)
            session.run_greedy(std::vector{first_pass(prompt_tokens)});
        if (!is_prefill) session.run_greedy(next_passes(prompt_tokens, new_tokens));
        TracedSteps steps;
        std::vector<std::string> names;  // by step
        const planner::Phase& phase = plan.phase(is_prefill);
        for (const planner::Step& step : phase.steps) {
            const std::string& name = names.emplace_back(step_of_any_layer(plan, phase, step));
            ++steps.count[name];
            steps.predicted_ms[name] += static_cast<double>(step.predicted_ns) * 1e-6;
        }
        std::map<std::string, std::map<int32_t, double>> passes;
        for (const runtime::TraceEvent& event : session.trace().events)
            if (event.is_prefill == is_prefill && event.pass > warm)  // pass 0 warms up as well
                passes[names[event.step.index()]][event.pass] +=
                    static_cast<double>(event.end_ns - event.start_ns) * 1e-6;
        for (const auto& [name, by_pass] : passes) {
            std::vector<double> ms;
            for (const auto& [pass, time] : by_pass) ms.push_back(time);
            steps.ms[name] = middle(ms);
        }
        return steps;
    }

    void prefill(Json& json, const bench::TorchRates& torch) const {
        const int64_t tokens = prefill_tokens();
        planner::Plan plan = plan_for(machine_, tokens, 1);
        runtime::SessionOptions marked = options();
        marked.record_passes = true;
        runtime::Session session(plan, marked);
        std::vector<double> ms, host;
        for (int repeat = 0; repeat <= kRepeats; ++repeat) {
            const auto start = Clock::now();
            session.run(std::vector{first_pass(tokens)});
            if (repeat == 0) continue;  // warms up
            host.push_back(ms_since(start));
            const runtime::TraceEvent& pass = session.trace().events.back();
            ms.push_back(static_cast<double>(pass.end_ns - pass.start_ns) * 1e-6);
        }
        // Each weight meets each token once, two operations; lm_head's only the last one. Attention
        // is not counted.
        const double head = static_cast<double>(
            dtype_bytes(DType::kBF16, graph_.config.vocab_size * graph_.config.hidden_size));
        const double flops = (weight_bytes() - head) / 2 * 2 * static_cast<double>(tokens);
        const double rate = flops / (middle(ms) * 1e-3);
        json["prefill"] = {{"tokens", tokens},
                           {"ms", middle(ms)},
                           {"ms_host_clock", middle(host)},
                           {"predicted_ms", static_cast<double>(plan.prediction.prefill_ns) * 1e-6},
                           {"tflops", rate / 1e12},
                           {"goal", kPrefillGoal},
                           {"of_matmul", nullptr}};
        if (torch.reason.empty()) {
            json["prefill"]["matmul_tflops"] = torch.matmul_flops() / 1e12;
            json["prefill"]["of_matmul"] = rate / torch.matmul_flops();
            json["prefill"]["reached"] = rate >= kPrefillGoal * torch.matmul_flops();
        } else {
            json["prefill"]["reason"] = torch.reason;
        }
        show(json);
        json["prefill"]["steps"] = traced_steps(plan, tokens, 0).rows();
    }

    BenchFlags flags_;
    mutable runtime::Drivers drivers_;
    planner::Machine machine_;
    importer::Graph graph_;
    models::StandInWeights weights_;
    codegen::CompileOptions compile_;
};

BenchFlags parse(int argc, char** argv) {
    BenchFlags flags;
    std::string copy_mib, tokens;
    const std::map<std::string, std::string*> values{
        {"--device", &flags.device}, {"--shape", &flags.shape}, {"--python", &flags.python},
        {"--copy-mib", &copy_mib},   {"--tokens", &tokens},     {"--nvrtc", &flags.nvrtc}};
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "benchmark" || word == "checked_model" || word == "random_model") {
            flags.mode = word;
            continue;
        }
        const auto found = values.find(word);
        if (found == values.end())
            throw UserError(
                "{} is no flag; there are --device, --shape, --python, --nvrtc, "
                "--copy-mib and --tokens",
                word);
        if (i + 1 == argc) throw UserError("{} wants a value", word);
        *found->second = argv[++i];
    }
    if (!copy_mib.empty())
        flags.copy_mib = bench::whole_number("--copy-mib", copy_mib, 1, bench::kMostCopyMib);
    if (!tokens.empty())
        flags.tokens = bench::whole_number("--tokens", tokens, 1, bench::kMostTokens);
    return flags;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const BenchFlags flags = parse(argc, argv);
        GpuBench bench(flags);
        const Json json = flags.mode == "benchmark"       ? bench.benchmark()
                          : flags.mode == "checked_model" ? bench.checked_model()
                                                          : bench.random_model();
        if (flags.mode != "benchmark") fmt::print("{}\n", json.dump(2));
        for (const Json& error : json.value("errors", Json::array()))
            fmt::print(stderr, "bench: {}\n", error.get<std::string>());
        return json.value("errors", Json::array()).empty() ? 0 : 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", tools::spell_for_command_line(error.what()));
        return 1;
    }
}
