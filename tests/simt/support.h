// SPDX-License-Identifier: Apache-2.0
// What the simt tests share: kernels written beside the test on top of the prelude, device buffers,
// and launches.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/simt/memory.h"
#include "runtime/simt/simt.h"

namespace cleave::simt_test {

namespace simt = runtime::simt;

// The prelude followed by `body` in namespace cleave; line 1 of "test.cu" is the body's first line.
std::string with_prelude(const std::string& body);

// How many barriers, fences and waits a kernel source has behind its prelude, and the source
// without one of them: what shows that a kernel's barriers are needed, or that their loss is found.
int count_syncs(const std::string& source);
std::string without_sync(const std::string& source, int index);
// By place, "gpu/linear.cuh:41" of the source's #line marks, with the lines of code around it:
// "stage(x); barrier(); rows(y);".
std::map<std::string, std::string> sync_places(const std::string& source);
// The source with `text` in that place, where it has it.
std::string without_sync_at(const std::string& source, const std::string& place,
                            const std::string& text = ";");

// A device buffer of `count` elements.
template <class T>
class Buffer {
public:
    explicit Buffer(size_t count, T value = T{})
        : count_(count), data_(static_cast<T*>(simt::allocate_slots(count * sizeof(T), 0))) {
        for (size_t i = 0; i < count; ++i) data_[i] = value;
    }
    explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
        std::memcpy(data_, values.data(), values.size() * sizeof(T));
    }
    ~Buffer() { simt::free_slots(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    uint64_t word() const { return reinterpret_cast<uint64_t>(data_); }
    T& operator[](size_t i) { return data_[i]; }
    size_t size() const { return count_; }

private:
    size_t count_;
    T* data_;
};

struct Shape {
    int64_t blocks = 1;
    int threads = 256;
    int64_t dynamic_bytes = 0;
};

simt::SimtReport run(const simt::SimtProgram& program, const std::vector<uint64_t>& args,
                     const Shape& shape, const simt::LaunchOptions& options = {});

}  // namespace cleave::simt_test
