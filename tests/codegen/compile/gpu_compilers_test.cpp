// SPDX-License-Identifier: Apache-2.0
// Every run-time compiler of GPUs: its objects, its messages, what it does when it is absent or
// knows too little. No device is needed; a compiler that is absent is a skip with the reason.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "codegen/compile/amdgpu.h"
#include "codegen/compile/choose.h"
#include "codegen/compile/drive.h"
#include "codegen/compile/gpu_objects.h"
#include "codegen/compile/vendor.h"
#include "codegen/generate.h"
#include "codegen/gpu/exchange.h"
#include "codegen/gpu/kernels.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/codegen/support/plan_programs.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using test::absence;
using test::through;

namespace {

Kernel small_kernel(const std::string& body) {
    Kernel kernel;
    kernel.name = "small";
    kernel.source = body;
    return kernel;
}

constexpr const char* kEmpty =
    "extern \"C\" __attribute__((global)) void small(int* p) { *p = 1; }\n";

}  // namespace

TEST_CASE("a cubin's static shared memory is what the kernel declares, whatever the arch reserves",
          "[codegen]") {
    if (std::string why = absence("nvrtc"); !why.empty()) CLEAVE_SKIP("no NVRTC: " + why);
    const std::string source =
        "extern \"C\" __global__ void small(int* p) {\n"
        "    __shared__ int s[100];\n"
        "    s[threadIdx.x] = *p;\n"
        "    __syncthreads();\n"
        "    p[1] = s[5];\n}\n";
    for (const char* arch : {"sm_80", "sm_90a", "sm_100"}) {
        CAPTURE(arch);
        auto compiler = make_gpu_compiler(gpu_arch(arch), through("nvrtc"));
        Resources r = compiler->compile(small_kernel(source)).measured;
        CHECK(r.known);
        CHECK(r.shared_bytes == 400);
        CHECK(r.spill_bytes == 0);
        CHECK(compiler->compile(small_kernel(kEmpty)).measured.shared_bytes == 0);
    }
}

TEST_CASE("exchanges by peer memory compile for both vendors and keep their sums in registers",
          "[codegen]") {
    planner::PeerCut cut;
    cut.threads = 256;
    cut.unit = 4096;
    cut.channels = 32;
    cut.row_bytes = 8192;
    const std::vector<int64_t> slices(8, 1 << 17);
    planner::PeerCut rows = cut;
    rows.threads = planner::kPeerRowThreads;
    rows.unit = rows.row_bytes;
    const PeerSpec specs[] = {
        PeerSendSpec{cut, 8, 8192, 1 << 17, 2},
        PeerReceiveSpec{cut, 8, {{4096, 0, 1 << 17}, {4096, 4096, 1 << 17}}, 8192},
        PeerAllReduceSpec{cut, 8, 4096, slices, 1 << 17, 8, true, false},
        PeerAllReduceSpec{cut, 8, 4096, slices, 1 << 17, 8, true, true},
        PeerAllReduceSpec{rows, 8, 4096, slices, 1 << 17, 8, true, false, NormSpec{DType::kBF16}}};
    // Rows of 8192 and 16384 in f32, as models of 70B and 405B have them: what sm_100 had no
    // registers for.
    const auto with_norm = [&](int64_t width) {
        planner::PeerCut wide = rows;
        wide.unit = wide.row_bytes = 4 * width;
        return PeerAllReduceSpec{
            wide, 8, width, slices, 1 << 17, 8, true, false, NormSpec{DType::kBF16}};
    };
    for (auto [compiler, name] :
         {std::pair("nvrtc", "sm_80"), std::pair("nvrtc", "sm_86"), std::pair("nvrtc", "sm_90a"),
          std::pair("nvrtc", "sm_100"), std::pair("nvrtc", "sm_120"), std::pair("clang", "gfx90a"),
          std::pair("clang", "gfx942")}) {
        CAPTURE(compiler, name);
        if (std::string why = absence(compiler); !why.empty()) {
            WARN("not compiled with " << compiler << ": " << why);
            continue;
        }
        Program program;
        program.arch = name;
        GpuTarget target;
        target.device = name;
        target.activations = DType::kBF16;
        target.limits.warp_width = gpu_arch(name).warp_width;
        for (const PeerSpec& spec : specs)
            program.kernels.push_back(make_peer_kernel(spec, target));
        target.activations = DType::kF32;
        for (int64_t width : {8192, 16384})
            program.kernels.push_back(make_peer_kernel(with_norm(width), target));
        const std::vector<CompiledKernel> compiled = compile(program, through(compiler)).objects;
        for (const CompiledKernel& kernel : compiled) {
            CAPTURE(kernel.name, kernel.measured.registers, kernel.measured.stack_bytes);
            CHECK(kernel.measured.known);
            CHECK(kernel.measured.spill_bytes == 0);
            // Two blocks of a compute unit leave room for what they wait for.
            CHECK(kernel.measured.registers <= 128);
        }
    }
}

TEST_CASE("an arch that hipRTC does not know gives an error, although the library aborts",
          "[codegen]") {
    if (std::string why = absence("hiprtc"); !why.empty()) CLEAVE_SKIP("no hipRTC: " + why);
    GpuArch unknown = gpu_arch("gfx90a");
    unknown.name = "gfx1999";
    std::string message = test::user_error([&] { make_hiprtc_compiler(unknown, through("")); });
    CHECK(message.find("does not know gfx1999") != std::string::npos);
    CHECK(message.find("hipRTC ") != std::string::npos);
    // With what it said; the answer is kept, words and all.
    CHECK(message.find("it said: ") + 9 < message.size());
    CHECK(test::user_error([&] { make_hiprtc_compiler(unknown, through("")); }) == message);
    // The automatic choice then says what neither compiler could do.
    std::string both = test::user_error([&] { make_gpu_compiler(unknown, through("")); });
    CHECK(both.find("hipRTC") != std::string::npos);
    CHECK(both.find("knows no AMD GPU 'gfx1999'") != std::string::npos);
}

TEST_CASE("a probe of hipRTC that failed for another reason is told with its log, and not kept",
          "[codegen]") {
    test::TemporaryFolder folder;
    const std::string worker = (folder.path() / "worker").string();
    // Messages of codegen/compile/worker/protocol.h: a count, then sizes and bytes.
    auto as_worker = [&](const std::string& answer, const std::string& signal = "9") {
        auto message = [](std::initializer_list<std::string> strings) {
            auto number = [](size_t n) {
                return fmt::format("\\{:03o}", n) + "\\000\\000\\000\\000\\000\\000\\000";
            };
            std::string text = number(strings.size());
            for (const std::string& s : strings) text += number(s.size()) + s;
            return "printf '" + text + "'\n";
        };
        std::ofstream(worker) << "#!/bin/sh\n"
                              << message({"ready", "libfake.so", "9.9", ""})
                              << "head -c 1 > /dev/null\n"
                              << (answer.empty() ? "kill -" + signal + " $$\n"
                                                 : message({"failed", answer, "", ""}))
                              << "exec cat > /dev/null\n";
        std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
    };
    CompileOptions options = through("hiprtc");
    const std::filesystem::path cache = folder.path() / "cache";
    options.cache_dir = cache.string();
    const GpuArch& arch = gpu_arch("gfx90a");
    ::setenv("CLEAVE_COMPILE_WORKER", worker.c_str(), 1);
    auto error = [&] { return test::user_error([&] { make_hiprtc_compiler(arch, options); }); };
    as_worker("");
    const std::string killed = error();
    as_worker("", "15");
    const std::string ended = error();
    as_worker("error: no space left");
    const std::string full = error();
    const bool kept_any = std::filesystem::exists(cache) && !std::filesystem::is_empty(cache);
    as_worker("clang: error: invalid target ID gfx90a");
    const std::string unknown = error();
    ::unsetenv("CLEAVE_COMPILE_WORKER");
    CHECK_THAT(killed, Catch::Contains("ended by signal 9 (Killed), often for lack of memory") &&
                           Catch::Contains("did not compile an empty kernel for gfx90a"));
    CHECK_THAT(ended,
               Catch::Contains("ended by signal 15 (Terminated)") && !Catch::Contains("memory"));
    CHECK_THAT(full, Catch::Contains("error: no space left"));
    CHECK_FALSE(kept_any);
    CHECK_THAT(unknown, Catch::Contains("hipRTC 9.9 (libfake.so) does not know gfx90a") &&
                            Catch::Contains("invalid target ID"));
    CHECK_FALSE(std::filesystem::is_empty(cache));
}

TEST_CASE("Clang refuses an AMD arch that LLVM does not know", "[codegen]") {
    GpuArch unknown = gpu_arch("gfx90a");
    unknown.name = "gfx1999";
    std::string message = test::user_error([&] { make_amdgpu_compiler(unknown); });
    CHECK(message.find("gfx1999") != std::string::npos);
}

TEST_CASE("a missing NVRTC lists every name that was tried, and the fix", "[codegen]") {
    CompileOptions options = through("");
    options.nvrtc = "/nowhere/libnvrtc.so.99";
    std::string message = test::user_error([&] { make_gpu_compiler(gpu_arch("sm_90a"), options); });
    CHECK(message.find("/nowhere/libnvrtc.so.99") != std::string::npos);
    CHECK(message.find("nvidia-cuda-nvrtc") != std::string::npos);
    CHECK(message.find("$nvrtc PATH") != std::string::npos);
}

TEST_CASE("of several NVRTC the first is taken whose objects the CUDA driver loads", "[codegen]") {
    namespace fs = std::filesystem;
    const test::TemporaryFolder folder;
    const fs::path older = folder.path() / "libnvrtc.so.12",
                   newer = folder.path() / "libnvrtc.so.13";
    for (const fs::path& file : {older, newer}) fs::copy_file(CLEAVE_FAKE_NVRTC, file);
    fs::create_symlink(newer, folder.path() / "libnvrtc.so");
    CompileOptions options;
    options.nvrtc = folder.path();
    const auto chosen = [&](const std::string& driver) {
        options.drivers[planner::Vendor::kNvidia] = driver;
        return make_nvrtc_compiler(gpu_arch("sm_90a"), options)->name();
    };
    // Within a major version a driver loads what a newer minor one made.
    for (const char* driver : {"12.0", "12.4", "12.9"}) {
        CAPTURE(driver);
        CHECK_THAT(chosen(driver), Catch::Matchers::StartsWith("NVRTC 12.4 (libnvrtc.so.12)"));
        CHECK(nvrtc_info(options).passed_over ==
              std::vector{fmt::format("NVRTC 13.4 ({})", newer.string())});
    }
    for (const char* driver : {"13.0", "14.1", ""}) {
        CAPTURE(driver);
        CHECK_THAT(chosen(driver), Catch::Matchers::StartsWith("NVRTC 13.4 (libnvrtc.so.13)"));
        CHECK(nvrtc_info(options).passed_over.empty());
    }
    CHECK_THAT(
        test::user_error([&] { chosen("11.8"); }),
        Catch::Matchers::Contains("for sm_90a") &&
            Catch::Matchers::Contains("CUDA 11.8 and loads what NVRTC of CUDA 11 or older") &&
            Catch::Matchers::Contains(fmt::format("found NVRTC 13.4 ({}), NVRTC 12.4 ({})",
                                                  newer.string(), older.string())) &&
            Catch::Matchers::Contains("$nvrtc PATH"));
    CHECK_FALSE(nvrtc_info(options).available);
    // One file that was asked for by name, and no other beside it.
    options.nvrtc = newer;
    CHECK_THAT(test::user_error([&] { chosen("12.4"); }),
               Catch::Matchers::Contains("found NVRTC 13.4"));
}

// As on a machine without them: the real worker gets each name with ".absent" behind it.
TEST_CASE("where NVRTC or hipRTC is missing, the message lists every name tried, in order",
          "[codegen]") {
    test::TemporaryFolder folder;
    const std::filesystem::path worker = folder.path() / "worker";
    const std::filesystem::path real =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "cleave_compile_worker";
    REQUIRE(std::filesystem::exists(real));
    std::ofstream(worker) << "#!/bin/sh\nkind=$1\nshift\n"
                          << "for name; do shift; set -- \"$@\" \"$name.absent\"; done\n"
                          << "exec '" << real.string() << "' \"$kind\" \"$@\"\n";
    std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
    ::setenv("CLEAVE_COMPILE_WORKER", worker.c_str(), 1);
    const GpuCompilerInfo infos[] = {nvrtc_info({}), hiprtc_info({})};
    const std::string messages[] = {
        test::user_error([&] { make_nvrtc_compiler(gpu_arch("sm_90a"), through("nvrtc")); }),
        test::user_error([&] { make_hiprtc_compiler(gpu_arch("gfx90a"), through("hiprtc")); })};
    // The automatic choice does without hipRTC.
    CHECK_NOTHROW(make_gpu_compiler(gpu_arch("gfx90a"), through("")));
    ::unsetenv("CLEAVE_COMPILE_WORKER");
    for (size_t i = 0; i < 2; ++i) {
        INFO(messages[i]);
        CHECK_FALSE(infos[i].available);
        CHECK(infos[i].tried.size() >= 4);
        size_t at = 0;
        for (const std::string& name : infos[i].tried) {
            CAPTURE(name);
            at = messages[i].find(name + ".absent: ", at);
            REQUIRE(at != std::string::npos);
            CHECK(infos[i].reason.find(name + ".absent: ") != std::string::npos);
        }
    }
    for (const char* name : {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"})
        CHECK_THAT(infos[0].tried, Catch::VectorContains(std::string(name)));
    for (const char* name : {"libhiprtc.so", "libhiprtc.so.7", "libamdhip64.so.5"})
        CHECK_THAT(infos[1].tried, Catch::VectorContains(std::string(name)));
}

TEST_CASE("NVRTC is looked for beside the programs on PATH, a toolkit's and a Python's",
          "[codegen]") {
    namespace fs = std::filesystem;
    const test::TemporaryFolder folder;
    const fs::path toolkit = folder.path() / "toolkit", python = folder.path() / "python";
    const fs::path files[] = {
        toolkit / "targets/x86_64-linux/lib/libnvrtc.so.13",
        python / "lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        python / "lib/python3/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"};
    for (const fs::path& file : files) {
        fs::create_directories(file.parent_path());
        std::ofstream(file) << "";
    }
    const std::string path = std::getenv("PATH");
    ::setenv("PATH",
             fmt::format("{}/bin:{}/bin:{}", python.string(), toolkit.string(), path).c_str(), 1);
    const std::vector<std::string> tried = nvrtc_info({}).tried;
    ::setenv("PATH", path.c_str(), 1);
    for (const fs::path& file : files) CHECK_THAT(tried, Catch::VectorContains(file.string()));
    // Named, no other will do.
    CompileOptions named;
    named.nvrtc = files[0].string();
    CHECK(nvrtc_info(named).tried == std::vector<std::string>{files[0].string()});
}

TEST_CASE(
    "a compiler that a variable names and that does not open is an error, not another compiler",
    "[codegen]") {
    const auto error_with = [](const char* variable, const char* value, const char* arch) {
        const char* old = std::getenv(variable);
        const std::string before = old ? old : "";
        ::setenv(variable, value, 1);
        const std::string message =
            test::user_error([&] { make_gpu_compiler(gpu_arch(arch), through("")); });
        old ? ::setenv(variable, before.c_str(), 1) : ::unsetenv(variable);
        return message;
    };
    const std::string nvrtc = error_with("CLEAVE_NVRTC", "/nowhere/nvrtc", "sm_90a");
    CHECK_THAT(nvrtc, Catch::Contains("CLEAVE_NVRTC=/nowhere/nvrtc gives no NVRTC: "));
    for (const char* value : {"/nowhere/hip", "libm.so.6"})
        CHECK_THAT(error_with("CLEAVE_HIPRTC", value, "gfx90a"),
                   Catch::Contains(fmt::format("CLEAVE_HIPRTC={} gives no hipRTC: ", value)) &&
                       Catch::Contains("unset it"));
}

TEST_CASE("a GPU compiler that a simt device has no use for is refused", "[codegen]") {
    Program program;
    for (const char* arch : {"simt:gfx90a", "simt:sm_90a"})
        for (const char* compiler : {"nvrtc", "hiprtc"}) {
            program.arch = arch;
            CHECK_THAT(
                test::user_error([&] { compile(program, through(compiler)); }),
                Catch::Contains(fmt::format("'{}' compiles nothing for {}", compiler, arch)) &&
                    Catch::Contains("takes clang"));
        }
}

TEST_CASE("a file that is no NVRTC is refused as such", "[codegen]") {
    CompileOptions options = through("");
    options.nvrtc = "libm.so.6";
    std::string message = test::user_error([&] { make_gpu_compiler(gpu_arch("sm_90a"), options); });
    CHECK(message.find("libm.so.6: it lacks functions of nvrtc") != std::string::npos);
}

TEST_CASE("GPU source that does not compile gives the log and the source, named after the kernel",
          "[codegen]") {
    struct Case {
        const char *compiler, *arch, *file;
    };
    for (Case c : {Case{"clang", "gfx942", "small.hip:"}, Case{"nvrtc", "sm_80", "small.cu("},
                   Case{"hiprtc", "gfx90a", "small.hip:"}}) {
        CAPTURE(c.compiler);
        if (!absence(c.compiler).empty()) continue;
        auto compiler = make_gpu_compiler(gpu_arch(c.arch), through(c.compiler));
        try {
            compiler->compile(
                small_kernel(std::string(kEmpty) + "int broken = undeclared_name;\n"));
            FAIL("it compiled");
        } catch (const InternalError& error) {
            std::string message = error.what();
            CHECK(message.find(c.file) != std::string::npos);
            CHECK(message.find("undeclared_name") != std::string::npos);
            CHECK(message.find("---- source") != std::string::npos);
        }
        // The compiler serves on.
        CHECK(compiler->compile(small_kernel(kEmpty)).measured.known);
    }
}

TEST_CASE("cancelling ends a compilation in a worker, and one that takes too long is an error",
          "[codegen]") {
    if (std::string why = absence("nvrtc"); !why.empty()) CLEAVE_SKIP("no NVRTC: " + why);
    CompileOptions options = through("nvrtc");
    CancelToken token;
    options.cancel = &token;
    auto compiler = make_gpu_compiler(gpu_arch("sm_80"), options);
    CHECK_NOTHROW(compiler->compile(small_kernel(kEmpty)));
    token.cancel();
    CHECK_THROWS_AS(compiler->compile(small_kernel(kEmpty)), Cancelled);
    options.cancel = nullptr;
    options.timeout_seconds = 0;
    std::string message = test::user_error([&] { make_gpu_compiler(gpu_arch("sm_80"), options); });
    CHECK(message.find("did not answer within 0 s") != std::string::npos);
}

TEST_CASE("both compilers of AMD GPUs report the same static resources", "[codegen]") {
    if (std::string why = absence("hiprtc"); !why.empty()) CLEAVE_SKIP("no hipRTC: " + why);
    const GpuArch& arch = gpu_arch("gfx90a");
    Program program = test::program_for("llama-3-8b", arch, 1);
    std::vector<CompiledKernel> one = compile(program, through("hiprtc")).objects;
    std::vector<CompiledKernel> two = compile(program, through("clang")).objects;
    REQUIRE(one.size() == two.size());
    size_t apart = 0;
    for (size_t i = 0; i < one.size(); ++i) {
        CAPTURE(one[i].name, one[i].measured.registers, two[i].measured.registers,
                one[i].measured.spill_bytes, two[i].measured.spill_bytes);
        for (const CompiledKernel* kernel : {&one[i], &two[i]}) {
            CHECK(kernel->measured.spill_bytes == 0);
            CHECK(kernel->measured.stack_bytes == 0);
        }
        CHECK(one[i].measured.shared_bytes == two[i].measured.shared_bytes);
        CHECK(one[i].matrix_instructions == two[i].matrix_instructions);
        // Another LLVM allocates other registers: a few kernels apart, close to each other.
        const auto [fewer, more] =
            std::minmax(one[i].measured.registers, two[i].measured.registers);
        CHECK(4 * more <= 7 * fewer);
        apart += more - fewer > 16;
    }
    CHECK(one.size() >= 11);
    CHECK(5 * apart <= one.size());
}

TEST_CASE("a GPU object in the cache keeps its resources and counts", "[codegen]") {
    Program program = test::program_for("stories-260k", gpu_arch("gfx942"), 1);
    CompileOptions options = through("clang");
    test::TemporaryFolder cache;
    options.cache_dir = cache.path().string();
    std::vector<CompiledKernel> first = compile(program, options).objects;
    std::vector<CompiledKernel> second = compile(program, options).objects;
    for (size_t i = 0; i < first.size(); ++i) {
        CHECK(second[i].from_cache);
        CHECK(second[i].object == first[i].object);
        CHECK(second[i].measured.registers == first[i].measured.registers);
        CHECK(second[i].measured.shared_bytes == first[i].measured.shared_bytes);
        CHECK(second[i].measured.known);
        CHECK(second[i].matrix_instructions == first[i].matrix_instructions);
        CHECK(second[i].counted_in == first[i].counted_in);
    }
}

TEST_CASE("an object over a limit of its arch is told with need and limit", "[codegen]") {
    Kernel kernel = small_kernel(kEmpty);
    kernel.launch.block = {1024, 1, 1};
    CompiledKernel compiled;
    compiled.measured.known = true;
    compiled.measured.shared_bytes = 65537;
    const GpuArch& amd = gpu_arch("gfx90a");
    CHECK_THAT(over_limit(kernel, compiled, amd),
               Catch::Contains("65537") && Catch::Contains("65536"));
    compiled.measured.shared_bytes = 0;
    compiled.measured.registers = 65;
    CHECK_THAT(over_limit(kernel, compiled, gpu_arch("sm_80")),
               Catch::Contains("66560 registers a block"));
    compiled.measured.registers = 64;
    CHECK(over_limit(kernel, compiled, gpu_arch("sm_80")).empty());
    // A device may have less than its arch.
    planner::DeviceLimits less;
    CHECK(over_limit(kernel, compiled, gpu_arch("sm_80"), less).empty());
    less.registers_per_block = 65535;
    CHECK_THAT(over_limit(kernel, compiled, gpu_arch("sm_80"), less),
               Catch::Contains("65536 registers a block, of which the device has 65535"));
    less = {};
    less.shared_memory_per_block = 1000;
    compiled.measured.shared_bytes = 1001;
    CHECK_THAT(over_limit(kernel, compiled, amd, less),
               Catch::Contains("of which the device has 1000"));
    less = {};
    less.max_threads_per_block = 512;
    CHECK_THAT(over_limit(kernel, compiled, amd, less), Catch::Contains("1024 threads a block"));
}

TEST_CASE("a kernel whose object is over a limit is compiled with a smaller tile", "[codegen]") {
    GpuArch arch = gpu_arch("gfx942");
    Program program = test::program_for("llama-3-8b", arch, 1);
    auto is_gate_up = [](const Kernel& k) {
        return k.kind == planner::KernelKind::kNormGateUp && k.tile.tokens > 8;
    };
    std::erase_if(program.kernels, [&](const Kernel& k) { return !is_gate_up(k); });
    REQUIRE(program.kernels.size() == 1);
    const Kernel asked = program.kernels[0];
    // The next smaller one of so many tokens, not the least there is.
    const std::optional<Kernel> next = with_smaller_tile(asked);
    REQUIRE(next);
    CHECK(next->tile.tokens * next->tile.rows * 4 >= asked.tile.tokens * asked.tile.rows);
    auto compiler = make_amdgpu_compiler(arch);
    auto take = [&] {
        return drive(*compiler, program.kernels, program.limits, through("clang")).at(0);
    };
    const TakenKernel free = take();
    CHECK(free.object.given_up.empty());
    CHECK(free.kernel.hash == asked.hash);
    // One register fewer than it takes.
    arch.registers_per_thread = static_cast<int>(free.object.measured.registers) - 1;
    const TakenKernel tight = take();
    CHECK(tight.object.name == tight.kernel.name);
    CHECK(tight.object.measured.registers <= arch.registers_per_thread);
    REQUIRE_FALSE(tight.object.given_up.empty());
    CHECK_THAT(tight.object.given_up[0],
               Catch::Contains("registers a thread, of which the device has"));
    CHECK(tight.kernel.tile.tokens * tight.kernel.tile.rows < asked.tile.tokens * asked.tile.rows);
    CHECK(tight.kernel.launch.grid[0].constant >= asked.launch.grid[0].constant);
    CHECK(tight.kernel.launch.constant_args == asked.launch.constant_args);
    // No tile does with so few.
    arch.registers_per_thread = 4;
    CHECK_THROWS_WITH(take(), Catch::Contains("is over a limit of gfx942 with every tile") &&
                                  Catch::Contains("of which the device has 4"));
}

TEST_CASE("an object that is none, or cut anywhere, is measured as unknown", "[codegen]") {
    auto compiled = make_amdgpu_compiler(gpu_arch("gfx942"))->compile(small_kernel(kEmpty));
    REQUIRE(compiled.measured.known);
    for (size_t size = 0; size < compiled.object.size(); size += 97) {
        CompiledKernel cut;
        cut.name = compiled.name;
        cut.object.assign(compiled.object.begin(),
                          compiled.object.begin() + static_cast<std::ptrdiff_t>(size));
        measure_code_object(cut, gpu_arch("gfx942"));
        measure_cubin(cut, "");
    }
    CompiledKernel none;
    none.name = "small";
    measure_cubin(none, "");
    CHECK_FALSE(none.measured.known);
}

TEST_CASE("a tile of attention that was given up is told in queries and keys", "[codegen]") {
    GpuArch arch = gpu_arch("gfx942");
    Program program = test::program_for("llama-3-8b", arch, 1);
    std::erase_if(program.kernels, [](const Kernel& k) {
        return k.kind != planner::KernelKind::kAttention || k.tile.tokens == 1;
    });
    REQUIRE(program.kernels.size() == 1);
    const planner::Tile asked = program.kernels[0].tile;
    auto compiler = make_amdgpu_compiler(arch);
    auto take = [&] {
        return drive(*compiler, program.kernels, program.limits, through("clang")).at(0).object;
    };
    arch.registers_per_thread = static_cast<int>(take().measured.registers) - 1;
    const CompiledKernel tight = take();
    REQUIRE_FALSE(tight.given_up.empty());
    CHECK(tight.given_up[0].starts_with(
        fmt::format("{} queries x {} keys at a time, {} threads, {} "
                    "bytes of shared memory: ",
                    asked.tokens, asked.depth, asked.threads, asked.shared_bytes)));
}
