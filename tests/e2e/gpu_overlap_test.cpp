// SPDX-License-Identifier: Apache-2.0
// Which launches of a token begin before those before them have ended, on the fake of the CUDA
// driver, and where none do.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;

namespace {

const DeviceShape kOne{"one", "cuda[0]", 1, 1}, kLogical{"logical", "cuda[0]/0-1", 2, 1},
    kHip{"one", "hip[0]", 1, 1};

const importer::Graph& overlap_model() {
    static const importer::Graph kGraph = random_model(small_shape(), 1);
    return kGraph;
}

// A token's overlapping launches, each with what it is behind: "KERNEL behind KERNEL".
struct Overlaps {
    std::vector<std::string> launches;
    std::set<std::string> kernels;  // that overlap
    OverlapReport report;
    std::vector<int32_t> tokens;
};
std::string word_behind(const std::string& line, const std::string& call) {
    const size_t at = line.find(call);
    if (at == std::string::npos) return "";
    const size_t begin = at + call.size();
    return line.substr(begin, line.find(' ', begin) - begin);
}

Overlaps overlaps_of(const InstalledFake& fake, const DeviceShape& shape) {
    fake.live();
    Overlaps found;
    planner::Plan plan = plan_for(overlap_model(), shape, all_logits_workload(1, 32, 32));
    {
        Session session(plan, options_for_fakes());
        GenerateOptions generation;
        generation.max_new_tokens = 5;
        found.tokens = generate(session, plan, {{1, 17, 23, 5}}, generation).sequences[0].token_ids;
        found.report = session.overlap();
    }
    std::istringstream log(fake.log());
    for (std::string line; std::getline(log, line);) {
        const std::string kernel = word_behind(line, "cuLaunchKernelEx ");
        if (!kernel.empty()) {
            found.launches.push_back(line);
            found.kernels.insert(kernel);
        }
    }
    CHECK(fake.finding() == "");
    CHECK(fake.alive() == 0);
    return found;
}

}  // namespace

TEST_CASE("kernels of decode overlap in a captured token, and change none of its numbers",
          "[e2e]") {
    Overlaps on, off;
    {
        const InstalledFake fake(DeviceKind::kCuda);
        on = overlaps_of(fake, kOne);
        // Beside what prefill has: all of a token but its first, launched once and captured once.
        planner::Plan plan = plan_for(overlap_model(), kOne, all_logits_workload(1, 32, 32));
        CHECK(std::ssize(on.launches) >= 2 * std::ssize(plan.decode.steps));
        CHECK(on.report.launches == std::ssize(on.launches));
        CHECK(on.report.reasons.empty());
        CHECK(on.kernels.size() >= 5);
        for (const std::string& launch : on.launches)
            CHECK(launch.find("behind nothing") == std::string::npos);
    }
    {
        const InstalledFake fake(DeviceKind::kCuda);
        const cleave::test::Environment variable("CLEAVE_GPU_OVERLAP", "0");
        off = overlaps_of(fake, kOne);
        CHECK(off.launches.empty());
        CHECK(off.report.reasons.at("cuda[0]") == "CLEAVE_GPU_OVERLAP=0");
        const cleave::test::Environment odd("CLEAVE_GPU_OVERLAP", "yes");
        CHECK_THAT(user_error([&] { overlaps_of(fake, kOne); }),
                   Contains("CLEAVE_GPU_OVERLAP=yes"));
    }
    CHECK(on.tokens == off.tokens);
}

TEST_CASE("nothing overlaps with a peer's kernel, and nothing at all beside one on its card",
          "[e2e]") {
    {
        const InstalledFake fake(DeviceKind::kCuda);
        const Overlaps two = overlaps_of(fake, {"tp 2", "cuda[0-1]", 2, 1});
        CHECK_FALSE(two.launches.empty());
        CHECK(two.report.reasons.empty());
        CHECK(fake.log().find("cuLaunchKernel all_reduce") != std::string::npos);
        for (const std::string& launch : two.launches) {
            CHECK(launch.find("all_reduce") == std::string::npos);
            CHECK(launch.find("meet") == std::string::npos);
            CHECK(launch.find("behind nothing") == std::string::npos);
        }
    }
    const InstalledFake fake(DeviceKind::kCuda);
    const Overlaps logical = overlaps_of(fake, kLogical);
    CHECK(logical.launches.empty());
    CHECK_THAT(logical.report.reasons.at("cuda[0]/1"), Contains("exchange by peer memory"));
}

TEST_CASE("nothing overlaps where card or driver cannot", "[e2e]") {
    const std::string path = "libcuda-without-ex.so";
    {
        std::ifstream in(CLEAVE_FAKE_CUDA, std::ios::binary);
        std::string bytes((std::istreambuf_iterator<char>(in)), {});
        const size_t name = bytes.find(std::string("\0cuLaunchKernelEx\0", 18));
        REQUIRE(name != std::string::npos);
        bytes[name + 1] = 'x';  // the table of symbols finds it no more
        std::ofstream(path, std::ios::binary) << bytes;
    }
    const auto reason = [](const InstalledFake& fake, const DeviceShape& shape) {
        const Overlaps found = overlaps_of(fake, shape);
        CHECK(found.launches.empty());
        CHECK(found.report.launches == 0);
        return found.report.reasons.begin()->second;
    };
    {
        const InstalledFake old(DeviceKind::kCuda);
        old.version(12020);
        CHECK_THAT(reason(old, kOne), Contains("the driver is of CUDA 12.2"));
        CHECK_THAT(reason(old, {"A40", "cuda[2]", 1, 1}), Contains("CUDA 12.2"));
        old.version(12030);
        CHECK_THAT(reason(old, {"A40", "cuda[2]", 1, 1}), Contains("compute capability 8"));
    }
    {
        const InstalledFake without(DeviceKind::kCuda, std::filesystem::absolute(path).string());
        CHECK_THAT(reason(without, kOne), Contains("without cuLaunchKernelEx"));
    }
    const InstalledFake hip(DeviceKind::kHip);
    CHECK_THAT(reason(hip, kHip), Contains("this vendor's driver"));
    std::filesystem::remove(path);
}
