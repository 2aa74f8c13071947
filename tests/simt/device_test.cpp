// SPDX-License-Identifier: Apache-2.0
// The simt driver: launches through runtime/device/device.h, the limits of architectures, what a
// faulty kernel raises.
#include <cstring>
#include <numeric>

#include "codegen/compile/compiler.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/simt_device.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;

namespace {

planner::DeviceInfo info(const std::string& arch, int index = 0) {
    planner::DeviceInfo device;
    device.name = "simt:" + arch + "[" + std::to_string(index) + "]";
    device.kind = planner::DeviceKind::kSimt;
    device.arch = arch;
    device.memory_bytes = 1 << 24;
    return device;
}

codegen::CompiledKernel compiled(const std::string& body, const std::string& entry,
                                 const std::string& arch) {
    return codegen::compile_simt_kernel(with_prelude(body), entry, codegen::gpu_arch(arch), {});
}

std::string message_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a simt device runs its kernels on its own memory with any number of threads", "[simt]") {
    for (int threads : {1, 3}) {
        auto device = runtime::make_simt_device(info("gfx90a"), {threads, true, 5, true});
        device->load(
            {compiled("KERNEL(64) twice(const i32* x, i32* y, i64 n) {\n int i = block_x() * 64 + "
                      "thread_x();\n"
                      " if (i < n) y[i] = 2 * x[i];\n}",
                      "twice", "gfx90a")});
        std::vector<int32_t> values(1000), twice(1000);
        std::iota(values.begin(), values.end(), 3);
        auto x = device->allocate(4000, "x"), y = device->allocate(4000, "y");
        device->upload(x, std::as_bytes(std::span(values)));
        codegen::Launch launch;
        launch.block = {64, 1, 1};
        uint64_t args[] = {x, y, 1000};
        device->launch(0, args, {16, 1, 1}, launch);
        device->launch(0, args, {0, 1, 1}, launch);
        device->synchronize();
        device->download(y, std::as_writable_bytes(std::span(twice)));
        for (size_t i = 0; i < 1000; ++i) REQUIRE(twice[i] == 2 * values[i]);
    }
}

TEST_CASE("a fault on a simt device names the device and the kernel and the line", "[simt]") {
    auto device = runtime::make_simt_device(info("sm_80", 3), {});
    device->load(
        {compiled("KERNEL(32) past(float* p) {\n p[thread_x() + 1] = 1.0f;\n}", "past", "sm_80")});
    uint64_t args[] = {device->allocate(32 * 4, "p")};
    codegen::Launch launch;
    launch.block = {32, 1, 1};
    std::string message = message_of([&] { device->launch(0, args, {1, 1, 1}, launch); });
    CHECK(message.find("simt:sm_80[3]") != std::string::npos);
    CHECK(message.find("kernel past") != std::string::npos);
    CHECK(message.find("test.cu:2") != std::string::npos);
    CHECK(message.find("thread (31, 0, 0)") != std::string::npos);
}

TEST_CASE("a kernel cannot reach the memory of another device", "[simt]") {
    auto mine = runtime::make_simt_device(info("sm_80", 0), {}),
         other = runtime::make_simt_device(info("sm_80", 1), {});
    mine->load({compiled("KERNEL(1) touch(float* p) {\n p[0] = 1.0f;\n}", "touch", "sm_80")});
    uint64_t own[] = {mine->allocate(64, "own")}, foreign[] = {other->allocate(64, "foreign")};
    CHECK_NOTHROW(mine->launch(0, own, {1, 1, 1}, {}));
    CHECK(message_of([&] { mine->launch(0, foreign, {1, 1, 1}, {}); }).find("another device") !=
          std::string::npos);
    // Access goes one way, and covers what the peer allocates later.
    REQUIRE(mine->supports_peer_copy(*other));
    mine->enable_peer_access(*other);
    mine->enable_peer_access(*other);
    uint64_t later[] = {other->allocate(64, "later")};
    for (uint64_t* args : {own, foreign, later})
        CHECK_NOTHROW(mine->launch(0, {args, 1}, {1, 1, 1}, {}));
    float written = 0.0f;
    other->download(later[0], std::as_writable_bytes(std::span(&written, 1)));
    CHECK(written == 1.0f);
    other->load({compiled("KERNEL(1) touch(float* p) {\n p[0] = 2.0f;\n}", "touch", "sm_80")});
    CHECK(message_of([&] { other->launch(0, own, {1, 1, 1}, {}); }).find("no peer access") !=
          std::string::npos);
    // The mailbox is the host's and the device's at once.
    std::span<std::byte> mailbox = mine->mailbox();
    uint64_t letter[] = {reinterpret_cast<uint64_t>(mailbox.data())};
    mine->launch(0, letter, {1, 1, 1}, {});
    std::memcpy(&written, mailbox.data(), sizeof written);
    CHECK(written == 1.0f);
    CHECK(mine->mailbox().data() == mailbox.data());
    mine->free(own[0]);
    CHECK(message_of([&] { mine->launch(0, own, {1, 1, 1}, {}); }).find("memory that is free") !=
          std::string::npos);
}

TEST_CASE("a launch beyond the architecture's limits is refused with the limit", "[simt]") {
    auto program = simt::compile_simt(
        with_prelude("KERNEL(64) none(float* p) { SHARED(float, a[1024]); a[0] = p[0]; }"), "none",
        "gfx90a");
    Buffer<float> p(1);
    CHECK(program.record().shared_bytes == 4096);
    CHECK_NOTHROW(run(program, {p.word()}, {1, 64, 60 * 1024}));
    std::string shared = message_of([&] { run(program, {p.word()}, {1, 64, 61 * 1024}); });
    CHECK(shared.find("65536") != std::string::npos);
    CHECK(shared.find("gfx90a") != std::string::npos);
    CHECK(message_of([&] { run(program, {p.word()}, {1, 1025}); }).find("1024") !=
          std::string::npos);
    CHECK(message_of([] { codegen::gpu_arch("sm_13"); }).find("sm_80") != std::string::npos);
}

TEST_CASE("a program compiles once and comes from the cache afterwards", "[simt]") {
    test::TemporaryFolder folder;
    codegen::Program program;
    for (const char* name : {"first", "second"}) {
        codegen::Kernel& kernel = program.kernels.emplace_back();
        kernel.name = name;
        kernel.source = with_prelude("KERNEL(1) " + kernel.name +
                                     "(i64* out) { out[0] = sizeof(\"" + name + "\"); }");
    }
    codegen::CompileOptions options;
    options.cache_dir = folder.path().string();
    const codegen::GpuArch& arch = codegen::gpu_arch("gfx1100");
    const auto compile_for = [&](const char* name) {
        program.arch = name;
        return codegen::compile(program, options).objects;
    };
    for (bool cached : {false, true}) {
        auto kernels = compile_for("simt:gfx1100");
        REQUIRE(kernels.size() == 2);
        for (size_t i = 0; i < 2; ++i) {
            CHECK(kernels[i].name == program.kernels[i].name);
            CHECK(kernels[i].from_cache == cached);
            Buffer<int64_t> out(1);
            CHECK(run(simt::SimtProgram(kernels[i], arch), {out.word()}, {1, 1}).clean());
            CHECK(out[0] == (i == 0 ? 6 : 7));
        }
    }
    CHECK_FALSE(compile_for("simt:gfx90a")[0].from_cache);
    program.kernels[1].source = "this is no kernel";
    CHECK_THROWS_AS(compile_for("simt:gfx1100"), InternalError);
}
