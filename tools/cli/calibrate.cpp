// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "models/llama_graph.h"
#include "models/stand_in_weights.h"
#include "planner/amounts.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/generate.h"
#include "runtime/host_topology.h"

namespace cleave::tools {
namespace {

using planner::BatchPoint;
using planner::HostCalibration;
using planner::HostFacts;
using planner::KernelKind;

constexpr int64_t kPrompt = 256, kNewTokens = 24;
constexpr int kRepeats = 3;

int64_t positive(double x) { return std::max<int64_t>(1, std::llround(x)); }

double median(std::vector<double> values) {
    CHECK(!values.empty()) << "nothing was measured";
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// A Llama whose decode streams from memory, and one that stays in the cache.
models::Shape streaming_shape(int64_t cache_bytes) {
    models::Shape shape{.name = "calibration, streaming"};
    auto& c = shape.config;
    c.hidden_size = 1024;
    c.intermediate_size = 4096;
    c.num_heads = c.num_kv_heads = 16;
    c.head_dim = 64;
    c.vocab_size = 16384;
    // 67 MB of f32 a layer and as much in lm_head: five times the cache, halved by bf16; enough layers for exchanges
    // to tell from what a pass takes once.
    c.num_layers = std::clamp<int64_t>(5 * cache_bytes / 67'000'000, 4, 12);
    c.max_positions = 4096;
    c.rope_theta = 1e4;
    return shape;
}

models::Shape cached_shape(int64_t cache_bytes) {
    models::Shape shape = streaming_shape(0);
    shape.name = "calibration, cached";
    auto& c = shape.config;
    c.hidden_size = 256;
    c.intermediate_size = 1024;
    c.num_heads = c.num_kv_heads = 4;
    c.vocab_size = 2048;
    // 4.2 MB a layer: half of the cache, but 8 layers at most.
    c.num_layers = std::clamp<int64_t>(cache_bytes / 2 / 4'200'000, 1, 8);
    return shape;
}

// Steps of one kind and size in a pass, as the plan counts them and as they were.
struct Sample {
    KernelKind kernel = KernelKind::kOpaque;
    bool communicates = false;
    double flops = 0, weights = 0, bytes = 0, key_bytes = 0;  // of one step
    double ns = 0;                                            // median
};

struct Run {
    std::vector<Sample> prefill, decode;
    double decode_ns = 0, launches_ns = 0;  // of a token, the best repeat's
    int communications = 0;                 // of a decode pass
};

double bytes_at(const planner::Amount& a, const BatchPoint& p) {
    return static_cast<double>(planner::at(a, p));
}

Sample amounts_of(const planner::Step& step, const BatchPoint& p) {
    Sample s;
    if (const planner::Compute* c = step.compute()) {
        planner::Amount moved = c->weight_bytes + c->activation_bytes;
        s.kernel = c->kernel;
        s.flops = bytes_at(c->flops, p);
        s.weights = bytes_at(c->weight_bytes, p);
        s.key_bytes = static_cast<double>(moved.per_key) * static_cast<double>(p.num_keys);
        s.bytes = bytes_at(moved, p) - s.key_bytes;
        return s;
    }
    s.communicates = true;
    s.bytes = step.transfer() ? bytes_at(step.transfer()->bytes, p)
                              : bytes_at(step.collective()->bytes, p);
    return s;
}

// Which of the repeats each pass of the trace belongs to: one begins with each prefill, which is a single pass here.
std::map<int32_t, int> repeats_of(const runtime::Trace& trace) {
    std::map<int32_t, int> repeats;
    for (const runtime::TraceEvent& e : trace.events) repeats[e.pass] |= e.is_prefill ? 1 : 0;
    int repeat = -1;
    for (auto& [pass, begins] : repeats) begins = repeat += begins;
    return repeats;
}

// Times of one kind and size of step, apart for each repeat: the machine may be busy with something else for a while, so
// that the best repeat's median is what counts.
struct Times {
    Sample sample;
    std::array<std::vector<double>, kRepeats> ns;

    Sample best() const {
        Sample result = sample;
        result.ns = INFINITY;
        for (const std::vector<double>& of_repeat : ns)
            if (!of_repeat.empty()) result.ns = std::min(result.ns, median(of_repeat));
        return result;
    }
};

// A launch counts from its start to its end on each device, an exchange from the moment when the last member has come to the
// moment when the last one leaves.
std::vector<Sample> samples(const planner::Plan& plan, const runtime::Trace& trace, bool is_prefill,
                            const BatchPoint& p) {
    struct Meeting {
        int64_t last_start = 0, last_end = 0;
    };
    const planner::Phase& phase = plan.phase(is_prefill);
    std::map<int32_t, int> repeats = repeats_of(trace);
    std::map<std::pair<int32_t, size_t>, Meeting> meetings;
    std::map<std::tuple<bool, KernelKind, double>, Times> classes;
    auto add = [&](const Sample& s, int32_t pass, int64_t ns) {
        Times& times = classes[{s.communicates, s.kernel, s.bytes}];
        times.sample = s;
        times.ns.at(static_cast<size_t>(repeats[pass])).push_back(static_cast<double>(ns));
    };
    for (const runtime::TraceEvent& e : trace.events) {
        if (e.is_prefill != is_prefill) continue;
        Sample s = amounts_of(phase.steps[e.step.index()], p);
        if (s.communicates) {
            Meeting& m = meetings[{e.pass, e.step.index()}];
            m.last_start = std::max(m.last_start, e.start_ns);
            m.last_end = std::max(m.last_end, e.end_ns);
        } else {
            add(s, e.pass, e.end_ns - e.start_ns);
        }
    }
    for (const auto& [place, m] : meetings) {
        const planner::Collective* c = phase.steps[place.second].collective();
        if (!c || c->op == planner::CollectiveOp::kAllReduce)
            add(amounts_of(phase.steps[place.second], p), place.first, m.last_end - m.last_start);
    }
    std::vector<Sample> result;
    for (auto& [key, times] : classes) result.push_back(times.best());
    return result;
}

// What the launches of a decode pass take, those of one device (they are alike on the others), by the samples.
double launches_ns(const planner::Plan& plan, const std::vector<Sample>& samples,
                   const BatchPoint& p) {
    double sum = 0;
    for (const planner::Step& step : plan.decode.steps) {
        const planner::Compute* c = step.compute();
        if (!c || (plan.stages.size() == 1 && c->device != plan.stages[0].devices[0])) continue;
        Sample mine = amounts_of(step, p);
        for (const Sample& s : samples)
            if (!s.communicates && s.kernel == mine.kernel && s.bytes == mine.bytes) sum += s.ns;
    }
    return sum;
}

// Runs a shape on `devices` host devices and takes the trace apart.
class Bench {
public:
    Bench(const models::Shape& shape, DType dtype)
        : graph_(models::build_llama_graph(shape, dtype)), weights_(graph_) {}

    Run run(const HostFacts& facts, int devices, int tensor_parallel, int threads,
            const CancelToken* cancel) {
        planner::Workload workload;
        workload.prompt_tokens = kPrompt;
        workload.context = kPrompt + kNewTokens;
        planner::PlanOptions options;
        options.tensor_parallel = tensor_parallel;
        options.pipeline_stages = devices / tensor_parallel;
        planner::Machine machine = planner::build_machine(
            planner::parse_devices(devices == 1 ? "host[0]" : "host[0-1]"), facts);
        planner::Plan plan = planner::make_plan(graph_, machine, workload, options);
        runtime::SessionOptions session_options;
        session_options.record_trace = true;
        session_options.cancel = cancel;
        session_options.threads = threads;
        runtime::Session session(plan, session_options);
        runtime::GenerateOptions generate;
        generate.max_new_tokens = kNewTokens;
        generate.cancel = cancel;
        std::vector<int32_t> prompt(kPrompt);
        for (size_t i = 0; i < prompt.size(); ++i)
            prompt[i] = static_cast<int32_t>(i * 7919 % 2000);
        Run result;
        std::vector<double> tokens;
        for (int i = 0; i < kRepeats; ++i)
            tokens.push_back(
                runtime::generate(session, plan, {prompt}, generate).decode_ms_per_token * 1e6);
        result.decode_ns = *std::min_element(tokens.begin(), tokens.end());
        result.prefill = samples(plan, session.trace(), true, planner::prefill_point(workload));
        result.decode = samples(plan, session.trace(), false, planner::decode_point(workload));
        result.launches_ns = launches_ns(plan, result.decode, planner::decode_point(workload));
        for (const planner::Step& step : plan.decode.steps) {
            const planner::Collective* c = step.collective();
            result.communications +=
                step.transfer() || (c && c->op == planner::CollectiveOp::kAllReduce);
        }
        return result;
    }

private:
    importer::Graph graph_;
    models::StandInWeights weights_;
};

bool is_product(const Sample& s) {
    return s.kernel == KernelKind::kLinear || s.kernel == KernelKind::kNormLinear ||
           s.kernel == KernelKind::kNormGateUp || s.kernel == KernelKind::kNormQkvRopeAppend;
}

// ns = fixed + bytes * slope with the least squared relative error, both at least 0.
struct Line {
    double fixed = 0, slope = 0;
};
Line fit_line(const std::vector<Sample>& samples) {
    double a = 0, b = 0, c = 0, d = 0, e = 0;
    for (const Sample& s : samples) {
        if (!is_product(s)) continue;
        double x = s.bytes / s.ns, y = 1 / s.ns;
        a += y * y, b += x * y, c += x * x, d += y, e += x;
    }
    double determinant = a * c - b * b;
    Line line{(d * c - e * b) / determinant, (a * e - b * d) / determinant};
    if (!(determinant > 0) || line.fixed < 0 || line.slope <= 0) line = {0, e / c};
    return line;
}

// What a unit of `amount` takes above `fixed`, over the products of all tokens; lm_head takes the last one's alone.
template <class Amount>
double ns_each(const std::vector<Sample>& samples, double fixed, Amount amount,
               bool with_head = true) {
    double ns = 0, sum = 0;
    for (const Sample& s : samples)
        if (is_product(s) && (with_head || s.kernel != KernelKind::kNormLinear)) {
            ns += std::max(s.ns - fixed, 0.1 * s.ns);
            sum += amount(s);
        }
    return ns / sum;
}

double attention_ns(const std::vector<Sample>& samples, double fixed, bool is_prefill) {
    for (const Sample& s : samples)
        if (s.kernel == KernelKind::kAttention)
            return std::max(s.ns - fixed, 0.1 * s.ns) / (is_prefill ? s.flops : s.key_bytes);
    throw InternalError("the calibration's trace has no attention");
}

// Latency and ns a byte through the exchanges of decode and of prefill.
Line through(const Run& run) {
    auto find = [](const std::vector<Sample>& samples) {
        for (const Sample& s : samples)
            if (s.communicates) return s;
        throw InternalError("the calibration's trace has no exchange");
    };
    Sample small = find(run.decode), large = find(run.prefill);
    double slope = std::max(0.0, (large.ns - small.ns) / (large.bytes - small.bytes));
    // A token's payload is a few kilobytes: its own time is the latency.
    return {std::max(100.0, small.ns), slope};
}

// What two devices that share a token's work reach together, relative to one that does it alone: they share the memory, and
// the later one of each step counts. What a token takes once (sampling, hand-over of the pass) counts in neither.
double shared_rate(const Line& exchange, const Run& two, const Run& one) {
    double once = std::max(0.0, one.decode_ns - one.launches_ns);
    double together = two.decode_ns - once - exchange.fixed * two.communications;
    return std::clamp(one.launches_ns / std::max(1.0, together), 0.5, 2.0);
}

// Fewer threads compute in proportion; they read what one reads each, up to what all read.
void use_threads(HostFacts& facts, int threads) {
    planner::MeasuredRates& r = facts.calibration.rates;
    auto scale = [&](int64_t& rate) {
        rate = positive(static_cast<double>(rate) * std::min(threads, facts.num_cores) /
                        facts.num_cores);
    };
    for (int64_t* rate :
         {&r.widening, &r.cache_bandwidth, &r.flops_f32, &r.flops_narrow, &r.attention_flops})
        scale(*rate);
    int64_t bandwidth = std::min(r.bandwidth, r.bandwidth_alone * threads);
    r.attention_bandwidth =
        positive(static_cast<double>(r.attention_bandwidth) * static_cast<double>(bandwidth) /
                 static_cast<double>(r.bandwidth));
    facts.memory_bandwidth =
        positive(static_cast<double>(facts.memory_bandwidth) * static_cast<double>(bandwidth) /
                 static_cast<double>(r.bandwidth));
    r.bandwidth = bandwidth;
    facts.num_cores = threads;
}

}  // namespace

void calibrate_host(HostFacts& facts, const std::function<void(int64_t, int64_t)>& progress,
                    const CancelToken* cancel) {
    facts.calibration = {};
    runtime::HostTopology topology = runtime::read_host_topology();
    int64_t cache =
        topology.l3_bytes > 0 ? topology.l3_bytes : std::max<int64_t>(topology.l2_bytes, 1 << 20);
    int64_t done = 0;
    constexpr int64_t kRuns = 7;
    auto run = [&](Bench& bench, int devices, int tensor_parallel, int threads = 0) {
        progress(done, kRuns);
        Run result = bench.run(facts, devices, tensor_parallel, threads, cancel);
        progress(++done, kRuns);
        return result;
    };
    planner::MeasuredRates rates;
    rates.cache_bytes = cache;
    {
        Bench cached(cached_shape(cache), DType::kF32);
        Line one = fit_line(run(cached, 1, 1).decode);
        rates.launch_ns = positive(one.fixed);
        rates.cache_bandwidth = positive(1e9 / one.slope);
        rates.launch_alone_ns = positive(fit_line(run(cached, 2, 2).decode).fixed);
    }
    auto fixed = static_cast<double>(rates.launch_ns);
    {
        Bench narrow(streaming_shape(cache), DType::kBF16);
        Run one = run(narrow, 1, 1);
        rates.widening = positive(
            1e9 / ns_each(one.decode, fixed, [](const Sample& s) { return s.weights / 2; }));
        rates.flops_narrow = positive(
            1e9 / ns_each(one.prefill, fixed, [](const Sample& s) { return s.flops; }, false));
    }
    Bench streaming(streaming_shape(cache), DType::kF32);
    Run one = run(streaming, 1, 1);
    rates.bandwidth =
        positive(1e9 / ns_each(one.decode, fixed, [](const Sample& s) { return s.bytes; }));
    auto alone = static_cast<double>(rates.launch_alone_ns);
    rates.bandwidth_alone = positive(1e9 / ns_each(run(streaming, 1, 1, 1).decode, alone,
                                                   [](const Sample& s) { return s.bytes; }));
    rates.flops_f32 =
        positive(1e9 / ns_each(one.prefill, fixed, [](const Sample& s) { return s.flops; }, false));
    rates.attention_bandwidth = positive(1e9 / attention_ns(one.decode, fixed, false));
    rates.attention_flops = positive(1e9 / attention_ns(one.prefill, fixed, true));

    Run two = run(streaming, 2, 2);
    Line exchange = through(two), transfer = through(run(streaming, 2, 1));
    facts.calibration = {rates, positive(1e9 / std::max(transfer.slope, 1e-3)),
                         positive(transfer.fixed), positive(1e9 / std::max(exchange.slope, 1e-3)),
                         positive(exchange.fixed)};
    facts.memory_bandwidth =
        positive(static_cast<double>(rates.bandwidth) * shared_rate(exchange, two, one));
    progress(kRuns, kRuns);
}

std::string calibration_path() {
    std::filesystem::path folder;
    if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && *config)
        folder = config;
    else if (const char* home = std::getenv("HOME"); home && *home)
        folder = std::filesystem::path(home) / ".config";
    return folder.empty() ? std::string() : (folder / "cleave" / "host.json").string();
}

std::string host_identity(const HostFacts& facts) {
    runtime::HostTopology topology = runtime::read_host_topology();
    return fmt::format("{}, {} cores", topology.cpu_model.empty() ? "CPU" : topology.cpu_model,
                       facts.num_cores);
}

HostFacts facts_of_this_host(int threads, std::string* note) {
    HostFacts facts = planner::read_host_facts();
    const int cores = facts.num_cores;
    if (threads > 0) facts.num_cores = threads;
    std::string path = calibration_path();
    if (path.empty() || !std::filesystem::exists(path)) return facts;
    auto skip = [&](const std::string& why) {
        if (note) *note = fmt::format("{}: {}; rates are estimates", path, why);
        return facts;
    };
    planner::Machine machine = planner::load_machine(path);
    facts.num_cores = cores;
    std::string here = host_identity(facts), there;
    for (const planner::Device& d : machine.devices)
        if (there.empty()) there = d.identity;
    if (there != here)
        return skip(fmt::format("measured on '{}', and this is '{}'; run cleave devices --measure",
                                there, here));
    facts.calibration = planner::calibration_of(machine, path);
    if (!machine.domains.empty()) facts.memory_bandwidth = machine.domains[0].bandwidth;
    if (threads > 0 && threads != cores) use_threads(facts, threads);
    return facts;
}

}  // namespace cleave::tools
