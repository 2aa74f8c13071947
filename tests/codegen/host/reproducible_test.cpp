// SPDX-License-Identifier: Apache-2.0
// The bits of a token's results do not depend on the tokens that share its launch.
#include <cstring>

#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/quantized_matrix.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;

namespace {

uint64_t row_word(const GuardedBuffer& rows, int64_t row, int64_t stride) {
    return rows.word() + static_cast<uint64_t>(row * stride * rows.bytes() / rows.count());
}

// The first element that differs between row `row` of `together` and `alone`; -1: none.
int64_t first_difference(const GuardedBuffer& together, int64_t row, const GuardedBuffer& alone) {
    for (int64_t i = 0; i < alone.count(); ++i)
        if (together.at(row * alone.count() + i) != alone.at(i)) return i;
    return -1;
}

HostTarget target() { return {2, {}, true}; }

void check_linear(const LinearSpec& spec, const GuardedBuffer& weight, std::mt19937& rng) {
    constexpr int64_t kTokens = 40;
    const Kernel kernel = make_host_kernel(spec, KernelKind::kLinear, {"linear"}, target());
    auto x = GuardedBuffer::random("x", DType::kF32, kTokens * spec.x.stride, rng);
    auto norm = GuardedBuffer::random("norm", DType::kF32, spec.in, rng);
    auto run = [&](int64_t first, int64_t tokens) {
        auto out = GuardedBuffer::output("out", tokens * spec.out);
        std::vector<uint64_t> args = {row_word(x, first, spec.x.stride)};
        if (spec.norm) args.push_back(norm.word());
        for (uint64_t word : {weight.word(), out.word(), static_cast<uint64_t>(tokens)})
            args.push_back(word);
        run_kernel(kernel, args, {tokens, tokens, 1}, rng);
        return out;
    };
    const GuardedBuffer alone = run(kTokens / 2, 1);
    for (int64_t tokens : {2, 3, 5, 8, 9, 17, 20})
        for (int64_t before : {int64_t{0}, tokens / 2, tokens - 1}) {
            CAPTURE(spec.in, spec.out, tokens, before, spec.norm.has_value());
            CHECK(first_difference(run(kTokens / 2 - before, tokens), before, alone) == -1);
        }
}

}  // namespace

TEST_CASE("a token's product has the same bits whatever the number of tokens beside it",
          "[codegen]") {
    std::mt19937 rng(3);
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3})
        for (auto [in, out] : {std::pair<int64_t, int64_t>{96, 100}, {43, 64}, {531, 7}, {3, 33}})
            for (bool norm : {false, true}) {
                CAPTURE(dtype_name(dtype));
                LinearSpec spec;
                spec.in = in;
                spec.out = out;
                spec.weight = dtype;
                spec.x = {in + 3, 0};
                if (norm) spec.norm = NormSpec{};
                check_linear(spec, GuardedBuffer::random("weight", dtype, in * out, rng), rng);
            }
}

TEST_CASE("a token's product with quantised weights has the same bits in any company",
          "[codegen]") {
    std::mt19937 rng(5);
    std::vector<QuantizedCase> cases = quantized_cases();
    for (int64_t columns : {15, 48, 300, 1100})
        for (DType code : {DType::kUInt4, DType::kUInt8})
            cases.push_back({importer::Packing::kMatMulNBits, code, 45, columns, 16, DType::kF16,
                             Zeros::kInteger});
    for (const QuantizedCase& c : cases) {
        if (c.dynamic) continue;  // a launch quantises x by all of its rows
        CAPTURE(describe(c));
        const QuantizedMatrix matrix = random_quantized(c, rng);
        const std::vector<std::byte> bytes = device_bytes(matrix, {0, c.rows}, {0, c.columns});
        GuardedBuffer weight("weight", DType::kInt32, static_cast<int64_t>(bytes.size() + 3) / 4);
        std::memcpy(reinterpret_cast<void*>(weight.word()), bytes.data(), bytes.size());
        LinearSpec spec;
        spec.in = c.columns;
        spec.out = c.rows;
        spec.weight = importer::quantized_format(matrix.weight());
        spec.x = {c.columns, 0};
        check_linear(spec, weight, rng);
    }
}

TEST_CASE("a query's attention has the same bits alone, among others, in prefill and in decode",
          "[codegen]") {
    constexpr int64_t kSlots = 3, kContext = 300;
    const RaggedBatch batch =
        RaggedBatch().add(1, 250, 9).add(0, 0, 5).add(2, 120, 1).add(0, 130, 7);
    std::mt19937 rng(4);
    for (int64_t head_dim : {8, 16, 48, 64, 128})
        for (int64_t group : {1, 2, 4})
            for (int64_t window : {0, 70}) {
                AttentionSpec s;
                s.heads = {0, 4};
                s.group = group;
                s.scale = 0.2;
                s.window = window;
                s.slab = {head_dim, head_dim, 4 / group, 0, DType::kF32};
                s.q = {4 * head_dim, 0};
                const SlabPlace place = shuffled_place(kSlots, kContext);
                auto q = GuardedBuffer::random("q", DType::kF32, batch.num_tokens() * s.q.stride,
                                               rng, 3.0);
                auto kv =
                    GuardedBuffer::random("kv", DType::kF32, slab_elements(s.slab, place), rng);
                auto blocks = GuardedBuffer::integers("blocks", place.blocks);
                auto positions = GuardedBuffer::integers("positions", batch.positions);
                auto slots = GuardedBuffer::integers("slots", batch.slots);
                auto run = [&](bool prefill, int64_t threads, int64_t first, int64_t tokens,
                               int64_t singles = 0) {
                    s.prefill = prefill;
                    HostTarget on = target();
                    on.threads = threads;
                    auto out = GuardedBuffer::output("out", tokens * s.q.stride);
                    std::vector<uint64_t> args = {row_word(q, first, s.q.stride),
                                                  kv.word(),
                                                  static_cast<uint64_t>(place.num_blocks),
                                                  blocks.word(),
                                                  static_cast<uint64_t>(place.blocks_per_slot),
                                                  out.word(),
                                                  row_word(positions, first, 1),
                                                  row_word(slots, first, 1)};
                    if (prefill) args.push_back(static_cast<uint64_t>(singles));
                    args.push_back(static_cast<uint64_t>(tokens));
                    run_kernel(make_host_kernel(s, KernelKind::kAttention, {"attention"}, on), args,
                               {tokens, 1, 1, singles}, rng);
                    return out;
                };
                const GuardedBuffer prefill = run(true, 2, 0, batch.num_tokens()),
                                    decode = run(false, 1, 0, batch.num_tokens());
                // The token of slot 2 as a single one, in front of a prompt of slot 0.
                const GuardedBuffer mixed = run(true, 2, 14, 8, 1);
                for (int64_t t : {14, 15, 21}) {
                    const GuardedBuffer alone = run(false, 2, t, 1);
                    CAPTURE(head_dim, group, window, t);
                    CHECK(first_difference(mixed, t - 14, alone) == -1);
                }
                for (int64_t t : {0, 4, 8, 9, 13, 14, 15, 21})
                    for (bool alone_as_prefill : {false, true}) {
                        const GuardedBuffer alone = run(alone_as_prefill, 64, t, 1);
                        CAPTURE(head_dim, group, window, t, alone_as_prefill);
                        CHECK(first_difference(prefill, t, alone) == -1);
                        CHECK(first_difference(decode, t, alone) == -1);
                    }
            }
}
