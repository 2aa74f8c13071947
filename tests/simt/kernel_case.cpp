// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/kernel_case.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "codegen/gpu_arch.h"
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
    if (c.helper) return codegen::make_gpu_helper(*c.helper, gpu);
    return codegen::make_gpu_kernel(c.spec, c.kind, c.fused, gpu);
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
        for (int64_t i = 0; i < got.count(); ++i) {
            double want = result.want[static_cast<size_t>(i)];
            double error = std::abs(got.at(i) - want);
            if (!(error <= tolerance * (1.0 + std::abs(want))))
                return fmt::format("{}[{}] of {}: got {}, want {}", got.name(), i, got.count(),
                                   got.at(i), want);
        }
    }
    return "";
}

}  // namespace

Outcome run_on_simt(KernelCase& c, const Kernel& kernel, const runtime::simt::SimtProgram& program,
                    const runtime::simt::LaunchOptions& options) {
    std::vector<DeviceCopy> copies;
    copies.reserve(c.operands.size() + 2);
    for (GuardedBuffer& buffer : c.operands) copies.emplace_back(buffer);
    std::vector<uint64_t> args;
    for (const Word& word : c.args)
        args.push_back(word.operand >= 0 ? copies[static_cast<size_t>(word.operand)].word()
                                         : static_cast<uint64_t>(word.value));
    // What attention takes beside the host's arguments.
    const int64_t splits = kernel.launch.grid[2].constant;
    auto starts = GuardedBuffer::integers("sequence_starts", c.starts);
    auto scratch = GuardedBuffer::output("scratch", 1 << 20);
    std::memset(reinterpret_cast<void*>(scratch.word()), 0, static_cast<size_t>(scratch.bytes()));
    if (c.kind == planner::KernelKind::kAttention) {
        uint64_t count = args.back();
        args.pop_back();
        if (kernel.source.find("kQueries = ") != std::string::npos) {
            copies.emplace_back(starts);
            args.push_back(copies.back().word());
            args.push_back(static_cast<uint64_t>(c.counts.sequences));
        } else if (splits > 1) {
            copies.emplace_back(scratch);
            args.push_back(copies.back().word());
        }
        args.push_back(count);
    }
    std::array<int64_t, 3> grid{};
    for (size_t i = 0; i < 3; ++i)
        grid[i] = kernel.launch.grid[i].at(c.counts.tokens, c.counts.outputs, c.counts.sequences);
    Outcome outcome{runtime::simt::launch(program, args, grid, kernel.launch.block,
                                          kernel.launch.shared_bytes, options),
                    ""};
    for (const KernelCase::Result& result : c.results)
        copies[static_cast<size_t>(result.operand)].copy_back();
    bool narrowed = kernel.source.find("kMany = true") != std::string::npos ||
                    kernel.source.find("kQueries = ") != std::string::npos;
    if (outcome.report.clean())
        outcome.wrong = compare(c, narrowed ? c.matrix_tolerance : c.tolerance);
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
