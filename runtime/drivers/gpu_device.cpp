// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu_device.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "runtime/base/errors.h"
#include "runtime/drivers/host_memory.h"
#include "runtime/drivers/reduce.h"

namespace cleave::runtime {

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::string vendor_error(const char* name, const char* text, int code) {
    const std::string called = name ? name : fmt::format("error {}", code);
    return text && called != text ? fmt::format("{} ({})", called, text) : called;
}

namespace {

// Pinned memory that grows to what is asked for.
class PinnedBuffer {
public:
    explicit PinnedBuffer(GpuContext& context) : context_(context) {}
    ~PinnedBuffer() { release(); }
    PinnedBuffer(const PinnedBuffer&) = delete;
    PinnedBuffer& operator=(const PinnedBuffer&) = delete;

    std::byte* at_least(int64_t bytes, const std::string& device) {
        if (bytes <= bytes_) return memory_;
        release();
        memory_ = context_.allocate_pinned(bytes);
        if (!memory_)
            throw DeviceError(fmt::format("allocating {} bytes of pinned host memory", bytes),
                              "the host has none left", device);
        bytes_ = bytes;
        return memory_;
    }

private:
    void release() {
        bytes_ = 0;
        if (!memory_) return;
        try {
            context_.free_pinned(memory_);
        } catch (const DeviceError&) {
            // After a fault the driver frees it with the context.
        }
        memory_ = nullptr;
    }

    GpuContext& context_;
    std::byte* memory_ = nullptr;
    int64_t bytes_ = 0;
};

unsigned dimension(int64_t n, const std::string& device) {
    CHECK(n >= 0 && n <= std::numeric_limits<int32_t>::max())
        << "a launch dimension of " << n << " on " << device;
    return static_cast<unsigned>(n);
}

class GpuDevice final : public Device {
public:
    GpuDevice(std::shared_ptr<GpuDriver> driver, int ordinal, const planner::Device& info,
              const GpuDeviceOptions& options)
        : driver_(std::move(driver)),
          context_(driver_->open(ordinal, info.name)),
          ordinal_(ordinal),
          info_(info),
          options_(options),
          pinned_(*context_) {}

    ~GpuDevice() override {
        unload();
        if (mailbox_) {
            try {
                context_->free_pinned(mailbox_);
            } catch (const DeviceError&) {
                // After a fault the driver frees it with the context.
            }
        }
        for (const auto& [address, block] : blocks_) {
            try {
                context_->free(address);
            } catch (const DeviceError&) {
                // After a fault the driver frees all with the context.
            }
        }
    }

    const planner::Device& info() const override { return info_; }

    DeviceAddress allocate(int64_t bytes, const std::string& what) override {
        return take(bytes, what, false);
    }
    DeviceAddress allocate_exchange(int64_t bytes, const std::string& what) override {
        return take(bytes, what, true);
    }

    void free(DeviceAddress address) override {
        auto found = blocks_.find(address);
        CHECK(found != blocks_.end()) << "freeing memory that " << info_.name << " does not own";
        context_->synchronize();
        context_->free(address);
        allocated_ -= found->second;
        blocks_.erase(found);
    }

    int64_t allocated_bytes() const override { return allocated_; }
    int64_t peak_allocated_bytes() const override { return peak_; }

    void fill(DeviceAddress address, int64_t bytes, uint8_t value) override {
        if (bytes > 0) context_->fill(address, bytes, value);
    }
    void upload(DeviceAddress destination, std::span<const std::byte> source) override {
        copy_in(source.data(), destination, line(source.size()));
        context_->synchronize();
    }
    void download(DeviceAddress source, std::span<std::byte> destination) override {
        copy_out(source, destination.data(), line(destination.size()));
        context_->synchronize();
    }

    void load(std::vector<codegen::CompiledKernel> kernels) override {
        unload();
        kernels_.reserve(kernels.size());
        for (const codegen::CompiledKernel& kernel : kernels) {
            Loaded loaded;
            loaded.name = kernel.name;
            loaded.module = context_->load(kernel.object);
            kernels_.push_back(loaded);
        }
    }

    void launch(int kernel, std::span<const uint64_t> args, const std::array<int64_t, 3>& grid,
                const codegen::Launch& launch) override {
        CHECK(kernel >= 0 && static_cast<size_t>(kernel) < kernels_.size())
            << "kernel " << kernel << " of " << kernels_.size() << " on " << info_.name;
        if (grid[0] * grid[1] * grid[2] == 0) return;
        Loaded& loaded = kernels_[static_cast<size_t>(kernel)];
        // The launch says how much shared memory the kernel may ask for; one size for each kernel.
        if (!loaded.function || loaded.shared_bytes < launch.shared_bytes) {
            loaded.function = context_->function(loaded.module, loaded.name, launch.shared_bytes);
            loaded.shared_bytes = launch.shared_bytes;
        }
        // Every argument is a word of 64 bits; the driver reads each through a pointer.
        words_.assign(args.begin(), args.end());
        pointers_.clear();
        for (uint64_t& word : words_) pointers_.push_back(&word);
        context_->launch(
            loaded.function,
            {dimension(grid[0], info_.name), dimension(grid[1], info_.name),
             dimension(grid[2], info_.name)},
            {dimension(launch.block[0], info_.name), dimension(launch.block[1], info_.name),
             dimension(launch.block[2], info_.name)},
            dimension(launch.shared_bytes, info_.name), pointers_.data());
    }

    void copy_out(DeviceAddress source, std::byte* destination, const Rectangle& r) override {
        if (r.rows > 0 && r.row_bytes > 0) context_->copy_out(source, destination, r);
    }
    void copy_in(const std::byte* source, DeviceAddress destination, const Rectangle& r) override {
        if (r.rows > 0 && r.row_bytes > 0) context_->copy_in(source, destination, r);
    }

    // Staged through the host, which adds: always right, on any vendor's devices.
    void reduce(std::span<const std::byte* const> sources, DeviceAddress residual,
                DeviceAddress destination, int64_t count, DType dtype) override {
        if (count <= 0) return;
        const int64_t bytes = dtype_bytes(dtype, count);
        std::byte* sum = pinned_.at_least(bytes, info_.name);
        if (residual) {
            copy_out(residual, sum, line(static_cast<size_t>(bytes)));
            context_->synchronize();
        }
        reduce_elements(sources, residual ? sum : nullptr, sum, 0, count, dtype);
        copy_in(sum, destination, line(static_cast<size_t>(bytes)));
        // The buffer is reused by the next sum.
        context_->synchronize();
    }

    void synchronize() override { context_->synchronize(); }

    // Devices of one driver: logical ones of one card share its memory, others need the driver's word.
    Supports supports_peer_copy(const Device& other) const override {
        const auto* peer = dynamic_cast<const GpuDevice*>(&other);
        if (!peer || peer->driver_ != driver_)
            return {false,
                    fmt::format("{} and {} have different drivers", info_.name, other.info().name)};
        if (peer->ordinal_ != ordinal_ && !driver_->has_peer_access(ordinal_, peer->ordinal_))
            return {false, fmt::format("the driver gives {} no access to {}'s memory", info_.name,
                                       other.info().name)};
        return {true, {}};
    }
    void enable_peer_access(Device& other) override {
        auto* peer = dynamic_cast<GpuDevice*>(&other);
        if (!peer || peer->driver_ != driver_) return Device::enable_peer_access(other);
        if (peer->ordinal_ != ordinal_) context_->enable_peer_access(*peer->context_);
    }

    // Pinned memory has one address for the host and for kernels (unified addressing).
    std::span<std::byte> mailbox() override {
        if (!mailbox_) {
            mailbox_ = context_->allocate_pinned(kMailboxBytes);
            if (!mailbox_)
                throw DeviceError("allocating a mailbox", "the host has no pinned memory left",
                                  info_.name);
            std::memset(mailbox_, 0, static_cast<size_t>(kMailboxBytes));
        }
        return {mailbox_, static_cast<size_t>(kMailboxBytes)};
    }

private:
    DeviceAddress take(int64_t bytes, const std::string& what, bool exchange) {
        const auto refuse = [&](const std::string& why) {
            return DeviceError(fmt::format("allocating {} bytes for {}", bytes, what), why,
                               info_.name);
        };
        if (info_.memory_bytes > 0 && bytes > info_.memory_bytes - allocated_)
            throw refuse(fmt::format("only {} of its {} bytes are left",
                                     info_.memory_bytes - allocated_, info_.memory_bytes));
        const std::optional<DeviceAddress> address =
            exchange ? context_->allocate_exchange(std::max<int64_t>(bytes, 1))
                     : context_->allocate(std::max<int64_t>(bytes, 1));
        if (!address)
            throw refuse(fmt::format(
                "the driver has {} bytes free, the plan counts on {} bytes of which {} are used; "
                "another program may hold the rest",
                context_->free_bytes(), info_.memory_bytes, allocated_));
        CHECK(*address % 256 == 0) << info_.name << " gave an address that is not aligned to 256";
        blocks_[*address] = bytes;
        allocated_ += bytes;
        peak_ = std::max(peak_, allocated_);
        if (options_.poison) fill(*address, bytes, kPoisonByte);
        return *address;
    }

    struct Loaded {
        std::string name;
        GpuModule module = nullptr;
        GpuFunction function = nullptr;
        int64_t shared_bytes = -1;
    };

    static Rectangle line(size_t bytes) {
        const auto n = static_cast<int64_t>(bytes);
        return {1, n, n, n};
    }

    void unload() {
        for (const Loaded& kernel : kernels_) {
            try {
                context_->unload(kernel.module);
            } catch (const DeviceError&) {
                // After a fault the driver unloads all with the context.
            }
        }
        kernels_.clear();
    }

    std::shared_ptr<GpuDriver> driver_;
    std::unique_ptr<GpuContext> context_;
    int ordinal_;
    planner::Device info_;
    GpuDeviceOptions options_;
    PinnedBuffer pinned_;
    std::byte* mailbox_ = nullptr;
    std::vector<Loaded> kernels_;
    std::vector<uint64_t> words_;
    std::vector<void*> pointers_;
    std::map<DeviceAddress, int64_t> blocks_;
    int64_t allocated_ = 0, peak_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_gpu_device(std::shared_ptr<GpuDriver> driver, int ordinal,
                                        const planner::Device& info,
                                        const GpuDeviceOptions& options) {
    return std::make_unique<GpuDevice>(std::move(driver), ordinal, info, options);
}

}  // namespace cleave::runtime
