// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/host_bench.h"

#include <algorithm>
#include <numeric>

#include "models/llama_graph.h"
#include "planner/analysis/work.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/generate/generate.h"

namespace cleave::tools {
namespace {

using Clock = std::chrono::steady_clock;
using planner::PassPoint;

constexpr int64_t kPrompt = 128;

planner::Workload bench_workload(int64_t new_tokens) {
    planner::Workload workload;
    workload.compute = planner::ComputeMode::kFast;  // of bf16; f32 stays exact
    workload.prompt_tokens = kPrompt;
    workload.context = kPrompt + new_tokens;
    return workload;
}

double at_point(const planner::Amount& a, const PassPoint& p) {
    return static_cast<double>(a.at(p));
}

Sample amounts_of(const planner::Step& step, const PassPoint& p) {
    Sample s;
    if (const planner::Compute* c = step.compute()) {
        planner::Amount moved = c->weight_bytes + c->activation_bytes;
        s.kernel = c->kernel;
        s.flops = at_point(c->flops, p);
        s.weights = at_point(c->weight_bytes, p);
        s.key_bytes = static_cast<double>(moved.per_key) * static_cast<double>(p.num_keys);
        s.bytes = at_point(moved, p) - s.key_bytes;
        return s;
    }
    s.communicates = true;
    s.bytes = step.transfer() ? at_point(step.transfer()->bytes, p)
                              : at_point(step.collective()->bytes, p);
    return s;
}

bool is_exchange(const planner::Step& step) {
    return step.transfer() ||
           (step.collective() && step.collective()->op == planner::CollectiveOp::kAllReduce);
}

}  // namespace

double median(std::vector<double> values) {
    CLEAVE_CHECK(!values.empty()) << "nothing was measured";
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

double usual(std::vector<double> medians) {
    CLEAVE_CHECK(!medians.empty()) << "nothing was measured";
    std::sort(medians.begin(), medians.end());
    const auto cut = static_cast<ptrdiff_t>(medians.size() / 10);
    return std::accumulate(medians.begin() + cut, medians.end() - cut, 0.0) /
           static_cast<double>(medians.size() - 2 * static_cast<size_t>(cut));
}

BenchModel::BenchModel(const models::Shape& shape, DType dtype)
    : graph(models::build_llama_graph(shape, dtype)), weights(graph) {}

HostBench::HostBench(const BenchModel& model, const planner::HostFacts& facts,
                     const RoundLength& length, int devices, int tensor_parallel, int threads)
    : length_(length), threads_(threads) {
    planner::PlanOptions options;
    options.tensor_parallel = tensor_parallel;
    options.pipeline_stages = devices / tensor_parallel;
    planner::Machine machine = planner::build_machine(
        planner::parse_devices(devices == 1 ? "host[0]" : "host[0-1]"), facts);
    plan_ = planner::make_plan(model.graph, machine, bench_workload(length.new_tokens), options);
}

void HostBench::round(const CancelToken* cancel) {
    if (!session_) {
        runtime::SessionOptions session_options;
        session_options.record_trace = true;
        session_options.cancel = cancel;
        session_options.threads = threads_;
        session_ = std::make_unique<runtime::Session>(plan_, session_options);
        passes_seen_ = 0;
    }
    std::vector<int32_t> prompt(kPrompt);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7919 % 2000);
    std::optional<Clock::time_point> last;
    runtime::GenerateOptions generate;
    generate.max_new_tokens = length_.new_tokens;
    generate.cancel = cancel;
    generate.on_token = [&](size_t, int32_t) {
        Clock::time_point now = Clock::now();
        if (last)
            token_ns_.back().push_back(
                std::chrono::duration<double, std::nano>(now - *last).count());
        last = now;
        return true;
    };
    for (int i = 0; i < length_.generations; ++i) {
        last.reset();
        token_ns_.emplace_back();
        runtime::generate(*session_, plan_, {prompt}, generate);
    }
    runtime::Trace fresh;
    for (const runtime::TraceEvent& e : session_->trace().events)
        if (e.pass >= passes_seen_) fresh.events.push_back(e);
    for (const runtime::TraceEvent& e : fresh.events)
        passes_seen_ = std::max(passes_seen_, e.pass + 1);
    for (bool is_prefill : {true, false}) take_apart(fresh, is_prefill);
    if (!length_.keep_open) session_.reset();
}

// A launch takes from its start to its end on each device; a collective from the last member's
// start to the last one's end, a transfer to its receiver's: the sender, whose core the receiver
// may have taken, ends later, and nothing waits for it.
void HostBench::take_apart(const runtime::Trace& trace, bool is_prefill) {
    struct Meeting {
        int64_t last_start = 0, last_end = 0;
    };
    const PassPoint p =
        is_prefill ? planner::prefill_point(plan_.workload) : planner::decode_point(plan_.workload);
    const planner::Phase& phase = plan_.phase(is_prefill);
    Classes& classes = is_prefill ? prefill_ : decode_;
    std::map<std::pair<int32_t, size_t>, Meeting> meetings;
    // The prompt is one pass, so each prefill begins a generation; passes after it belong to it.
    std::map<int32_t, size_t> generation_of;
    for (const runtime::TraceEvent& e : trace.events) generation_of[e.pass] |= e.is_prefill;
    size_t begun = token_ns_.size() - static_cast<size_t>(length_.generations);
    for (auto& [pass, generation] : generation_of) generation = (begun += generation) - 1;
    auto add = [&](const Sample& s, int32_t pass, int64_t ns) {
        Times& times = classes[{s.communicates, s.kernel, s.bytes}];
        times.sample = s;
        times.ns.resize(token_ns_.size());
        times.ns[generation_of[pass]].push_back(static_cast<double>(ns));
    };
    for (const runtime::TraceEvent& e : trace.events) {
        if (e.is_prefill != is_prefill) continue;
        const planner::Step& step = phase.steps[e.step.index()];
        if (step.compute()) {
            add(amounts_of(step, p), e.pass, e.end_ns - e.start_ns);
        } else if (is_exchange(step)) {
            Meeting& m = meetings[{e.pass, e.step.index()}];
            m.last_start = std::max(m.last_start, e.start_ns);
            if (!step.transfer() ||
                e.device == phase.values[step.transfer()->destination.index()].device)
                m.last_end = std::max(m.last_end, e.end_ns);
        }
    }
    for (const auto& [place, m] : meetings)
        add(amounts_of(phase.steps[place.second], p), place.first, m.last_end - m.last_start);
}

std::vector<Sample> HostBench::medians(const Classes& classes) {
    std::vector<Sample> result;
    for (const auto& [key, times] : classes) {
        std::vector<double> of_generations;
        for (const std::vector<double>& ns : times.ns)
            if (!ns.empty()) of_generations.push_back(median(ns));
        result.push_back(times.sample);
        // An exchange takes microseconds, and one late wake-up multiplies that; the memory's speed
        // does not change it.
        result.back().ns =
            times.sample.communicates ? median(of_generations) : usual(of_generations);
    }
    return result;
}

double HostBench::launches_ns(const std::vector<Sample>& samples) const {
    const PassPoint p = planner::decode_point(plan_.workload);
    double sum = 0;
    for (const planner::Step& step : plan_.decode.steps) {
        const planner::Compute* c = step.compute();
        if (!c || (plan_.stages.size() == 1 && c->device != plan_.stages[0].devices[0])) continue;
        Sample mine = amounts_of(step, p);
        for (const Sample& s : samples)
            if (!s.communicates && s.kernel == mine.kernel && s.bytes == mine.bytes) sum += s.ns;
    }
    return sum;
}

HostRun HostBench::result() const {
    HostRun run{medians(prefill_), medians(decode_)};
    std::vector<double> tokens;
    for (const std::vector<double>& ns : token_ns_) tokens.push_back(median(ns));
    run.decode_ns = usual(tokens);
    run.spread = *std::max_element(tokens.begin(), tokens.end()) /
                     *std::min_element(tokens.begin(), tokens.end()) -
                 1;
    run.launches_ns = launches_ns(run.decode);
    run.communications =
        static_cast<int>(std::count_if(plan_.decode.steps.begin(), plan_.decode.steps.end(),
                                       [](const planner::Step& s) { return is_exchange(s); }));
    return run;
}

}  // namespace cleave::tools
