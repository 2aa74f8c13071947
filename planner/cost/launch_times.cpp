// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/launch_times.h"

#include <algorithm>
#include <cmath>

#include "planner/analysis/storage.h"
#include "planner/cost/reached.h"
#include "planner/machine/gpu_arch.h"
#include "planner/tiles/gpu.h"

namespace cleave::planner {

using namespace importer;

namespace {

// The share of an estimated peak that host kernels reach, where nothing was measured.
constexpr double kHostBandwidthShare = 0.85, kHostFlopsShare = 0.5;

// Products of int8 against those of bf16 on a CPU's units: half the bytes.
constexpr double kIntegerRate = 2;
// Of decode passes of 1 to 32 sequences on Zen 4 (README.md): the rate of products in f32 over that
// of prompts' and of int8 over bf16's; what does not hide of reading or computing, the lesser.
constexpr double kFewTokensRate = 1.1, kFewIntegersRate = 1.1, kDotsBeside = 0.7,
                 kTilesBeside = 0.2;

// Prefill on hosts reads a key once for a tile of queries.
constexpr int64_t kPrefillKeyReuse = 32;

// Launch latency of catalogue GPUs that the fitted latencies stand for
// (planner/machine/catalogue.cpp).
constexpr double kFittedLaunchNs = 3000;

bool is_integer_code(DType dtype) {
    return dtype == DType::kInt4 || dtype == DType::kUInt4 || dtype == DType::kInt8 ||
           dtype == DType::kUInt8;
}

// A token's arithmetic hides behind its weights. Of more tokens that share them, part of all but
// one's adds to it: loads wait where multiplications keep their instructions back. In f32 that is
// most of it, up to kGemvTokens; no more tokens take less than those.
double few_tokens_ns(double reading, double computing, double rows, bool is_f32) {
    const auto both = [&](double compute, double of, double share) {
        return std::max(reading, compute) + share * std::min(reading, compute) * (1 - 1 / of);
    };
    if (!is_f32) return both(computing, rows, kTilesBeside);
    const double dots = std::min<double>(rows, kGemvTokens);
    const double of_dots = both(computing * dots / rows, dots, kDotsBeside);
    return rows <= kGemvTokens ? of_dots : std::max(of_dots, both(computing, rows, kTilesBeside));
}

bool is_product(KernelKind kernel) {
    return kernel == KernelKind::kLinear || kernel == KernelKind::kNormLinear ||
           kernel == KernelKind::kNormGateUp || kernel == KernelKind::kNormQkvRopeAppend;
}

double seconds_to_ns(double amount, double per_second) {
    return amount * 1e9 / std::max(1.0, per_second);
}

// GPUs multiply narrower weights as f16, into which they unpack them (codegen/README.md).
GpuRates rates_of(const DeviceInfo& device, DType dtype) {
    const Reached& reached = reached_by(device);
    return {static_cast<double>(dtype_bits(dtype) < 32 ? device.flops_f16 : device.flops(dtype)),
            reached.bandwidth * static_cast<double>(device.memory_bandwidth),
            reached.latency * static_cast<double>(device.launch_overhead_ns) / kFittedLaunchNs};
}

double unpack_ns(const DeviceInfo& device, const KernelPoint& product, DType weights) {
    const bool packed = dtype_bits(weights) < 8;
    return packed ? seconds_to_ns(kUnpackOperations * product.first * product.second,
                                  static_cast<double>(device.flops_f32))
                  : 0;
}

}  // namespace

DType compute_dtype(const Analysis& analysis, const FusedGroup& group, const Workload& workload) {
    DType dtype = DType::kF32;
    int64_t largest = 0;
    for (OpId id : group.ops)
        for (WeightId w : analysis.graph.op(id).weights) {
            const Weight& weight = analysis.graph.weight(w);
            if (weight.shape.size() < 2 || weight.num_elements() <= largest) continue;
            largest = weight.num_elements();
            dtype = device_dtype(weight, workload);
        }
    return dtype;
}

LaunchCosts::LaunchCosts(const Analysis& analysis, const Machine& machine, const Workload& workload)
    : analysis_(analysis),
      machine_(machine),
      workload_(workload),
      decode_(decode_point(workload)),
      prefill_(prefill_point(workload)),
      decode_sequences_(static_cast<double>(workload.batch)),
      prefill_sequences_(
          std::max(1.0, static_cast<double>(prefill_.num_tokens) /
                            static_cast<double>(std::max<int64_t>(1, workload.prompt_tokens)))) {
    facts_.reserve(analysis.groups.size());
    for (const FusedGroup& group : analysis.groups) facts_.push_back(facts_of(group, workload));
    for (const DeviceInfo& device : machine.devices) {
        const GpuArch* arch = find_gpu_arch(device.arch);
        copies_.push_back(arch && arch->copies_asynchronously);
    }
    bool has_cache = std::any_of(machine.devices.begin(), machine.devices.end(),
                                 [](const DeviceInfo& d) { return d.measured.cache_bytes > 0; });
    for (const FusedGroup& group : analysis.groups) {
        if (!has_cache) break;
        LaunchAmounts whole =
            launch_amounts(analysis, group, {0, group.split.work.units}, workload, false);
        read_per_token_ += static_cast<double>(whole.weight_bytes.at(decode_) +
                                               whole.activation_bytes.per_key * decode_.num_keys);
    }
}

LaunchCosts::Facts LaunchCosts::facts_of(const FusedGroup& group, const Workload& workload) const {
    Facts facts;
    facts.dtype = compute_dtype(analysis_, group, workload);
    if (is_product(group.kernel)) {
        facts.kind = Facts::Kind::kProduct;
        facts.begins = analysis_.graph.op(group.ops.front()).kind == OpKind::kLinear;
        for (OpId id : group.ops) {
            const Op& op = analysis_.graph.op(id);
            if (op.kind != OpKind::kLinear) continue;
            const Weight& weight = analysis_.graph.weight(op.weights[0]);
            facts.depth = weight.shape[1];
            facts.width += weight.shape[0];
            facts.cut_in_depth = analysis_.splits.ops[id.index()].weight == WeightCut::kColumns;
            facts.of_outputs = rows_of(analysis_.graph.value(op.outputs[0])) == Rows::kOutputs;
        }
        if (facts.depth == 0) facts.kind = Facts::Kind::kOther;
    } else if (group.kernel == KernelKind::kAttention) {
        const auto& t = analysis_.graph.op(group.ops[0]).as<AttentionAttrs>();
        facts.kind = Facts::Kind::kAttention;
        facts.heads = t.num_heads;
        facts.kv_heads = t.num_kv_heads;
        // Layers repeat: the last attention's figures are most often this one's.
        for (size_t g = facts_.size(); g-- > 0;) {
            if (facts_[g].kind != Facts::Kind::kAttention) continue;
            const auto& last = analysis_.graph.op(analysis_.groups[g].ops[0]).as<AttentionAttrs>();
            if (last.num_heads != t.num_heads || last.num_kv_heads != t.num_kv_heads ||
                last.head_dim != t.head_dim || last.v_head_dim != t.v_head_dim)
                break;
            facts.key_flops = facts_[g].key_flops;
            facts.kv_head_bytes = facts_[g].kv_head_bytes;
            return facts;
        }
        LaunchAmounts whole =
            launch_amounts(analysis_, group, {0, group.split.work.units}, workload, false);
        facts.key_flops = whole.flops.per_key / std::max<int64_t>(1, t.num_heads);
        facts.kv_head_bytes = whole.activation_bytes.per_key / std::max<int64_t>(1, t.num_kv_heads);
    }
    return facts;
}

bool LaunchCosts::is_gpu(const DeviceInfo& device) const {
    return device.limits.has_warps() && device.kind != DeviceKind::kSimt;
}

// ---- Hosts

// The part of what a token reads that the cache still holds from the last one. Streams longer than
// the cache evict themselves, in practice not all at once. The whole model counts, wherever its
// parts lie: the bound over plans then knows the part as well.
double LaunchCosts::resident(const DeviceInfo& device) const {
    auto cache = static_cast<double>(device.measured.cache_bytes);
    return cache > 0 ? std::clamp((2 * cache - read_per_token_) / cache, 0.0, 1.0) : 0.0;
}

// Operations/s of products of a prompt's tokens, or of the `few` of a decode pass. Only where
// activations are rounded are they on a narrow unit: the measured one is bf16's.
double LaunchCosts::product_rate(const MeasuredRates& measured, DType weights, bool few) const {
    const bool rounds = workload_.compute == ComputeMode::kFast;
    const auto narrow = static_cast<double>(measured.flops_narrow);
    if (rounds && weights == DType::kBF16) return narrow;
    if (rounds && is_integer_code(weights)) return (few ? kFewIntegersRate : kIntegerRate) * narrow;
    return (few ? kFewTokensRate : 1) * static_cast<double>(measured.flops_f32);
}

LaunchCosts::Time LaunchCosts::host_time(const DeviceInfo& device, const Facts& facts,
                                         const LaunchAmounts& amounts, bool is_prefill,
                                         size_t host_width) const {
    const PassPoint& p = point(is_prefill);
    auto flops = static_cast<double>(amounts.flops.at(p));
    Amount moved = amounts.weight_bytes + amounts.activation_bytes;
    auto of_keys = static_cast<double>(moved.per_key * p.num_keys);
    moved.per_key = 0;
    auto bytes = static_cast<double>(moved.at(p));
    const MeasuredRates& m = device.measured;
    if (m.bandwidth <= 0) {
        double work = std::max(
            seconds_to_ns(flops, kHostFlopsShare * static_cast<double>(device.flops(facts.dtype))),
            seconds_to_ns(bytes + (is_prefill ? of_keys / kPrefillKeyReuse : of_keys),
                          kHostBandwidthShare * static_cast<double>(device.memory_bandwidth)));
        return {device.launch_overhead_ns + std::llround(work), device.launch_overhead_ns};
    }
    // Devices of one stage share the threads; one that has a single thread launches without waking
    // others.
    bool alone = static_cast<int64_t>(host_width) >= device.limits.num_compute_units;
    int64_t fixed = alone ? m.launch_alone_ns : m.launch_ns;
    double work = 0;
    if (facts.kind == Facts::Kind::kAttention && is_prefill) {
        work = seconds_to_ns(flops, static_cast<double>(m.attention_flops));
    } else {
        double cached = resident(device);
        work = seconds_to_ns(bytes * cached, static_cast<double>(m.cache_bandwidth)) +
               seconds_to_ns(bytes * (1 - cached), static_cast<double>(m.bandwidth));
        // Codes that meet rounded activations are multiplied as they are.
        const bool rounds = workload_.compute == ComputeMode::kFast && is_integer_code(facts.dtype);
        if (dtype_bits(facts.dtype) < 32 && !rounds)
            work = std::max(work, seconds_to_ns(static_cast<double>(amounts.weight_bytes.at(p)) *
                                                    8 / dtype_bits(facts.dtype),
                                                static_cast<double>(m.widening)));
        const bool few = !is_prefill && facts.kind == Facts::Kind::kProduct;
        const double computing = seconds_to_ns(flops, product_rate(m, facts.dtype, few));
        const auto rows = static_cast<double>(
            std::max<int64_t>(1, facts.of_outputs ? p.num_outputs : p.num_tokens));
        work = few ? few_tokens_ns(work, computing, rows, dtype_bits(facts.dtype) == 32)
                   : std::max(work, computing);
        // Grouped queries share the keys they read, and then computing decides.
        if (facts.kind == Facts::Kind::kAttention)
            work = std::max(seconds_to_ns(of_keys, static_cast<double>(m.attention_bandwidth)),
                            seconds_to_ns(flops, static_cast<double>(m.attention_flops)));
    }
    return {fixed + std::llround(work), fixed};
}

// ---- GPUs

KernelPoint LaunchCosts::product_point(const Facts& facts, int64_t flops, bool is_prefill) const {
    const PassPoint& p = point(is_prefill);
    auto rows =
        static_cast<double>(std::max<int64_t>(1, facts.of_outputs ? p.num_outputs : p.num_tokens));
    double pairs = static_cast<double>(flops) / (2 * rows);  // width x depth of the piece
    if (facts.cut_in_depth) {
        auto width = static_cast<double>(facts.width);
        return {width, pairs / width, rows};
    }
    auto depth = static_cast<double>(facts.depth);
    return {pairs / depth, depth, rows};
}

KernelPoint LaunchCosts::attention_point(double heads, double kv_heads, bool is_prefill) const {
    const PassPoint& p = point(is_prefill);
    double sequences = is_prefill ? prefill_sequences_ : decode_sequences_;
    double keys = static_cast<double>(p.num_keys) / sequences;  // of all tokens of a sequence
    // The table of prefill is one of square causal attention: the square with as many pairs.
    double inner = is_prefill ? std::sqrt(2 * keys) : keys;
    return {sequences * kv_heads, heads / std::max(1.0, kv_heads), inner};
}

int64_t LaunchCosts::gpu_bytes(const Facts& facts, const LaunchAmounts& amounts,
                               bool is_prefill) const {
    const PassPoint& p = point(is_prefill);
    Amount moved = amounts.weight_bytes + amounts.activation_bytes;
    if (!is_prefill || facts.kind != Facts::Kind::kAttention) return moved.at(p);
    // Prefill reads each key once for all queries of its sequence, as the table's bytes count.
    KernelPoint square = attention_point(1, 1, true);
    auto keys = static_cast<int64_t>(square.inner * prefill_sequences_);
    int64_t of_keys = moved.per_key * keys;
    moved.per_key = 0;
    return moved.at(p) + of_keys;
}

double LaunchCosts::gpu_ns(const DeviceInfo& device, const Facts& facts, int64_t flops,
                           int64_t bytes, bool is_prefill, KernelPoint point) const {
    const KernelTimes& times = KernelTimes::h200();
    auto f = static_cast<double>(flops), b = static_cast<double>(bytes);
    switch (facts.kind) {
        case Facts::Kind::kProduct:
            return std::max(
                times.ns(KernelFamily::kGemm, point, f, b, rates_of(device, facts.dtype)),
                unpack_ns(device, point, facts.dtype));
        case Facts::Kind::kAttention:
            return times.ns(
                is_prefill ? KernelFamily::kPrefillAttention : KernelFamily::kDecodeAttention,
                point, f, b, rates_of(device, DType::kF16));
        case Facts::Kind::kOther: break;
    }
    return times.plain_ns(f, b, rates_of(device, facts.dtype));
}

bool LaunchCosts::prepares(DeviceId id, const Facts& facts, const KernelPoint& point) const {
    if (!copies_[id.index()]) return false;
    ProductShape shape;
    shape.depth = facts.depth;  // pieces of it are cut between whole copies
    shape.rows = std::llround(point.first);
    shape.tokens = facts.of_outputs ? workload_.max_outputs() : workload_.max_tokens();
    set_weight_type(facts.dtype, false, shape);
    const bool copied =
        facts.begins && shape.code_bits == 0 && facts.dtype == workload_.activation_dtype;
    return !copied && pays_to_prepare(shape);
}

LaunchCosts::Time LaunchCosts::preparation(const DeviceInfo& device, const Facts& facts,
                                           const KernelPoint& point) const {
    ProductShape shape;
    set_weight_type(facts.dtype, false, shape);
    const double of_row =
        point.second * static_cast<double>(dtype_bytes(workload_.activation_dtype, 1) + 2) +
        static_cast<double>(shape.as_f16 ? kFactorBytes : 0);
    const double bytes = point.inner * of_row;
    if (is_gpu(device))
        return {std::llround(KernelTimes::h200().plain_ns(0, bytes, rates_of(device, facts.dtype))),
                0};
    const double moving =
        seconds_to_ns(bytes, kHostBandwidthShare * static_cast<double>(device.memory_bandwidth));
    return {device.launch_overhead_ns + std::llround(moving), device.launch_overhead_ns};
}

LaunchCosts::Time LaunchCosts::time(DeviceId id, size_t group, const LaunchAmounts& amounts,
                                    bool is_prefill, size_t host_width,
                                    std::optional<ActivationPath> path) const {
    Time all = launch_time(id, group, amounts, is_prefill, host_width);
    const Facts& facts = facts_[group];
    if (!is_prefill || facts.kind != Facts::Kind::kProduct) return all;
    const KernelPoint where = product_point(facts, amounts.flops.at(point(true)), true);
    if (path ? *path != ActivationPath::kPrepared : !prepares(id, facts, where)) return all;
    const Time first = preparation(machine_.device(id), facts, where);
    return {all.ns + first.ns, all.fixed_ns + first.fixed_ns};
}

LaunchCosts::Time LaunchCosts::launch_time(DeviceId id, size_t group, const LaunchAmounts& amounts,
                                           bool is_prefill, size_t host_width) const {
    const DeviceInfo& device = machine_.device(id);
    const Facts& facts = facts_[group];
    if (!is_gpu(device)) return host_time(device, facts, amounts, is_prefill, host_width);
    int64_t flops = amounts.flops.at(point(is_prefill));
    int64_t bytes = gpu_bytes(facts, amounts, is_prefill);
    uint64_t hash = (static_cast<uint64_t>(flops) * 0x9e3779b97f4a7c15u) ^
                    (static_cast<uint64_t>(bytes) * 0xff51afd7ed558ccdu) ^
                    (id.index() * 0xc4ceb9fe1a85ec53u + group);
    Remembered& slot = remembered_[(hash >> 20) % remembered_.size()];
    uint64_t place = id.index() * 2 + (is_prefill ? 1 : 0);
    if (slot.device == place && slot.group == group && slot.flops == flops && slot.bytes == bytes)
        return slot.time;
    KernelPoint where;
    if (facts.kind == Facts::Kind::kProduct) where = product_point(facts, flops, is_prefill);
    if (facts.kind == Facts::Kind::kAttention)
        where = attention_point(static_cast<double>(amounts.flops.per_key) /
                                    static_cast<double>(std::max<int64_t>(1, facts.key_flops)),
                                static_cast<double>(amounts.activation_bytes.per_key) /
                                    static_cast<double>(std::max<int64_t>(1, facts.kv_head_bytes)),
                                is_prefill);
    slot = {place,
            group,
            flops,
            bytes,
            {std::llround(gpu_ns(device, facts, flops, bytes, is_prefill, where)), 0}};
    return slot.time;
}

// ---- Floors

namespace {

// The part of the shortest launch that counts as overhead, whatever the piece.
constexpr double kOverheadPart = 0.8;
// Between the sizes that are tried a time may lie a little below the line through its neighbours.
constexpr double kBetween = 0.97;
constexpr double kStep = 1.08;
constexpr int kLargestDivision = 256;

}  // namespace

LaunchCosts::Floor LaunchCosts::product_floor(const DeviceInfo& device, const Facts& facts,
                                              const LaunchAmounts& whole, bool is_prefill) const {
    auto flops = static_cast<double>(whole.flops.at(point(is_prefill)));
    auto bytes = static_cast<double>(whole.weight_bytes.at(point(is_prefill)));
    KernelPoint all = product_point(facts, static_cast<int64_t>(flops), is_prefill);
    double full = facts.cut_in_depth ? all.second : all.first;
    std::vector<double> sizes;
    for (double s = full; s * kLargestDivision >= full && s >= 1; s /= kStep) sizes.push_back(s);
    for (double s : KernelTimes::h200().axis(KernelFamily::kGemm, facts.cut_in_depth ? 1 : 0))
        if (s < full) sizes.push_back(s);
    std::vector<double> times;
    for (double s : sizes) {
        KernelPoint where = all;
        (facts.cut_in_depth ? where.second : where.first) = s;
        times.push_back(kBetween * gpu_ns(device, facts, static_cast<int64_t>(flops * s / full),
                                          static_cast<int64_t>(bytes * s / full), is_prefill,
                                          where));
    }
    Floor floor{kOverheadPart * *std::min_element(times.begin(), times.end()), INFINITY, INFINITY};
    for (size_t i = 0; i < sizes.size(); ++i) {
        floor.work = std::min(floor.work, (times[i] - floor.overhead) * full / sizes[i]);
        floor.alone = std::min(floor.alone, times[i] * full / sizes[i]);
    }
    return floor;
}

LaunchCosts::Floor LaunchCosts::attention_floor(const DeviceInfo& device, const Facts& facts,
                                                const LaunchAmounts& whole, bool is_prefill) const {
    auto flops = static_cast<double>(whole.flops.at(point(is_prefill)));
    auto bytes = static_cast<double>(gpu_bytes(facts, whole, is_prefill));
    auto heads = static_cast<double>(facts.heads), all_kv = static_cast<double>(facts.kv_heads);
    double group = heads / all_kv;
    Floor floor{INFINITY, INFINITY, INFINITY};
    std::vector<std::pair<double, double>> found;  // share, time
    for (double kv = 1; kv <= all_kv; kv = std::max(kv + 1, std::floor(kv * kStep)))
        for (double g = 1; g <= group; ++g) {
            double share = kv * g / heads;
            // A cut group reads its keys for fewer heads; the floor counts them by the share.
            double ns = kBetween * gpu_ns(device, facts, static_cast<int64_t>(flops * share),
                                          static_cast<int64_t>(bytes * share), is_prefill,
                                          attention_point(kv * g, kv, is_prefill));
            found.emplace_back(share, ns);
            floor.overhead = std::min(floor.overhead, kOverheadPart * ns);
        }
    for (auto [share, ns] : found) {
        floor.work = std::min(floor.work, (ns - floor.overhead) / share);
        floor.alone = std::min(floor.alone, ns / share);
    }
    return floor;
}

LaunchCosts::Floor LaunchCosts::floor(DeviceId id, size_t group, bool is_prefill) const {
    const DeviceInfo& device = machine_.device(id);
    const FusedGroup& g = analysis_.groups[group];
    LaunchAmounts whole = launch_amounts(analysis_, g, {0, g.split.work.units}, workload_, false);
    const Facts& facts = facts_[group];
    if (!is_gpu(device)) {
        // The least overhead of any width; what lies above it is in proportion to the share.
        Time one = host_time(device, facts, whole, is_prefill, 1);
        Time many = host_time(device, facts, whole, is_prefill,
                              static_cast<size_t>(device.limits.num_compute_units));
        Time least = one.fixed_ns < many.fixed_ns ? one : many;
        auto fixed = static_cast<double>(least.fixed_ns), ns = static_cast<double>(least.ns);
        return {fixed, ns - fixed, ns};
    }
    if (!g.split.work.whole() && facts.kind == Facts::Kind::kProduct)
        return product_floor(device, facts, whole, is_prefill);
    if (!g.split.work.whole() && facts.kind == Facts::Kind::kAttention)
        return attention_floor(device, facts, whole, is_prefill);
    auto ns = static_cast<double>(launch_time(id, group, whole, is_prefill, 1).ns);
    double overhead =
        std::min(ns, KernelTimes::h200().plain_ns(0, 0, rates_of(device, facts.dtype)));
    if (facts.kind != Facts::Kind::kOther) overhead = 0;
    return {overhead, ns - overhead, ns};
}

}  // namespace cleave::planner
