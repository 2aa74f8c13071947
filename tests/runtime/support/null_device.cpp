// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/support/null_device.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

// Bytes between the first and the last byte that a rectangle touches on one side.
int64_t extent(const Rectangle& r, int64_t stride) {
    return r.rows <= 0 || r.row_bytes <= 0 ? 0 : (r.rows - 1) * stride + r.row_bytes;
}

}  // namespace

void NullDevice::check_owned(DeviceAddress address, int64_t bytes, const char* call) const {
    if (bytes <= 0) return;
    auto after = blocks_.upper_bound(address);
    CLEAVE_CHECK(after != blocks_.begin()) << call << " outside the memory of " << info_.name;
    auto [start, size] = *std::prev(after);
    CLEAVE_CHECK(address + static_cast<DeviceAddress>(bytes) <=
                 start + static_cast<DeviceAddress>(size))
        << call << " of " << bytes << " bytes runs past an allocation of " << info_.name;
}

DeviceAddress NullDevice::allocate(int64_t bytes, const std::string& what) {
    if (info_.memory_bytes > 0 && bytes > info_.memory_bytes - allocated_) {
        throw DeviceError(fmt::format("allocating {} bytes for {}", bytes, what),
                          fmt::format("only {} of its {} bytes are left",
                                      info_.memory_bytes - allocated_, info_.memory_bytes),
                          info_.name);
    }
    DeviceAddress address = next_;
    next_ += (static_cast<DeviceAddress>(std::max<int64_t>(bytes, 1)) + 511) / 256 * 256;
    blocks_[address] = bytes;
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
    calls_.push_back({"allocate", bytes});
    return address;
}

void NullDevice::free(DeviceAddress address) {
    auto found = blocks_.find(address);
    CLEAVE_CHECK(found != blocks_.end()) << "freeing memory that " << info_.name << " does not own";
    allocated_ -= found->second;
    blocks_.erase(found);
    calls_.push_back({"free"});
}

void NullDevice::fill(DeviceAddress address, int64_t bytes, uint8_t) {
    check_owned(address, bytes, "fill");
    calls_.push_back({"fill", bytes});
}

void NullDevice::upload(DeviceAddress destination, std::span<const std::byte> source) {
    check_owned(destination, static_cast<int64_t>(source.size()), "upload");
    calls_.push_back({"upload", static_cast<int64_t>(source.size())});
}

void NullDevice::download(DeviceAddress source, std::span<std::byte> destination) {
    check_owned(source, static_cast<int64_t>(destination.size()), "download");
    std::fill(destination.begin(), destination.end(), std::byte{0});
    calls_.push_back({"download", static_cast<int64_t>(destination.size())});
}

void NullDevice::load(std::vector<codegen::CompiledKernel> kernels) {
    kernels_ = kernels.size();
    calls_.push_back({"load"});
}

void NullDevice::launch(int kernel, std::span<const uint64_t>, const std::array<int64_t, 3>&,
                        const codegen::Launch&) {
    CLEAVE_CHECK(kernel >= 0 && static_cast<size_t>(kernel) < kernels_)
        << "kernel " << kernel << " of " << kernels_ << " on " << info_.name;
    calls_.push_back({"launch", 0, kernel});
}

void NullDevice::copy_out(DeviceAddress source, std::byte* destination, const Rectangle& r) {
    check_owned(source, extent(r, r.source_stride), "copy_out");
    for (int64_t row = 0; row < r.rows && r.row_bytes > 0; ++row) {
        std::memset(destination + row * r.destination_stride, 0, static_cast<size_t>(r.row_bytes));
    }
    calls_.push_back({"copy_out", r.rows * r.row_bytes});
}

void NullDevice::copy_in(const std::byte*, DeviceAddress destination, const Rectangle& r) {
    check_owned(destination, extent(r, r.destination_stride), "copy_in");
    calls_.push_back({"copy_in", r.rows * r.row_bytes});
}

void NullDevice::reduce(std::span<const std::byte* const>, DeviceAddress residual,
                        DeviceAddress destination, int64_t count, DType dtype,
                        const Arrive& arrive) {
    arrive(dtype_bytes(dtype, count));
    if (residual != 0) check_owned(residual, dtype_bytes(dtype, count), "reduce (residual)");
    check_owned(destination, dtype_bytes(dtype, count), "reduce");
    calls_.push_back({"reduce", dtype_bytes(dtype, count)});
}

void NullDevice::synchronize() { calls_.push_back({"synchronize"}); }

Supports NullDevice::supports_peer_copy(const Device&) const {
    return {false, "the null driver moves no data"};
}

}  // namespace cleave::runtime
