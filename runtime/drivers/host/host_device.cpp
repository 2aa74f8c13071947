// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/host/host_device.h"

#include <atomic>
#include <cstring>
#include <new>
#include <optional>

#include "runtime/base/errors.h"
#include "runtime/base/thread_team.h"
#include "runtime/drivers/host/host_memory.h"
#include "runtime/drivers/host/numa_node.h"
#include "runtime/drivers/host/reduce.h"

namespace cleave::runtime {

namespace {

// Below this many bytes, waking the helpers costs more than the work.
constexpr int64_t kParallelBytes = 64 * 1024;
// Elements of a sum that a thread takes at once, at least: whole cache lines, and few enough
// pieces.
constexpr int64_t kReduceGrain = 4096;

void* pointer(DeviceAddress address) { return reinterpret_cast<void*>(address); }

struct AlignedDelete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Scratch = std::unique_ptr<std::byte[], AlignedDelete>;

std::optional<NumaBinding> node_of(const planner::DeviceInfo& info) {
    if (!info.is_numa_node()) return std::nullopt;
    return NumaBinding(info.index, info.name);
}

// A team starts its threads here, where those of a NUMA node have its cores.
ThreadTeam make_team(const std::optional<NumaBinding>& node, const HostDeviceOptions& options) {
    std::optional<NumaBinding::Scope> kept;
    if (node) kept.emplace(*node);
    return {options.threads > 0 ? options.threads : 1, options.may_spin};
}

class HostDevice : public Device {
public:
    HostDevice(const planner::DeviceInfo& info, const HostDeviceOptions& options,
               KernelLoader loader)
        : info_(info),
          node_(node_of(info)),
          memory_(info.name, info.memory_bytes, options.poison),
          team_(make_team(node_, options)),
          scratch_(static_cast<size_t>(team_.threads())),
          loader_(std::move(loader)) {}

    const planner::DeviceInfo& info() const override { return info_; }

    DeviceAddress allocate(int64_t bytes, const std::string& what) override {
        return reinterpret_cast<DeviceAddress>(
            memory_.allocate(bytes, what, node_ ? &*node_ : nullptr));
    }
    void free(DeviceAddress address) override { memory_.free(pointer(address)); }
    int64_t allocated_bytes() const override { return memory_.allocated(); }
    int64_t peak_allocated_bytes() const override { return memory_.peak(); }

    void fill(DeviceAddress address, int64_t bytes, uint8_t value) override {
        if (bytes > 0) std::memset(pointer(address), value, static_cast<size_t>(bytes));
    }
    void upload(DeviceAddress destination, std::span<const std::byte> source) override {
        if (!source.empty()) std::memcpy(pointer(destination), source.data(), source.size());
    }
    void download(DeviceAddress source, std::span<std::byte> destination) override {
        if (!destination.empty())
            std::memcpy(destination.data(), pointer(source), destination.size());
    }

    void load(std::vector<codegen::CompiledKernel> kernels) override {
        kernels_ = loader_(kernels);
        entries_.clear();
        for (size_t i = 0; i < kernels.size(); ++i) entries_.push_back(kernels_->entry(i));
    }

    void launch(int kernel, std::span<const uint64_t> args, const std::array<int64_t, 3>& grid,
                const codegen::Launch& launch) override {
        CLEAVE_CHECK(kernel >= 0 && static_cast<size_t>(kernel) < entries_.size())
            << "kernel " << kernel << " of " << entries_.size() << " on " << info_.name;
        keep_thread();
        reserve_scratch(launch.shared_bytes);
        codegen::HostEntry entry = entries_[static_cast<size_t>(kernel)];
        if (launch.shared_bytes > 0)
            for (Scratch& scratch : scratch_) std::memset(scratch.get(), 0, sizeof(int64_t));
        team_.split(grid[0], [&](int64_t begin, int64_t end, int thread) {
            entry(args.data(), begin, end, scratch_[static_cast<size_t>(thread)].get());
        });
    }

    void copy_out(DeviceAddress source, std::byte* destination,
                  const Rectangle& rectangle) override {
        copy(static_cast<const std::byte*>(pointer(source)), destination, rectangle);
    }
    void copy_in(const std::byte* source, DeviceAddress destination,
                 const Rectangle& rectangle) override {
        copy(source, static_cast<std::byte*>(pointer(destination)), rectangle);
    }

    std::byte* host_view(DeviceAddress address) override {
        return static_cast<std::byte*>(pointer(address));
    }

    void reduce(std::span<const std::byte* const> sources, DeviceAddress residual,
                DeviceAddress destination, int64_t count, DType dtype,
                const Arrive& arrive) override {
        arrive(dtype_bytes(dtype, count));
        keep_thread();
        auto part = [&](int64_t begin, int64_t end, int) {
            reduce_elements(sources, static_cast<const std::byte*>(pointer(residual)),
                            static_cast<std::byte*>(pointer(destination)), begin, end, dtype);
        };
        if (count * static_cast<int64_t>(sources.size()) * 4 < kParallelBytes) {
            if (count > 0) part(0, count, 0);
        } else {
            team_.split(count, part, kReduceGrain);
        }
    }

    void synchronize() override {}

    Supports supports_peer_copy(const Device& other) const override {
        return {false, fmt::format("{} and {} exchange values through staging memory", info_.name,
                                   other.info().name)};
    }

private:
    // Of a NUMA node: the calling thread works on its cores from now on.
    void keep_thread() {
        thread_local uint64_t kept_for = 0;
        if (!node_ || kept_for == number_) return;
        node_->keep_thread();
        kept_for = number_;
    }

    void copy(const std::byte* source, std::byte* destination, const Rectangle& r) {
        if (r.rows <= 0 || r.row_bytes <= 0) return;
        if (r.source_stride == r.row_bytes && r.destination_stride == r.row_bytes) {
            std::memcpy(destination, source, static_cast<size_t>(r.rows * r.row_bytes));
            return;
        }
        for (int64_t row = 0; row < r.rows; ++row) {
            std::memcpy(destination + row * r.destination_stride, source + row * r.source_stride,
                        static_cast<size_t>(r.row_bytes));
        }
    }

    void reserve_scratch(int64_t bytes) {
        if (bytes <= scratch_bytes_) return;
        for (Scratch& scratch : scratch_) {
            scratch.reset(static_cast<std::byte*>(
                ::operator new[](static_cast<size_t>(bytes), std::align_val_t{64})));
        }
        scratch_bytes_ = bytes;
    }

    static uint64_t next_number() {
        static std::atomic<uint64_t> last{0};
        return ++last;
    }

    planner::DeviceInfo info_;
    const uint64_t number_ = next_number();  // of all that the process made
    std::optional<NumaBinding> node_;        // whose cores and memory it has; none: the host's
    HostMemory memory_;
    ThreadTeam team_;
    std::vector<Scratch> scratch_;  // one a thread
    int64_t scratch_bytes_ = 0;     // of each
    KernelLoader loader_;
    std::unique_ptr<codegen::LoadedKernels> kernels_;
    std::vector<codegen::HostEntry> entries_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const planner::DeviceInfo& info,
                                         const HostDeviceOptions& options, KernelLoader loader) {
    return std::make_unique<HostDevice>(info, options, std::move(loader));
}

}  // namespace cleave::runtime
