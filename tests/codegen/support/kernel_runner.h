// SPDX-License-Identifier: Apache-2.0
// Runs one host kernel as the runtime would, but unkindly: items in random order and random runs,
// scratch full of NaN, guard words on both sides of every buffer and of the scratch, and a page
// that may not be touched a vector behind them. Fails the test when a guard changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codegen/host/kernels.h"

namespace cleave::test {

// 64-aligned bytes of NaN between guard words; at most 127 bytes behind the last, and 64 at least,
// memory ends.
class GuardedBytes {
public:
    explicit GuardedBytes(int64_t bytes);
    std::byte* data() const { return data_; }
    bool intact() const;

private:
    int64_t bytes_;
    std::unique_ptr<std::byte, std::function<void(std::byte*)>> mapping_;
    std::byte *data_, *end_;
};

// Elements of one dtype between guard words, and their values in double.
class GuardedBuffer {
public:
    GuardedBuffer(std::string name, DType dtype, int64_t count);  // NaN everywhere
    GuardedBuffer(const GuardedBuffer& other);  // with its elements, between guard words of its own
    GuardedBuffer(GuardedBuffer&&) = default;
    GuardedBuffer& operator=(GuardedBuffer&&) = default;

    // Values drawn from [-scale, scale], rounded to the dtype.
    static GuardedBuffer random(std::string name, DType dtype, int64_t count, std::mt19937& rng,
                                double scale = 1.0);
    static GuardedBuffer output(std::string name, int64_t count);
    static GuardedBuffer integers(std::string name, const std::vector<int32_t>& values);

    uint64_t word() const { return reinterpret_cast<uint64_t>(data()); }
    double at(int64_t i) const;
    void set(int64_t i, double value);
    int64_t count() const { return count_; }
    DType dtype() const { return dtype_; }
    int64_t bytes() const { return dtype_bytes(dtype_, count_); }
    const std::string& name() const { return name_; }
    bool guards_intact() const { return storage_.intact(); }

private:
    std::byte* data() const { return storage_.data(); }
    std::string name_;
    DType dtype_;
    int64_t count_;
    GuardedBytes storage_;
};

struct Counts {
    int64_t tokens = 1, outputs = 1, sequences = 1, singles = 0;
};

// Compiles (through a cache of this test run), loads and runs every item of `kernel`, for the CPU
// of that name; empty: this machine's.
void run_kernel(const codegen::Kernel& kernel, const std::vector<uint64_t>& args,
                const Counts& counts, std::mt19937& rng, const std::string& cpu = "");

// Fails unless |got - want| <= tolerance * (1 + |want|) for every element, naming the first that
// differs.
void check_close(const GuardedBuffer& got, const std::vector<double>& want, double tolerance);

// LLVM's names of CPUs with vectors of 4 lanes (before and after SSE4.1), 8 and 16, as far as this
// machine can be one; with `fused` those that have a fused multiply-add.
std::vector<std::string> cpus_of_each_width(bool fused = false);

// A folder for compiled kernels that lives as long as the test program.
std::string test_cache();

}  // namespace cleave::test
