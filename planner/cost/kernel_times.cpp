// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_times.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "planner/cost/fitted/embedded_fit.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr std::array<std::string_view, 3> kFamilyNames{"gemm", "decode", "prefill"};

}  // namespace

// Words of the text, one after the other; comment lines are skipped.
class SumTimes::Words {
public:
    explicit Words(std::string_view text) : text_(text) {}

    std::string_view line() {
        for (;;) {
            CLEAVE_CHECK(at_ < text_.size()) << "the fitted costs end early";
            size_t end = std::min(text_.find('\n', at_), text_.size());
            std::string_view found = text_.substr(at_, end - at_);
            at_ = end + 1;
            if (!found.empty() && found[0] != '#') return found;
        }
    }
    bool more() const { return at_ < text_.size(); }

    // The numbers of the next line, after `word` where one is expected.
    std::vector<double> numbers(std::string_view word = {}) {
        std::string_view rest = line();
        CLEAVE_CHECK(rest.starts_with(word))
            << "'" << rest.substr(0, 40) << "' in place of " << word;
        rest.remove_prefix(word.size());
        std::vector<double> found;
        const char *at = rest.data(), *end = at + rest.size();
        while (true) {
            while (at < end && *at == ' ') ++at;
            if (at == end) return found;
            double value = 0;
            auto [next, error] = std::from_chars(at, end, value);
            CLEAVE_CHECK(error == std::errc()) << "no number in '" << rest.substr(0, 40) << "'";
            found.push_back(value);
            at = next;
        }
    }

private:
    std::string_view text_;
    size_t at_ = 0;
};

namespace {

// Where a logarithm stands on an axis: the cell below and the part of the way to the next; clamped
// to the ends.
struct Place {
    size_t cell = 0;
    double part = 0;
};

Place place(const std::vector<double>& logs, double x) {
    if (logs.size() < 2 || x <= logs.front()) return {};
    if (x >= logs.back()) return {logs.size() - 2, 1.0};
    auto above = static_cast<size_t>(std::upper_bound(logs.begin(), logs.end(), x) - logs.begin());
    return {above - 1, (x - logs[above - 1]) / (logs[above] - logs[above - 1])};
}

// NVLink among H200s (planner/machine/catalogue.cpp).
constexpr double kFittedLink = 450e9;

}  // namespace

SumTimes::Curve SumTimes::read_curve(Words& words) {
    const std::vector<double> head = words.numbers("all_reduce");
    CLEAVE_CHECK(head.size() == 2) << "the head of an all-reduce";
    Curve curve{static_cast<int64_t>(head[0]), {}};
    for (int i = 0; i < static_cast<int>(head[1]); ++i) {
        const std::vector<double> s = words.numbers();
        CLEAVE_CHECK(s.size() == 3) << "a segment of an all-reduce";
        curve.segments.push_back({s[0], s[1], s[2] > 0 ? 1e3 / s[2] : 0});
    }
    return curve;
}

KernelTimes::KernelTimes(std::string_view text) {
    SumTimes::Words words(text);
    for (size_t f = 0; f < kFamilyNames.size(); ++f) {
        Table& table = tables_[f];
        std::vector<double> head = words.numbers(kFamilyNames[f]);
        CLEAVE_CHECK(head.size() == 3)
            << kFamilyNames[f] << " has " << head.size() << " parameters";
        table.flops_efficiency = head[0];
        table.bandwidth_efficiency = head[1];
        table.latency_ns = head[2];
        for (size_t a = 0; a < 3; ++a) {
            table.axes[a] = words.numbers();
            CLEAVE_CHECK(table.axes[a].size() > 1 &&
                         table.axes[a][0] == static_cast<double>(table.axes[a].size() - 1))
                << "axis " << a << " of " << kFamilyNames[f];
            table.axes[a].erase(table.axes[a].begin());
            for (double x : table.axes[a]) table.logs[a].push_back(std::log2(x));
        }
        size_t rows = table.axes[0].size() * table.axes[1].size();
        for (size_t r = 0; r < rows; ++r) {
            std::vector<double> row = words.numbers();
            CLEAVE_CHECK(row.size() == table.axes[2].size())
                << "row " << r << " of " << kFamilyNames[f];
            for (double x : row) table.residuals.push_back(static_cast<int16_t>(x));
        }
        auto count = static_cast<size_t>(words.numbers("held_out").at(0));
        for (size_t i = 0; i < count; ++i) {
            std::vector<double> row = words.numbers();
            table.held_out.push_back({{row.begin(), row.end()}});
        }
    }
    sums_.link_ = kFittedLink;
    while (words.more()) sums_.curves_.push_back(SumTimes::read_curve(words));
    CLEAVE_CHECK(sums_.curves_.size() >= 2) << "all-reduces of two numbers of GPUs at least";
}

const KernelTimes& KernelTimes::h200() {
    static const KernelTimes kTimes(embedded_h200());
    return kTimes;
}

double KernelTimes::residual(const Table& table, const KernelPoint& point) const {
    Place a = place(table.logs[0], std::log2(std::max(1.0, point.first)));
    Place b = place(table.logs[1], std::log2(std::max(1.0, point.second)));
    Place c = place(table.logs[2], std::log2(std::max(1.0, point.inner)));
    size_t columns = table.axes[1].size(), depth = table.axes[2].size();
    auto along = [&](size_t i, size_t j) {
        const int16_t* row = &table.residuals[(i * columns + j) * depth + c.cell];
        return row[0] + c.part * (row[1] - row[0]);
    };
    double low = along(a.cell, b.cell), high = along(a.cell + 1, b.cell);
    low += b.part * (along(a.cell, b.cell + 1) - low);
    high += b.part * (along(a.cell + 1, b.cell + 1) - high);
    return (low + a.part * (high - low)) / 1000;
}

double KernelTimes::roofline(const Table& table, double flops, double bytes,
                             const GpuRates& rates) {
    double compute = flops * 1e9 / std::max(1.0, table.flops_efficiency * rates.flops);
    double memory = bytes * 1e9 / std::max(1.0, table.bandwidth_efficiency * rates.bandwidth);
    return table.latency_ns * rates.latency_factor + std::max(compute, memory);
}

double KernelTimes::ns(KernelFamily family, const KernelPoint& point, double flops, double bytes,
                       const GpuRates& rates) const {
    const Table& table = tables_[static_cast<size_t>(family)];
    return roofline(table, flops, bytes, rates) * std::exp(residual(table, point));
}

double KernelTimes::plain_ns(double flops, double bytes, const GpuRates& rates) const {
    return roofline(tables_[0], flops, bytes, rates);
}

const SumTimes& SumTimes::of(std::string_view device) {
    static const std::map<std::string_view, SumTimes> kSums = [] {
        std::map<std::string_view, SumTimes> sums;
        Words words(embedded_sums());
        constexpr std::string_view kHead = "sums ";
        while (words.more()) {
            const std::string_view head = words.line();
            CLEAVE_CHECK(head.starts_with(kHead)) << "'" << head << "' in place of " << kHead;
            SumTimes& times = sums[head.substr(kHead.size())];
            const std::vector<double> numbers = words.numbers();
            CLEAVE_CHECK(numbers.size() == 2 && numbers[1] >= 2) << head;
            times.link_ = numbers[0] * 1e9;
            for (int i = 0; i < static_cast<int>(numbers[1]); ++i)
                times.curves_.push_back(read_curve(words));
        }
        return sums;
    }();
    const auto found = kSums.find(device);
    return found == kSums.end() ? KernelTimes::h200().sums() : found->second;
}

double SumTimes::curve_ns(const Curve& curve, double bytes, double latency, double bandwidth) {
    size_t s = curve.segments.size();
    while (s > 1 && curve.segments[s - 1].from > bytes) --s;
    const Segment& segment = curve.segments[s - 1];
    return segment.alpha_ns * latency + segment.beta_ns * bytes / bandwidth;
}

double SumTimes::ns(int64_t gpus, double bytes, double latency, double bytes_per_second) const {
    auto at = [&](const Curve& c) { return curve_ns(c, bytes, latency, bytes_per_second / link_); };
    if (gpus <= curves_.front().gpus) return at(curves_.front());
    for (size_t i = 1; i < curves_.size(); ++i) {
        if (gpus > curves_[i].gpus) continue;
        double low = std::log2(curves_[i - 1].gpus), high = std::log2(curves_[i].gpus);
        double part = (std::log2(gpus) - low) / (high - low);
        return (1 - part) * at(curves_[i - 1]) + part * at(curves_[i]);
    }
    return at(curves_.back()) * std::log2(gpus) / std::log2(curves_.back().gpus);
}

const std::vector<HeldOut>& KernelTimes::held_out(KernelFamily family) const {
    return tables_[static_cast<size_t>(family)].held_out;
}

const std::vector<double>& KernelTimes::axis(KernelFamily family, int which) const {
    return tables_[static_cast<size_t>(family)].axes[static_cast<size_t>(which)];
}

}  // namespace cleave::planner
