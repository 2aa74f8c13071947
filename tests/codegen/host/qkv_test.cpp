// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;

namespace {

constexpr int64_t kQkvSlots = 3, kQkvContext = 40;

struct QkvData {
    GuardedBuffer x, norm, q, q_bias, k, k_bias, v, v_bias, q_norm, k_norm, table;
};

QkvData make_data(const QkvSpec& s, int64_t tokens, std::mt19937& rng) {
    int64_t q_rows = s.q_heads * s.slab.head_dim, k_rows = s.kv_heads.size() * s.slab.head_dim;
    int64_t v_rows = s.kv_heads.size() * s.slab.v_head_dim;
    auto draw = [&](const char* name, DType dtype, int64_t n) {
        return GuardedBuffer::random(name, dtype, n, rng);
    };
    return {draw("x", DType::kF32, tokens * s.x.stride),
            draw("norm", DType::kF32, s.in),
            draw("q", s.q.dtype, q_rows * s.in),
            draw("q_bias", s.q.dtype, q_rows),
            draw("k", s.k.dtype, k_rows * s.in),
            draw("k_bias", s.k.dtype, k_rows),
            draw("v", s.v.dtype, v_rows * s.in),
            draw("v_bias", s.v.dtype, v_rows),
            draw("q_norm", DType::kF32, s.slab.head_dim),
            draw("k_norm", DType::kF32, s.slab.head_dim),
            draw("table", DType::kF32, kQkvContext * s.slab.head_dim)};
}

Row head_of(const GuardedBuffer& weight, const std::optional<DType>& has_bias,
            const GuardedBuffer& bias, int64_t head, int64_t dim, const Row& x) {
    Row out;
    for (int64_t i = 0; i < dim; ++i)
        out.push_back(dot(weight, head * dim + i, x, has_bias ? &bias : nullptr));
    return out;
}

void check_qkv(const QkvSpec& s, const RaggedBatch& batch) {
    CAPTURE(s.in, s.q_heads, s.kv_heads.begin, s.kv_heads.end, dtype_name(s.q.dtype),
            dtype_name(s.slab.dtype), s.slab.head_dim, s.slab.v_head_dim, batch.num_tokens());
    std::mt19937 rng(static_cast<uint32_t>(s.in + s.q_heads));
    int64_t tokens = batch.num_tokens();
    QkvData d = make_data(s, tokens, rng);
    auto q_out = GuardedBuffer::output("q_out", tokens * s.q_heads * s.slab.head_dim);
    const SlabPlace place = shuffled_place(kQkvSlots, kQkvContext);
    auto kv = GuardedBuffer::random("kv", s.slab.dtype, slab_elements(s.slab, place), rng);
    auto blocks = GuardedBuffer::integers("blocks", place.blocks);
    auto positions = GuardedBuffer::integers("positions", batch.positions);
    auto slots = GuardedBuffer::integers("slots", batch.slots);

    std::vector<uint64_t> args = {d.x.word()};
    if (s.norm) args.push_back(d.norm.word());
    args.push_back(d.q.word());
    if (s.q_bias) args.push_back(d.q_bias.word());
    args.push_back(d.k.word());
    if (s.k_bias) args.push_back(d.k_bias.word());
    args.push_back(d.v.word());
    if (s.v_bias) args.push_back(d.v_bias.word());
    if (s.q_norm) args.push_back(d.q_norm.word());
    if (s.k_norm) args.push_back(d.k_norm.word());
    if (s.q_rope) args.push_back(d.table.word());
    if (s.k_rope) args.push_back(d.table.word());
    for (uint64_t word :
         {q_out.word(), kv.word(), static_cast<uint64_t>(place.num_blocks), blocks.word(),
          static_cast<uint64_t>(place.blocks_per_slot), uint64_t{kQkvContext}, positions.word(),
          slots.word(), static_cast<uint64_t>(tokens)})
        args.push_back(word);

    std::vector<double> q_want(static_cast<size_t>(q_out.count())), kv_want;
    for (int64_t i = 0; i < kv.count(); ++i) kv_want.push_back(kv.at(i));
    for (int64_t t = 0; t < tokens; ++t) {
        int64_t position = batch.positions[static_cast<size_t>(t)],
                slot = batch.slots[static_cast<size_t>(t)];
        Row x = read_row(d.x, t, s.x, s.in);
        if (s.norm) rms_norm(x, d.norm, s.norm->epsilon, s.norm->offset);
        for (int64_t h = 0; h < s.q_heads; ++h) {
            Row q = head_of(d.q, s.q_bias, d.q_bias, h, s.slab.head_dim, x);
            if (s.q_norm) rms_norm(q, d.q_norm, s.q_norm->epsilon, s.q_norm->offset);
            if (s.q_rope) rope(q, *s.q_rope, d.table, kQkvContext, position);
            std::copy(q.begin(), q.end(), q_want.begin() + (t * s.q_heads + h) * s.slab.head_dim);
        }
        for (int64_t h = 0; h < s.kv_heads.size(); ++h) {
            int64_t in_slab = s.kv_heads.begin + h - s.slab.first_head;
            Row k = head_of(d.k, s.k_bias, d.k_bias, h, s.slab.head_dim, x);
            if (s.k_norm) rms_norm(k, d.k_norm, s.k_norm->epsilon, s.k_norm->offset);
            if (s.k_rope) rope(k, *s.k_rope, d.table, kQkvContext, position);
            for (size_t i = 0; i < k.size(); ++i)
                kv_want[static_cast<size_t>(key_index(s.slab, place, slot, in_slab, position,
                                                      static_cast<int64_t>(i)))] = k[i];
            Row v = head_of(d.v, s.v_bias, d.v_bias, h, s.slab.v_head_dim, x);
            std::copy(v.begin(), v.end(),
                      kv_want.begin() + value_index(s.slab, place, slot, in_slab, position));
        }
    }
    Kernel kernel = make_host_kernel(s, KernelKind::kNormQkvRopeAppend, {"linear", "kv_append"},
                                     HostTarget{2, {}});
    run_kernel(kernel, args, {tokens, 1, 1}, rng);
    check_close(q_out, q_want, 3e-5);
    check_close(kv, kv_want,
                s.slab.dtype == DType::kF32   ? 3e-5
                : s.slab.dtype == DType::kF16 ? 1e-3
                                              : 8e-3);
}

QkvSpec basic(int64_t head_dim = 16) {
    QkvSpec s;
    s.in = 48;
    s.q_heads = 4;
    s.kv_heads = {0, 2};
    s.norm = NormSpec{};
    s.q_rope = s.k_rope = RopeSpec{head_dim, false};
    s.slab = {head_dim, head_dim, 2, 0, DType::kF32};
    s.x = {48, 0};
    return s;
}

}  // namespace

TEST_CASE("q goes to its buffer and k, v to their slots and positions, which alone change",
          "[codegen]") {
    check_qkv(basic(), RaggedBatch().add(1, 7, 1));
    check_qkv(basic(), RaggedBatch().add(2, 0, 1).add(0, 39, 1).add(1, 5, 1));
    check_qkv(basic(), RaggedBatch().add(0, 0, 37));
    check_qkv(basic(), RaggedBatch().add(2, 3, 20).add(0, 0, 11).add(1, 30, 9));
}

TEST_CASE("q, k and v of every weight and cache dtype are within the type's bound", "[codegen]") {
    for (DType weight : {DType::kF32, DType::kF16, DType::kBF16})
        for (DType cache : {DType::kF32, DType::kF16, DType::kBF16}) {
            QkvSpec s = basic();
            s.q = s.k = s.v = weight;
            s.slab.dtype = cache;
            check_qkv(s, RaggedBatch().add(0, 1, 2));
            check_qkv(s, RaggedBatch().add(0, 1, 19));
        }
}

TEST_CASE("q, k and v take biases, head norms, either rope layout and partial rotation",
          "[codegen]") {
    for (int bits = 0; bits < 16; ++bits) {
        QkvSpec s = basic();
        if (bits & 1) s.q_bias = s.v_bias = DType::kF32;
        if (bits & 2) s.k_bias = DType::kF32;
        if (bits & 4) s.q_norm = s.k_norm = NormSpec{DType::kF32, 1e-6, 1.0};
        if (bits & 8) s.norm.reset();
        s.q_rope = s.k_rope = RopeSpec{bits & 1 ? 8 : 16, (bits & 2) != 0};
        if (bits == 15) s.q_rope.reset();
        check_qkv(s, RaggedBatch().add(1, 4, 3));
    }
}

TEST_CASE("a shard of heads writes its part of a slab of other heads", "[codegen]") {
    QkvSpec s = basic(8);
    s.q_heads = 3;
    s.kv_heads = {3, 5};
    s.slab.heads = 4;
    s.slab.first_head = 2;
    s.slab.v_head_dim = 12;
    s.x = {60, 7};
    check_qkv(s, RaggedBatch().add(1, 0, 5).add(0, 20, 6));
}
