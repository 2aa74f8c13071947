// SPDX-License-Identifier: Apache-2.0
// Products on rounded activations (templates/host/rounded.h) against the same rounding in the
// tests' own words; with the CPU's instructions for them and without.
#include <bit>
#include <cmath>

#include "codegen/compile/host.h"
#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/codegen/support/weight_shard.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;

namespace {

constexpr int64_t kRounded = 32;  // features that share a scale

// Each group as integers of at most 127 times its largest magnitude / 127.
Row rounded_to_int8(const Row& x) {
    Row rounded(x.size());
    for (size_t begin = 0; begin < x.size(); begin += kRounded) {
        const size_t end = std::min(x.size(), begin + kRounded);
        float most = 0;
        for (size_t i = begin; i < end; ++i)
            most = std::max(most, std::fabs(static_cast<float>(x[i])));
        const float inverse = most > 0 ? 127.0f / most : 0.0f;
        for (size_t i = begin; i < end; ++i)
            rounded[i] = std::nearbyint(static_cast<float>(x[i]) * inverse) *
                         static_cast<double>(most / 127.0f);
    }
    return rounded;
}

Row rounded_to_bf16(const Row& x) {
    Row rounded;
    for (double v : x) {
        auto bits = std::bit_cast<uint32_t>(static_cast<float>(v));
        bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
        rounded.push_back(std::bit_cast<float>(bits));
    }
    return rounded;
}

// The kernel as it is for a CPU with a matrix unit, whose arithmetic plain code does
// (templates/host/tiles.h).
Kernel with_emulated_tiles(Kernel kernel) {
    kernel.source = "#define CLEAVE_EMULATE_TILES 1\n" + kernel.source;
    return kernel;
}

// Whether this machine has the unit, and its kernels take it.
bool has_tiles(const std::string& type) {
    return host_compiler_info().features.find("amx-" + type) != std::string::npos;
}

constexpr const char* kTiles = "emulated tiles";  // in place of a CPU's name

const HostTarget kFastTarget{.threads = 2, .fast = true};
const HostTarget kReproducibleTarget{.threads = 2, .reproducible = true, .fast = true};

// This machine's own kernels, and those of other CPUs that it can be.
std::vector<std::string> cpus(bool fused) {
    std::vector<std::string> names = cpus_of_each_width(fused);
    names.emplace_back();
    return names;
}

struct Product {
    LinearSpec spec;
    uint64_t weight;

    std::vector<double> run(const GuardedBuffer& x, int64_t tokens, const std::string& cpu,
                            const HostTarget& target = kFastTarget) const {
        auto out = GuardedBuffer::output("out", tokens * spec.out);
        std::mt19937 rng(3);
        const Kernel kernel = make_host_kernel(spec, KernelKind::kLinear, {"linear"}, target);
        const bool by_tiles = cpu == kTiles;
        run_kernel(by_tiles ? with_emulated_tiles(kernel) : kernel,
                   {x.word(), weight, out.word(), static_cast<uint64_t>(tokens)},
                   {tokens, tokens, 1}, rng, by_tiles ? "" : cpu);
        std::vector<double> values;
        for (int64_t i = 0; i < out.count(); ++i) values.push_back(out.at(i));
        return values;
    }
};

Product product_of(int64_t in, int64_t out, const WeightFormat& format, uint64_t weight) {
    LinearSpec spec;
    spec.in = in;
    spec.out = out;
    spec.weight = format;
    spec.x = {in + 3, 2};
    return {spec, weight};
}

// Sums of a row of n f32 terms differ from exact ones by at most n roundings of 2^-24 of the sum of
// their magnitudes; two more for a group's scales.
double bound_of(const std::vector<double>& weights, const Row& x, int64_t row, int64_t terms) {
    double magnitudes = 0;
    for (size_t i = 0; i < x.size(); ++i)
        magnitudes += std::fabs(weights[static_cast<size_t>(row) * x.size() + i] * x[i]);
    return magnitudes * static_cast<double>(terms + 3) * 0x1p-24;
}

void check(const Product& product, const std::vector<double>& weights, bool integers,
           int64_t tokens, const std::string& cpu) {
    CAPTURE(product.spec.in, product.spec.out, tokens, cpu);
    const int64_t in = product.spec.in;
    std::mt19937 rng(static_cast<uint32_t>(in + tokens));
    const auto x = GuardedBuffer::random("x", DType::kF32, tokens * product.spec.x.stride, rng);
    const std::vector<double> got = product.run(x, tokens, cpu);
    for (int64_t t = 0; t < tokens; ++t) {
        const Row exact = read_row(x, t, product.spec.x, in);
        const Row row = integers ? rounded_to_int8(exact) : rounded_to_bf16(exact);
        for (int64_t r = 0; r < product.spec.out; ++r) {
            double want = 0;
            for (int64_t i = 0; i < in; ++i)
                want += weights[static_cast<size_t>(r * in + i)] * row[static_cast<size_t>(i)];
            // Codes are unsigned: the terms of a group are up to 256 / |code - zero point| larger.
            const double bound = bound_of(weights, row, r, in) * (integers ? 4 : 1) + 1e-30;
            CAPTURE(t, r);
            REQUIRE(std::fabs(got[static_cast<size_t>(t * product.spec.out + r)] - want) <= bound);
        }
    }
}

std::vector<double> values_of(const GuardedBuffer& buffer) {
    std::vector<double> values;
    for (int64_t i = 0; i < buffer.count(); ++i) values.push_back(buffer.at(i));
    return values;
}

std::vector<QuantizedCase> integer_cases() {
    using importer::Packing;
    return {{Packing::kDequantizeLinear, DType::kInt4, 45, 640, 32, DType::kF16},
            {Packing::kDequantizeLinear, DType::kInt8, 45, 640, 32, DType::kF16},
            {Packing::kMatMulNBits, DType::kUInt4, 21, 96, 32, DType::kF32, Zeros::kInteger},
            {Packing::kMatMulNBits, DType::kUInt8, 50, 1120, 64, DType::kBF16, Zeros::kInteger},
            {Packing::kDequantizeLinear, DType::kInt8, 7, 160, 0, DType::kF32},
            {Packing::kMatMulNBits, DType::kUInt4, 33, 1000, 128, DType::kF32}};
}

}  // namespace

TEST_CASE("a fast product of integers rounds activations by groups, on every CPU", "[codegen]") {
    std::mt19937 rng(1);
    for (const QuantizedCase& c : integer_cases()) {
        CAPTURE(describe(c));
        const Shard weight(c, rng);
        const Product product = product_of(c.columns, c.rows, weight.format, weight.word());
        for (const std::string& cpu : cpus(false))
            for (int64_t tokens : {1, 7, 41})
                check(product, weight.matrix.values, true, tokens, cpu);
        CHECK(weight.buffer.guards_intact());
    }
}

TEST_CASE("a fast product of bf16 rounds activations to bf16, on every CPU", "[codegen]") {
    for (auto [in, out] :
         {std::pair<int64_t, int64_t>{64, 100}, {640, 45}, {531, 33}, {1, 3}, {86, 7}}) {
        std::mt19937 rng(2);
        const auto weight = GuardedBuffer::random("weight", DType::kBF16, in * out, rng);
        const Product product = product_of(in, out, DType::kBF16, weight.word());
        for (const std::string& cpu : cpus(false))
            for (int64_t tokens : {1, 15, 37})
                check(product, values_of(weight), false, tokens, cpu);
        CHECK(weight.guards_intact());
    }
}

TEST_CASE(
    "a reproducible fast product has the same bits with an instruction and with what equals "
    "it, alone and in company",
    "[codegen]") {
    std::mt19937 rng(4);
    const QuantizedCase c{
        importer::Packing::kDequantizeLinear, DType::kInt4, 45, 640, 32, DType::kF16};
    const Shard integers(c, rng);
    const auto narrow = GuardedBuffer::random("weight", DType::kBF16, 640 * 45, rng);
    const auto x = GuardedBuffer::random("x", DType::kF32, 41 * 643, rng);
    for (const Product& product : {product_of(640, 45, integers.format, integers.word()),
                                   product_of(640, 45, DType::kBF16, narrow.word())}) {
        const std::vector<double> all = product.run(x, 41, "", kReproducibleTarget);
        for (const std::string& cpu : cpus(true)) {
            CAPTURE(cpu);
            CHECK(product.run(x, 41, cpu, kReproducibleTarget) == all);
            for (int64_t tokens : {1, 2, 7, 13})
                CHECK(product.run(x, tokens, cpu, kReproducibleTarget) ==
                      std::vector<double>(all.begin(), all.begin() + tokens * 45));
        }
    }
}

TEST_CASE("tiles of integers have the bits of strips, whatever the tokens, rows and columns are",
          "[codegen]") {
    std::mt19937 rng(7);
    std::vector<QuantizedCase> cases = integer_cases();
    // Sums of several runs of groups.
    cases.push_back(
        {importer::Packing::kDequantizeLinear, DType::kInt4, 37, 1312, 32, DType::kF16});
    cases.push_back({importer::Packing::kMatMulNBits, DType::kUInt8, 70, 4640, 32, DType::kF32,
                     Zeros::kInteger});
    for (const QuantizedCase& c : cases) {
        CAPTURE(describe(c));
        const Shard weight(c, rng);
        const Product product = product_of(c.columns, c.rows, weight.format, weight.word());
        const auto x = GuardedBuffer::random("x", DType::kF32, 141 * product.spec.x.stride, rng);
        for (const HostTarget& target : {kFastTarget, kReproducibleTarget})
            for (const int64_t tokens : {9, 16, 41, 141}) {
                const std::vector<double> tiles = product.run(x, tokens, kTiles, target);
                for (const std::string& cpu : cpus(true)) {
                    CAPTURE(tokens, cpu);
                    CHECK(product.run(x, tokens, cpu, target) == tiles);
                }
            }
        CHECK(weight.buffer.guards_intact());
    }
}

TEST_CASE("tiles of bf16 sum what they round to bf16, and as the CPU's unit does", "[codegen]") {
    for (auto [in, out] : {std::pair<int64_t, int64_t>{64, 100},
                           {640, 45},
                           {531, 33},
                           {1, 3},
                           {86, 7},
                           {1120, 50}}) {
        std::mt19937 rng(9);
        const auto weight = GuardedBuffer::random("weight", DType::kBF16, in * out, rng);
        const Product product = product_of(in, out, DType::kBF16, weight.word());
        for (const int64_t tokens : {33, 48, 141}) {
            check(product, values_of(weight), false, tokens, kTiles);
            if (!has_tiles("bf16")) continue;
            const auto x =
                GuardedBuffer::random("x", DType::kF32, tokens * product.spec.x.stride, rng);
            CHECK(product.run(x, tokens, "") == product.run(x, tokens, kTiles));
        }
        CHECK(weight.guards_intact());
    }
}

TEST_CASE("few tokens of a fast product have each the bits that they have alone", "[codegen]") {
    std::mt19937 rng(6);
    std::vector<Shard> shards;
    std::vector<Product> products;
    for (const QuantizedCase& c : integer_cases()) {
        const Shard& weight = shards.emplace_back(c, rng);
        products.push_back(product_of(c.columns, c.rows, weight.format, weight.word()));
    }
    const auto narrow = GuardedBuffer::random("weight", DType::kBF16, 531 * 45, rng);
    products.push_back(product_of(531, 45, DType::kBF16, narrow.word()));
    const bool has_unit = host_compiler_info().features.find("avx512bf16") != std::string::npos;
    for (const Product& product : products) {
        const auto x = GuardedBuffer::random("x", DType::kF32, 8 * product.spec.x.stride, rng);
        for (const std::string& cpu : cpus(false)) {
            // Without a unit for bf16, f32 vectors take the tokens, in another order each number.
            if (!product.spec.weight.quantized && (!cpu.empty() || !has_unit)) continue;
            CAPTURE(product.spec.in, product.spec.out, cpu);
            const std::vector<double> all = product.run(x, 8, cpu);
            for (int64_t tokens : {1, 2, 3, 4, 7})
                CHECK(product.run(x, tokens, cpu) ==
                      std::vector<double>(all.begin(), all.begin() + tokens * product.spec.out));
        }
    }
}

TEST_CASE("a fast product with an infinity or a NaN among its activations is NaN", "[codegen]") {
    std::mt19937 rng(5);
    const QuantizedCase c{
        importer::Packing::kDequantizeLinear, DType::kInt8, 20, 96, 32, DType::kF16};
    const Shard weight(c, rng);
    const Product product = product_of(96, 20, weight.format, weight.word());
    for (double bad : std::vector<double>{INFINITY, -INFINITY, NAN, 0.0}) {
        auto x = GuardedBuffer::random("x", DType::kF32, 2 * 99, rng);
        x.set(2 + 40, bad);
        const std::vector<double> got = product.run(x, 2, "");
        for (size_t i = 0; i < 20; ++i) CHECK(std::isnan(got[i]) == (bad != 0.0));
        for (size_t i = 20; i < 40; ++i) CHECK(!std::isnan(got[i]));
    }
}

TEST_CASE("activations of a fast product may be zero or subnormal", "[codegen]") {
    std::mt19937 rng(6);
    const QuantizedCase c{
        importer::Packing::kDequantizeLinear, DType::kInt8, 20, 64, 32, DType::kF16};
    const Shard weight(c, rng);
    const Product product = product_of(64, 20, weight.format, weight.word());
    for (double tiny : {0.0, 1e-45, 1e-38, 1e-31}) {
        auto x = GuardedBuffer::random("x", DType::kF32, 67, rng, 0.0);
        for (int64_t i = 0; i < 67; ++i) x.set(i, i % 3 ? tiny : 0.0);
        for (double y : product.run(x, 1, "")) CHECK(std::fabs(y) <= 64 * tiny * 300);
    }
}

TEST_CASE("fast gate and up differ from exact ones by the rounding of their activations",
          "[codegen]") {
    std::mt19937 rng(8);
    const int64_t in = 96, rows = 30;
    const Shard gate({importer::Packing::kMatMulNBits, DType::kUInt4, rows, in, 32, DType::kF16},
                     rng);
    const Shard up({importer::Packing::kDequantizeLinear, DType::kInt8, rows, in, 0, DType::kF32,
                    Zeros::kNone, true},
                   rng);
    GateUpSpec spec;
    spec.in = in;
    spec.out = rows;
    spec.gate = gate.format;
    spec.up = up.format;
    spec.norm = NormSpec{DType::kF32, 1e-5, 0.0};
    spec.x = {in, 0};
    auto norm = GuardedBuffer::random("norm", DType::kF32, in, rng);
    for (int64_t tokens : {1, 20}) {
        auto x = GuardedBuffer::random("x", DType::kF32, tokens * in, rng);
        auto out = GuardedBuffer::output("out", tokens * rows);
        run_kernel(
            make_host_kernel(spec, KernelKind::kNormGateUp, {"norm", "gate", "up"}, kFastTarget),
            {x.word(), norm.word(), gate.word(), up.word(), out.word(),
             static_cast<uint64_t>(tokens)},
            {tokens, tokens, 1}, rng);
        for (int64_t t = 0; t < tokens; ++t) {
            Row row = read_row(x, t, {in, 0}, in);
            rms_norm(row, norm, 1e-5, 0.0);
            for (int64_t r = 0; r < rows; ++r) {
                // An activation is off by half a step of its group: most / 254.
                double g_bound = 0, u_bound = 0;
                for (size_t begin = 0; begin < row.size(); begin += kRounded) {
                    double most = 0;
                    for (size_t i = begin; i < begin + kRounded; ++i)
                        most = std::max(most, std::fabs(row[i]));
                    for (size_t i = begin; i < begin + kRounded; ++i) {
                        const size_t at = static_cast<size_t>(r) * row.size() + i;
                        g_bound += std::fabs(gate.matrix.values[at]) * most / 253;
                        u_bound += std::fabs(up.matrix.values[at]) * most / 253;
                    }
                }
                const double g = gate.dot(r, row), u = up.dot(r, row);
                // silu's slope is below 1.1.
                const double silu = activate(importer::Activation::kSilu, g);
                const double bound =
                    1.1 * g_bound * (std::fabs(u) + u_bound) + std::fabs(silu) * u_bound + 1e-5;
                CHECK(std::fabs(out.at(t * rows + r) - silu * u) <= bound);
            }
        }
    }
}
