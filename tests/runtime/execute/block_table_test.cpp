// SPDX-License-Identifier: Apache-2.0
// What batches say of the KV pool: which block tables are refused, what of a table goes to a
// device, and that a copied block is the same in every slab.
#include "runtime/execute/block_table.h"

#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/rounding.h"
#include "runtime/drivers/host/host_device.h"
#include "tests/runtime/support/null_device.h"
#include "tests/support/failures.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;
using namespace cleave::runtime;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kBlocks = 9;

// Two slots of four blocks each, one decode token in each: positions 20 and 40.
Workload two_slots() { return {.batch = 2, .prompt_tokens = 8, .context = 64}; }
Batch two_tokens(std::vector<int32_t> blocks) {
    Batch batch{{1, 2}, {20, 40}, {0, 1}, {0, 1, 2}, {0, 1}, false};
    batch.blocks = std::move(blocks);
    return batch;
}
std::string refusal(const Batch& batch, int64_t num_blocks = kBlocks, int64_t window = 0) {
    try {
        check_blocks(batch, two_slots(), num_blocks, window);
    } catch (const InternalError& error) {
        return error.what();
    }
    return "";
}

// A device with two slabs of the pool, and nothing to compute.
Plan plan_with_slabs(DType kv_dtype = DType::kF16) {
    Plan plan;
    plan.machine = build_machine(parse_devices("null"), {});
    plan.workload = two_slots();
    plan.workload.kv_dtype = kv_dtype;
    plan.kv_pool = {kBlocks};
    plan.output_device = DeviceId(0);
    DeviceMemory& memory = plan.memory.emplace_back();
    memory.device = DeviceId(0);
    const auto add = [&](BufferRole role, int64_t size) {
        int64_t& end = arena_of(role) == Arena::kKv ? memory.kv : memory.staging;
        plan.buffers.push_back({DeviceId(0), role, end, size});
        end += round_up(size, 256);
        return BufferId(plan.buffers.size() - 1);
    };
    // Of a head's position: K, V, and two scales of 4 bytes where elements have 1.
    const int64_t bytes = has_kv_scales(kv_dtype) ? 8 + 4 + 2 * 4 : (8 + 4) * 2;
    for (int i = 0; i < 2; ++i)
        plan.kv_slabs.push_back({ValueId(0),
                                 DeviceId(0),
                                 {0, 3},
                                 8,
                                 4,
                                 add(BufferRole::kKvSlab, 3 * kBlocks * 16 * bytes)});
    for (const BatchBuffer& array : batch_buffers(plan.workload)) add(array.role, array.bytes());
    add(BufferRole::kBlockTable, block_table(plan.workload).bytes());
    return plan;
}

}  // namespace

TEST_CASE("a block table is refused for a block that is nobody's, unknown, or written and shared",
          "[runtime]") {
    CHECK(refusal(two_tokens({})).empty());
    CHECK(refusal(two_tokens({3, 5, 0, 0, 7, 2, 1, 0})).empty());
    // A shared block that both only read.
    CHECK(refusal(two_tokens({3, 5, 0, 0, 3, 2, 1, 0})).empty());
    CHECK_THAT(refusal(two_tokens({3, 0, 0, 0, 7, 2, 1, 0})), Contains("in block 0"));
    CHECK_THAT(refusal(two_tokens({3, 5, 0, 0, 0, 2, 1, 0})), Contains("in block 0"));
    CHECK_THAT(refusal(two_tokens({3, 9, 0, 0, 7, 2, 1, 0})), Contains("in block 9"));
    CHECK_THAT(refusal(two_tokens({3, 5, 0, 0, 7, -1, 1, 0})), Contains("in block -1"));
    CHECK_THAT(refusal(two_tokens({3, 5, 0, 0, 7, 2, 5, 0})), Contains("write block 5"));
    CHECK_THAT(refusal(two_tokens({3, 5, 0, 0, 5, 2, 1, 0})), Contains("2 blocks"));
    CHECK_THAT(refusal(two_tokens({3, 5, 0, 0, 7, 2, 1, 1})), Contains("2 blocks"));
    CHECK_THAT(refusal(two_tokens({3, 5, 0, 0})), Contains("4 entries"));
    CHECK_THAT(refusal(two_tokens({}), 7), Contains("in block 7"));
}

TEST_CASE("a block that every layer's window has left is nobody's business", "[runtime]") {
    const Batch batch = two_tokens({0, 5, 0, 0, 0, 2, 1, 0});
    CHECK_THAT(refusal(batch), Contains("in block 0"));
    CHECK(refusal(batch, kBlocks, 5).empty());
    CHECK_THAT(refusal(batch, kBlocks, 6), Contains("position 0 of slot 0"));
}

TEST_CASE("copies of blocks go to blocks of their own", "[runtime]") {
    const auto with = [](std::vector<BlockCopy> copies) {
        Batch batch = two_tokens({3, 5, 0, 0, 7, 2, 1, 0});
        batch.copies = std::move(copies);
        return refusal(batch);
    };
    CHECK(with({{3, 5}, {3, 6}}).empty());
    CHECK_THAT(with({{0, 5}}), Contains("block 0"));
    CHECK_THAT(with({{3, 9}}), Contains("block 9"));
    CHECK_THAT(with({{3, 5}, {4, 5}}), Contains("two copies to block 5"));
    CHECK_THAT(with({{3, 5}, {5, 6}}), Contains("block 5"));
    CHECK_THAT(with({{3, 3}}), Contains("block 3"));
}

TEST_CASE("a table is uploaded from its first entry that changed to the last, and once",
          "[runtime]") {
    const Plan plan = plan_with_slabs();
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<NullDevice>(plan.machine.devices[0]));
    const Arenas arenas(plan, devices);
    auto& device = dynamic_cast<NullDevice&>(*devices[0]);
    BlockTable table(plan, arenas, DeviceId(0));
    const auto calls = [&](const Batch& batch) {
        const size_t before = device.calls().size();
        table.prepare(batch, device);
        return device.calls().size() - before;
    };
    CHECK(calls(two_tokens({})) == 1);
    CHECK(calls(two_tokens({})) == 0);
    CHECK(calls(two_tokens({1, 2, 3, 4, 5, 6, 7, 8})) == 0);  // the identity, by name
    CHECK(calls(two_tokens({1, 2, 8, 4, 5, 6, 7, 3})) == 1);
    CHECK(device.calls().back().bytes == 6 * 4);
    CHECK(calls(two_tokens({1, 2, 8, 4, 5, 6, 7, 3})) == 0);
    // Keys and values of each slab, out and in.
    Batch copying = two_tokens({1, 2, 8, 4, 5, 6, 7, 3});
    copying.copies = {{1, 2}};
    CHECK(calls(copying) == 4 * plan.kv_slabs.size());
}

TEST_CASE(
    "a copied block has its elements and its scales in every slab, and no other block changes",
    "[runtime]") {
    for (DType dtype : {DType::kF16, DType::kInt8, DType::kF8E4M3}) {
        Plan plan = plan_with_slabs(dtype);
        plan.machine = build_machine(parse_devices("host"), {});
        std::vector<std::unique_ptr<Device>> devices;
        devices.push_back(make_host_device(plan.machine.devices[0], {}));
        const Arenas arenas(plan, devices);
        BlockTable table(plan, arenas, DeviceId(0));
        Batch copying = two_tokens({1, 2, 8, 4, 5, 6, 7, 3});
        copying.copies = {{3, 6}, {1, 2}};
        for (const KvSlab& slab : plan.kv_slabs) {
            std::vector<std::byte> bytes(static_cast<size_t>(plan.buffer(slab.buffer).size));
            for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
            devices[0]->upload(arenas.address(slab.buffer), bytes);
        }
        table.prepare(copying, *devices[0]);
        for (const KvSlab& slab : plan.kv_slabs) {
            const auto size = static_cast<size_t>(plan.buffer(slab.buffer).size);
            std::vector<std::byte> found(size);
            devices[0]->download(arenas.address(slab.buffer), found);
            // Of a block of one head: keys, values, and the scales of both.
            std::vector<size_t> parts{16 * 8, 16 * 4};
            if (has_kv_scales(dtype))
                parts.insert(parts.end(), 2, 16 * sizeof(float));
            else
                for (size_t& part : parts) part *= 2;
            size_t at = 0, wrong = 0;
            for (size_t part : parts)
                for (int head = 0; head < 3; ++head)
                    for (size_t block = 0; block < kBlocks; ++block, at += part) {
                        const size_t from = block == 6 ? 3 : block == 2 ? 1 : block;
                        for (size_t i = 0; i < part; ++i)
                            wrong += found[at + i] !=
                                     static_cast<std::byte>((at - (block - from) * part + i) % 251);
                    }
            CHECK(at == size);
            CHECK(wrong == 0);
        }
    }
}
