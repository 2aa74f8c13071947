// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/simt.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "codegen/compile/llvm_library.h"
#include "planner/machine/machine.h"
#include "runtime/base/errors.h"
#include "runtime/base/thread_team.h"
#include "runtime/simt/block.h"
#include "runtime/simt/device_order.h"
#include "runtime/simt/entry_points.h"

namespace cleave::runtime::simt {

SimtProgram::SimtProgram(const codegen::CompiledKernel& kernel, const codegen::GpuArch& arch)
    : arch_(&arch) {
    const codegen::LlvmLibrary& llvm = codegen::llvm_library();
    std::vector<const char*> names;
    std::vector<void*> addresses;
    for (const EntryPoint& point : entry_points()) {
        names.push_back(point.name);
        addresses.push_back(point.address);
    }
    char* log = nullptr;
    const void* record = nullptr;
    handle_ = llvm.simt_load(kernel.object.data(), kernel.object.size(), kernel.name.c_str(),
                             names.data(), addresses.data(), names.size(), &record, &log);
    std::string reason = log ? log : "";
    if (log) llvm.free_log(log);
    CLEAVE_CHECK(handle_) << "kernel " << kernel.name << " does not link for simt: " << reason;
    record_ = static_cast<const codegen::SimtRecord*>(record);
    CLEAVE_CHECK(record_->version == codegen::kSimtRecordVersion)
        << "kernel " << kernel.name << " was compiled by another version (" << record_->version
        << ")";
}

SimtProgram::~SimtProgram() {
    if (handle_) codegen::llvm_library().simt_unload(handle_);
}

SimtProgram::SimtProgram(SimtProgram&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), record_(other.record_), arch_(other.arch_) {}

SimtProgram& SimtProgram::operator=(SimtProgram&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(record_, other.record_);
    std::swap(arch_, other.arch_);
    return *this;
}

SimtProgram compile_simt(const std::string& source, const std::string& entry,
                         const std::string& arch, const codegen::SimtCompileOptions& options) {
    const codegen::GpuArch& gpu = codegen::gpu_arch(arch);
    return {codegen::compile_simt_kernel(source, entry, gpu, options), gpu};
}

struct Engine::State {
    State(int threads) : team(threads, false), blocks(static_cast<size_t>(team.threads())) {}
    ThreadTeam team;
    std::vector<std::unique_ptr<Block>> blocks;  // one an OS thread, made at its first use
};

Engine::Engine(int threads) : state_(std::make_unique<State>(threads)) {}
Engine::~Engine() = default;

namespace {

void check_launch(const SimtProgram& program, std::span<const uint64_t> args,
                  const std::array<int64_t, 3>& grid, const std::array<int, 3>& block,
                  int64_t dynamic_bytes) {
    const codegen::SimtRecord& record = program.record();
    const codegen::GpuArch& arch = program.arch();
    CLEAVE_CHECK(args.size() == record.num_args)
        << "kernel " << record.name << " takes " << record.num_args << " arguments, not "
        << args.size();
    int64_t threads = int64_t{block[0]} * block[1] * block[2];
    constexpr std::array<int64_t, 3> kMaxGrid = planner::DeviceLimits{}.max_grid;
    for (size_t axis = 0; axis < 3; ++axis) {
        CLEAVE_CHECK(grid[axis] > 0 && block[axis] > 0)
            << "kernel " << record.name << ": an axis of its launch is empty";
        if (grid[axis] > kMaxGrid[axis])
            throw UserError("kernel {} asks for a grid of {} blocks in {}; {} has at most {}",
                            record.name, grid[axis], "xyz"[axis], arch.name, kMaxGrid[axis]);
    }
    if (threads > arch.max_threads)
        throw UserError("kernel {} asks for {} threads a block; {} has at most {}", record.name,
                        threads, arch.name, arch.max_threads);
    int64_t shared = record.shared_bytes + dynamic_bytes;
    if (shared > arch.shared_bytes)
        throw UserError("kernel {} asks for {} bytes of shared memory a block; {} has {}",
                        record.name, shared, arch.name, arch.shared_bytes);
}

// What the OS threads of one launch share.
struct Work {
    std::atomic<uint64_t> next{0};
    std::atomic<uint64_t> end{0};  // one past the last block; then the first that showed a fault
    std::mutex mutex;
    SimtReport report;  // of that block

    // All blocks before the faulty one run, so that the reported fault is the same on any number of
    // OS threads.
    void end_at(uint64_t block, SimtReport found) {
        std::lock_guard lock(mutex);
        if (block >= end) return;
        end = block;
        report = std::move(found);
    }
};

}  // namespace

SimtReport Engine::launch(const SimtProgram& program, std::span<const uint64_t> args,
                          const std::array<int64_t, 3>& grid, const std::array<int, 3>& block,
                          int64_t dynamic_shared_bytes, const LaunchOptions& options) {
    check_launch(program, args, grid, block, dynamic_shared_bytes);
    const int grid_size[3] = {static_cast<int>(grid[0]), static_cast<int>(grid[1]),
                              static_cast<int>(grid[2])};
    const int block_size[3] = {block[0], block[1], block[2]};
    const uint32_t number = options.order ? options.order->begin_launch() : 0;
    Work work;
    const auto count = static_cast<uint64_t>(grid[0] * grid[1] * grid[2]);
    work.end = count;
    auto run = [&](int thread) {
        auto& mine = state_->blocks[static_cast<size_t>(thread)];
        if (!mine) mine = std::make_unique<Block>();
        mine->prepare(program.record(), program.arch(), args.data(), grid_size, block_size,
                      static_cast<uint32_t>(dynamic_shared_bytes), options);
        mine->order.begin_launch(mine->checked ? options.order : nullptr, number,
                                 mine->num_threads);
        for (uint64_t i = work.next++; i < work.end; i = work.next++)
            if (!mine->run(i)) return work.end_at(i, std::move(mine->report));
    };
    int threads =
        static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(state_->team.threads()), count));
    if (threads == 1) {
        run(0);
    } else {
        auto call = [](void* context, int thread, int) {
            (*static_cast<decltype(run)*>(context))(thread);
        };
        state_->team.run(call, &run);
    }
    return std::move(work.report);
}

SimtReport launch(const SimtProgram& program, std::span<const uint64_t> args,
                  const std::array<int64_t, 3>& grid, const std::array<int, 3>& block,
                  int64_t dynamic_shared_bytes, const LaunchOptions& options) {
    Engine engine;
    return engine.launch(program, args, grid, block, dynamic_shared_bytes, options);
}

}  // namespace cleave::runtime::simt
