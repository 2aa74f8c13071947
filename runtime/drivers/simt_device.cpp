// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/simt_device.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "codegen/kernel/occupancy.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/host/host_memory.h"
#include "runtime/drivers/host/reduce.h"
#include "runtime/simt/device_order.h"
#include "runtime/simt/memory.h"
#include "runtime/simt/simt.h"
#include "runtime/simt/written_rows.h"

namespace cleave::runtime {

namespace {

// Kernels may touch the allocations of their own device only.
uint32_t new_owner() {
    static std::atomic<uint32_t> next{1};
    return next++;
}

std::byte* bytes_at(DeviceAddress address) { return reinterpret_cast<std::byte*>(address); }

class SimtDevice final : public Device {
public:
    SimtDevice(const planner::DeviceInfo& info, const SimtDeviceOptions& options)
        : info_(info),
          options_(options),
          arch_(codegen::gpu_arch(info.arch)),
          owner_(new_owner()),
          order_(info.name, planner::vendor_facts(arch_.vendor).explicit_caches),
          engine_(std::max(1, options.threads)) {}
    ~SimtDevice() override {
        exchanges_.clear();
        for (const auto& [address, bytes] : blocks_) simt::free_slots(bytes_at(address));
        if (mailbox_) simt::free_slots(mailbox_);
    }

    const planner::DeviceInfo& info() const override { return info_; }

    DeviceAddress allocate(int64_t bytes, const std::string& what) override {
        auto refuse = [&](const std::string& why) {
            return DeviceError(fmt::format("allocating {} bytes for {}", bytes, what), why,
                               info_.name);
        };
        if (info_.memory_bytes > 0 && bytes > info_.memory_bytes - allocated_)
            throw refuse(fmt::format("only {} of its {} bytes are left",
                                     info_.memory_bytes - allocated_, info_.memory_bytes));
        void* memory =
            simt::allocate_slots(static_cast<uint64_t>(std::max<int64_t>(bytes, 1)), owner_);
        if (!memory) throw refuse("this machine has no memory or address space left");
        if (options_.poison) std::memset(memory, kPoisonByte, static_cast<size_t>(bytes));
        auto address = reinterpret_cast<DeviceAddress>(memory);
        blocks_[address] = bytes;
        allocated_ += bytes;
        peak_ = std::max(peak_, allocated_);
        return address;
    }

    void free(DeviceAddress address) override {
        auto found = blocks_.find(address);
        CLEAVE_CHECK(found != blocks_.end())
            << "freeing memory that " << info_.name << " does not own";
        allocated_ -= found->second;
        rows_.forget(address, static_cast<uint64_t>(found->second));
        exchanges_.erase(address);
        blocks_.erase(found);
        simt::free_slots(bytes_at(address));
    }

    // Accesses to such memory are ordered between devices, or reported.
    DeviceAddress allocate_exchange(int64_t bytes, const std::string& what) override {
        const DeviceAddress address = allocate(bytes, what);
        exchanges_.try_emplace(address, bytes_at(address), static_cast<uint64_t>(bytes), order_);
        return address;
    }

    int64_t allocated_bytes() const override { return allocated_; }
    int64_t peak_allocated_bytes() const override { return peak_; }

    void fill(DeviceAddress address, int64_t bytes, uint8_t value) override {
        if (bytes > 0) std::memset(bytes_at(address), value, static_cast<size_t>(bytes));
        host_wrote(address, bytes);
        rows_.forget(address, static_cast<uint64_t>(bytes));
    }
    void upload(DeviceAddress destination, std::span<const std::byte> source) override {
        if (!source.empty()) std::memcpy(bytes_at(destination), source.data(), source.size());
        host_wrote(destination, std::ssize(source));
        rows_.wrote(destination, source.size());
    }
    void download(DeviceAddress source, std::span<std::byte> destination) override {
        if (!destination.empty())
            std::memcpy(destination.data(), bytes_at(source), destination.size());
    }

    void load(std::vector<codegen::CompiledKernel> kernels) override {
        programs_.clear();
        for (const codegen::CompiledKernel& kernel : kernels) programs_.emplace_back(kernel, arch_);
    }

    void launch(int kernel, std::span<const uint64_t> args, const std::array<int64_t, 3>& grid,
                const codegen::Launch& launch) override {
        CLEAVE_CHECK(kernel >= 0 && static_cast<size_t>(kernel) < programs_.size())
            << "kernel " << kernel << " of " << programs_.size() << " on " << info_.name;
        if (grid[0] * grid[1] * grid[2] == 0) return;
        simt::LaunchOptions options{options_.seed,   options_.shuffle_order, owner_,  peers_,
                                    launch.overlaps, launch.constant_args,   &order_, &rows_};
        simt::SimtReport report = engine_.launch(programs_[static_cast<size_t>(kernel)], args, grid,
                                                 launch.block, launch.shared_bytes, options);
        if (!report.clean())
            throw InternalError(fmt::format("{}: {}", info_.name, report.finding->text()));
    }

    void copy_out(DeviceAddress source, std::byte* destination,
                  const Rectangle& rectangle) override {
        copy(bytes_at(source), destination, rectangle);
    }
    void copy_in(const std::byte* source, DeviceAddress destination,
                 const Rectangle& rectangle) override {
        copy(source, bytes_at(destination), rectangle);
        host_wrote(destination,
                   (rectangle.rows - 1) * rectangle.destination_stride + rectangle.row_bytes);
        for (int64_t row = 0; row < rectangle.rows; ++row)
            rows_.wrote(destination + static_cast<uint64_t>(row * rectangle.destination_stride),
                        static_cast<uint64_t>(rectangle.row_bytes));
    }

    std::byte* host_view(DeviceAddress address) override { return bytes_at(address); }

    void reduce(std::span<const std::byte* const> sources, DeviceAddress residual,
                DeviceAddress destination, int64_t count, DType dtype,
                const Arrive& arrive) override {
        arrive(dtype_bytes(dtype, count));
        if (count > 0)
            reduce_elements(sources, bytes_at(residual), bytes_at(destination), 0, count, dtype);
    }

    void synchronize() override {}

    // All simt devices of a process share its address space; those of two vendors keep apart, as
    // what they imitate does.
    Supports supports_peer_copy(const Device& other) const override {
        const auto* peer = dynamic_cast<const SimtDevice*>(&other);
        if (peer && peer->info_.arch.starts_with("gfx") == info_.arch.starts_with("gfx"))
            return {true, {}};
        if (peer)
            return {false,
                    fmt::format("{} and {} are of two vendors", info_.name, other.info().name)};
        return {false,
                fmt::format("{} reaches the memory of other simt devices only, and {} is none",
                            info_.name, other.info().name)};
    }
    void enable_peer_access(Device& other) override {
        auto* peer = dynamic_cast<SimtDevice*>(&other);
        if (!peer || !supports_peer_copy(other)) return Device::enable_peer_access(other);
        if (peer != this && std::find(peers_.begin(), peers_.end(), peer->owner_) == peers_.end())
            peers_.push_back(peer->owner_);
    }

    std::span<std::byte> mailbox() override {
        if (!mailbox_) {
            mailbox_ = static_cast<std::byte*>(simt::allocate_slots(kMailboxBytes, owner_));
            if (!mailbox_)
                throw DeviceError("allocating a mailbox", "no address space is left", info_.name);
        }
        return {mailbox_, static_cast<size_t>(kMailboxBytes)};
    }

private:
    void host_wrote(DeviceAddress address, int64_t bytes) {
        auto after = exchanges_.upper_bound(address);
        if (bytes <= 0 || after == exchanges_.begin()) return;
        auto& [begin, memory] = *std::prev(after);
        if (address < begin + static_cast<uint64_t>(blocks_.at(begin)))
            memory.forget(address, static_cast<uint64_t>(bytes));
    }

    static void copy(const std::byte* source, std::byte* destination, const Rectangle& r) {
        for (int64_t row = 0; row < r.rows && r.row_bytes > 0; ++row)
            std::memcpy(destination + row * r.destination_stride, source + row * r.source_stride,
                        static_cast<size_t>(r.row_bytes));
    }

    planner::DeviceInfo info_;
    SimtDeviceOptions options_;
    const codegen::GpuArch& arch_;
    uint32_t owner_;
    std::vector<uint32_t> peers_;  // owners whose memory kernels may touch too
    std::byte* mailbox_ = nullptr;
    simt::DeviceOrder order_;
    std::map<DeviceAddress, simt::ExchangeMemory> exchanges_;  // of these allocations
    simt::WrittenRows rows_;
    simt::Engine engine_;
    std::vector<simt::SimtProgram> programs_;
    std::map<DeviceAddress, int64_t> blocks_;
    int64_t allocated_ = 0, peak_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_simt_device(const planner::DeviceInfo& info,
                                         const SimtDeviceOptions& options) {
    return std::make_unique<SimtDevice>(info, options);
}

}  // namespace cleave::runtime
