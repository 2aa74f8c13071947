// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <iterator>
#include <thread>

#include "codegen/compile/compiler.h"
#include "codegen/compile/host.h"
#include "codegen/compile/object_cache.h"
#include "codegen/host/kernels.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
namespace fs = std::filesystem;

namespace {

Kernel scale_kernel(int64_t width, double factor) {
    return make_host_kernel(ScaleSpec{width, factor, {width, 0}, RowCount::kTokens},
                            planner::KernelKind::kScale, {"scale"}, HostTarget{1, {}});
}

Program program_of(std::vector<Kernel> kernels) {
    Program program;
    program.kernels = std::move(kernels);
    return program;
}

CompileOptions options_for(const fs::path& cache, const std::string& cpu = "") {
    CompileOptions options;
    options.cache_dir = cache.string();
    options.cpu_arch = cpu;
    return options;
}

std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
    return paths;
}

}  // namespace

TEST_CASE("a kernel is compiled once and then comes from the cache, equal byte for byte",
          "[codegen]") {
    test::TemporaryFolder cache;
    Program program = program_of({scale_kernel(8, 2.0)});
    CompiledKernel first = compile(program, options_for(cache.path())).objects.at(0);
    CompiledKernel second = compile(program, options_for(cache.path())).objects.at(0);
    CHECK_FALSE(first.from_cache);
    CHECK(second.from_cache);
    CHECK(first.object == second.object);
    CHECK(first.compiler == second.compiler);
    CHECK(first.measured.code_bytes > 0);
    CHECK(second.measured.code_bytes == first.measured.code_bytes);
    REQUIRE(entries(cache.path()).size() == 1);
    CHECK(entries(cache.path())[0].extension() == ".o");
}

TEST_CASE("a cache entry damaged in any byte, cut short or emptied is compiled again and mended",
          "[codegen]") {
    test::TemporaryFolder cache;
    Program program = program_of({scale_kernel(8, 2.0)});
    CompiledKernel good = compile(program, options_for(cache.path())).objects.at(0);
    fs::path path = entries(cache.path()).at(0);
    std::string bytes;
    {
        std::ifstream in(path, std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    for (size_t damage : {size_t{0}, size_t{9}, bytes.size() / 2, bytes.size() - 1, bytes.size(),
                          bytes.size() + 1}) {
        std::string broken = bytes;
        if (damage < bytes.size()) broken[damage] = static_cast<char>(broken[damage] ^ 0x40);
        if (damage == bytes.size()) broken.resize(bytes.size() / 3);
        if (damage > bytes.size()) broken.clear();
        std::ofstream(path, std::ios::binary | std::ios::trunc) << broken;
        CompiledKernel again = compile(program, options_for(cache.path())).objects.at(0);
        CHECK_FALSE(again.from_cache);
        CHECK(again.object == good.object);
        CHECK(compile(program, options_for(cache.path())).objects.at(0).from_cache);
    }
}

TEST_CASE("another CPU, source or name is another entry of the cache", "[codegen]") {
    test::TemporaryFolder cache;
    compile(program_of({scale_kernel(8, 2.0)}), options_for(cache.path(), "x86-64-v3"));
    CHECK_FALSE(compile(program_of({scale_kernel(8, 2.0)}), options_for(cache.path(), "x86-64-v2"))
                    .objects.at(0)
                    .from_cache);
    CHECK_FALSE(compile(program_of({scale_kernel(8, 3.0)}), options_for(cache.path(), "x86-64-v3"))
                    .objects.at(0)
                    .from_cache);
    CHECK(compile(program_of({scale_kernel(8, 2.0)}), options_for(cache.path(), "x86-64-v3"))
              .objects.at(0)
              .from_cache);
    CHECK(entries(cache.path()).size() == 3);
}

TEST_CASE("a cache folder that cannot be made is no error", "[codegen]") {
    test::TemporaryFolder folder;
    std::ofstream(folder.path() / "file") << "not a folder";
    CompiledKernel kernel =
        compile(program_of({scale_kernel(8, 2.0)}), options_for(folder.path() / "file"))
            .objects.at(0);
    CHECK_FALSE(kernel.from_cache);
    CHECK_FALSE(kernel.object.empty());
}

TEST_CASE("threads compile kernels in the program's order and report every one", "[codegen]") {
    test::TemporaryFolder cache;
    std::vector<Kernel> kernels;
    for (int i = 1; i <= 6; ++i) kernels.push_back(scale_kernel(i, 0.5 * i));
    CompileOptions options = options_for(cache.path());
    options.threads = 4;
    int calls = 0, last = 0;
    options.progress = [&](int done, int total) {
        ++calls;
        CHECK(done == last + 1);
        CHECK(total == 6);
        last = done;
    };
    std::vector<CompiledKernel> compiled = compile(program_of(kernels), options).objects;
    CHECK(calls == 6);
    for (size_t i = 0; i < kernels.size(); ++i) CHECK(compiled[i].name == kernels[i].name);
}

TEST_CASE("cancelling stops compilation", "[codegen]") {
    test::TemporaryFolder cache;
    CancelToken token;
    token.cancel();
    CompileOptions options = options_for(cache.path());
    options.cancel = &token;
    CHECK_THROWS_AS(compile(program_of({scale_kernel(8, 2.0)}), options), Cancelled);
}

TEST_CASE("source that does not compile gives the log and the source, named after the kernel",
          "[codegen]") {
    test::TemporaryFolder cache;
    Kernel kernel = scale_kernel(8, 2.0);
    kernel.source += "\nint broken = undeclared_name;\n";
    try {
        compile(program_of({kernel}), options_for(cache.path()));
        FAIL("it compiled");
    } catch (const InternalError& error) {
        std::string message = error.what();
        CHECK(message.find(kernel.name + ".cpp:") != std::string::npos);
        CHECK(message.find("undeclared_name") != std::string::npos);
        CHECK(message.find("// fused: scale") != std::string::npos);
    }
    CHECK(entries(cache.path()).empty());
}

TEST_CASE("an unknown --cpu-arch is refused with names that exist", "[codegen]") {
    test::TemporaryFolder cache;
    std::string message = test::user_error([&] {
        compile(program_of({scale_kernel(8, 2.0)}), options_for(cache.path(), "pentium-9000"));
    });
    CHECK(message.find("$cpu_arch pentium-9000") != std::string::npos);
    CHECK(message.find("x86-64-v3") != std::string::npos);
}

TEST_CASE("code for a CPU that this machine is not is refused before it runs", "[codegen]") {
    test::TemporaryFolder cache;
    std::vector<CompiledKernel> kernels =
        compile(program_of({scale_kernel(8, 2.0)}), options_for(cache.path(), "sapphirerapids"))
            .objects;
    bool has_amx = host_compiler_info().features.find("amx-tile") != std::string::npos;
    if (has_amx) CLEAVE_SKIP("this machine runs code for sapphirerapids");
    std::string message = test::user_error([&] { load_host_kernels(kernels); });
    CHECK(message.find("$cpu_arch sapphirerapids") != std::string::npos);
    CHECK(message.find("amx-tile") != std::string::npos);
    // What no kernel has is no reason, as virtual machines hide much of it.
    for (const char* other : {"pku", "shstk", "waitpkg", "sgx"})
        CHECK(message.find(other) == std::string::npos);
    // Kernels for this machine, whatever it hides, are.
    CHECK(load_host_kernels(
              compile(program_of({scale_kernel(8, 2.0)}), options_for(cache.path())).objects) !=
          nullptr);
}

TEST_CASE("a dtype without a host kernel is refused with the dtypes that have one", "[codegen]") {
    LinearSpec spec;
    spec.in = spec.out = 8;
    spec.weight = DType::kInt4;
    spec.x = {8, 0};
    std::string message = test::user_error([&] {
        make_host_kernel(spec, planner::KernelKind::kLinear, {"linear"}, HostTarget{1, {}});
    });
    CHECK(message.find("int4") != std::string::npos);
    CHECK(message.find("f32, f16, bf16, f8e4m3") != std::string::npos);
}

TEST_CASE("the host compiler says its version, the CPU and its features", "[codegen]") {
    HostCompilerInfo info = host_compiler_info();
    REQUIRE(info.available);
    CHECK(info.version.starts_with("19."));
    CHECK_FALSE(info.cpu.empty());
    CHECK(info.features.find("sse2") != std::string::npos);
}
