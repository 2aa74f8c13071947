// SPDX-License-Identifier: Apache-2.0
// Runs GPU kernels on the CPU: grid, blocks, warps of the architecture's width, shared memory,
// everything that threads do together. A checked program finds faults (runtime/simt/report.h); an
// unchecked one only runs, faster. Kernels take one 64-bit word an argument. Blocks run one after
// the other on each OS thread of the engine: a kernel that waits for another block by spinning
// never ends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "codegen/compile/llvm/simt_record.h"
#include "codegen/compile/simt.h"
#include "runtime/simt/report.h"

namespace cleave::runtime::simt {

class DeviceOrder;
class WrittenRows;

// A loaded kernel. Movable; owns its code.
class SimtProgram {
public:
    // The object of codegen::compile_simt_kernel. InternalError when it does not link.
    SimtProgram(const codegen::CompiledKernel& kernel, const codegen::GpuArch& arch);
    ~SimtProgram();
    SimtProgram(SimtProgram&& other) noexcept;
    SimtProgram& operator=(SimtProgram&& other) noexcept;

    const codegen::SimtRecord& record() const { return *record_; }
    const codegen::GpuArch& arch() const { return *arch_; }

private:
    void* handle_ = nullptr;
    const codegen::SimtRecord* record_ = nullptr;
    const codegen::GpuArch* arch_ = nullptr;
};

SimtProgram compile_simt(const std::string& source, const std::string& entry,
                         const std::string& arch, const codegen::SimtCompileOptions& options = {});

struct LaunchOptions {
    uint64_t seed = 0;
    bool shuffle_order = false;  // threads run in an order drawn from the seed instead of by index
    uint32_t owner = 0;          // whose allocations the kernel may touch
    std::span<const uint32_t> peers = {};  // and theirs
    // A launch that may begin before those before it have ended (codegen::Launch): each thread has
    // to wait for them, and before it does may read the allocations of these arguments alone.
    bool overlaps = false;
    uint64_t constant_args = 0;
    // Of the device, where its kernels exchange values with those of others
    // (runtime/simt/device_order.h).
    DeviceOrder* order = nullptr;
    // Of the device, where rows of its KV cache are to be written before they are read.
    WrittenRows* rows = nullptr;
};

// One or more OS threads with what a running block needs, kept between launches. One launch at a
// time.
class Engine {
public:
    explicit Engine(int threads = 1);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Runs the whole grid, or until the first fault. UserError for a launch that the architecture
    // refuses.
    SimtReport launch(const SimtProgram& program, std::span<const uint64_t> args,
                      const std::array<int64_t, 3>& grid, const std::array<int, 3>& block,
                      int64_t dynamic_shared_bytes, const LaunchOptions& options = {});

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A launch on an engine of its own.
SimtReport launch(const SimtProgram& program, std::span<const uint64_t> args,
                  const std::array<int64_t, 3>& grid, const std::array<int, 3>& block,
                  int64_t dynamic_shared_bytes, const LaunchOptions& options = {});

}  // namespace cleave::runtime::simt
