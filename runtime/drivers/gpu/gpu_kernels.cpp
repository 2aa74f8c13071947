// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/gpu_kernels.h"

#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

constexpr int64_t kMostOfAnything = std::numeric_limits<int32_t>::max();

unsigned dimension(int64_t n, int64_t most, const std::string& device) {
    CLEAVE_CHECK(n >= 0 && n <= most) << "a launch dimension of " << n << " on " << device
                                      << ", which takes " << most << " at most";
    return static_cast<unsigned>(n);
}

}  // namespace

void GpuKernels::load(std::vector<codegen::CompiledKernel> kernels) {
    unload();
    kernels_.reserve(kernels.size());
    // What a call that hangs still reads.
    const auto all =
        std::make_shared<const std::vector<codegen::CompiledKernel>>(std::move(kernels));
    struct Given {
        GpuModule module = nullptr;
        GpuFunction function = nullptr;
        std::exception_ptr error;
    };
    for (size_t i = 0; i < all->size(); ++i) {
        const codegen::CompiledKernel& kernel = (*all)[i];
        Given given;
        waits_.call(
            [all, i, context = &context_] {
                Given made;
                try {
                    made.module = context->load((*all)[i].object);
                    // Now, while no kernel runs: one that waits for a peer on the same card must
                    // not wait for this one to be loaded.
                    made.function = context->function(made.module, (*all)[i].name);
                } catch (const VendorError&) {
                    made.error = std::current_exception();
                }
                return made;
            },
            [&](const Given& made) {
                given = made;
                if (made.module) kernels_.push_back({kernel.name, made.module, made.function});
            });
        try {
            if (given.error) std::rethrow_exception(given.error);
        } catch (const RefusedObject& error) {
            throw refusal(kernel, error.what());
        } catch (const VendorError& error) {
            throw VendorError(fmt::format("loading kernel {}", kernel.name), error.what(),
                              info_.name);
        }
    }
}

VendorError GpuKernels::refusal(const codegen::CompiledKernel& kernel,
                                const std::string& why) const {
    return VendorError(
        fmt::format("loading kernel {}", kernel.name),
        fmt::format("{}; it was compiled by {}, and {} is of version {}: a driver may not "
                    "read what a newer compiler made; install a newer driver, or name a "
                    "compiler of its version ($nvrtc PATH for NVIDIA's cards, "
                    "$gpu_compiler clang for AMD's)",
                    why, kernel.compiler, driver_.library(), driver_.version()),
        info_.name);
}

void GpuKernels::unload() noexcept {
    for (const Loaded& kernel : kernels_) try_to([&] { context_.unload(kernel.module); });
    kernels_.clear();
}

GpuKernels::Loaded& GpuKernels::kernel_of(int kernel) {
    CLEAVE_CHECK(kernel >= 0 && static_cast<size_t>(kernel) < kernels_.size())
        << "kernel " << kernel << " of " << kernels_.size() << " on " << info_.name;
    return kernels_[static_cast<size_t>(kernel)];
}

void GpuKernels::allow(Loaded& kernel, const codegen::Launch& launch) {
    // The launch says how much shared memory the kernel may ask for; one size for each kernel.
    if (kernel.shared_bytes < launch.shared_bytes) {
        context_.allow_shared(kernel.function, launch.shared_bytes);
        kernel.shared_bytes = launch.shared_bytes;
    }
}

void GpuKernels::expect_launch(int kernel, const codegen::Launch& launch) {
    Loaded& loaded = kernel_of(kernel);
    const std::string call = fmt::format("loading kernel {}", loaded.name);
    try {
        allow(loaded, launch);
        const int64_t threads = int64_t{launch.block[0]} * launch.block[1] * launch.block[2];
        const int64_t most = context_.most_threads(loaded.function);
        if (threads > most)
            throw DeviceError(call,
                              fmt::format("its blocks have {} threads, and the driver starts it "
                                          "with {} at most: it takes more registers or shared "
                                          "memory of a block than the device has; name another "
                                          "compiler ($gpu_compiler, $nvrtc PATH)",
                                          threads, most),
                              info_.name);
    } catch (const VendorError& error) {
        throw VendorError(call,
                          fmt::format("{}; it asks for blocks of {} x {} x {} threads with {} "
                                      "bytes of shared memory",
                                      error.what(), launch.block[0], launch.block[1],
                                      launch.block[2], launch.shared_bytes),
                          info_.name);
    }
}

void GpuKernels::launch(int kernel, std::span<const uint64_t> args,
                        const std::array<int64_t, 3>& grid, const codegen::Launch& launch) {
    Loaded& loaded = kernel_of(kernel);
    if (grid[0] * grid[1] * grid[2] == 0) return;
    allow(loaded, launch);
    // Every argument is a word of 64 bits; the driver reads each through a pointer.
    words_.assign(args.begin(), args.end());
    pointers_.clear();
    for (uint64_t& word : words_) pointers_.push_back(&word);
    std::array<unsigned, 3> blocks{}, threads{};
    for (size_t axis = 0; axis < 3; ++axis) {
        blocks[axis] = dimension(grid[axis], info_.limits.max_grid[axis], info_.name);
        threads[axis] = dimension(launch.block[axis], kMostOfAnything, info_.name);
    }
    context_.launch(loaded.function, blocks, threads,
                    dimension(launch.shared_bytes, kMostOfAnything, info_.name), pointers_.data(),
                    launch.overlaps);
}

}  // namespace cleave::runtime
