// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/instruction_checks.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "codegen/compile/compiler.h"
#include "runtime/base/convert.h"
#include "tests/simt/support.h"

namespace cleave::test {

namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    const auto all = std::as_bytes(std::span(values));
    return {all.begin(), all.end()};
}
template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

uint16_t narrow(float v, bool brain) { return brain ? f32_to_bf16(v) : f32_to_f16(v); }
std::vector<std::byte> bytes_as(DType dtype, const std::vector<float>& values) {
    if (dtype == DType::kF32) return bytes_of(values);
    std::vector<uint16_t> narrowed;
    for (float v : values) narrowed.push_back(narrow(v, dtype == DType::kBF16));
    return bytes_of(narrowed);
}
const char* entry_of(DType dtype) {
    return dtype == DType::kF32 ? "in_f32" : dtype == DType::kBF16 ? "in_bf16" : "in_f16";
}

size_t at(int row, int columns, int column) {
    return static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(column);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
}

}  // namespace

// ---- Who runs them
// --------------------------------------------------------------------------------------

RunSmall on_simt(const std::string& arch, uint64_t seed, bool checks) {
    namespace simt = runtime::simt;
    auto known = std::make_shared<std::map<std::string, simt::SimtProgram>>();
    return [=](SmallLaunch& l) -> std::string {
        const std::string key = l.entry + "\n" + l.source;
        auto at = known->find(key);
        if (at == known->end())
            at =
                known
                    ->emplace(key, simt::compile_simt(l.source, l.entry, arch, {1, checks, {}, ""}))
                    .first;
        std::vector<std::unique_ptr<simt_test::Buffer<std::byte>>> placed;
        std::vector<uint64_t> args;
        for (const std::vector<std::byte>& buffer : l.buffers) {
            placed.push_back(std::make_unique<simt_test::Buffer<std::byte>>(buffer));
            args.push_back(placed.back()->word());
        }
        args.insert(args.end(), l.integers.begin(), l.integers.end());
        const simt::SimtReport report =
            simt_test::run(at->second, args, {1, l.threads, l.dynamic_bytes}, {seed, seed != 0});
        for (size_t i = 0; i < placed.size(); ++i)
            std::memcpy(l.buffers[i].data(), &(*placed[i])[0], l.buffers[i].size());
        return report.clean() ? "" : report.finding->text();
    };
}

RunSmall on_device(runtime::Device& device, const std::string& arch, const std::string& compiler) {
    codegen::CompileOptions options;
    options.gpu_compiler = compiler;
    return [&device, arch, options](SmallLaunch& l) -> std::string {
        codegen::Program program;
        program.arch = arch;
        codegen::Kernel& kernel = program.kernels.emplace_back();
        kernel.name = l.entry;
        kernel.source = l.source;
        kernel.launch.block = {l.threads, 1, 1};
        kernel.launch.shared_bytes = l.dynamic_bytes;
        device.load(codegen::compile(program, options).objects);
        std::vector<uint64_t> args;
        for (const std::vector<std::byte>& buffer : l.buffers) {
            args.push_back(device.allocate(std::ssize(buffer), "buffer"));
            device.upload(args.back(), buffer);
        }
        args.insert(args.end(), l.integers.begin(), l.integers.end());
        device.launch(0, args, {1, 1, 1}, kernel.launch);
        for (size_t i = 0; i < l.buffers.size(); ++i) device.download(args[i], l.buffers[i]);
        for (size_t i = 0; i < l.buffers.size(); ++i) device.free(args[i]);
        return "";
    };
}

// ---- Matrix instructions
// --------------------------------------------------------------------------------

std::string product_source() {
    return simt_test::with_prelude(R"(
template <class T>
DEVICE void product(const T* a, const T* b, float* c, i64 transposed, i64 rows, i64 cols, i64 depth) {
    FragmentC sum = zero_c();
    FragmentA<T> left = load_a(a, 16, int(rows), int(depth));
    if (transposed) {
        multiply_add(sum, left, load_b_transposed(b, 16, int(cols), int(depth)));
    } else {
        multiply_add(sum, left, load_b(b, 16, int(cols), int(depth)));
    }
    for (int i = 0; i < Tile::kC; ++i) c[Tile::c_row(lane(), i) * 16 + Tile::c_col(lane(), i)] = sum.v[i];
}
KERNEL(WARP) in_f16(const f16* a, const f16* b, float* c, i64 transposed, i64 rows, i64 cols, i64 depth) {
    product(a, b, c, transposed, rows, cols, depth);
}
KERNEL(WARP) in_bf16(const bf16* a, const bf16* b, float* c, i64 transposed, i64 rows, i64 cols, i64 depth) {
    product(a, b, c, transposed, rows, cols, depth);
}
#if defined(CLEAVE_MFMA)
KERNEL(WARP) in_f32(const float* a, const float* b, float* c, i64 transposed, i64 rows, i64 cols, i64 depth) {
    product(a, b, c, transposed, rows, cols, depth);
}
#endif
)");
}

namespace {

std::string wrong_in_product(const codegen::GpuArch& arch, const RunSmall& run, DType dtype,
                             bool transposed, std::array<int, 3> size) {
    const auto [rows, cols, depth] = size;
    const std::string what = fmt::format("{}: {} x {} x {}{} in {}", arch.name, rows, cols, depth,
                                         transposed ? ", b transposed" : "", dtype);
    // Past the edges: NaN, which must not be read into the product.
    std::vector<float> a(256, NAN), b(256, NAN);
    const auto value = [](int i) { return static_cast<float>(i % 17 - 8) / 4.0f; };
    // Of f32, more bits than any narrower type would keep.
    const auto left = [&](int i) {
        return value(i) + (dtype == DType::kF32 ? static_cast<float>(i % 3) / 8192.0f : 0.0f);
    };
    for (int k = 0; k < depth; ++k) {
        for (int r = 0; r < rows; ++r) a[at(r, 16, k)] = left(r * 5 + k * 3);
        for (int n = 0; n < cols; ++n)
            b[transposed ? at(k, 16, n) : at(n, 16, k)] = value(k * 7 + n);
    }
    SmallLaunch launch{
        product_source(),
        entry_of(dtype),
        arch.warp_width,
        0,
        {bytes_as(dtype, a), bytes_as(dtype, b), bytes_of(std::vector<float>(256, NAN))},
        {transposed, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
         static_cast<uint64_t>(depth)}};
    if (std::string report = run(launch); !report.empty()) return what + ": " + report;
    const std::vector<float> c = values_of<float>(launch.buffers[2]);
    for (int r = 0; r < 16; ++r)
        for (int n = 0; n < 16; ++n) {
            float want = 0;  // exact: few bits
            for (int k = 0; k < depth && r < rows && n < cols; ++k)
                want += left(r * 5 + k * 3) * value(k * 7 + n);
            if (const float got = c[at(r, 16, n)]; got != want)
                return fmt::format("{}: [{}, {}] is {}, not {}", what, r, n, got, want);
        }
    return "";
}

}  // namespace

std::string wrong_in_products(const codegen::GpuArch& arch, const RunSmall& run) {
    for (DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
        if (!codegen::multiplies_matrices_of(arch, dtype)) continue;
        for (bool transposed : {false, true})
            for (auto size : {std::array{16, 16, 16}, {5, 3, 8}, {16, 9, 2}})
                if (std::string wrong = wrong_in_product(arch, run, dtype, transposed, size);
                    !wrong.empty())
                    return wrong;
    }
    return "";
}

std::string warpgroup_source(int columns, bool in_registers) {
    std::string text = R"(
template <class T, int N>
DEVICE void product(const T* a, const T* b, float* c) {
    DYNAMIC_SHARED(T, shared);
    const int t = thread_x();
    T* start = shared + (1024 - shared_address(shared) % 1024) % 1024 / 2;
    T* right = start + BEHIND_LEFT;
STORE_LEFT
    for (int i = t; i < N * 64; i += 128) right[PLACE_RIGHT / 2] = b[i];
    WarpgroupSum<N> sum;
    sum.clear();
    async_fence();
    barrier();
    for (int half = 0; half < 64; half += 32) {
        wgmma_fence();
        for (int k = half; k < half + 32; k += 16)
            wgmma<T>(sum, LEFT, RIGHT);
        wgmma_commit();
        /* meanwhile */
        wgmma_wait<0>();
    }
    sum.hold();
    for (int i = 0; i < sum.kC; ++i)
        c[Wgmma64<N>::c_row(t, i) * N + Wgmma64<N>::c_col(t, i)] = sum.at(i);
}
KERNEL(128) in_f16(const f16* a, const f16* b, float* c) { product<f16, COLUMNS>(a, b, c); }
KERNEL(128) in_bf16(const bf16* a, const bf16* b, float* c) { product<bf16, COLUMNS>(a, b, c); }
)";
    const std::pair<const char*, const char*> through_memory[] = {
        {"BEHIND_LEFT", "64 * 64"},
        {"STORE_LEFT",
         "    for (int i = t; i < 64 * 64; i += 128) start[WgmmaOperand::place(i / 64, i % 64) / "
         "2] = a[i];"},
        {"PLACE_RIGHT", "WgmmaOperand::place(i / 64, i % 64)"},
        {"LEFT", "WgmmaOperand::descriptor(shared_address(start + k))"},
        {"RIGHT", "WgmmaOperand::descriptor(shared_address(right + k))"}};
    const std::pair<const char*, const char*> registers[] = {
        {"BEHIND_LEFT", "0"},
        {"STORE_LEFT", R"(    WarpgroupFragment<T> left[4];
    using L = Wgmma64<16>;
    for (int k = 0; k < 4; ++k)
        for (int i = 0; i < 4; ++i) {
            const T* from = a + L::a_row(t, 2 * i) * 64 + 16 * k + L::a_depth(t, 2 * i);
            left[k].set(i, to_float(from[0]), to_float(from[1]));
        })"},
        {"PLACE_RIGHT", "(i / 64 / 64 * 64 * 128 + WgmmaOperand::place(i % 64, i / 64 % 64))"},
        {"LEFT", "left[k / 16]"},
        {"RIGHT", "WgmmaOperand::transposed(shared_address(right + k * 64), 64 * 128)"}};
    for (const auto& [name, form] : in_registers ? registers : through_memory)
        replace_all(text, name, form);
    replace_all(text, "COLUMNS", std::to_string(columns));
    return simt_test::with_prelude(text);
}

SmallLaunch warpgroup_launch(const std::string& source, int columns, bool brain) {
    const auto n = static_cast<size_t>(columns);
    std::vector<uint16_t> a(64 * 64), b(n * 64);
    for (size_t i = 0; i < a.size(); ++i)
        a[i] = narrow(static_cast<float>(i * 7 % 23) - 11.0f, brain);
    for (size_t i = 0; i < b.size(); ++i)
        b[i] = narrow(static_cast<float>(i * 5 % 19) / 4.0f - 2.0f, brain);
    return {source,
            entry_of(brain ? DType::kBF16 : DType::kF16),
            128,
            32768,
            {bytes_of(a), bytes_of(b), bytes_of(std::vector<float>(64 * n, NAN))}};
}

std::string wrong_in_warpgroup_product(int columns, bool in_registers, bool brain,
                                       const RunSmall& run) {
    SmallLaunch launch = warpgroup_launch(warpgroup_source(columns, in_registers), columns, brain);
    const std::string what =
        fmt::format("wgmma of {} columns{} in {}", columns, in_registers ? ", A in registers" : "",
                    brain ? "bf16" : "f16");
    if (std::string report = run(launch); !report.empty()) return what + ": " + report;
    const std::vector<float> c = values_of<float>(launch.buffers[2]);
    for (int r = 0; r < 64; ++r)
        for (int j = 0; j < columns; ++j) {
            float want = 0;  // exact: multiples of a quarter
            for (int k = 0; k < 64; ++k)
                want += (static_cast<float>((r * 64 + k) * 7 % 23) - 11.0f) *
                        (static_cast<float>((j * 64 + k) * 5 % 19) / 4.0f - 2.0f);
            if (const float got = c[at(r, columns, j)]; got != want)
                return fmt::format("{}: [{}, {}] is {}, not {}", what, r, j, got, want);
        }
    return "";
}

// ---- Other leaves
// ---------------------------------------------------------------------------------------

namespace {

// What thread t of `threads` in warps of `width` sees: the row that it writes in wrong_in_lanes.
std::array<float, 14> seen_by(int t, int width, int threads) {
    const int warp = t / width, l = t % width, base = t - l, other = (t + 1) % threads;
    uint32_t ballot = 0;
    for (int i = 0; i < std::min(width, 16); ++i) ballot |= i % 3 == 0 ? 1u << i : 0;
    float sum = 0, most = 0, group = 0, group_most = 0;
    for (int i = base; i < base + width; ++i) {
        sum += static_cast<float>(i);
        most = std::max(most, static_cast<float>(i % 7));
        if (i / 8 == t / 8) group += static_cast<float>(i);
        if (i / 4 == t / 4) group_most = std::max(group_most, static_cast<float>(i % 5));
    }
    return {other % 3 != 0 ? static_cast<float>(4 * other + 3) + 0.25f : 0,
            sum,
            most,
            group,
            group_most,
            static_cast<float>(base + 3),
            static_cast<float>(l >= 1 ? t - 1 : t),
            static_cast<float>(l + 2 < width ? t + 2 : t),
            static_cast<float>(base + (l ^ 5)),
            static_cast<float>(ballot),
            base == 0 ? 1.0f : 0.0f,
            base == 0 ? 0.0f : 1.0f,
            static_cast<float>(warp),
            static_cast<float>(base + 2)};
}

}  // namespace

std::string wrong_in_lanes(const codegen::GpuArch& arch, const RunSmall& run) {
    // Two warps. Each lane writes a row of what it saw; the atomics leave their words behind.
    constexpr int kSeen = 14;
    const int width = arch.warp_width, threads = 2 * width;
    SmallLaunch launch{simt_test::with_prelude(R"(
KERNEL(2 * WARP) lanes(const float* x, float* seen, u32* words) {
    SHARED(float, tile[4 * 2 * WARP]);
    const int t = thread_x(), l = lane();
    float* row = seen + t * 14;
    async_copy<16>(&tile[4 * t], x + 4 * t, t % 3 != 0);
    async_commit();
    async_wait<0>();
    barrier();
    const int other = (t + 1) % (2 * WARP);
    row[0] = tile[4 * other + 3];
    row[1] = warp_sum(float(t));
    row[2] = warp_max(float(t % 7));
    row[3] = group_sum<8>(float(t));
    row[4] = group_max<4>(float(t % 5));
    row[5] = shuffle(float(t), 3);
    row[6] = shuffle_up(float(t), 1);
    row[7] = shuffle_down(float(t), 2);
    row[8] = shuffle_xor(float(t), 5);
    row[9] = float(u32(u64(ballot(l % 3 == 0)) & 0xffffu));
    row[10] = warp_any(t == 1) ? 1.0f : 0.0f;
    row[11] = warp_all(t >= WARP) ? 1.0f : 0.0f;
    row[12] = float(warp());
    row[13] = float(i32(u32(shuffle(u64(t) << 33, 2) >> 33)));
    atomic_add(words, 1u);
    atomic_max(words + 1, u32(t));
    atomic_min(words + 2, u32(t + 5));
    atomic_add(reinterpret_cast<float*>(words + 3), 0.5f);
    atomic_exchange(words + 4, 7u);
    atomic_cas(words + 5, 9u, 11u);
})"),
                       "lanes",
                       threads,
                       0,
                       {bytes_of([&] {
                            std::vector<float> x;
                            for (int i = 0; i < 4 * threads; ++i)
                                x.push_back(static_cast<float>(i) + 0.25f);
                            return x;
                        }()),
                        bytes_of(std::vector<float>(static_cast<size_t>(threads * kSeen), NAN)),
                        bytes_of(std::vector<uint32_t>{0, 0, 1000, 0, 0, 9})}};
    if (std::string report = run(launch); !report.empty()) return "lanes: " + report;
    const std::vector<float> seen = values_of<float>(launch.buffers[1]);
    for (int t = 0; t < threads; ++t) {
        const std::array<float, kSeen> want = seen_by(t, width, threads);
        for (int i = 0; i < kSeen; ++i)
            if (const float saw = seen[at(t, kSeen, i)]; saw != want[static_cast<size_t>(i)])
                return fmt::format("lanes: thread {} saw {} at {}, not {}", t, saw, i,
                                   want[static_cast<size_t>(i)]);
    }
    const std::vector<uint32_t> words = values_of<uint32_t>(launch.buffers[2]);
    const auto all = static_cast<uint32_t>(threads);
    const std::vector<uint32_t> want{
        all, all - 1, 5, std::bit_cast<uint32_t>(static_cast<float>(threads) * 0.5f), 7, 11};
    for (size_t i = 0; i < want.size(); ++i)
        if (words[i] != want[i])
            return fmt::format("atomics: word {} is {}, not {}", i, words[i], want[i]);
    return "";
}

std::string wrong_in_numbers(const RunSmall& run) {
    constexpr size_t kCount = 4001;
    std::vector<float> x(kCount);
    for (size_t i = 0; i < kCount; ++i) x[i] = (static_cast<float>(i) - 2000.0f) * 0.01f + 1e-4f;
    x[0] = std::nanf("");
    SmallLaunch launch{
        simt_test::with_prelude(R"(
KERNEL(64) numbers(const float* x, float* y, u16* half, u16* brain, i64 n) {
    for (i64 i = thread_x(); i < n; i += 64) {
        y[6 * i + 0] = exp(x[i]);
        y[6 * i + 1] = tanh(x[i]);
        y[6 * i + 2] = sigmoid(x[i]);
        y[6 * i + 3] = rsqrt(abs(x[i]));
        y[6 * i + 4] = to_float(f16{float_to_f16(x[i])});
        y[6 * i + 5] = kInfinity;
        half[i] = from_float<f16>(x[i]).bits;
        brain[i] = from_float<bf16>(x[i]).bits;
    }
})"),
        "numbers",
        64,
        0,
        {bytes_of(x), bytes_of(std::vector<float>(6 * kCount)),
         bytes_of(std::vector<uint16_t>(kCount)), bytes_of(std::vector<uint16_t>(kCount))},
        {kCount}};
    if (std::string report = run(launch); !report.empty()) return "numbers: " + report;
    const auto y = values_of<float>(launch.buffers[1]);
    const auto half = values_of<uint16_t>(launch.buffers[2]),
               brain = values_of<uint16_t>(launch.buffers[3]);
    double worst[4] = {};
    for (size_t i = 1; i < kCount; ++i) {
        const double v = x[i];
        const double exact[4] = {std::exp(v), std::tanh(v), 1 / (1 + std::exp(-v)),
                                 1 / std::sqrt(std::fabs(v))};
        for (size_t k = 0; k < 4; ++k) {
            const double off = std::fabs(y[6 * i + k] / exact[k] - 1);
            worst[k] = off <= worst[k] ? worst[k] : off;
        }
        if (half[i] != f32_to_f16(x[i]) || brain[i] != f32_to_bf16(x[i]) ||
            y[6 * i + 4] != f16_to_f32(f32_to_f16(x[i])) || !std::isinf(y[6 * i + 5]))
            return fmt::format("numbers: {} is converted to {:#x}, {:#x} and {}", x[i], half[i],
                               brain[i], y[6 * i + 4]);
    }
    // exp of 20: the argument's rounding in base 2.
    const double most[4] = {3e-6, 2e-6, 3e-6, 2e-7};
    for (size_t k = 0; k < 4; ++k)
        if (!(worst[k] < most[k]))
            return fmt::format("numbers: function {} is off by {}", k, worst[k]);
    if (!std::isnan(bf16_to_f32(brain[0])) || !std::isnan(f16_to_f32(half[0])))
        return "numbers: NaN is converted to a number";
    return "";
}

std::string wrong_in_instructions(const codegen::GpuArch& arch, const RunSmall& run) {
    std::string wrong = wrong_in_products(arch, run);
    if (wrong.empty()) wrong = wrong_in_lanes(arch, run);
    if (wrong.empty()) wrong = wrong_in_numbers(run);
    if (!arch.warpgroups) return wrong;
    for (bool brain : {false, true})
        for (int columns : {16, 32, 64, 128})
            for (bool in_registers : {false, true}) {
                if (in_registers && columns < 64) continue;  // there is no such instruction
                if (wrong.empty())
                    wrong = wrong_in_warpgroup_product(columns, in_registers, brain, run);
            }
    return wrong;
}

}  // namespace cleave::test
