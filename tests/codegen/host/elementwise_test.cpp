// SPDX-License-Identifier: Apache-2.0
#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using importer::Activation;
using planner::KernelKind;

namespace {

constexpr DType kElementTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr int64_t kTokens = 5;

void run(const KernelSpec& spec, KernelKind kind, const std::vector<uint64_t>& args,
         const Counts& counts, std::mt19937& rng) {
    run_kernel(make_host_kernel(spec, kind, {"single"}, HostTarget{2, {}}), args, counts, rng);
}

GuardedBuffer draw(const char* name, int64_t n, std::mt19937& rng, double scale = 1.0) {
    return GuardedBuffer::random(name, DType::kF32, n, rng, scale);
}

}  // namespace

TEST_CASE("a vocabulary-parallel embedding gives its own ids scaled rows and all others zero",
          "[codegen]") {
    std::mt19937 rng(1);
    for (DType dtype : kElementTypes) {
        EmbeddingSpec s{43, 20, dtype, 2.5f};
        std::vector<int32_t> ids = {9, 10, 29, 30, 17};
        auto table = GuardedBuffer::random("table", dtype, 20 * 43, rng);
        auto tokens = GuardedBuffer::integers("ids", ids);
        auto out = GuardedBuffer::output("out", kTokens * 43);
        std::vector<double> want;
        for (int32_t id : ids)
            for (int64_t i = 0; i < 43; ++i)
                want.push_back(id >= 10 && id < 30 ? 2.5 * table.at((id - 10) * 43 + i) : 0.0);
        run(s, KernelKind::kEmbedding, {tokens.word(), 10, table.word(), out.word()},
            {kTokens, 1, 1}, rng);
        check_close(out, want, 1e-6);
    }
}

TEST_CASE("a norm normalises each group alone, of f32, f16 and bf16 weights", "[codegen]") {
    std::mt19937 rng(2);
    for (DType dtype : kElementTypes)
        for (auto [n, group] :
             {std::pair<int64_t, int64_t>{43, 43}, {96, 24}, {64, 64}, {6, 2}, {7, 7}}) {
            CAPTURE(n, group);
            RmsNormSpec s{n, group, {dtype, 1e-6, 1.0}, {n + 3, 2}, RowCount::kTokens};
            auto x = draw("x", kTokens * (n + 3), rng, 50.0);
            auto weight = GuardedBuffer::random("weight", dtype, group, rng);
            auto out = GuardedBuffer::output("out", kTokens * n);
            std::vector<double> want;
            for (int64_t t = 0; t < kTokens; ++t)
                for (int64_t g = 0; g < n; g += group) {
                    Row row = read_row(x, t, {n + 3, 2 + g}, group);
                    rms_norm(row, weight, 1e-6, 1.0);
                    want.insert(want.end(), row.begin(), row.end());
                }
            run(s, KernelKind::kRmsNorm, {x.word(), weight.word(), out.word()}, {kTokens, 1, 1},
                rng);
            check_close(out, want, 2e-6);
        }
}

TEST_CASE("rope alone turns every head by its token's position", "[codegen]") {
    std::mt19937 rng(3);
    constexpr int64_t kContext = 12;
    for (bool interleaved : {false, true})
        for (int64_t rotary : {4, 10}) {
            RopeOnlySpec s{30, 10, {rotary, interleaved}, {33, 1}};
            auto x = draw("x", kTokens * 33, rng);
            auto table = draw("table", kContext * rotary, rng);
            auto positions = GuardedBuffer::integers("positions", {0, 11, 3, 4, 5});
            auto out = GuardedBuffer::output("out", kTokens * 30);
            std::vector<double> want;
            int32_t at[] = {0, 11, 3, 4, 5};
            for (int64_t t = 0; t < kTokens; ++t)
                for (int64_t h = 0; h < 3; ++h) {
                    Row row = read_row(x, t, {33, 1 + h * 10}, 10);
                    rope(row, s.rope, table, kContext, at[t]);
                    want.insert(want.end(), row.begin(), row.end());
                }
            run(s, KernelKind::kRope,
                {x.word(), table.word(), kContext, positions.word(), out.word()}, {kTokens, 1, 1},
                rng);
            check_close(out, want, 2e-6);
        }
}

TEST_CASE("an append alone writes its tokens' rows of the slab and no other", "[codegen]") {
    std::mt19937 rng(4);
    constexpr int64_t kContext = 40, kSlots = 2;
    for (DType dtype : kElementTypes) {
        KvAppendSpec s;
        s.kv_heads = {2, 4};
        s.slab = {6, 4, 3, 1, dtype};
        s.k = {15, 2};
        s.v = {9, 1};
        RaggedBatch batch = RaggedBatch().add(1, 14, 4).add(0, 8, 1);
        auto k = draw("k", kTokens * 15, rng), v = draw("v", kTokens * 9, rng);
        const SlabPlace place = shuffled_place(kSlots, kContext);
        auto kv = GuardedBuffer::random("kv", dtype, slab_elements(s.slab, place), rng);
        auto blocks = GuardedBuffer::integers("blocks", place.blocks);
        auto positions = GuardedBuffer::integers("positions", batch.positions);
        auto slots = GuardedBuffer::integers("slots", batch.slots);
        std::vector<double> want;
        for (int64_t i = 0; i < kv.count(); ++i) want.push_back(kv.at(i));
        for (int64_t t = 0; t < kTokens; ++t)
            for (int64_t h = 0; h < 2; ++h) {
                auto slot = batch.slots[static_cast<size_t>(t)],
                     position = batch.positions[static_cast<size_t>(t)];
                Row row = read_row(k, t, {15, 2 + h * 6}, 6);
                for (size_t i = 0; i < row.size(); ++i)
                    want[static_cast<size_t>(key_index(s.slab, place, slot, h + 1, position,
                                                       static_cast<int64_t>(i)))] = row[i];
                row = read_row(v, t, {9, 1 + h * 4}, 4);
                std::copy(row.begin(), row.end(),
                          want.begin() + value_index(s.slab, place, slot, h + 1, position));
            }
        run(s, KernelKind::kKvAppend,
            {k.word(), v.word(), kv.word(), static_cast<uint64_t>(place.num_blocks), blocks.word(),
             static_cast<uint64_t>(place.blocks_per_slot), positions.word(), slots.word()},
            {kTokens, 1, 1}, rng);
        check_close(kv, want, dtype == DType::kF32 ? 0.0 : dtype == DType::kF16 ? 5e-4 : 4e-3);
    }
}

TEST_CASE("gated activations are within 1e-6 of their definitions, also far from zero",
          "[codegen]") {
    std::mt19937 rng(5);
    for (const auto& row : importer::kActivations)
        for (double scale : {0.01, 1.0, 8.0, 200.0}) {
            CAPTURE(row.name, scale);
            const Activation activation = row.activation;
            GatedActivationSpec s{43, activation, {43, 0}, {50, 6}};
            auto gate = draw("gate", kTokens * 43, rng, scale), up = draw("up", kTokens * 50, rng);
            auto out = GuardedBuffer::output("out", kTokens * 43);
            std::vector<double> want;
            for (int64_t t = 0; t < kTokens; ++t)
                for (int64_t i = 0; i < 43; ++i)
                    want.push_back(activate(activation, gate.at(t * 43 + i)) *
                                   up.at(t * 50 + 6 + i));
            run(s, KernelKind::kGatedActivation, {gate.word(), up.word(), out.word()},
                {kTokens, 1, 1}, rng);
            check_close(out, want, 1e-6);
        }
}

TEST_CASE("gate and up with norm and biases meet in the activation, for few and many tokens",
          "[codegen]") {
    std::mt19937 rng(6);
    for (DType dtype : kElementTypes)
        for (int64_t tokens : {1, 4, 35, 150})
            for (int64_t out_size : {43, 172}) {
                CAPTURE(dtype_name(dtype), tokens, out_size);
                bool extra = out_size == 43;
                GateUpSpec s;
                s.in = 48;
                s.out = out_size;
                s.gate = s.up = dtype;
                s.x = {50, 1};
                s.activation = importer::kActivations[static_cast<size_t>(out_size) % 4].activation;
                if (extra) s.gate_bias = s.up_bias = dtype;
                if (extra) s.norm = NormSpec{dtype, 1e-5, 0.0};
                auto x = draw("x", tokens * 50, rng);
                auto norm = GuardedBuffer::random("norm", dtype, 48, rng);
                auto gate = GuardedBuffer::random("gate", dtype, 48 * out_size, rng);
                auto up = GuardedBuffer::random("up", dtype, 48 * out_size, rng);
                auto gate_bias = GuardedBuffer::random("gate_bias", dtype, out_size, rng);
                auto up_bias = GuardedBuffer::random("up_bias", dtype, out_size, rng);
                auto out = GuardedBuffer::output("out", tokens * out_size);
                std::vector<double> want;
                for (int64_t t = 0; t < tokens; ++t) {
                    Row row = read_row(x, t, s.x, 48);
                    if (extra) rms_norm(row, norm, 1e-5, 0.0);
                    for (int64_t i = 0; i < out_size; ++i)
                        want.push_back(activate(s.activation,
                                                dot(gate, i, row, extra ? &gate_bias : nullptr)) *
                                       dot(up, i, row, extra ? &up_bias : nullptr));
                }
                std::vector<uint64_t> args = {x.word()};
                if (extra) args.push_back(norm.word());
                args.push_back(gate.word());
                if (extra) args.push_back(gate_bias.word());
                args.push_back(up.word());
                if (extra) args.push_back(up_bias.word());
                args.push_back(out.word());
                args.push_back(static_cast<uint64_t>(tokens));
                run(s, KernelKind::kNormGateUp, args, {tokens, 1, 1}, rng);
                check_close(out, want, 5e-5);
            }
}

TEST_CASE("add, scale and selection work on parts of wider rows", "[codegen]") {
    std::mt19937 rng(7);
    auto x = draw("x", kTokens * 50, rng), y = draw("y", kTokens * 45, rng);
    auto sum = GuardedBuffer::output("sum", kTokens * 43),
         scaled = GuardedBuffer::output("scaled", 3 * 43);
    auto picked = GuardedBuffer::output("picked", 2 * 43);
    auto rows = GuardedBuffer::integers("rows", {1, 4});
    std::vector<double> want_sum, want_scaled, want_picked;
    for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t i = 0; i < 43; ++i) {
            want_sum.push_back(x.at(t * 50 + 6 + i) + y.at(t * 45 + i));
            if (t < 3) want_scaled.push_back(x.at(t * 50 + 1 + i) * 0.3);
            if (t == 1 || t == 4) want_picked.push_back(x.at(t * 50 + 2 + i));
        }
    run(AddSpec{43, {50, 6}, {45, 0}, RowCount::kTokens}, KernelKind::kAdd,
        {x.word(), y.word(), sum.word()}, {kTokens, 1, 1}, rng);
    run(ScaleSpec{43, 0.3, {50, 1}, RowCount::kOutputs}, KernelKind::kScale,
        {x.word(), scaled.word()}, {kTokens, 3, 1}, rng);
    run(SelectTokensSpec{43, {50, 2}}, KernelKind::kSelectTokens,
        {x.word(), rows.word(), picked.word()}, {kTokens, 2, 1}, rng);
    check_close(sum, want_sum, 1e-6);
    check_close(scaled, want_scaled, 1e-6);
    check_close(picked, want_picked, 0.0);
}
