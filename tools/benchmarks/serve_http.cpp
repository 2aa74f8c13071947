// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/serve_http.h"

#include <atomic>
#include <ctime>
#include <deque>
#include <utility>

#include <sys/resource.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/benchmarks/serve_bench.h"
#include "tools/cli/calibrate.h"
#include "tools/serve/grammar.h"

namespace cleave::bench {

namespace {

using Clock = Load::Clock;

constexpr int64_t kHttpPrompt = 16;
constexpr double kTokensOfCore = 20'000;  // that HTTP has room for, at least

class Numbers : public runtime::Tokenizer {
public:
    explicit Numbers(int64_t vocab) {
        for (int32_t id = 0; id < vocab; ++id) vocabulary_.set(id, fmt::format(" {}", id));
        finish_tables();
    }
    std::vector<int32_t> encode(std::string_view, bool) const override {
        throw UserError("prompts are token ids here");
    }
};

// Passes that take no time: what is left is the engine's and the server's work.
class NoRunner : public runtime::PassRunner {
public:
    runtime::Ticket submit(runtime::Batch batch, runtime::PassResults) override {
        outputs_.push_back(batch.output_rows.size());
        return submitted_++;
    }
    runtime::PassResult take() override {
        runtime::PassResult result;
        result.tokens.assign(outputs_.front(), 5);
        outputs_.pop_front();
        return result;
    }

private:
    std::deque<size_t> outputs_;
    runtime::Ticket submitted_ = 0;
};

serve::ServedModel served_model(const planner::Plan& plan, const runtime::Tokenizer& tokenizer) {
    serve::ServedModel model;
    model.name = "bench";
    model.tokenizer = &tokenizer;
    model.vocab = plan.graph.config.vocab_size;
    model.context = plan.workload.context;
    model.grammars = std::make_shared<serve::Grammars>(tokenizer, model.vocab, model.stop_ids);
    return model;
}

std::vector<runtime::TraceRequest> at_once(int64_t tokens) {
    return std::vector<runtime::TraceRequest>(kSlots, {0, kHttpPrompt, tokens});
}

double cpu_seconds(int who) {
    rusage usage{};
    getrusage(who, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

OverHttp::OverHttp(const planner::Plan& plan, runtime::PassRunner& runner)
    : plan_(plan),
      tokenizer_(std::make_unique<Numbers>(plan.graph.config.vocab_size)),
      engine_(plan, runner, tokenizer_.get(), {}),
      model_(served_model(plan, *tokenizer_)),
      server_(engine_, plan, model_, {}) {}

HttpTimes OverHttp::serve(const std::vector<runtime::TraceRequest>& trace) {
    std::vector<std::string> bodies;
    for (size_t i = 0; i < trace.size(); ++i)
        bodies.push_back(fmt::format(
            R"({{"prompt":[{}],"max_tokens":{},"temperature":0,"ignore_eos":true,"stream":true}})",
            fmt::join(
                runtime::random_prompt(plan_, static_cast<int64_t>(i), trace[i].prompt_tokens),
                ","),
            trace[i].output_tokens));
    return stream_trace(server_.port(), "/v1/completions", bodies, trace);
}

// The client is this thread, whose time is not the server's.
Row http_alone(const planner::Plan& plan, int rounds) {
    constexpr int64_t kTokens = 2000;
    Row row{.name = "HTTP alone, tokens/s", .goal = 1};
    std::vector<double> rates, wall;
    for (int round = 0; round < rounds; ++round) {
        NoRunner runner;
        OverHttp http(plan, runner);
        const double before = cpu_seconds(RUSAGE_SELF) - cpu_seconds(RUSAGE_THREAD);
        wall.push_back(http.serve(at_once(kTokens)).tokens_per_second);
        const double seconds = cpu_seconds(RUSAGE_SELF) - cpu_seconds(RUSAGE_THREAD) - before;
        rates.push_back(kSlots * kTokens / seconds);
        row.ratios.push_back(rates.back() / kTokensOfCore);
    }
    row.detail = fmt::format(
        "of {:.0f} a core: {:.0f} a core of engine, JSON and HTTP; {:.0f} by the clock, {} streams",
        kTokensOfCore, tools::median(rates), tools::median(wall), kSlots);
    return row;
}

Row engine_alone(int64_t sequences, int rounds) {
    constexpr int64_t kTokens = 200;
    planner::Workload workload;
    workload.batch = sequences;
    workload.prompt_tokens = kHttpPrompt;
    workload.context = 256;
    const planner::Plan plan = planner::make_plan(
        graph_of("llama-3.1-8b", DType::kBF16),
        planner::build_machine(planner::parse_devices("sim:h200"), {}), workload, {});
    Row row{.name = fmt::format("engine alone, {}", sequences)};
    for (int round = 0; round < rounds; ++round) {
        NoRunner runner;
        runtime::EngineOptions options;
        options.scheduler.max_queue = sequences;
        runtime::Engine engine(plan, runner, nullptr, options);
        std::atomic<int64_t> open{sequences};
        const auto take = [&](const runtime::EngineEvent& event) {
            if (event.ends_request && --open == 0) open.notify_one();
        };
        const Clock::time_point start = Clock::now();
        for (int64_t i = 0; i < sequences; ++i) {
            const runtime::EngineAdmission admission = engine.add(
                {.prompt = runtime::random_prompt(plan, i, kHttpPrompt), .max_new_tokens = kTokens},
                take);
            if (!admission.request) throw UserError(admission.reason);
        }
        for (int64_t left; (left = open.load()) != 0;) open.wait(left);
        row.ratios.push_back(1e6 * seconds_since(start) / static_cast<double>(sequences * kTokens));
    }
    row.detail = fmt::format("us a token, with their prompts of {}; {:.2f} ms a pass", kHttpPrompt,
                             1e-3 * tools::median(row.ratios) * static_cast<double>(sequences));
    return row;
}

Row http_beside_engine(Served& served, int rounds) {
    constexpr int64_t kTokens = 128;
    Row row{.name = "over HTTP / engine", .goal = 0.95};
    std::vector<double> rates;
    for (int round = 0; round < rounds; ++round) {
        double engine = 0;
        {
            Load load(served);
            const Clock::time_point start = Clock::now();
            for (int64_t i = 0; i < kSlots; ++i)
                load.send(runtime::random_prompt(served.plan, i, kHttpPrompt), kTokens);
            load.wait();
            engine = kSlots * kTokens / seconds_since(start);
        }
        OverHttp http(served.plan, served.runner);
        rates.push_back(http.serve(at_once(kTokens)).tokens_per_second);
        row.ratios.push_back(rates.back() / engine);
    }
    row.detail = fmt::format("tokens/s with their prompts, {} clients; {:.0f} over HTTP", kSlots,
                             tools::median(rates));
    return row;
}

}  // namespace cleave::bench
