// SPDX-License-Identifier: Apache-2.0
// Entry points of a warpgroup's products. PTX ISA 9.2, 9.7.15, "Asynchronous warpgroup level matrix
// multiply-accumulate instructions": what must be fenced, committed and waited for.
#include "runtime/simt/warpgroup.h"

#include <algorithm>
#include <bit>

#include "codegen/templates/gpu/fragments.cuh"
#include "runtime/simt/arena.h"
#include "runtime/simt/entry_points.h"

namespace cleave::runtime::simt {

namespace {

// In registers of a sum that is on its way.
constexpr uint32_t kOnItsWay = 0x7fc0cafe;

// Registers [n / 2] of a thread from or to [64, n]. The places do not depend on n.
template <class Move>
void each_place(uint32_t thread, int n, Move move) {
    using Places = Wgmma64<256>;
    const int lane = static_cast<int>(thread);
    for (int i = 0; i < n / 2; ++i) move(i, Places::c_row(lane, i) * n + Places::c_col(lane, i));
}

Warpgroup& group_of(Block& block, const Thread& self, Here here) {
    if (self.index / kWarpgroupThreads >= block.warpgroups.size())
        block.fail(Fault::kInactiveLane, here, "the block's last warpgroup has only %u threads",
                   block.num_threads % kWarpgroupThreads);
    return block.warpgroups[self.index / kWarpgroupThreads];
}

// Chunks of 16 bytes of an operand's rows, 16 deep: two a row, or of 16 depths: one for each eight
// of its columns.
template <class Check>
void each_chunk(uint64_t descriptor, int rows, bool transposed, Check check) {
    for (int r = 0; r < rows; r += transposed ? 8 : 1)
        for (int k = 0; k < 16; k += transposed ? 1 : 8)
            check(static_cast<uint32_t>(transposed
                                            ? WgmmaOperand::transposed_address(descriptor, r, k)
                                            : WgmmaOperand::address(descriptor, r, k)));
}

// The chunks in shared memory of both operands of a product.
template <class Check>
void each_chunk(const WarpgroupOperands& of, int n, Check check) {
    if (!of.in_registers) each_chunk(of.a, 64, false, check);
    each_chunk(of.b, n, of.in_registers, check);
}

void check_descriptor(Block& block, uint64_t d, Here here) {
    if (WgmmaOperand::swizzle_mode(d) != 1 || WgmmaOperand::base_offset(d) != 0)
        block.fail(Fault::kMisaligned, here,
                   "a descriptor of swizzle mode %d and base offset %d; 1 and 0 are understood",
                   WgmmaOperand::swizzle_mode(d), WgmmaOperand::base_offset(d));
    // The swizzle goes by the address: rows must begin where its pattern does.
    if (WgmmaOperand::start(d) % WgmmaOperand::kGroupBytes >= WgmmaOperand::kRowBytes)
        block.fail(Fault::kMisaligned, here, "an operand starts at byte %d of the swizzle's %d",
                   WgmmaOperand::start(d) % WgmmaOperand::kGroupBytes, WgmmaOperand::kGroupBytes);
}

void check_operands(Block& block, const WarpgroupOperands& of, int n, Here here) {
    if (!of.in_registers) check_descriptor(block, of.a, here);
    check_descriptor(block, of.b, here);
    if (of.in_registers && WgmmaOperand::start(of.b) % WgmmaOperand::kRowBytes != 0)
        block.fail(Fault::kMisaligned, here, "a transposed operand starts within its panel");
    each_chunk(of, n, [&](uint32_t offset) {
        if (offset + 16 > block.shared_end)
            block.fail(Fault::kSharedBounds, here,
                       "a product reads byte %u of shared memory, which has %u", offset,
                       block.shared_end);
        ShadowVerdict verdict = block.shadow.product_reads(offset, 16);
        if (verdict.kind != ShadowVerdict::kFine) fail_shadow(block, verdict, Touch::kLoad, here);
    });
}

PendingSum& pending_sum(Warpgroup& group) {
    for (PendingSum& p : group.pending)
        if (p.registers == group.registers && p.n == group.n && p.num_arrived == 0) return p;
    PendingSum& p = group.pending.emplace_back();
    p.n = group.n;
    p.registers = group.registers;
    p.sum.resize(64 * static_cast<size_t>(p.n));
    for (uint32_t t = 0; t < kWarpgroupThreads; ++t)
        each_place(t, p.n, [&](int i, int at) {
            p.sum[static_cast<size_t>(at)] = p.registers[t][i];
            p.registers[t][i] = std::bit_cast<float>(kOnItsWay);
        });
    return p;
}

// The last thread has arrived: all of them multiply.
void issue(Block& block, Warpgroup& group, const Thread& self, int kind, Here here) {
    const WarpgroupOperands& of = group.operands;
    WarpgroupFragments fragments;
    if (of.in_registers)
        for (size_t t = 0; t < kWarpgroupThreads; ++t)
            std::copy_n(of.registers[t], 4, fragments[t].begin());
    auto multiply = [&](float* sum) {
        of.in_registers ? multiply_add_warpgroup(kind, group.n, block.shared, fragments, of.b, sum)
                        : multiply_add_warpgroup(kind, group.n, block.shared, of.a, of.b, sum);
    };
    if (!block.checked) {
        std::vector<float> sum(static_cast<size_t>(64 * group.n));
        multiply(sum.data());
        for (uint32_t t = 0; t < kWarpgroupThreads; ++t)
            each_place(t, group.n, [&](int i, int at) {
                group.registers[t][i] += sum[static_cast<size_t>(at)];
            });
        return;
    }
    check_operands(block, of, group.n, here);
    PendingSum& p = pending_sum(group);
    multiply(p.sum.data());
    p.group = self.product_group;
    p.operands.push_back({of, block.shadow.interval(), self.product_group, here, fragments});
}

// The last thread to wait finds the operands as they were.
void check_operands_kept(Block& block, const PendingSum& p, const PendingSum::Operands& o) {
    each_chunk(o.from, p.n, [&](uint32_t offset) {
        ShadowVerdict verdict = block.shadow.product_has_read(offset, 16, o.interval);
        if (verdict.kind != ShadowVerdict::kFine)
            block.fail(Fault::kAsyncProduct, o.here,
                       "byte %u of shared memory was written before this product, which "
                       "reads it, was waited for",
                       verdict.offset);
    });
}

// The thread has waited for the products of all groups before `end`: their operands may change once
// all have.
void release_operands(Block& block, PendingSum& p, uint32_t thread, uint64_t end) {
    for (PendingSum::Operands& o : p.operands) {
        if (o.group < p.waited[thread] || o.group >= end) continue;
        if (o.from.in_registers && !std::equal(o.fragments[thread].begin(),
                                               o.fragments[thread].end(), o.from.registers[thread]))
            block.fail(Fault::kAsyncProduct, o.here,
                       "a register of A was written before this product was waited for");
        if (++o.num_waited == kWarpgroupThreads) check_operands_kept(block, p, o);
    }
    p.waited[thread] = std::max(p.waited[thread], end);
    std::erase_if(p.operands, [](const auto& o) { return o.num_waited == kWarpgroupThreads; });
}

void arrive_at(Block& block, PendingSum& p, uint32_t thread, Here here) {
    each_place(thread, p.n, [&](int i, int at) {
        float& v = p.registers[thread][i];
        if (std::bit_cast<uint32_t>(v) != kOnItsWay)
            block.fail(Fault::kAsyncProduct, here,
                       "element %d of a sum was written while its product was on its way", i);
        v = p.sum[static_cast<size_t>(at)];
    });
    p.arrived[thread] = true;
    ++p.num_arrived;
}

// All threads of the warpgroup come to the product; the last one issues it.
void come_to_product(int kind, int n, float* sum, const uint32_t* in_registers, uint64_t a,
                     uint64_t b, Here here) {
    Block& block = current_block();
    Thread& self = *block.current;
    Warpgroup& group = group_of(block, self, here);
    self.meeting = Meeting::kWarpgroup;
    self.here = here;
    if (!self.product_fence)
        block.fail(Fault::kAsyncProduct, here, "no wgmma_fence since %s",
                   self.product_group > 0 ? "the last wait" : "the kernel began");
    if (group.arrived++ == 0) {
        group.here = here;
        group.operands.a = a;
        group.operands.b = b;
        group.operands.in_registers = in_registers != nullptr;
        group.n = n;
    } else if (!(group.here == here) || group.n != n) {
        block.fail(Fault::kDivergentWarp, here, "other threads of this warpgroup are at line %d",
                   group.here.line);
    } else if (group.operands.a != a || group.operands.b != b) {
        block.fail(Fault::kDivergentWarp, here,
                   "threads of this warpgroup have different descriptors");
    }
    group.registers[self.index % kWarpgroupThreads] = sum;
    group.operands.registers[self.index % kWarpgroupThreads] = in_registers;
    if (group.arrived == kWarpgroupThreads) {
        group.arrived = 0;
        issue(block, group, self, kind, here);
        uint32_t first = self.index / kWarpgroupThreads * kWarpgroupThreads;
        for (uint32_t i = kWarpgroupThreads; i-- > 0;) block.make_ready_first(first + i);
    }
    block.yield(&self);
}

}  // namespace

void check_products_at_exit(Block& block, const Thread& self) {
    if (self.index / kWarpgroupThreads >= block.warpgroups.size()) return;
    for (const PendingSum& p : block.warpgroups[self.index / kWarpgroupThreads].pending)
        if (!p.arrived[self.index % kWarpgroupThreads])
            block.fail(Fault::kAsyncProduct, p.operands.back().here,
                       "thread %u left the kernel without having waited for this product",
                       self.index);
}

extern "C" {

unsigned cleave_simt_shared_address(const void* p, const char* file, int line) {
    Block& block = current_block();
    auto offset = static_cast<uint64_t>(static_cast<const char*>(p) - block.shared);
    if (offset >= kArenaBytes)
        block.fail(Fault::kWildAccess, {file, line}, "an address that is not in shared memory");
    return static_cast<unsigned>(offset);
}

void cleave_simt_async_fence() {
    Block& block = current_block();
    if (block.checked && !block.warpgroups.empty()) block.shadow.async_fence(block.current->index);
}

void cleave_simt_wgmma(int kind, int n, float* sum, unsigned long long a, unsigned long long b,
                       const char* file, int line) {
    come_to_product(kind, n, sum, nullptr, a, b, {file, line});
}

void cleave_simt_wgmma_registers(int kind, int n, float* sum, const unsigned* a,
                                 unsigned long long b, const char* file, int line) {
    come_to_product(kind, n, sum, a, 0, b, {file, line});
}

void cleave_simt_wgmma_fence() { current_block().current->product_fence = true; }

void cleave_simt_wgmma_commit() { ++current_block().current->product_group; }

void cleave_simt_wgmma_wait(int pending, const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    self.product_fence = false;
    if (!block.checked) return;
    Here here{file, line};
    Warpgroup& group = group_of(block, self, here);
    uint32_t thread = self.index % kWarpgroupThreads;
    const auto kept = static_cast<uint64_t>(pending);
    const uint64_t end = self.product_group - std::min(self.product_group, kept);
    for (PendingSum& p : group.pending) {
        if (!p.arrived[thread] && p.group < end) arrive_at(block, p, thread, here);
        release_operands(block, p, thread, end);
    }
    std::erase_if(group.pending,
                  [](const PendingSum& p) { return p.num_arrived == kWarpgroupThreads; });
}

void cleave_simt_wgmma_read(const float* sum, const char* file, int line) {
    Block& block = current_block();
    const Thread& self = *block.current;
    uint32_t thread = self.index % kWarpgroupThreads;
    if (!block.checked || self.index / kWarpgroupThreads >= block.warpgroups.size()) return;
    for (const PendingSum& p : block.warpgroups[self.index / kWarpgroupThreads].pending)
        if (p.registers[thread] == sum && !p.arrived[thread])
            block.fail(Fault::kAsyncProduct, {file, line},
                       "a sum is read whose product of line %d was not waited for",
                       p.operands.back().here.line);
}

}  // extern "C"

}  // namespace cleave::runtime::simt
