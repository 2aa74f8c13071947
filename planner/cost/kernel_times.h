// SPDX-License-Identifier: Apache-2.0
// Times of GPU kernels: a roofline with fitted efficiencies, times a residual from a table over the
// kernel's shape, both fitted to measured latencies of an H200 by planner/cost/fitted/fit_costs.py,
// which says how and how well. In: a shape, its operations and bytes, and the device's rates:
// another GPU's times follow from its catalogue ratios. Out: ns. All-reduce: segments alpha + beta
// x bytes by number of GPUs. Constant after construction; any thread may read it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cleave::planner {

enum class KernelFamily : uint8_t { kGemm, kDecodeAttention, kPrefillAttention };

// gemm: n, k, m. Attention: batch x KV heads, query heads of one KV head, and keys (decode) or
// tokens (prefill).
struct KernelPoint {
    double first = 1, second = 1, inner = 1;
};

// A device's peak rates, and its launch latency relative to the H200's.
struct GpuRates {
    double flops = 0, bandwidth = 0, latency_factor = 1;
};

// Rows that the fit has not seen: a gemm site n, k, with values of m (0: all); attention heads, KV
// heads, batch.
struct HeldOut {
    std::vector<int64_t> numbers;
};

class KernelTimes {
public:
    // The table that this build carries.
    static const KernelTimes& h200();
    // From the text that fit_costs.py writes. InternalError when it is damaged.
    explicit KernelTimes(std::string_view text);

    double ns(KernelFamily family, const KernelPoint& point, double flops, double bytes,
              const GpuRates& rates) const;
    // A launch of no family: the GEMM's latency and efficiencies, no residual.
    double plain_ns(double flops, double bytes, const GpuRates& rates) const;

    // `latency` and `bandwidth` relative to NVLink among H200s. Numbers of GPUs between the
    // measured ones are interpolated; beyond the last, a step more for each doubling.
    double all_reduce_ns(int64_t gpus, double bytes, double latency, double bandwidth) const;

    const std::vector<HeldOut>& held_out(KernelFamily family) const;
    // The family's axes: sizes at which floors of a cost are looked for
    // (planner/cost/launch_times.h).
    const std::vector<double>& axis(KernelFamily family, int which) const;

private:
    struct Table {
        double flops_efficiency = 1, bandwidth_efficiency = 1, latency_ns = 0;
        std::array<std::vector<double>, 3> axes, logs;
        std::vector<int16_t> residuals;  // thousandths of the logarithm, [first][second][inner]
        std::vector<HeldOut> held_out;
    };
    struct Segment {
        double from = 0, alpha_ns = 0, beta_ns = 0;  // bytes, ns, ns a byte
    };
    struct Curve {
        int64_t gpus = 0;
        std::vector<Segment> segments;
    };
    double residual(const Table& table, const KernelPoint& point) const;
    static double roofline(const Table& table, double flops, double bytes, const GpuRates& rates);
    static double curve_ns(const Curve& curve, double bytes, double latency, double bandwidth);

    std::array<Table, 3> tables_;
    std::vector<Curve> curves_;  // by number of GPUs
};

}  // namespace cleave::planner
