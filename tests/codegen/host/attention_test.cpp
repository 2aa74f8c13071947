// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;

namespace {

constexpr int64_t kSlots = 3;

void check_attention(const AttentionSpec& s, const RaggedBatch& batch, int64_t context,
                     int64_t threads = 2) {
    CAPTURE(s.heads.begin, s.heads.end, s.group, s.window, s.softcap, s.prefill,
            dtype_name(s.slab.dtype), s.slab.head_dim, s.slab.v_head_dim, batch.num_tokens(),
            context, threads);
    std::mt19937 rng(static_cast<uint32_t>(context + s.heads.size()));
    int64_t tokens = batch.num_tokens(), heads = s.heads.size();
    auto q = GuardedBuffer::random("q", DType::kF32, tokens * s.q.stride, rng, 3.0);
    const SlabPlace place = shuffled_place(kSlots, context);
    auto kv = GuardedBuffer::random("kv", s.slab.dtype, slab_elements(s.slab, place), rng);
    poison_free_blocks(kv, s.slab, place);
    auto blocks = GuardedBuffer::integers("blocks", place.blocks);
    auto out = GuardedBuffer::output("out", tokens * heads * s.slab.v_head_dim);
    auto positions = GuardedBuffer::integers("positions", batch.positions);
    auto slots = GuardedBuffer::integers("slots", batch.slots);

    std::vector<double> want;
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
            Row row =
                read_row(q, t, {s.q.stride, s.q.offset + h * s.slab.head_dim}, s.slab.head_dim);
            int64_t kv_head = (s.heads.begin + h) / s.group - s.slab.first_head;
            Row y = attend(s, row, kv, place, batch.slots[static_cast<size_t>(t)], kv_head,
                           batch.positions[static_cast<size_t>(t)]);
            want.insert(want.end(), y.begin(), y.end());
        }
    }
    Kernel kernel =
        make_host_kernel(s, KernelKind::kAttention, {"attention"}, HostTarget{threads, {}});
    std::vector<uint64_t> args = {q.word(),
                                  kv.word(),
                                  static_cast<uint64_t>(place.num_blocks),
                                  blocks.word(),
                                  static_cast<uint64_t>(place.blocks_per_slot),
                                  out.word(),
                                  positions.word(),
                                  slots.word()};
    if (s.prefill) args.push_back(static_cast<uint64_t>(batch.num_singles()));
    args.push_back(static_cast<uint64_t>(tokens));
    run_kernel(kernel, args, {tokens, 1, 1, batch.num_singles()}, rng);
    check_close(out, want, 2e-5);
}

AttentionSpec basic(int64_t heads, int64_t group, int64_t head_dim, DType dtype = DType::kF32) {
    AttentionSpec s;
    s.heads = {0, heads};
    s.group = group;
    s.scale = 0.35;
    s.slab = {head_dim, head_dim, heads / group, 0, dtype};
    s.q = {heads * head_dim, 0};
    return s;
}

}  // namespace

TEST_CASE("attention sees exactly the keys up to its own, across blocks of keys", "[codegen]") {
    for (bool prefill : {false, true}) {
        AttentionSpec s = basic(4, 2, 16);
        s.prefill = prefill;
        for (int32_t position : {0, 1, 15, 16, 63, 64, 65, 127, 128, 200}) {
            check_attention(s, RaggedBatch().add(1, position, 1), 201);
            check_attention(s, RaggedBatch().add(2, std::max(0, position - 6), 7).add(0, 3, 2),
                            202);
        }
    }
}

TEST_CASE("attention of single tokens beside a prompt is right", "[codegen]") {
    for (int64_t threads : {1, 2, 64})
        for (int64_t group : {1, 2, 4}) {
            AttentionSpec s = basic(4, group, 16);
            s.prefill = true;
            check_attention(s, RaggedBatch().add(1, 150, 1).add(0, 20, 1).add(2, 60, 21), 201,
                            threads);
            check_attention(s, RaggedBatch().add(2, 131, 1).add(0, 0, 1).add(1, 7, 1), 201,
                            threads);
        }
}

TEST_CASE("attention is right for every head size and cache dtype", "[codegen]") {
    for (bool prefill : {false, true})
        for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
            for (int64_t head_dim : {2, 6, 8, 48, 64, 80, 100, 128}) {
                AttentionSpec s = basic(4, 4, head_dim, dtype);
                s.prefill = prefill;
                check_attention(s, RaggedBatch().add(0, 0, 9).add(2, 60, 11), 80);
            }
}

TEST_CASE("attention windows and soft caps follow their definitions", "[codegen]") {
    for (bool prefill : {false, true})
        for (int64_t window : {0, 1, 5, 64, 100})
            for (double softcap : {0.0, 2.0}) {
                AttentionSpec s = basic(2, 1, 32);
                s.prefill = prefill;
                s.window = window;
                s.softcap = softcap;
                check_attention(s, RaggedBatch().add(1, 90, 40).add(0, 0, 3), 140);
            }
}

TEST_CASE("a device's heads may begin and end inside a group of queries", "[codegen]") {
    for (bool prefill : {false, true})
        for (int64_t threads : {1, 4, 64}) {
            AttentionSpec s = basic(7, 3, 16);
            s.heads = {4, 11};  // groups 1 to 3 of heads of 3
            s.slab.heads = 4;
            s.slab.first_head = 1;
            s.slab.v_head_dim = 24;
            s.q = {200, 40};
            s.prefill = prefill;
            check_attention(s, RaggedBatch().add(1, 30, 10).add(2, 0, 1).add(0, 64, 3), 70,
                            threads);
        }
}
