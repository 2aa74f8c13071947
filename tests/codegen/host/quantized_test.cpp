// SPDX-License-Identifier: Apache-2.0
// Kernels on quantised weights against a double reference of the dequantised matrix; products of
// integers exactly.
#include <cmath>

#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/codegen/support/weight_shard.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;

namespace {

void check_linear(const QuantizedCase& c, const std::vector<int64_t>& counts,
                  const std::string& cpu = "") {
    CAPTURE(describe(c), cpu);
    std::mt19937 rng(static_cast<uint32_t>(c.columns * 31 + c.rows));
    const Shard weight(c, rng);
    LinearSpec spec;
    spec.in = c.columns;
    spec.out = c.rows;
    spec.weight = weight.format;
    spec.x = {c.columns + 3, 2};
    const Kernel kernel =
        make_host_kernel(spec, KernelKind::kLinear, {"linear"}, HostTarget{2, {}});
    for (int64_t tokens : counts) {
        CAPTURE(tokens);
        auto x = GuardedBuffer::random("x", DType::kF32, tokens * spec.x.stride, rng);
        auto out = GuardedBuffer::output("out", tokens * c.rows);
        std::vector<double> want;
        for (int64_t t = 0; t < tokens; ++t)
            for (int64_t r = 0; r < c.rows; ++r)
                want.push_back(weight.dot(r, read_row(x, t, spec.x, c.columns)));
        run_kernel(kernel, {x.word(), weight.word(), out.word(), static_cast<uint64_t>(tokens)},
                   {tokens, tokens, 1}, rng, cpu);
        check_close(out, want, 2e-5);
        CHECK(weight.buffer.guards_intact());
    }
}

// DynamicQuantizeLinear and MatMulInteger in the arithmetic of their specification: f32 scales,
// exact sums.
struct Integers {
    float step = 0, zero = 0;
    explicit Integers(const std::vector<float>& all) {
        float low = 0, high = 0;
        for (float v : all) low = std::min(low, v), high = std::max(high, v);
        step = (high - low) / 255.0f;
        if (step > 0) zero = std::nearbyint(std::min(-low / step, 255.0f));
    }
    int64_t of(float x) const {
        if (step == 0) return 0;
        return static_cast<int64_t>(std::clamp(std::nearbyint(x / step) + zero, 0.0f, 255.0f) -
                                    zero);
    }
};

}  // namespace

TEST_CASE("a linear kernel reads every quantised form as its dequantised matrix", "[codegen]") {
    for (const QuantizedCase& c : quantized_cases()) check_linear(c, {1, 2, 3, 6, 9, 37});
}

TEST_CASE("quantised rows of any length are read to their last element", "[codegen]") {
    for (int64_t columns : {1, 15, 16, 31, 33, 48, 300})
        for (DType code : {DType::kUInt4, DType::kUInt8})
            check_linear({importer::Packing::kMatMulNBits, code, 45, columns, 16, DType::kF16,
                          Zeros::kInteger},
                         {1, 7, 33});
}

TEST_CASE("one source of quantised products serves CPUs with 4, 8 and 16 lanes", "[codegen]") {
    for (const std::string& cpu : cpus_of_each_width()) {
        for (DType code : {DType::kInt4, DType::kUInt8, DType::kF8E4M3, DType::kMxfp4})
            check_linear({importer::Packing::kDequantizeLinear, code, 14, 88, 32,
                          code == DType::kMxfp4 ? DType::kF8E8M0 : DType::kF16, Zeros::kNone, true},
                         {1, 4, 41}, cpu);
    }
}

TEST_CASE("a product of integers is exact, and quantises by all rows of its input", "[codegen]") {
    // 300 features of 255 * 255 are more than f32 sums exactly; 8 tokens take vectors along K, 40
    // panels.
    for (DType code : {DType::kInt8, DType::kUInt8})
        for (int64_t columns : {24, 300, 9000})
            for (bool select : {false, true}) {
                CAPTURE(dtype_name(code), columns, select);
                std::mt19937 rng(5);
                QuantizedCase c{importer::Packing::kDequantizeLinear, code, 13, columns, 0};
                c.zeros = Zeros::kInteger;
                c.transposed = c.dynamic = true;
                c.one_scale = columns == 24;
                const Shard weight(c, rng);
                LinearSpec spec;
                spec.in = columns;
                spec.out = c.rows;
                spec.weight = weight.format;
                spec.select = select;
                spec.x = {columns, 0};
                const Kernel kernel =
                    make_host_kernel(spec, KernelKind::kLinear, {"linear"}, HostTarget{2, {}});
                for (int64_t tokens : {1, 8, 40}) {
                    const int64_t all = select ? tokens + 3 : tokens;
                    auto x = GuardedBuffer::random("x", DType::kF32, all * columns, rng, 3.0);
                    x.set(all * columns - 1, 4.0);  // of a row that is not selected
                    std::vector<int32_t> picked;
                    for (int64_t t = 0; t < tokens; ++t) picked.push_back(static_cast<int32_t>(t));
                    auto rows = GuardedBuffer::integers("rows", picked);
                    auto out = GuardedBuffer::output("out", tokens * c.rows);
                    std::vector<float> values;
                    for (int64_t i = 0; i < x.count(); ++i)
                        values.push_back(static_cast<float>(x.at(i)));
                    const Integers integers(values);
                    std::vector<double> want;
                    for (int64_t t = 0; t < tokens; ++t)
                        for (int64_t r = 0; r < c.rows; ++r) {
                            int64_t sum = 0;
                            for (int64_t k = 0; k < columns; ++k)
                                sum += integers.of(values[static_cast<size_t>(t * columns + k)]) *
                                       weight.matrix.integers[static_cast<size_t>(r * columns + k)];
                            const auto scale = static_cast<float>(
                                weight.matrix.scales[static_cast<size_t>(r * columns)]);
                            want.push_back(static_cast<float>(sum) * (integers.step * scale));
                        }
                    std::vector<uint64_t> args = {x.word(), weight.word()};
                    if (select) args.push_back(rows.word());
                    args.push_back(out.word());
                    args.push_back(static_cast<uint64_t>(tokens));
                    args.push_back(static_cast<uint64_t>(all));
                    run_kernel(kernel, args, {tokens, tokens, 1}, rng);
                    check_close(out, want, 0.0);
                }
            }
}

TEST_CASE("an input of zeros times integers is zero", "[codegen]") {
    std::mt19937 rng(6);
    QuantizedCase c{importer::Packing::kDequantizeLinear, DType::kInt8, 5, 40, 0};
    c.dynamic = true;
    const Shard weight(c, rng);
    LinearSpec spec;
    spec.in = 40;
    spec.out = 5;
    spec.weight = weight.format;
    spec.x = {40, 0};
    GuardedBuffer x("x", DType::kF32, 40);
    for (int64_t i = 0; i < 40; ++i) x.set(i, 0.0);
    auto out = GuardedBuffer::output("out", 5);
    run_kernel(make_host_kernel(spec, KernelKind::kLinear, {"linear"}, HostTarget{2, {}}),
               {x.word(), weight.word(), out.word(), 1, 1}, {1, 1, 1}, rng);
    check_close(out, std::vector<double>(5, 0.0), 0.0);
}

TEST_CASE("an embedding reads rows of a quantised table", "[codegen]") {
    std::mt19937 rng(7);
    for (const QuantizedCase& base : quantized_cases()) {
        QuantizedCase c = base;
        c.rows = 20;
        CAPTURE(describe(c));
        const Shard table(c, rng);
        EmbeddingSpec s{c.columns, c.rows, table.format, 2.5f};
        std::vector<int32_t> ids = {9, 10, 29, 30, 17};
        auto tokens = GuardedBuffer::integers("ids", ids);
        auto out = GuardedBuffer::output("out", 5 * c.columns);
        std::vector<double> want;
        for (int32_t id : ids)
            for (int64_t i = 0; i < c.columns; ++i)
                want.push_back(
                    id >= 10 && id < 30
                        ? 2.5 * table.matrix.values[static_cast<size_t>((id - 10) * c.columns + i)]
                        : 0.0);
        run_kernel(make_host_kernel(s, KernelKind::kEmbedding, {"embedding"}, HostTarget{2, {}}),
                   {tokens.word(), 10, table.word(), out.word()}, {5, 1, 1}, rng);
        check_close(out, want, 1e-6);
    }
}

TEST_CASE("gate and up may be quantised in different ways", "[codegen]") {
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
    const Kernel kernel =
        make_host_kernel(spec, KernelKind::kNormGateUp, {"norm", "gate", "up"}, HostTarget{2, {}});
    for (int64_t tokens : {1, 3, 20}) {
        auto x = GuardedBuffer::random("x", DType::kF32, tokens * in, rng);
        auto out = GuardedBuffer::output("out", tokens * rows);
        std::vector<double> want;
        for (int64_t t = 0; t < tokens; ++t) {
            Row row = read_row(x, t, {in, 0}, in);
            rms_norm(row, norm, 1e-5, 0.0);
            for (int64_t r = 0; r < rows; ++r)
                want.push_back(activate(importer::Activation::kSilu, gate.dot(r, row)) *
                               up.dot(r, row));
        }
        run_kernel(kernel,
                   {x.word(), norm.word(), gate.word(), up.word(), out.word(),
                    static_cast<uint64_t>(tokens)},
                   {tokens, tokens, 1}, rng);
        check_close(out, want, 5e-5);
    }
}

TEST_CASE("products that share an input and disagree on quantising it are refused", "[codegen]") {
    std::mt19937 rng(9);
    QuantizedCase c{importer::Packing::kDequantizeLinear, DType::kInt8, 30, 96, 0};
    c.dynamic = true;
    const Shard dynamic(c, rng);
    GateUpSpec spec;
    spec.in = 96;
    spec.out = 30;
    spec.gate = dynamic.format;
    CHECK_THAT(user_error([&] {
                   make_host_kernel(spec, KernelKind::kNormGateUp, {"gate"}, HostTarget{2, {}});
               }),
               Catch::Matchers::Contains("MatMulInteger"));
}
