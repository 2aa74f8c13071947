// SPDX-License-Identifier: Apache-2.0
// Times of GPU kernels: a roofline with fitted efficiencies, times a residual from a table over the
// kernel's shape, both fitted to measured latencies of an H200 by planner/cost/fitted/fit_costs.py,
// which says how and how well. In: a shape, its operations and bytes, and the device's rates:
// another GPU's times follow from its catalogue ratios. Out: ns. All-reduces inside a node:
// segments alpha + beta x bytes by number of GPUs, of several GPUs (fit_sums.py). Constant after
// construction; any thread may read them.
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

class SumTimes {
public:
    // Of a device of the catalogue; the H200's for a name that has none of its own.
    static const SumTimes& of(std::string_view device);

    // `latency` relative to the fitted device's. Numbers of GPUs between the measured ones are
    // interpolated; beyond the last, a step more for each doubling.
    double ns(int64_t gpus, double bytes, double latency, double bytes_per_second) const;

private:
    friend class KernelTimes;
    struct Segment {
        double from = 0, alpha_ns = 0, beta_ns = 0;  // bytes, ns, ns a byte
    };
    struct Curve {
        int64_t gpus = 0;
        std::vector<Segment> segments;
    };
    class Words;
    static Curve read_curve(Words& words);
    static double curve_ns(const Curve& curve, double bytes, double latency, double bandwidth);

    double link_ = 0;            // bytes/s that it was measured over
    std::vector<Curve> curves_;  // by number of GPUs
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

    const SumTimes& sums() const { return sums_; }

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
    double residual(const Table& table, const KernelPoint& point) const;
    static double roofline(const Table& table, double flops, double bytes, const GpuRates& rates);

    std::array<Table, 3> tables_;
    SumTimes sums_;
};

}  // namespace cleave::planner
