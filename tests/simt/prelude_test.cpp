// SPDX-License-Identifier: Apache-2.0
// The prelude compiles for every architecture with every GPU compiler that this machine has. What
// its functions compute: matrix_test.cpp.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "codegen/compile/amdgpu.h"
#include "codegen/compile/choose.h"
#include "codegen/compile/vendor.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/text/templates.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;

namespace {

namespace fs = std::filesystem;

// Uses every function of the prelude once.
const char* const kEverything = R"(
template <class T>
DEVICE void everything(const T* a, const T* b, float* c, i64 n) {
    SHARED(T, tile[16 * 16]);
    DYNAMIC_SHARED(float, shared);
    async_copy<16>(&tile[8 * (thread_x() % 32)], a + 8 * (thread_x() % 32), n > 3);
    async_commit();
    async_wait<0>();
    barrier();
    shared[thread_x()] = to_float(b[thread_x()]) + tanh(to_float(b[1])) + sigmoid(3.0f + float(n)) + log2(float(n));
    barrier();
    float s = warp_sum(shared[thread_x()]) + warp_max(shared[0]) + float(ballot(n > thread_x()));
    s += group_sum<8>(s) + group_max<4>(s) + shuffle_up(s, 1) + float(shuffle(u64(n), 3)) + shuffle(s, 2);
    s += shuffle_down(kAllLanes, s, 1) + shuffle_xor(s, 4) + shuffle_xor(mask_t(kAllLanes), i32(n), 1);
    if (warp_any(s > 3.0f) && warp_all(s < 9.0f)) s = fma(abs(s), floor(s), min(s, max(2.0f, sqrt(s))));
#ifdef CLEAVE_MATRIX
    FragmentC sum = zero_c();
    multiply_add(sum, load_a(tile, 16), load_b(b, 16));
    multiply_add(sum, load_a(tile, 16, 15, 14), load_b_transposed(b, 16, 5, 7));
    for (int i = 0; i < Tile::kC; ++i) c[Tile::c_row(lane(), i) * n + Tile::c_col(lane(), i)] = sum.v[i];
#endif
#ifdef CLEAVE_WGMMA
    WarpgroupSum<32> product;
    product.clear();
    async_fence();
    wgmma_fence();
    wgmma<T>(product, WgmmaOperand::descriptor(shared_address(tile)), WgmmaOperand::descriptor(shared_address(shared)));
    wgmma_commit();
    wgmma_wait<0>();
    product.hold();
    for (int i = 0; i < product.kC; ++i) c[Wgmma64<32>::c_row(thread_x(), i) * n + Wgmma64<32>::c_col(thread_x(), i)] = product.at(i);
#endif
    auto* words = reinterpret_cast<u32*>(c);
    atomic_add(c, s);
    atomic_add(words, 1u);
    atomic_add(reinterpret_cast<i32*>(c), 1);
    atomic_add(reinterpret_cast<u64*>(c), u64(1));
    atomic_max(words, atomic_min(words, 3u));
    atomic_max(reinterpret_cast<i32*>(c), atomic_min(reinterpret_cast<i32*>(c), -3));
    atomic_exchange(words, atomic_cas(words, 1u, 2u));
    fence_block();
    fence_device();
    warp_sync();
    store_volatile(c, load_volatile(c) + rsqrt(s) + reciprocal(s) + exp(s));
    store_vector(c + 4 * thread_x(), load_vector<4>(c));
    c[blocks_x() + blocks_y() + blocks_z() + threads_x() + threads_y() + threads_z() + block_y() + block_z() +
      thread_y() + thread_z() + warp()] = s + to_float(from_float<T>(s)) + kInfinity;
}
KERNEL(64) in_f16(const f16* a, const f16* b, float* c, i64 n) { everything(a, b, c, n); }
KERNEL(64) in_bf16(const bf16* a, const bf16* b, float* c, i64 n) { everything(a, b, c, n); }
#ifdef CLEAVE_MFMA
KERNEL(64) in_f32(const float* a, const float* b, float* c, i64 n) { everything(a, b, c, n); }
#endif
)";

bool have_tool(const std::string& name) {
    return std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;
}

// Runs `command` with the source's path for {0} and an output path for {1}; its messages, empty
// when it succeeded.
std::string compile_with(const std::string& command, const std::string& suffix) {
    fs::path folder = fs::temp_directory_path() / fmt::format("cleave-prelude-{}", ::getpid());
    fs::create_directories(folder);
    fs::path source = folder / ("prelude" + suffix), log = folder / "log", out = folder / "out";
    std::ofstream(source) << with_prelude(kEverything);
    std::string line = fmt::format(fmt::runtime(command), source.string(), out.string());
    int status = std::system((line + " > " + log.string() + " 2>&1").c_str());
    std::ifstream stream(log);
    std::string messages((std::istreambuf_iterator<char>(stream)), {});
    bool made = fs::exists(out) && fs::file_size(out) > 0;
    fs::remove_all(folder);
    return status == 0 && made ? "" : line + "\n" + messages;
}

// The first compilation with these options parses the prelude, the second one precompiles it, and
// the third one loads it.
void check_same_precompiled(const std::string& templates,
                            const codegen::SimtCompileOptions& options) {
    const codegen::GpuArch& arch = codegen::gpu_arch("gfx90a");
    auto with = [&](const std::string& body) {
        return codegen::flatten_template(templates) + "namespace cleave {\n#line 1 \"test.cu\"\n" +
               body + "\n}\n";
    };
    const std::string good = with(kEverything);
    const std::string bad = with(R"(
KERNEL(64) in_f16(float* p) {
    p[0] = warp_sum(p);
    p[1] = warp_sums(1.0f);
})");
    // Text before the prelude is part of the source, too.
    const std::string led =
        "// a comment\n#define LED 1\n" + with("KERNEL(64) in_f16(float* p) { p[0] = LED; }");
    auto outcome = [&](const std::string& source) {
        try {
            return codegen::compile_simt_kernel(source, "in_f16", arch, options).object;
        } catch (const InternalError& error) {
            const std::string_view text = error.what();
            const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
            return std::vector<std::byte>(bytes, bytes + text.size());
        }
    };
    const auto parsed = outcome(good);
    CHECK(outcome(good) == parsed);
    CHECK(outcome(good) == parsed);
    CHECK_NOTHROW(codegen::compile_simt_kernel(led, "in_f16", arch, options));
    const auto loaded = outcome(bad);
    // Other options, hence parsed again.
    codegen::SimtCompileOptions others = options;
    others.defines.emplace_back("CLEAVE_UNSEEN_ERROR=1");
    std::string text;
    try {
        codegen::compile_simt_kernel(bad, "in_f16", arch, others);
    } catch (const InternalError& error) {
        text = error.what();
    }
    for (const char* error : {":12: error: no matching function for call to 'warp_sum'",
                              ":12: error: use of undeclared identifier 'warp_sums'"})
        CHECK_THAT(text, Catch::Matchers::Contains(error));
    CHECK(text == std::string(reinterpret_cast<const char*>(loaded.data()), loaded.size()));
}

}  // namespace

TEST_CASE("the prelude compiles with NVRTC for every NVIDIA architecture", "[simt]") {
    codegen::CompileOptions options;
    options.gpu_compiler = "nvrtc";
    const codegen::GpuCompilerInfo nvrtc = codegen::nvrtc_info(options);
    if (!nvrtc.available) CLEAVE_SKIP("no NVRTC: " + nvrtc.reason);
    codegen::Kernel kernel;
    kernel.name = "in_f16";
    kernel.source = with_prelude(kEverything);
    int compiled = 0;
    for (const codegen::GpuArch& arch : codegen::gpu_archs()) {
        const std::string number =
            fmt::format("sm_{} ", arch.number);  // NVRTC lists sm_90a as this
        if (arch.vendor != planner::Vendor::kNvidia ||
            (nvrtc.archs + " ").find(number) == std::string::npos)
            continue;
        INFO(arch.name);
        CHECK_FALSE(codegen::make_gpu_compiler(arch, options)->compile(kernel).object.empty());
        ++compiled;
    }
    CHECK(compiled > 0);
}

TEST_CASE("the prelude compiles with nvcc", "[simt][slow]") {
    if (!have_tool("nvcc")) CLEAVE_SKIP("no nvcc on the search path");
    for (const char* arch : {"sm_75", "sm_80", "sm_90a"})
        CHECK(compile_with(std::string("nvcc -arch=") + arch + " -std=c++17 -cubin {0} -o {1}",
                           ".cu") == "");
}

TEST_CASE("the prelude compiles with Clang for every AMD architecture it knows, without ROCm",
          "[simt]") {
    if (!have_tool("clang-19")) CLEAVE_SKIP("no clang-19 on the search path");
    const std::string known = codegen::amdgpu_clang_info().archs + " ";
    int compiled = 0;
    for (const codegen::GpuArch& arch : codegen::gpu_archs()) {
        if (known.find(std::string(arch.name) + " ") == std::string::npos) continue;
        std::string command = fmt::format(
            "clang-19 -x hip --offload-device-only --offload-arch={} -nogpulib -nogpuinc "
            "-std=c++17 -O2 -Werror -fno-strict-aliasing -S {{0}} -o {{1}}",
            arch.name);
        CHECK(compile_with(command, ".hip") == "");
        ++compiled;
    }
    CHECK(compiled >= 10);  // all but gfx950, which LLVM 19 does not know
}

TEST_CASE("the prelude compiles for every architecture that simt imitates", "[simt]") {
    for (const codegen::GpuArch& arch : codegen::gpu_archs())
        for (const char* entry : {"in_f16", "in_bf16", "in_f32"}) {
            const bool f32 = std::string_view(entry) == "in_f32";
            if (f32 && !codegen::multiplies_matrices_of(arch, DType::kF32)) continue;
            CHECK_NOTHROW(codegen::compile_simt_kernel(with_prelude(kEverything), entry, arch, {}));
        }
}

TEST_CASE("a kernel and its errors are the same with parsed and with precompiled templates",
          "[simt]") {
    int run = 0;
    for (const char* templates : {"gpu/prelude.cuh", "gpu/linear.cuh"})
        for (bool checks : {true, false})
            check_same_precompiled(templates,
                                   {1, checks, {fmt::format("CLEAVE_UNSEEN={}", run++)}, ""});
}

TEST_CASE("a kernel's templates are found up to the first that is not as embedded", "[simt]") {
    const std::string prelude = codegen::flatten_template("gpu/prelude.cuh");
    const std::string linear = codegen::flatten_template("gpu/linear.cuh");
    const std::string head = "// a kernel\n\n";
    auto found = [](const std::string& source) {
        const codegen::TemplatePart part = codegen::find_templates(source);
        return std::vector{part.begin, part.prelude_end, part.end};
    };
    const size_t begin = head.size();
    CHECK(found(head + linear + "namespace cleave {}\n") ==
          std::vector{begin, begin + prelude.size(), begin + linear.size()});
    CHECK(found(with_prelude("")) == std::vector{size_t{0}, prelude.size(), prelude.size()});
    std::string changed = head + linear;
    const std::string last = "// ---- codegen/templates/gpu/linear.cuh\n";
    changed.insert(changed.size() - 1, " ");
    CHECK(found(changed) == std::vector{begin, begin + prelude.size(), begin + linear.find(last)});
    for (const char* before : {"#define X\n", "// a comment \\\n", "int x;\n"})
        CHECK(found(before + linear) == std::vector<size_t>{0, 0, 0});
    CHECK(found("// no template") == std::vector<size_t>{0, 0, 0});
}
