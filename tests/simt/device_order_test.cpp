// SPDX-License-Identifier: Apache-2.0
// Order between devices: what one writes for another has to be released and acquired, with barriers
// on both sides. The kernels run one after the other here, the kindest of orders, and what is
// missing is told all the same.
#include <map>

#include <fmt/format.h>

#include "codegen/text/templates.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/simt_device.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;
using runtime::DeviceAddress;

namespace {

constexpr int kOrderThreads = 128;  // two warps and four

// Kernels of the first device, of a second and of the first again; t: the thread. What they do on
// their way: data, more [128], ready, taken [128]: exchanged; out [128]: the device's own.
struct Way {
    std::string write, read, write_again;
};
const Way kRight = {
    "data[t] = float(t);\nflush_to_peers();\nbarrier();\nif (t == 0) store_release(ready, 1u);",
    "if (t == 0) wait_for(ready);\nbarrier();\nsee_peers();\nout[t] = data[127 - t];\nbarrier();\n"
    "if (t == 0) store_release(taken, 1u);",
    "if (t == 0) wait_for(taken);\nbarrier();\ndata[t] = 2.0f;"};

std::string source_of(const std::string& body) {
    return codegen::flatten_template("gpu/signals.cuh") +
           "namespace cleave {\n"
           "#line 1 \"wait.cu\"\nDEVICE void wait_for(const u32* w) { while (!load_acquire(w)) {} "
           "}\n"
           "KERNEL(128) kernel(float* data, float* more, u32* ready, u32* taken, float* out) {\n"
           "const int t = thread_x();\n#line 1 \"test.cu\"\n" +
           body + "\n}\n}\n";
}

const codegen::CompiledKernel& compiled(const std::string& body, const std::string& arch) {
    static std::map<std::string, codegen::CompiledKernel> known;
    auto at = known.find(arch + body);
    if (at == known.end())
        at = known
                 .emplace(arch + body, codegen::compile_simt_kernel(source_of(body), "kernel",
                                                                    codegen::gpu_arch(arch), {}))
                 .first;
    return at->second;
}

// The report of the first kernel that has one, with its device; empty for none.
std::string report_of(const Way& way, const std::string& arch, uint64_t seed) {
    std::vector<std::unique_ptr<runtime::Device>> devices;
    for (int d = 0; d < 3; ++d) {
        planner::DeviceInfo info;
        info.name = fmt::format("simt:{}[{}]", arch, d);
        info.kind = planner::DeviceKind::kSimt;
        info.arch = arch;
        info.memory_bytes = 1 << 20;
        devices.push_back(runtime::make_simt_device(info, {1, true, seed, seed != 0}));
    }
    std::vector<DeviceAddress> exchanged;
    for (const char* what : {"data", "more", "ready", "taken"}) {
        exchanged.push_back(devices[0]->allocate_exchange(4 * kOrderThreads, what));
        devices[0]->fill(exchanged.back(), 4 * kOrderThreads, 0);
    }
    codegen::Launch launch;
    launch.block = {kOrderThreads, 1, 1};
    const std::pair<size_t, const std::string*> steps[] = {
        {0, &way.write}, {1, &way.read}, {0, &way.write_again}};
    for (const auto& [d, body] : steps) {
        runtime::Device& device = *devices[d];
        if (d != 0) device.enable_peer_access(*devices[0]);
        std::vector<uint64_t> args(exchanged.begin(), exchanged.end());
        args.push_back(device.allocate(4 * kOrderThreads, "out"));
        device.load({compiled(*body, arch)});
        try {
            device.launch(0, args, {1, 1, 1}, launch);
        } catch (const InternalError& error) {
            return error.what();
        }
    }
    return "";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
}

const char* const kOrderArchs[] = {"sm_80", "gfx90a", "gfx1100"};

struct LostOrder {
    const char* name;
    Way way;
    // Of the report; line 0: where it waits.
    int device, line;
    const char* says;
    bool on_amd_alone = false;
};

std::vector<LostOrder> lost_orders() {
    const auto write = [](const char* what, const char* by) {
        return Way{replaced(kRight.write, what, by), kRight.read, kRight.write_again};
    };
    const auto read = [](const char* what, const char* by) {
        return Way{kRight.write, replaced(kRight.read, what, by), kRight.write_again};
    };
    const auto again = [](const char* what, const char* by) {
        return Way{kRight.write, kRight.read, replaced(kRight.write_again, what, by)};
    };
    const char *race = "race in kernel kernel", *stale = "stale read in kernel kernel";
    return {
        {"no barrier before the release", write("barrier();", ""), 1, 4, race},
        {"released before it is written",
         {"if (t == 0) store_release(ready, 1u);\nbarrier();\ndata[t] = float(t);", kRight.read,
          kRight.write_again},
         1,
         4,
         race},
        {"its own value released before it is written",
         {"if (t == 127) store_release(ready, 1u);\ndata[t] = float(t);",
          "if (t == 0) {\nwait_for(ready);\nout[t] = data[127 - t];\n}", ""},
         1,
         3,
         race},
        {"a plain store for a release", write("store_release(ready, 1u)", "*ready = 1u"), 1, 0,
         race},
        {"no acquire", read("if (t == 0) wait_for(ready);", ""), 1, 4, race},
        {"no barrier behind the acquire", read("barrier();\nsee", "\nsee"), 1, 4, race},
        {"a warp_sync for a barrier behind the acquire",
         read("barrier();\nsee", "warp_sync();\nsee"), 1, 4, race},
        {"no barrier behind the reads",
         read("barrier();\nif (t == 0) store", "\nif (t == 0) store"), 0, 3, race},
        {"written again before all have read", again("if (t == 0) wait_for(taken);", ""), 0, 3,
         race},
        {"written again with no barrier behind the acquire", again("barrier();", ""), 0, 3, race},
        {"not flushed", write("flush_to_peers();", ""), 1, 4, stale, true},
        {"flushed before it is written",
         {"flush_to_peers();\n" + replaced(kRight.write, "flush_to_peers();\n", ""), kRight.read,
          kRight.write_again},
         1,
         4,
         stale,
         true},
        {"read without looking afresh", read("see_peers();", ""), 1, 4, stale, true},
        {"looked afresh before the barrier",
         read("barrier();\nsee_peers();", "see_peers();\nbarrier();"), 1, 4, stale, true},
    };
}

struct Clean {
    const char* name;
    Way way;
};
std::vector<Clean> clean_ways() {
    return {
        {"as it should be", kRight},
        {"each thread for itself",
         {"data[t] = float(t);\nstore_release(ready + t, 1u);",
          "wait_for(ready + t);\nout[t] = data[t];\nstore_release(taken + t, 1u);",
          "wait_for(taken + t);\ndata[t] = 2.0f;"}},
        {"each warp for itself",
         {"data[t] = float(t);\nflush_to_peers();\nwarp_sync();\nif (lane() == 0) "
          "store_release(ready + warp(), 1u);",
          "if (lane() == 0) wait_for(ready + warp());\nwarp_sync();\nsee_peers();\nout[t] = data[t "
          "^ "
          "1];\nwarp_sync();\nif (lane() == 0) store_release(taken + warp(), 1u);",
          "if (lane() == 0) wait_for(taken + warp());\nwarp_sync();\ndata[t] = 2.0f;"}},
        {"bytes side by side",
         {"char* bytes = reinterpret_cast<char*>(data);\nif (t % 2 == 0) bytes[t] = "
          "1;\nbarrier();\n"
          "if (t == 0) store_release(ready, 1u);",
          "char* bytes = reinterpret_cast<char*>(data);\nif (t % 2 == 1) bytes[t] = 2;", ""}},
        {"written by both in turn, and read by both",
         {kRight.write,
          replaced(kRight.read, "out[t] = data[127 - t];", "data[t] += 1.0f;\nflush_to_peers();"),
          replaced(kRight.write_again, "data[t] = 2.0f;",
                   "see_peers();\nout[t] = data[127 - t];")}},
        {"what both only read", {"out[t] = data[t] + more[t];", "out[t] = data[127 - t];", ""}},
    };
}

}  // namespace

TEST_CASE("an exchange that lacks a barrier, a release or an acquire is told in every order",
          "[simt]") {
    for (const char* arch : kOrderArchs)
        for (const LostOrder& fault : lost_orders())
            for (uint64_t seed : {0, 1, 2, 3}) {
                INFO(fault.name << " on " << arch << ", seed " << seed);
                const std::string report = report_of(fault.way, arch, seed);
                if (fault.on_amd_alone && std::string(arch) == "sm_80") {
                    CHECK(report == "");
                    continue;
                }
                const std::string place =
                    fault.line == 0 ? "wait.cu:1" : fmt::format("test.cu:{}", fault.line);
                CHECK_THAT(report,
                           Catch::Matchers::StartsWith(fmt::format(
                               "simt:{}[{}]: {}: {}", arch, fault.device, place, fault.says)));
                CHECK_THAT(report, Catch::Matchers::Contains(fmt::format(
                                       "of block 0 of simt:{}[{}]", arch, 1 - fault.device)));
            }
}

TEST_CASE("exchanges in which all is released and acquired are silent in every order", "[simt]") {
    for (const char* arch : kOrderArchs)
        for (const Clean& clean : clean_ways())
            for (uint64_t seed : {0, 1, 2, 3}) {
                INFO(clean.name << " on " << arch << ", seed " << seed);
                CHECK(report_of(clean.way, arch, seed) == "");
            }
}

TEST_CASE("what the host writes for devices to exchange begins anew", "[simt]") {
    const char* arch = "gfx90a";
    planner::DeviceInfo info;
    info.kind = planner::DeviceKind::kSimt;
    info.arch = arch;
    info.memory_bytes = 1 << 20;
    auto first = runtime::make_simt_device(info, {}), second = runtime::make_simt_device(info, {});
    const DeviceAddress data = first->allocate_exchange(4 * kOrderThreads, "data");
    second->enable_peer_access(*first);
    const uint64_t args[] = {data, data, data, data, data};
    codegen::Launch launch;
    launch.block = {kOrderThreads, 1, 1};
    for (auto* device : {&first, &second}) (*device)->load({compiled("data[t] = 1.0f;", arch)});
    first->launch(0, args, {1, 1, 1}, launch);
    CHECK_THROWS_AS(second->launch(0, args, {1, 1, 1}, launch), InternalError);
    first->fill(data, 4 * kOrderThreads, 0);
    CHECK_NOTHROW(second->launch(0, args, {1, 1, 1}, launch));
    // All of it but the last element.
    const std::vector<float> zeros(kOrderThreads - 1);
    first->upload(data, std::as_bytes(std::span(zeros)));
    CHECK_THROWS_WITH(first->launch(0, args, {1, 1, 1}, launch),
                      Catch::Matchers::Contains("thread (127, 0, 0)"));
}
