// SPDX-License-Identifier: Apache-2.0
#include "planner/search/check_sizes.h"

#include <algorithm>
#include <array>

#include "planner/analysis/work.h"
#include "planner/cost/link_times.h"
#include "planner/cost/simulate.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using namespace importer;

constexpr double kMostCount = 1e18;  // operations of a pass, ns of a whole run

struct Option {
    const char* name;
    int64_t Workload::* value;
    int64_t most;
};
constexpr std::array<Option, 4> kOptions{
    {{"$batch", &Workload::batch, kMostSequences},
     {"$prefill_chunk", &Workload::prefill_chunk, kMostPositions},
     {"$context", &Workload::context, kMostPositions},
     {"$prompt_tokens", &Workload::prompt_tokens, kMostPositions}}};

void check_weights(const Graph& graph) {
    double total = 0;
    for (const Weight& w : graph.weights) {
        double elements = 1;
        for (int64_t n : w.shape) elements *= static_cast<double>(n);
        total += elements;
        if (total * 4 <= static_cast<double>(kMostBytes)) continue;
        std::string shape;
        for (int64_t n : w.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
        throw UserError(
            "{}: with weight '{}' ({}) the weights have {:.3g} elements; plans are made for at "
            "most {:.3g}; check the model's sizes",
            graph.name, w.name, shape, total, static_cast<double>(kMostBytes) / 4);
    }
}

double at_point(const Amount& a, const PassPoint& p) {
    return static_cast<double>(a.constant) +
           static_cast<double>(a.per_token) * static_cast<double>(p.num_tokens) +
           static_cast<double>(a.per_output) * static_cast<double>(p.num_outputs) +
           static_cast<double>(a.per_key) * static_cast<double>(p.num_keys);
}

// Sums over all groups, in floating point: what integers will have to hold.
class Extent {
public:
    Extent(const Analysis& a, const Machine& machine) : a_(a) {
        for (const DeviceInfo& d : machine.devices) {
            slowest_flops_ = std::min(slowest_flops_, static_cast<double>(d.flops_f32));
            slowest_bytes_ = std::min(slowest_bytes_, static_cast<double>(d.memory_bandwidth));
        }
    }

    bool holds(const Workload& w) const {
        LaunchAmounts total;
        double kv = 0;
        for (const FusedGroup& group : a_.groups) {
            LaunchAmounts part = launch_amounts(a_, group, {0, group.split.work.units}, w, true);
            total.flops = total.flops + part.flops;
            total.weight_bytes = total.weight_bytes + part.weight_bytes;
            total.activation_bytes = total.activation_bytes + part.activation_bytes;
        }
        for (const Op& op : a_.graph.ops)
            if (op.kind == OpKind::kKvAppend) {
                const auto& t = op.as<KvAppendAttrs>();
                kv += 4.0 * static_cast<double>(t.num_kv_heads * (t.head_dim + t.v_head_dim)) *
                      static_cast<double>(w.pool_blocks() * kKvBlock);
            }
        PassPoint largest{w.max_tokens(), w.max_outputs(), 0};
        double moved =
            at_point(total.weight_bytes, largest) + at_point(total.activation_bytes, largest);
        if (kv > kMostBytes || moved > kMostBytes) return false;
        double run = time(total, decode_point(w)) * static_cast<double>(generated_tokens(w)) +
                     time(total, prefill_point(w)) * static_cast<double>(num_prefill_passes(w));
        return run < kMostCount && at_point(total.flops, decode_point(w)) < kMostCount &&
               at_point(total.flops, prefill_point(w)) < kMostCount;
    }

private:
    // ns, from above: launches and the worst efficiency included.
    double time(const LaunchAmounts& amounts, const PassPoint& point) const {
        double bytes =
            at_point(amounts.weight_bytes, point) + at_point(amounts.activation_bytes, point);
        return 1e5 * static_cast<double>(a_.groups.size()) +
               4e9 * (at_point(amounts.flops, point) / std::max(1.0, slowest_flops_) +
                      bytes / std::max(1.0, slowest_bytes_));
    }

    const Analysis& a_;
    double slowest_flops_ = 1e30, slowest_bytes_ = 1e30;
};

}  // namespace

void check_limits(const Analysis& analysis, const Machine& machine, const Workload& workload) {
    for (const Option& option : kOptions)
        if (workload.*option.value > option.most)
            throw UserError("{} {}: at most {} is supported; give a smaller one", option.name,
                            workload.*option.value, option.most);
    check_weights(analysis.graph);
    Extent extent(analysis, machine);
    if (extent.holds(workload)) return;
    if (Workload least = workload; workload.kv_tokens > workload.context) {
        least.kv_tokens = workload.context;
        if (extent.holds(least))
            throw UserError(
                "$kv_tokens {}: their keys and values are beyond what a plan can hold; "
                "give a smaller one",
                workload.kv_tokens);
    }
    // The first option that alone brings the workload back, with its largest value that does.
    for (const Option& option : kOptions) {
        Workload w = workload;
        int64_t low = 0, high = workload.*option.value;
        if (option.value == &Workload::context) low = workload.prompt_tokens - 1;
        while (high - low > 1) {
            w.*option.value = low + (high - low) / 2;
            (extent.holds(w) ? low : high) = w.*option.value;
        }
        w.*option.value = low;
        if (low < 1 || low < workload.prompt_tokens * (option.value == &Workload::context) ||
            !extent.holds(w))
            continue;
        throw UserError(
            "{} {}: with $batch {}, $context {} and $prefill_chunk {}, sizes or times are "
            "beyond "
            "what a plan can hold; the largest {} supported with them is {}",
            option.name, workload.*option.value, workload.batch, workload.context,
            workload.prefill_chunk, option.name, low);
    }
    throw UserError(
        "$batch {} with $context {} and $prefill_chunk {}: sizes or times are beyond what a "
        "plan "
        "can hold; give smaller ones",
        workload.batch, workload.context, workload.prefill_chunk);
}

}  // namespace cleave::planner
