// SPDX-License-Identifier: Apache-2.0
// The fitted costs of GPU kernels: the same in C++ as in the script that fitted them, and as good
// as the script says on the measured rows that it left out.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "planner/cost/kernel_times.h"
#include "planner/cost/link_times.h"
#include "planner/machine/build_machine.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

constexpr GpuRates kH200{989e12, 4800e9, 1.0};  // as planner/machine/catalogue.cpp

double gemm_ns(double m, double n, double k) {
    return KernelTimes::h200().ns(KernelFamily::kGemm, {n, k, m}, 2 * m * n * k,
                                  2 * (m * n + m * k + n * k), kH200);
}

// Head size 128, bf16.
double attention_ns(bool decode, double batch, double heads, double kv_heads, double length) {
    double pairs = decode ? length : length * (length + 1) / 2;
    double flops = 4 * batch * heads * pairs * 128;
    double bytes = decode ? 256 * batch * (2 * kv_heads * length + 2 * heads)
                          : 256 * batch * length * (2 * kv_heads + 2 * heads);
    return KernelTimes::h200().ns(
        decode ? KernelFamily::kDecodeAttention : KernelFamily::kPrefillAttention,
        {batch * kv_heads, std::floor(heads / kv_heads), length}, flops, bytes, kH200);
}

// Rows of a measured table, as numbers; the last column is milliseconds.
std::vector<std::vector<double>> measured(const std::string& part) {
    for (const auto& entry : std::filesystem::directory_iterator(shared_data() / "costdata")) {
        if (entry.path().filename().string().find(part) == std::string::npos) continue;
        std::ifstream file(entry.path());
        std::vector<std::vector<double>> rows;
        std::string line;
        std::getline(file, line);
        while (std::getline(file, line)) {
            rows.emplace_back();
            std::stringstream words(line);
            for (std::string word; std::getline(words, word, ',');)
                rows.back().push_back(std::strtod(word.c_str(), nullptr));
        }
        return rows;
    }
    FAIL("no table " << part);
    return {};
}

struct Mean {
    double sum = 0;
    int count = 0;
    void add(double predicted, double real) {
        sum += std::abs(predicted / real - 1);
        ++count;
    }
    double value() const { return sum / count; }
};

}  // namespace

TEST_CASE("times of GPU kernels are those that the fitting script predicts, on the grid and off it",
          "[planner]") {
    std::ifstream file(source_root() / "tests" / "planner" / "cost" / "kernel_times_sample.txt");
    REQUIRE(file);
    int count = 0;
    for (std::string line; std::getline(file, line); ++count) {
        std::stringstream words(line);
        std::string kind;
        words >> kind;
        std::vector<double> x;
        for (double v; words >> v;) x.push_back(v);
        double found = kind == "gemm"
                           ? gemm_ns(x.at(0), x.at(1), x.at(2))
                           : attention_ns(kind == "decode", x.at(0), x.at(1), x.at(2), x.at(3));
        INFO(line);
        REQUIRE(found == Approx(x.back()).epsilon(1e-5));
    }
    REQUIRE(count >= 100);
}

TEST_CASE("GEMM times are within 5 % of measured ones on sites and rows that the fit has not seen",
          "[planner]") {
    CLEAVE_NEEDS_SHARED_DATA();
    Mean sites, rows, seen;
    std::map<std::pair<double, double>, std::set<double>> held;
    for (const HeldOut& h : KernelTimes::h200().held_out(KernelFamily::kGemm))
        held[{static_cast<double>(h.numbers.at(0)), static_cast<double>(h.numbers.at(1))}] = {
            h.numbers.begin() + 2, h.numbers.end()};
    for (const auto& row : measured("_gemm_")) {
        double predicted = gemm_ns(row.at(0), row.at(1), row.at(2)), real = row.at(3) * 1e6;
        auto site = held.find({row[1], row[2]});
        bool whole = site != held.end() && site->second.count(0);
        bool alone = site != held.end() && site->second.count(row[0]);
        (whole ? sites : alone ? rows : seen).add(predicted, real);
    }
    CAPTURE(sites.count, sites.value(), rows.count, rows.value(), seen.value());
    REQUIRE(sites.count > 2000);
    REQUIRE(rows.count > 500);
    CHECK(sites.value() < 0.05);
    CHECK(rows.value() < 0.05);
    CHECK(seen.value() < 0.001);
}

TEST_CASE(
    "attention times are within 8 % of measured ones on heads and batches that the fit has not "
    "seen",
    "[planner]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (bool decode : {true, false}) {
        std::set<std::vector<int64_t>> held;
        for (const HeldOut& h : KernelTimes::h200().held_out(
                 decode ? KernelFamily::kDecodeAttention : KernelFamily::kPrefillAttention))
            held.insert(h.numbers);
        Mean unseen;
        for (const auto& row :
             measured(decode ? "_generation_attention_" : "_context_attention_")) {
            auto number = [&](size_t i) { return static_cast<int64_t>(row.at(i)); };
            if (!held.count({number(3), number(4), number(0)})) continue;
            double length = decode ? row[2] + 1 : row[1];
            unseen.add(attention_ns(decode, row[0], row[3], row[4], length), row.at(6) * 1e6);
        }
        CAPTURE(decode, unseen.count, unseen.value());
        REQUIRE(unseen.count > 200);
        CHECK(unseen.value() < 0.08);
    }
}

TEST_CASE("all-reduce times are within 5 % of those measured in a CUDA graph", "[planner]") {
    CLEAVE_NEEDS_SHARED_DATA();
    // The first column is text: 0 for both back ends. Those of the graph are the faster of each
    // pair.
    std::map<std::pair<double, double>, double> fastest;
    for (const auto& row : measured("_allreduce_")) {
        auto [at, fresh] = fastest.try_emplace({row.at(1), row.at(2)}, row.at(3));
        if (!fresh) at->second = std::min(at->second, row.at(3));
    }
    Mean all;
    for (const auto& [key, ms] : fastest)
        all.add(KernelTimes::h200().sums().ns(static_cast<int64_t>(key.first), 2 * key.second, 1,
                                              450e9),
                ms * 1e6);
    CAPTURE(all.count, all.value());
    REQUIRE(all.count >= 60);
    CHECK(all.value() < 0.05);
}

TEST_CASE("sums in a node of A100s and of B200s have curves of their own", "[planner]") {
    // ai-dynamo/aiconfigurator, vLLM 0.14 and 0.24 in a CUDA graph: GPUs, bytes, us.
    const std::map<std::string, std::vector<std::array<double, 3>>> published{
        {"a100-80",
         {{2, 131072, 5.743},
          {2, 1048576, 10.7},
          {4, 65536, 6.567},
          {4, 131072, 7.783},
          {4, 262144, 9.913},
          {8, 8192, 6.323},
          {8, 16384, 6.537},
          {8, 65536, 8.433},
          {8, 262144, 17.13},
          {8, 1048576, 21.71}}},
        {"b200",
         {{2, 8192, 6.993},
          {2, 65536, 7.083},
          {2, 131072, 7.404},
          {2, 4194304, 33.67},
          {2, 16777216, 57.43},
          {4, 8192, 7.132},
          {4, 1048576, 18.42},
          {8, 8192, 7.824},
          {8, 16384, 8.073},
          {8, 262144, 25.8},
          {8, 1048576, 17.17},
          {8, 16777216, 63.21}}},
    };
    for (const auto& [model, rows] : published) {
        std::vector<double> ratios;
        Mean all;
        for (const auto& [gpus, bytes, us] : rows) {
            const Machine machine = build_machine(
                parse_devices(fmt::format("sim:{}[0-{}]", model, static_cast<int>(gpus) - 1)), {});
            std::vector<DeviceId> group;
            for (size_t d = 0; d < machine.devices.size(); ++d) group.emplace_back(d);
            const double ns = static_cast<double>(LinkTable(machine).all_reduce_ns(
                group, static_cast<int64_t>(bytes), SumForm::kOneShot));
            ratios.push_back(us * 1e3 / ns);
            all.add(ns, us * 1e3);
        }
        std::ranges::sort(ratios);
        CAPTURE(model, all.value(), ratios);
        CHECK(ratios[ratios.size() / 2] >= 0.95);
        CHECK(ratios[ratios.size() / 2] <= 1.05);
        CHECK(all.value() <= 0.08);
    }
}

TEST_CASE("a GPU with half the rates takes at most twice as long for a kernel, and longer",
          "[planner]") {
    GpuRates half{kH200.flops / 2, kH200.bandwidth / 2, 1.0};
    for (double n : {1000.0, 4096.0, 14000.0}) {
        double flops = 2 * 64 * n * 4096, bytes = 2 * n * 4096;
        KernelPoint point{n, 4096, 64};
        double one = KernelTimes::h200().ns(KernelFamily::kGemm, point, flops, bytes, kH200);
        double two = KernelTimes::h200().ns(KernelFamily::kGemm, point, flops, bytes, half);
        CHECK(two > one);
        CHECK(two <= 2 * one);
    }
}

}  // namespace cleave::test
