// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/serve_bench.h"

#include <utility>

#include "models/llama_graph.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "tools/benchmarks/bench_model.h"

namespace cleave::bench {

namespace {

// Of llama2.c's README, as the other two are in models/shapes.cpp.
models::Shape serve_shape(const std::string& name) {
    constexpr int64_t kPositions = 8192;
    models::Shape shape = name == "stories-15m" ? shape_of("llama-110m") : shape_of(name);
    if (name == "stories-15m") {
        shape.name = name;
        shape.config.hidden_size = 288;
        shape.config.intermediate_size = 768;
        shape.config.num_layers = 6;
        shape.config.num_heads = shape.config.num_kv_heads = 6;
        shape.config.head_dim = 48;
    }
    shape.config.max_positions = std::max(shape.config.max_positions, kPositions);
    return shape;
}

planner::Plan plan_of(const ServeModel& model) {
    planner::Workload workload;
    workload.batch = kSlots;
    workload.context = kContext;
    workload.prompt_tokens = kChunk;
    workload.prefill_chunk = kChunk;
    workload.kv_tokens = kPoolTokens;
    return planner::make_plan(model.graph,
                              planner::build_machine(planner::parse_devices("host"), model.facts),
                              workload, {});
}

runtime::SessionOptions session_options(bool reproducible) {
    runtime::SessionOptions options;
    options.compile.reproducible = reproducible;
    return options;
}

}  // namespace

ServeModel::ServeModel(const std::string& shape)
    : graph(models::build_llama_graph(serve_shape(shape), DType::kF32)),
      weights(graph),
      facts(planner::read_host_facts()) {}

Served::Served(const ServeModel& model, bool reproducible)
    : plan(plan_of(model)), session(plan, session_options(reproducible)) {}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Load::Load(Served& served, const runtime::SchedulerOptions& options)
    : engine_(served.plan, served.runner, nullptr, {options}) {}

size_t Load::send(std::vector<int32_t> prompt, int64_t new_tokens) {
    const int64_t passes = engine_.statistics().passes;
    const std::lock_guard lock(mutex_);
    const size_t number = told_.size();
    told_.push_back({.sent = Clock::now(), .passes = -passes});
    ++open_;
    const runtime::EngineAdmission admission =
        engine_.add({.prompt = std::move(prompt), .max_new_tokens = new_tokens},
                    [this, number](const runtime::EngineEvent& event) { take(number, event); });
    if (!admission.request) throw UserError(admission.reason);
    return number;
}

void Load::take(size_t request, const runtime::EngineEvent& event) {
    const Clock::time_point now = Clock::now();
    const std::lock_guard lock(mutex_);
    Told& told = told_[request];
    if (told.tokens.empty()) told.passes += engine_.statistics().passes;
    told.tokens.insert(told.tokens.end(), event.tokens.size(), now);
    if (event.finish == runtime::FinishReason::kFault) fault_ = event.message;
    if (event.ends_request) --open_;
    // A thread that is woken for each token takes time from the passes.
    if (open_ == 0 || (request == watched_ && told.tokens.size() >= watched_tokens_))
        changed_.notify_all();
}

void Load::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ == 0; });
    if (!fault_.empty()) throw UserError(fault_);
}

void Load::wait_for(size_t request, size_t tokens) {
    std::unique_lock lock(mutex_);
    watched_ = request;
    watched_tokens_ = tokens;
    changed_.wait(lock, [&] { return told_[request].tokens.size() >= tokens || open_ == 0; });
}

Load::Told Load::told(size_t request) {
    const std::lock_guard lock(mutex_);
    return told_[request];
}

std::vector<double> Load::gaps_ms(size_t request) {
    const Told told = this->told(request);
    std::vector<double> gaps;
    for (size_t i = 1; i < told.tokens.size(); ++i)
        gaps.push_back(
            std::chrono::duration<double, std::milli>(told.tokens[i] - told.tokens[i - 1]).count());
    return gaps;
}

}  // namespace cleave::bench
