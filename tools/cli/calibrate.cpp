// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/calibrate.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <fmt/ranges.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "planner/machine/machine_file.h"
#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"
#include "runtime/drivers/host/host_topology.h"
#include "runtime/hosts/job.h"
#include "tools/cli/cache_probe.h"
#include "tools/cli/machine_load.h"

namespace cleave::tools {
namespace {

using planner::HostFacts;
using planner::KernelKind;

constexpr int kRounds = 3;  // of all configurations, one after the other

// A measurement is doubtful above one of these: the slowest over the fastest time of the same work,
// less 1; the share of the cores that other programs used; the share that the hypervisor took.
constexpr double kMostSpread = 0.25, kMostOthers = 0.1, kMostStolen = 0.05;

int64_t positive(double x) { return std::max<int64_t>(1, std::llround(x)); }

// A Llama whose decode streams from memory, and one that stays in the cache.
models::Shape streaming_shape(int64_t cache_bytes) {
    models::Shape shape{.name = "calibration, streaming"};
    auto& c = shape.config;
    c.hidden_size = 1024;
    c.intermediate_size = 4096;
    c.num_heads = c.num_kv_heads = 16;
    c.head_dim = 64;
    c.vocab_size = 16384;
    // 67 MB of f32 a layer and as much in lm_head: five times the cache, halved by bf16; enough
    // layers to separate exchanges from the fixed cost of a pass.
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
    // 4.2 MB a layer: half of what the process has of the cache, but 8 layers at most.
    c.num_layers = std::clamp<int64_t>(cache_bytes / 2 / 4'200'000, 1, 8);
    return shape;
}

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

// ns a unit of `amount`, above `fixed`, over products of all tokens. lm_head, which reads the last
// token alone, counts if `with_head`.
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
Line through(const HostRun& run) {
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

// The rate of two devices that share a token's work, relative to one device alone. They share the
// memory, and the slower one of each step counts. Fixed costs of a token (sampling, handing over
// the pass) are left out.
double shared_rate(const Line& exchange, const HostRun& two, const HostRun& one) {
    double once = std::max(0.0, one.decode_ns - one.launches_ns);
    double together = two.decode_ns - once - exchange.fixed * two.communications;
    return std::clamp(one.launches_ns / std::max(1.0, together), 0.5, 2.0);
}

// With fewer threads: operations in proportion; reads as many times one thread's rate, up to the
// rate of all.
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

// What the measurement that wrote the file warned of.
std::string kept_warning(const std::string& path) {
    const nlohmann::json file = read_json(path);
    const auto at = file.find("measurement");
    if (at == file.end() || !at->is_object()) return "";
    const auto warning = at->find("warning");
    return warning != at->end() && warning->is_string() ? warning->get<std::string>() : "";
}

enum Configuration {
    kCached,
    kCachedTwo,
    kNarrow,
    kOne,
    kOneThread,
    kTwo,
    kPipeline,
    kConfigurations
};

int64_t cache_bytes() {
    runtime::HostTopology topology = runtime::read_host_topology();
    return topology.l3_bytes > 0 ? topology.l3_bytes
                                 : std::max<int64_t>(topology.l2_bytes, 1 << 20);
}

int64_t cache_share_of(int64_t told) {
    CacheProbe probe(told);
    for (int i = 0; i < 2; ++i) probe.round(nullptr);
    return probe.share();
}

}  // namespace

std::string Measurement::warning() const {
    std::vector<std::string> reasons;
    auto percent = [](double share) { return fmt::format("{:.0f} %", 100 * share); };
    if (other_load > kMostOthers)
        reasons.push_back("other programs used " + percent(other_load) + " of the cores");
    if (stolen > kMostStolen)
        reasons.push_back("the hypervisor gave " + percent(stolen) + " of their time to others");
    if (spread > kMostSpread)
        reasons.push_back("the same work took " + percent(spread) +
                          " longer at one time than at another");
    if (reasons.empty()) return "";
    return fmt::format("{} during the measurement; measure again when the machine is quiet",
                       fmt::join(reasons, ", "));
}

struct HostCalibrator::State {
    State(const HostFacts& facts, const RoundLength& length)
        : cached(cached_shape(share), DType::kF32),
          narrow(streaming_shape(cache), DType::kBF16),
          streaming(streaming_shape(cache), DType::kF32) {
        benches.emplace_back(cached, facts, length, 1, 1);
        benches.emplace_back(cached, facts, length, 2, 2);
        benches.emplace_back(narrow, facts, length, 1, 1);
        benches.emplace_back(streaming, facts, length, 1, 1);
        benches.emplace_back(streaming, facts, length, 1, 1, 1);
        benches.emplace_back(streaming, facts, length, 2, 2);
        benches.emplace_back(streaming, facts, length, 2, 1);
    }

    const int64_t cache = cache_bytes();
    const int64_t share = cache_share_of(cache);  // of it, of this process
    BenchModel cached, narrow, streaming;
    std::vector<HostBench> benches;  // by Configuration
    std::vector<MachineLoad> loads;  // of rounds, where it is known
};

HostCalibrator::HostCalibrator(const HostFacts& facts, const RoundLength& length) {
    HostFacts plain = facts;
    plain.calibration = {};
    state_ = std::make_unique<State>(plain, length);
}

HostCalibrator::~HostCalibrator() = default;

int HostCalibrator::num_configurations() { return kConfigurations; }

void HostCalibrator::round(const std::function<void()>& progress, const CancelToken* cancel) {
    LoadWatch watch;
    for (HostBench& bench : state_->benches) {
        progress();
        bench.round(cancel);
    }
    if (std::optional<MachineLoad> load = watch.so_far()) state_->loads.push_back(*load);
}

Measurement HostCalibrator::result(HostFacts& facts) const {
    Measurement measurement;
    for (const MachineLoad& load : state_->loads) {
        const auto rounds = static_cast<double>(state_->loads.size());
        measurement.other_load += load.others / rounds;
        measurement.stolen += load.stolen / rounds;
    }
    std::vector<HostRun> runs;
    for (const HostBench& bench : state_->benches) runs.push_back(bench.result());
    // A token of the small one takes microseconds, which a single interrupt doubles.
    for (size_t i = kNarrow; i < runs.size(); ++i)
        measurement.spread = std::max(measurement.spread, runs[i].spread);

    planner::MeasuredRates rates;
    rates.cache_bytes = state_->share;
    Line in_cache = fit_line(runs[kCached].decode);
    rates.launch_ns = positive(in_cache.fixed);
    rates.cache_bandwidth = positive(1e9 / in_cache.slope);
    rates.launch_alone_ns = positive(fit_line(runs[kCachedTwo].decode).fixed);
    auto fixed = static_cast<double>(rates.launch_ns);
    auto alone = static_cast<double>(rates.launch_alone_ns);
    auto all_bytes = [](const Sample& s) { return s.bytes; };
    auto operations = [](const Sample& s) { return s.flops; };
    auto elements = [](const Sample& s) { return s.weights / 2; };  // of bf16
    const HostRun &one = runs[kOne], &two = runs[kTwo], &in_bf16 = runs[kNarrow];
    rates.widening = positive(1e9 / ns_each(in_bf16.decode, fixed, elements));
    rates.flops_narrow = positive(1e9 / ns_each(in_bf16.prefill, fixed, operations, false));
    rates.bandwidth = positive(1e9 / ns_each(one.decode, fixed, all_bytes));
    rates.bandwidth_alone = positive(1e9 / ns_each(runs[kOneThread].decode, alone, all_bytes));
    rates.flops_f32 = positive(1e9 / ns_each(one.prefill, fixed, operations, false));
    rates.attention_bandwidth = positive(1e9 / attention_ns(one.decode, fixed, false));
    rates.attention_flops = positive(1e9 / attention_ns(one.prefill, fixed, true));

    Line exchange = through(two), transfer = through(runs[kPipeline]);
    facts.calibration = {rates, positive(1e9 / std::max(transfer.slope, 1e-3)),
                         positive(transfer.fixed), positive(1e9 / std::max(exchange.slope, 1e-3)),
                         positive(exchange.fixed)};
    facts.memory_bandwidth =
        positive(static_cast<double>(rates.bandwidth) * shared_rate(exchange, two, one));
    return measurement;
}

Measurement calibrate_host(HostFacts& facts, const std::function<void(int64_t, int64_t)>& progress,
                           const CancelToken* cancel) {
    HostCalibrator calibrator(facts);
    const int64_t total = kRounds * HostCalibrator::num_configurations();
    int64_t done = 0;
    for (int i = 0; i < kRounds; ++i) calibrator.round([&] { progress(done++, total); }, cancel);
    const Measurement measurement = calibrator.result(facts);
    progress(total, total);
    return measurement;
}

namespace {

std::filesystem::path calibration_folder() {
    std::filesystem::path folder;
    if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && *config)
        folder = config;
    else if (const char* home = std::getenv("HOME"); home && *home)
        folder = std::filesystem::path(home) / ".config";
    return folder.empty() ? folder : folder / "cleave";
}

// What one process measured is of its host too where that is a rank of a run.
std::string kept_calibration() {
    std::string own = calibration_path();
    if (own.empty() || is_there(own)) return own;
    return (calibration_folder() / "host.json").string();
}

}  // namespace

std::string calibration_path() {
    const std::filesystem::path folder = calibration_folder();
    if (folder.empty()) return "";
    char name[HOST_NAME_MAX + 1] = "";
    ::gethostname(name, sizeof name - 1);
    const bool is_one_of_several = runtime::is_launched_by_mpi() && *name;
    return folder / (is_one_of_several ? fmt::format("host.{}.json", name) : "host.json");
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
    const std::string path = kept_calibration();
    if (path.empty() || !is_there(path)) return facts;
    auto skip = [&](const std::string& why) {
        if (note) *note = fmt::format("{}: {}; rates are estimates", path, why);
        return facts;
    };
    planner::Machine machine = planner::load_machine(path);
    facts.num_cores = cores;
    std::string here = host_identity(facts), there;
    for (const planner::DeviceInfo& d : machine.devices)
        if (there.empty()) there = d.identity;
    if (there != here)
        return skip(fmt::format("measured on '{}', and this is '{}'; run cleave devices --measure",
                                there, here));
    facts.calibration = planner::calibration_of(machine, path);
    if (std::string warning = kept_warning(path); note && !warning.empty())
        *note = fmt::format("{}: {} (cleave devices --measure)", path, warning);
    if (!machine.domains.empty()) facts.memory_bandwidth = machine.domains[0].bandwidth;
    if (threads > 0 && threads != cores) use_threads(facts, threads);
    return facts;
}

}  // namespace cleave::tools
