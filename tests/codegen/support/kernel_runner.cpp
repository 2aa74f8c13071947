// SPDX-License-Identifier: Apache-2.0
#include "tests/codegen/support/kernel_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <tuple>

#include <sys/mman.h>
#include <unistd.h>

#include "codegen/compile/compiler.h"
#include "codegen/compile/host.h"
#include "importer/weights/weight_reader.h"
#include "runtime/base/convert.h"
#include "tests/support/test.h"

namespace cleave::test {

namespace {

constexpr int64_t kGuardBytes = 256;
// Kernels may read so far behind what they are given.
constexpr int64_t kReadBehind = importer::WeightReader::kBehind;
constexpr std::byte kGuard{0xA5};

bool all_guard(const std::byte* begin, const std::byte* end) {
    return std::all_of(begin, end, [](std::byte b) { return b == kGuard; });
}

}  // namespace

GuardedBytes::GuardedBytes(int64_t bytes) : bytes_(bytes) {
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    const int64_t room = (kGuardBytes + 64 + bytes + kReadBehind + page - 1) / page * page;
    void* mapped = ::mmap(nullptr, static_cast<size_t>(room + page), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    mapping_ = {static_cast<std::byte*>(mapped),
                [size = static_cast<size_t>(room + page)](std::byte* p) { ::munmap(p, size); }};
    end_ = mapping_.get() + room;
    REQUIRE(::mprotect(end_, static_cast<size_t>(page), PROT_NONE) == 0);
    std::fill(mapping_.get(), end_, kGuard);
    data_ = mapping_.get() + (room - bytes - kReadBehind) / 64 * 64;
    std::memset(data_, 0xFF, static_cast<size_t>(bytes));
}

bool GuardedBytes::intact() const {
    return all_guard(data_ - kGuardBytes, data_) && all_guard(data_ + bytes_, end_);
}

GuardedBuffer::GuardedBuffer(std::string name, DType dtype, int64_t count)
    : name_(std::move(name)), dtype_(dtype), count_(count), storage_(dtype_bytes(dtype, count)) {}

GuardedBuffer::GuardedBuffer(const GuardedBuffer& other)
    : GuardedBuffer(other.name_, other.dtype_, other.count_) {
    std::memcpy(data(), other.data(), static_cast<size_t>(bytes()));
}

GuardedBuffer GuardedBuffer::random(std::string name, DType dtype, int64_t count, std::mt19937& rng,
                                    double scale) {
    GuardedBuffer buffer(std::move(name), dtype, count);
    std::uniform_real_distribution<double> uniform(-scale, scale);
    for (int64_t i = 0; i < count; ++i) buffer.set(i, uniform(rng));
    return buffer;
}

GuardedBuffer GuardedBuffer::output(std::string name, int64_t count) {
    return GuardedBuffer(std::move(name), DType::kF32, count);
}

GuardedBuffer GuardedBuffer::integers(std::string name, const std::vector<int32_t>& values) {
    GuardedBuffer buffer(std::move(name), DType::kInt32, static_cast<int64_t>(values.size()));
    std::ranges::copy(std::as_bytes(std::span(values)), buffer.data());
    return buffer;
}

double GuardedBuffer::at(int64_t i) const {
    if (dtype_ == DType::kInt32) {
        int32_t integer = 0;
        std::memcpy(&integer, data() + i * 4, 4);
        return integer;
    }
    if (dtype_ == DType::kInt8) return static_cast<int8_t>(data()[i]);
    float value = 0.0f;
    convert_elements(dtype_, data() + i * dtype_bytes(dtype_, 1), DType::kF32, &value, 1);
    return value;
}

void GuardedBuffer::set(int64_t i, double value) {
    if (dtype_ == DType::kInt8) {
        data()[i] = static_cast<std::byte>(std::isnan(value) ? 0 : std::lrint(value));
        return;
    }
    auto narrow = static_cast<float>(value);
    convert_elements(DType::kF32, &narrow, dtype_, data() + i * dtype_bytes(dtype_, 1), 1);
}

std::vector<std::string> cpus_of_each_width(bool fused) {
    const std::string features = " " + codegen::host_compiler_info().features + " ";
    std::vector<std::string> names;
    for (auto [cpu, needs, fuses] : {std::tuple("x86-64", " sse2 ", false),
                                     {"x86-64-v2", " sse4.2 ", false},
                                     {"x86-64-v3", " avx2 ", true},
                                     {"x86-64-v4", " avx512f ", true}})
        if (features.find(needs) != std::string::npos && (!fused || fuses)) names.emplace_back(cpu);
    return names;
}

std::string test_cache() {
    static TemporaryFolder folder;
    return folder.path().string();
}

void run_kernel(const codegen::Kernel& kernel, const std::vector<uint64_t>& args,
                const Counts& counts, std::mt19937& rng, const std::string& cpu) {
    codegen::Program program;
    program.kernels = {kernel};
    codegen::CompileOptions options;
    options.cpu_arch = cpu;
    options.cache_dir = test_cache();
    auto loaded = codegen::load_host_kernels(codegen::compile(program, options).objects);
    codegen::HostEntry entry = loaded->entry(0);

    int64_t items =
        kernel.launch.grid[0].at(counts.tokens, counts.outputs, counts.sequences, counts.singles);
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (int64_t begin = 0; begin < items;) {
        int64_t size =
            std::uniform_int_distribution<int64_t>(1, std::max<int64_t>(1, items / 2))(rng);
        runs.emplace_back(begin, std::min(items, begin + size));
        begin = runs.back().second;
    }
    std::shuffle(runs.begin(), runs.end(), rng);
    GuardedBytes scratch(kernel.launch.shared_bytes);
    std::memset(scratch.data(), 0,
                static_cast<size_t>(std::min<int64_t>(8, kernel.launch.shared_bytes)));
    for (auto [begin, end] : runs) entry(args.data(), begin, end, scratch.data());
    INFO(kernel.name);
    CHECK(scratch.intact());
}

void check_close(const GuardedBuffer& got, const std::vector<double>& want, double tolerance) {
    INFO(got.name());
    REQUIRE(got.count() == static_cast<int64_t>(want.size()));
    CHECK(got.guards_intact());
    for (int64_t i = 0; i < got.count(); ++i) {
        double expected = want[static_cast<size_t>(i)];
        double error = std::abs(got.at(i) - expected);
        if (error <= tolerance * (1.0 + std::abs(expected))) continue;
        FAIL("element " << i << " of " << got.count() << ": got " << got.at(i) << ", want "
                        << expected);
    }
}

}  // namespace cleave::test
