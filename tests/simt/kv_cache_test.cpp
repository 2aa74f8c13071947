// SPDX-License-Identifier: Apache-2.0
// The KV cache of GPU kernels behind its block table: what simt reports of blocks and rows, and
// that numbers do not depend on which blocks hold a slot's positions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "codegen/compile/compiler.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/simt_device.h"
#include "runtime/simt/written_rows.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

planner::DeviceInfo info(const std::string& arch) {
    planner::DeviceInfo device;
    device.name = "simt:" + arch + "[0]";
    device.kind = planner::DeviceKind::kSimt;
    device.arch = arch;
    device.memory_bytes = 1 << 28;
    return device;
}

// The template whose kernel touches the cache; empty: another kernel.
std::string cache_template(const codegen::Kernel& kernel) {
    for (const char* name :
         {"attention_decode", "attention_prefill", "attention_warpgroups", "qkv", "kv_append"})
        if (kernel.source.find(fmt::format("    {}<Config>(", name)) != std::string::npos)
            return name;
    return "";
}

struct Bytes {
    int64_t first = 0, count = 0;
};

// A row of the kernel table, with its kernel compiled. Each run has a device of its own, with which
// goes what a reported launch leaves there.
class CacheCase {
public:
    CacheCase(KernelCase row, codegen::Kernel kernel, const std::string& arch)
        : c(std::move(row)),
          name_(cache_template(kernel)),
          kernel_(std::move(kernel)),
          arch_(arch) {
        codegen::SimtCompileOptions options;
        options.file_name = "stub";
        compiled_ = codegen::compile_simt_kernel(kernel_.source, kernel_.name,
                                                 codegen::gpu_arch(arch), options);
    }

    KernelCase c;

    const std::string& name() const { return name_; }
    bool reads() const { return name_.starts_with("attention"); }
    bool scaled() const { return is_scaled(slab().dtype); }
    std::string file() const {
        return "gpu/" + (name_ == "kv_append" ? std::string("elementwise") : name_) + ".cuh:";
    }
    GuardedBuffer& operand(const std::string& name) { return c.operand(index_of(name)); }
    int64_t slot(int64_t t) { return static_cast<int64_t>(operand("slots").at(t)); }
    int64_t position(int64_t t) { return static_cast<int64_t>(operand("positions").at(t)); }
    int64_t tokens() { return operand("positions").count(); }
    const codegen::SlabSpec& slab() const {
        if (const auto* qkv = std::get_if<codegen::QkvSpec>(&c.spec)) return qkv->slab;
        if (const auto* append = std::get_if<codegen::KvAppendSpec>(&c.spec)) return append->slab;
        return std::get<codegen::AttentionSpec>(c.spec).slab;
    }
    SlabPlace place() {
        size_t kv = 0;
        while (c.args[kv].operand != index_of("kv")) ++kv;
        SlabPlace place{c.args[kv + 1].value, c.args[kv + 3].value, {}, true};
        const GuardedBuffer& table = operand("blocks");
        for (int64_t i = 0; i < table.count(); ++i)
            place.blocks.push_back(static_cast<int32_t>(table.at(i)));
        return place;
    }
    int32_t& block(int64_t entry) {
        return reinterpret_cast<int32_t*>(operand("blocks").word())[entry];
    }
    // Entry of the table for a position of token t's slot.
    int64_t entry(int64_t t, int64_t position) {
        return slot(t) * place().blocks_per_slot + position / SlabPlace::kBlock;
    }

    // What is reported, or wrong; empty: nothing. `unwritten`: bytes of the slab that nobody wrote.
    std::string run(Bytes unwritten = {}) {
        const std::unique_ptr<runtime::Device> device = runtime::make_simt_device(info(arch_), {});
        device->load({compiled_});
        try {
            return run_on_device(c, kernel_, *device,
                                 [&](const std::vector<uint64_t>& operands) {
                                     const uint64_t kv =
                                         operands[static_cast<size_t>(index_of("kv"))];
                                     device->fill(kv + static_cast<uint64_t>(unwritten.first),
                                                  unwritten.count, 0);
                                 })
                .wrong;
        } catch (const InternalError& error) {
            return error.what();
        }
    }

private:
    int index_of(const std::string& name) const {
        for (size_t i = 0; i < c.operands.size(); ++i)
            if (c.operands[i].name() == name) return static_cast<int>(i);
        throw InternalError("the case has no operand " + name);
    }

    std::string name_;
    codegen::Kernel kernel_;
    std::string arch_;
    codegen::CompiledKernel compiled_;
};

// The first rows of the table for each template, architecture, and cache with or without scales.
std::vector<CacheCase> cache_cases() {
    std::vector<CacheCase> found;
    std::set<std::string> seen;
    for (const char* arch : {"sm_90a", "gfx90a"})
        for (const auto& makers : {all_cases(), warpgroup_cases()})
            for (const auto& make : makers) {
                KernelCase c = make();
                codegen::Kernel kernel = make_kernel(c, {arch, 8, {}});
                const std::string name = cache_template(kernel);
                if (name.empty()) continue;
                CacheCase one(std::move(c), std::move(kernel), arch);
                if (seen.insert(fmt::format("{} {} {}", arch, name, one.scaled())).second)
                    found.push_back(std::move(one));
            }
    return found;
}

bool says(const std::string& message, const std::string& text) {
    return message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("the table has each kernel that touches the KV cache", "[simt]") {
    std::set<std::string> names, scaled;
    for (const CacheCase& one : cache_cases()) (one.scaled() ? scaled : names).insert(one.name());
    CHECK(names == std::set<std::string>{"attention_decode", "attention_prefill",
                                         "attention_warpgroups", "kv_append", "qkv"});
    CHECK(scaled == names);
}

TEST_CASE("a block that the KV pool does not have is reported by each kernel that comes to it",
          "[simt]") {
    for (CacheCase& one : cache_cases()) {
        const int64_t num_blocks = one.place().num_blocks, last = one.tokens() - 1;
        for (int32_t id : {-1, static_cast<int32_t>(num_blocks), 1 << 30}) {
            int32_t& entry = one.block(one.entry(last, one.position(last)));
            const int32_t good = std::exchange(entry, id);
            const std::string message = one.run();
            INFO(one.name() << ": " << message);
            CHECK(says(message, "block outside the KV pool in kernel"));
            CHECK(says(message, fmt::format("block {} of a KV pool of {} blocks", id, num_blocks)));
            CHECK(says(message, one.reads() ? "gpu/attention" : one.file()));
            entry = good;
        }
        CHECK(one.run() == "");
    }
}

TEST_CASE("a row of the KV cache that nobody wrote is reported by each kernel that reads it",
          "[simt]") {
    for (CacheCase& one : cache_cases()) {
        if (!one.reads()) continue;
        const SlabPlace place = one.place();
        const codegen::SlabSpec& slab = one.slab();
        const int64_t element = dtype_bytes(slab.dtype, 1), head = slab.heads - 1;
        const int64_t t = one.tokens() - 1, slot = one.slot(t), position = one.position(t);
        INFO(one.name());
        for (bool is_value : {false, true}) {
            const auto row = [&](int64_t at) {
                return element * (is_value ? value_index(slab, place, slot, head, at)
                                           : key_index(slab, place, slot, head, at, 0));
            };
            const int64_t bytes = element * (is_value ? slab.v_head_dim : slab.head_dim);
            const std::string message = one.run({row(position) + bytes / 2, element});
            INFO(message);
            CHECK(says(message, "row of the KV cache that was never written in kernel"));
            CHECK(says(message, fmt::format("byte {} of a row of the KV cache of {} bytes",
                                            bytes / 2, bytes)));
            CHECK(says(message, "gpu/attention"));
            // What the token does not see may be missing.
            CHECK(one.run({row(position + 1), bytes}) == "");
        }
    }
}

TEST_CASE("a scale of the KV cache that nobody wrote is reported by each kernel that reads it",
          "[simt]") {
    int kernels = 0;
    for (CacheCase& one : cache_cases()) {
        if (!one.reads() || !one.scaled()) continue;
        const SlabPlace place = one.place();
        const int64_t t = one.tokens() - 1, head = one.slab().heads - 1;
        SlabRow row{false, one.slot(t), head, one.position(t)};
        INFO(one.name());
        for (const bool is_value : {false, true}) {
            row.is_value = is_value;
            const std::string message = one.run({scale_byte(one.slab(), place, row) + 1, 1});
            INFO(message);
            CHECK(says(message, "row of the KV cache that was never written in kernel"));
            CHECK(says(message, "byte 1 of a row of the KV cache of 4 bytes"));
            CHECK(says(message, "gpu/attention"));
            SlabRow unseen = row;
            ++unseen.position;
            CHECK(one.run({scale_byte(one.slab(), place, unseen), 4}) == "");
        }
        ++kernels;
    }
    CHECK(kernels == 5);
}

TEST_CASE("an 8-bit row that is no number changes what sees it alone", "[simt]") {
    for (CacheCase& one : cache_cases()) {
        if (!one.reads() || !one.scaled()) continue;
        INFO(one.name());
        const auto results = [&] {
            REQUIRE_FALSE(says(one.run(), "in kernel"));
            const GuardedBuffer& out = one.operand("out");
            std::vector<double> values;
            for (int64_t i = 0; i < out.count(); ++i) values.push_back(out.at(i));
            return values;
        };
        const std::vector<double> before = results();
        const int64_t t = one.tokens() - 1, features = std::ssize(before) / one.tokens();
        for (const bool is_value : {false, true}) {
            GuardedBuffer& kv = one.operand("kv");
            const GuardedBuffer kept = kv;
            for (int64_t head = 0; head < one.slab().heads; ++head)
                set_scale(kv, one.slab(), one.place(),
                          {is_value, one.slot(t), head, one.position(t)},
                          std::numeric_limits<float>::quiet_NaN());
            const std::vector<double> after = results();
            for (int64_t i = 0; i < std::ssize(after); ++i) {
                INFO("number " << i << " of " << after.size());
                if (i / features == t)
                    CHECK(std::isnan(after[static_cast<size_t>(i)]));
                else
                    CHECK(after[static_cast<size_t>(i)] == before[static_cast<size_t>(i)]);
            }
            std::memcpy(reinterpret_cast<void*>(kv.word()),
                        reinterpret_cast<const void*>(kept.word()),
                        static_cast<size_t>(kv.bytes()));
        }
    }
}

TEST_CASE("rows that kernels write count as written until their memory is filled or freed",
          "[simt]") {
    auto device = runtime::make_simt_device(info("sm_80"), {});
    const auto kernel = [](const char* entry, const char* body) {
        return codegen::compile_simt_kernel(
            simt_test::with_prelude(fmt::format(
                "KERNEL(32) {}(float* p) {{\n int i = thread_x();\n {}\n}}", entry, body)),
            entry, codegen::gpu_arch("sm_80"), {});
    };
    device->load({kernel("writes", "p[i] = 1.0f; kv_wrote(p + i, 1);"),
                  kernel("reads", "if (i == 0) kv_reads(p, 32); p[32 + i] = p[i];")});
    codegen::Launch launch;
    launch.block = {32, 1, 1};
    uint64_t args[] = {device->allocate(64 * 4, "p")};
    const auto reads = [&] {
        try {
            device->launch(1, args, {1, 1, 1}, launch);
            return std::string();
        } catch (const InternalError& error) {
            return std::string(error.what());
        }
    };
    CHECK(says(reads(), "byte 0 of a row of the KV cache of 128 bytes"));
    device->launch(0, args, {1, 1, 1}, launch);
    CHECK(reads() == "");
    device->fill(args[0] + 40, 4, 0);
    CHECK(says(reads(), "byte 40 of a row"));
    const float one = 1.0f;
    device->upload(args[0] + 40, std::as_bytes(std::span(&one, 1)));
    CHECK(reads() == "");
    // A copy of rows counts for these rows alone.
    device->fill(args[0], 128, 0);
    const std::vector<std::byte> rows(128);
    device->copy_in(rows.data(), args[0], {2, 48, 48, 64});
    CHECK(says(reads(), "byte 48 of a row"));
    device->copy_in(rows.data(), args[0] + 48, {2, 16, 16, 64});
    CHECK(reads() == "");
}

TEST_CASE("bytes that were written are those of the calls so far", "[simt]") {
    constexpr int kBytes = 200;
    for (uint32_t seed = 0; seed < 20; ++seed) {
        std::mt19937 rng(seed);
        runtime::simt::WrittenRows rows;
        std::vector<bool> want(kBytes);
        for (int step = 0; step < 300; ++step) {
            const auto begin = rng() % kBytes, count = rng() % std::min(kBytes - begin, 20UL);
            const bool writes = rng() % 3 != 0;
            if (writes)
                rows.wrote(begin, count);
            else
                rows.forget(begin, count);
            std::fill_n(want.begin() + static_cast<std::ptrdiff_t>(begin), count, writes);
            const auto from = rng() % kBytes, most = rng() % (kBytes - from);
            size_t written = 0;
            while (written < most && want[from + written]) ++written;
            REQUIRE(rows.written_from(from, most) == written);
        }
    }
}

// Which blocks hold a slot's positions changes addresses and nothing else.
TEST_CASE("attention has the same bits wherever the blocks of its slots are", "[simt]") {
    for (CacheCase& one : cache_cases()) {
        if (!one.reads()) continue;
        INFO(one.name());
        const auto bits = [&] {
            REQUIRE(one.run() == "");
            const GuardedBuffer& out = one.operand("out");
            std::vector<double> values;
            for (int64_t i = 0; i < out.count(); ++i) values.push_back(out.at(i));
            return values;
        };
        const std::vector<double> before = bits();
        // Each block's keys and values go to the block that has its number from the other end.
        const codegen::SlabSpec& slab = one.slab();
        const int64_t num_blocks = one.place().num_blocks;
        GuardedBuffer& kv = one.operand("kv");
        auto* bytes = reinterpret_cast<std::byte*>(kv.word());
        const std::vector<std::byte> all(bytes, bytes + kv.bytes());
        const int64_t element = dtype_bytes(slab.dtype, 1);
        int64_t first = 0;
        const auto reverse = [&](int64_t row_bytes) {
            const int64_t size = SlabPlace::kBlock * row_bytes;
            for (int64_t i = 0; i < slab.heads * num_blocks; ++i) {
                const int64_t to = i / num_blocks * num_blocks + num_blocks - 1 - i % num_blocks;
                std::copy_n(all.begin() + first + i * size, size, bytes + first + to * size);
            }
            first += slab.heads * num_blocks * size;
        };
        reverse(slab.head_dim * element);
        reverse(slab.v_head_dim * element);
        for (int i = 0; one.scaled() && i < 2; ++i) reverse(4);
        CHECK(first == kv.bytes());
        for (int64_t i = 0; i < one.operand("blocks").count(); ++i)
            one.block(i) = static_cast<int32_t>(num_blocks) - 1 - one.block(i);
        CHECK(bits() == before);
    }
}
