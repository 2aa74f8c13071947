// SPDX-License-Identifier: Apache-2.0
// The null driver: takes every call, checks its arguments against the interface's rules, records
// it, computes nothing and holds no data (downloads and copies out give zeros). The skeleton to
// copy for a new driver, and what tests count calls with.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/device.h"

namespace cleave::runtime {

class NullDevice : public Device {
public:
    struct Call {
        std::string name;   // "upload", "launch", ...
        int64_t bytes = 0;  // moved or allocated; 0 for the others
        int kernel = -1;    // of a launch
    };

    explicit NullDevice(planner::DeviceInfo info) : info_(std::move(info)) {}

    const std::vector<Call>& calls() const { return calls_; }

    const planner::DeviceInfo& info() const override { return info_; }
    DeviceAddress allocate(int64_t bytes, const std::string& what) override;
    void free(DeviceAddress address) override;
    int64_t allocated_bytes() const override { return allocated_; }
    int64_t peak_allocated_bytes() const override { return peak_; }
    void fill(DeviceAddress address, int64_t bytes, uint8_t value) override;
    void upload(DeviceAddress destination, std::span<const std::byte> source) override;
    void download(DeviceAddress source, std::span<std::byte> destination) override;
    void load(std::vector<codegen::CompiledKernel> kernels) override;
    void launch(int kernel, std::span<const uint64_t> args, const std::array<int64_t, 3>& grid,
                const codegen::Launch& launch) override;
    void copy_out(DeviceAddress source, std::byte* destination,
                  const Rectangle& rectangle) override;
    void copy_in(const std::byte* source, DeviceAddress destination,
                 const Rectangle& rectangle) override;
    void reduce(std::span<const std::byte* const> sources, DeviceAddress residual,
                DeviceAddress destination, int64_t count, DType dtype,
                const Arrive& arrive) override;
    void synchronize() override;
    Supports supports_peer_copy(const Device& other) const override;

private:
    // InternalError unless [address, address + bytes) is within one live allocation.
    void check_owned(DeviceAddress address, int64_t bytes, const char* call) const;

    planner::DeviceInfo info_;
    std::map<DeviceAddress, int64_t> blocks_;
    DeviceAddress next_ = 256;
    int64_t allocated_ = 0, peak_ = 0;
    size_t kernels_ = 0;
    std::vector<Call> calls_;
};

}  // namespace cleave::runtime
