// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/kernel_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "codegen/gpu/kernels.h"
#include "codegen/host/kernels.h"
#include "codegen/kernel/occupancy.h"
#include "planner/tiles/gpu.h"
#include "runtime/simt/memory.h"
#include "tests/support/test.h"

namespace cleave::test {

using codegen::Kernel;
using runtime::simt::allocate_slots;
using runtime::simt::free_slots;

planner::DeviceLimits limits_of(const std::string& arch, int64_t units) {
    const codegen::GpuArch& a = codegen::gpu_arch(arch);
    return {a.shared_bytes, a.registers, a.max_threads, a.warp_width, units};
}

Kernel make_kernel(const KernelCase& c, const Target& target) {
    if (target.name == "host")
        return codegen::make_host_kernel(c.spec, c.kind, c.fused, codegen::HostTarget{2, {}});
    codegen::GpuTarget gpu;
    gpu.device = "simt:" + target.name;
    gpu.limits = limits_of(target.name, target.units);
    if (target.tile) gpu.tile = *target.tile;
    gpu.activations = c.activations;
    gpu.max_tokens = c.counts.tokens;
    if (const auto* linear = std::get_if<codegen::LinearSpec>(&c.spec))
        if (linear->count == codegen::RowCount::kOutputs) gpu.max_tokens = c.counts.outputs;
    gpu.context = 4096;
    Kernel kernel = c.helper ? codegen::make_gpu_helper(*c.helper, gpu)
                             : codegen::make_gpu_kernel(c.spec, c.kind, c.fused, gpu);
    for (size_t i = 0; i < c.args.size(); ++i)
        if (c.weights.count(c.args[i].operand) > 0) kernel.launch.constant_args |= uint64_t{1} << i;
    return kernel;
}

namespace {

// An operand in device memory of exactly its size: whatever touches a byte beside it is reported.
class DeviceCopy {
public:
    explicit DeviceCopy(GuardedBuffer& buffer)
        : buffer_(buffer), data_(allocate_slots(static_cast<size_t>(buffer.bytes()), 0)) {
        std::memcpy(data_, bytes(), static_cast<size_t>(buffer.bytes()));
    }
    ~DeviceCopy() { free_slots(data_); }
    DeviceCopy(DeviceCopy&& other) noexcept
        : buffer_(other.buffer_), data_(std::exchange(other.data_, nullptr)) {}

    uint64_t word() const { return reinterpret_cast<uint64_t>(data_); }
    void copy_back() { std::memcpy(bytes(), data_, static_cast<size_t>(buffer_.bytes())); }

private:
    void* bytes() const { return reinterpret_cast<void*>(buffer_.word()); }
    GuardedBuffer& buffer_;
    void* data_;
};

std::string compare(const KernelCase& c, double tolerance) {
    for (const KernelCase::Result& result : c.results) {
        const GuardedBuffer& got = c.operands[static_cast<size_t>(result.operand)];
        if (!got.guards_intact()) return got.name() + ": guard words have changed";
        if (result.check) {
            std::string wrong = result.check(got, tolerance);
            if (!wrong.empty()) return wrong;
        }
        const int64_t all = std::ssize(result.want), row = result.row > 0 ? result.row : all;
        for (int64_t first = 0; first < all; first += row) {
            const int64_t end = std::min(first + row, all);
            double largest = 0;
            for (int64_t i = first; i < end; ++i)
                largest = std::max(largest, std::abs(result.want[static_cast<size_t>(i)]));
            for (int64_t i = first; i < end; ++i) {
                const double want = result.want[static_cast<size_t>(i)];
                if (std::isnan(want) && std::isnan(got.at(i))) continue;
                if (!(std::abs(got.at(i) - want) <= tolerance * largest))
                    return fmt::format("{}[{}] of {}: got {}, want {}, row's largest {}",
                                       got.name(), i, got.count(), got.at(i), want, largest);
            }
        }
    }
    return "";
}

}  // namespace

namespace {

// What a launch of a GPU takes: the case's words, with attention's further ones beside the host's.
template <class Place>
std::vector<uint64_t> words_of(KernelCase& c, const Kernel& kernel,
                               const std::vector<uint64_t>& operands, GuardedBuffer& starts,
                               GuardedBuffer& scratch, Place&& place) {
    std::vector<uint64_t> args;
    for (const Word& word : c.args)
        args.push_back(word.operand >= 0 ? operands[static_cast<size_t>(word.operand)]
                                         : static_cast<uint64_t>(word.value));
    if (c.kind != planner::KernelKind::kAttention) return args;
    const uint64_t count = args.back();
    args.pop_back();
    if (kernel.form == codegen::KernelForm::kPrefillAttention) {
        args.push_back(place(starts));
        args.push_back(static_cast<uint64_t>(c.counts.sequences));
    } else {
        if (std::get<codegen::AttentionSpec>(c.spec).prefill) args.pop_back();
        if (kernel.launch.grid[2].constant > 1) args.push_back(place(scratch));
    }
    args.push_back(count);
    return args;
}

std::array<int64_t, 3> grid_of(const KernelCase& c, const Kernel& kernel) {
    std::array<int64_t, 3> grid{};
    for (size_t i = 0; i < 3; ++i)
        grid[i] = kernel.launch.grid[i].at(c.counts.tokens, c.counts.outputs, c.counts.sequences,
                                           c.counts.singles);
    return grid;
}

// Of a decode attention whose keys are split: counters, zero at first, and as many records as there
// are parts.
GuardedBuffer scratch_of(const KernelCase& c, const Kernel& kernel) {
    int64_t floats = 1;
    if (const auto* s = std::get_if<codegen::AttentionSpec>(&c.spec))
        floats = planner::kCounterBytes / 4 + c.counts.tokens * s->heads.size() *
                                                  kernel.launch.grid[2].constant *
                                                  (s->slab.v_head_dim + 2);
    auto buffer = GuardedBuffer::output("scratch", floats);
    std::memset(reinterpret_cast<void*>(buffer.word()), 0, static_cast<size_t>(buffer.bytes()));
    return buffer;
}

double tolerance_of(const KernelCase& c, const Kernel& kernel) {
    const bool narrowed = kernel.form == codegen::KernelForm::kGemm ||
                          kernel.form == codegen::KernelForm::kPrefillAttention;
    return narrowed ? c.matrix_tolerance : c.tolerance;
}

}  // namespace

Outcome run_on_simt(KernelCase& c, const Kernel& kernel, const runtime::simt::SimtProgram& program,
                    const runtime::simt::LaunchOptions& options) {
    std::vector<DeviceCopy> copies;
    copies.reserve(c.operands.size() + 2);
    std::vector<uint64_t> operands;
    const auto place = [&](GuardedBuffer& buffer) {
        copies.emplace_back(buffer);
        return copies.back().word();
    };
    for (GuardedBuffer& buffer : c.operands) operands.push_back(place(buffer));
    auto starts = GuardedBuffer::integers("sequence_starts", c.starts);
    auto scratch = scratch_of(c, kernel);
    const std::vector<uint64_t> args = words_of(c, kernel, operands, starts, scratch, place);
    static runtime::simt::Engine engine(1);
    runtime::simt::LaunchOptions own = options;
    own.overlaps = kernel.launch.overlaps;
    own.constant_args = kernel.launch.constant_args;
    Outcome outcome{engine.launch(program, args, grid_of(c, kernel), kernel.launch.block,
                                  kernel.launch.shared_bytes, own),
                    ""};
    for (const KernelCase::Result& result : c.results)
        copies[static_cast<size_t>(result.operand)].copy_back();
    if (outcome.report.clean()) outcome.wrong = compare(c, tolerance_of(c, kernel));
    return outcome;
}

Outcome run_on_device(KernelCase& c, const Kernel& kernel, runtime::Device& device,
                      const BeforeLaunch& before) {
    constexpr int64_t kGuard = 256;
    constexpr uint8_t kPattern = 0xa5;
    struct Placed {
        runtime::DeviceAddress block;
        int64_t bytes;
    };
    std::vector<Placed> placed;
    const auto place = [&](GuardedBuffer& buffer) {
        const int64_t bytes = buffer.bytes();
        const runtime::DeviceAddress block = device.allocate(bytes + 2 * kGuard, buffer.name());
        placed.push_back({block, bytes});
        device.fill(block, bytes + 2 * kGuard, kPattern);
        device.upload(block + kGuard, {reinterpret_cast<const std::byte*>(buffer.word()),
                                       static_cast<size_t>(bytes)});
        return block + kGuard;
    };
    std::vector<uint64_t> operands;
    for (GuardedBuffer& buffer : c.operands) operands.push_back(place(buffer));
    auto starts = GuardedBuffer::integers("sequence_starts", c.starts);
    auto scratch = scratch_of(c, kernel);
    const std::vector<uint64_t> args = words_of(c, kernel, operands, starts, scratch, place);
    if (before) before(operands);
    device.launch(0, args, grid_of(c, kernel), kernel.launch);
    Outcome outcome;
    for (size_t i = 0; i < placed.size(); ++i) {
        std::vector<std::byte> all(static_cast<size_t>(placed[i].bytes + 2 * kGuard));
        device.download(placed[i].block, all);
        const auto intact = [&](size_t begin) {
            return std::all_of(all.begin() + static_cast<std::ptrdiff_t>(begin),
                               all.begin() + static_cast<std::ptrdiff_t>(begin + kGuard),
                               [](std::byte b) { return b == std::byte{kPattern}; });
        };
        if (!intact(0) || !intact(all.size() - kGuard))
            outcome.wrong = fmt::format("operand {}: bytes beside it have changed", i);
        for (const KernelCase::Result& result : c.results)
            if (static_cast<size_t>(result.operand) == i)
                std::memcpy(reinterpret_cast<void*>(c.operands[i].word()), all.data() + kGuard,
                            static_cast<size_t>(placed[i].bytes));
        device.free(placed[i].block);
    }
    if (outcome.wrong.empty()) outcome.wrong = compare(c, tolerance_of(c, kernel));
    return outcome;
}

Outcome run_on_host(KernelCase& c, std::mt19937& rng) {
    std::vector<uint64_t> args;
    for (const Word& word : c.args)
        args.push_back(word.operand >= 0 ? c.operand(word.operand).word()
                                         : static_cast<uint64_t>(word.value));
    run_kernel(make_kernel(c, {"host", 1, {}}), args, c.counts, rng);
    return {{}, compare(c, c.tolerance)};
}

}  // namespace cleave::test
