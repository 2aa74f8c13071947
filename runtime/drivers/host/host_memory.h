// SPDX-License-Identifier: Apache-2.0
// Memory of one host device: page-aligned blocks mapped lazily, so that the pages lie where the
// device's own threads first touch them, each followed by a page that may not be touched. Counts
// what was asked for. `poison` fills fresh blocks with bytes that read as NaN in every floating
// type.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace cleave::runtime {

class NumaBinding;

class HostMemory {
public:
    // `capacity` 0: no bound of our own. `device` names it in messages.
    HostMemory(std::string device, int64_t capacity, bool poison)
        : device_(std::move(device)), capacity_(capacity), poison_(poison) {}
    ~HostMemory();
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    // From the memory of `node`, if given. DeviceError naming `what`, the bytes asked for and the
    // bytes left.
    void* allocate(int64_t bytes, const std::string& what, const NumaBinding* node = nullptr);
    void free(void* address);
    int64_t allocated() const { return allocated_; }
    int64_t peak() const { return peak_; }

private:
    struct Block {
        int64_t bytes = 0;  // asked for
        size_t mapped = 0;  // with the guard page
    };
    std::string device_;
    int64_t capacity_;
    bool poison_;
    int64_t allocated_ = 0, peak_ = 0;
    std::map<void*, Block> blocks_;
};

inline constexpr uint8_t kPoisonByte = 0xff;  // NaN in f32, f16, bf16 and f8e4m3

}  // namespace cleave::runtime
