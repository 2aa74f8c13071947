// SPDX-License-Identifier: Apache-2.0
// Links between NVIDIA's cards as NVML tells them, on a fake of the library, and what is declared
// of it by hand against NVIDIA's own nvml.h where there is one.
#if __has_include(<nvml.h>)
#include <nvml.h>
#define CLEAVE_HAS_NVML_HEADER 1
// A macro there, a constant here.
constexpr unsigned kSpeedField = NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
#undef NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
constexpr unsigned NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = kSpeedField;
#endif

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>

#include "planner/machine/build_machine.h"
#include "runtime/drivers/nvml/nvml.h"
#include "runtime/drivers/nvml/symbols.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;

#ifdef CLEAVE_HAS_NVML_HEADER
namespace {

// NOLINTBEGIN(bugprone-macro-parentheses): parts of declarations
#define CLEAVE_SAME_NVML(name, parameters) \
    static_assert(std::is_same_v<decltype(&::name), nvmlReturn_t(*) parameters>, #name);
CLEAVE_NVML_FUNCTIONS(CLEAVE_SAME_NVML)
// NOLINTEND(bugprone-macro-parentheses)
#define CLEAVE_EQUAL_NVML(name, value)   \
    constexpr long long k_##name = name; \
    static_assert(k_##name == (value), #name);
CLEAVE_NVML_CONSTANTS(CLEAVE_EQUAL_NVML)
static_assert(sizeof(runtime::nvml::nvmlPciInfo_t) == sizeof(::nvmlPciInfo_t));
static_assert(offsetof(runtime::nvml::nvmlPciInfo_t, busId) == offsetof(::nvmlPciInfo_t, busId));
static_assert(sizeof(runtime::nvml::nvmlFieldValue_t) == sizeof(::nvmlFieldValue_t));
static_assert(offsetof(runtime::nvml::nvmlFieldValue_t, value) ==
              offsetof(::nvmlFieldValue_t, value));

}  // namespace
#endif

TEST_CASE("NVML's declarations are NVIDIA's own", "[runtime]") {
#ifdef CLEAVE_HAS_NVML_HEADER
    SUCCEED("compiled against NVML " << NVML_API_VERSION_STR);
#else
    CLEAVE_SKIP("neither this machine nor the tests' packages have a nvml.h to compare with");
#endif
}

TEST_CASE("links of cards are counted and rated as NVML has them, and its session ends",
          "[runtime]") {
    void* fake = ::dlopen(CLEAVE_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(fake);
    auto* sessions = reinterpret_cast<int (*)()>(::dlsym(fake, "fake_sessions"));
    auto* absent = reinterpret_cast<void (*)(int)>(::dlsym(fake, "fake_driver_absent"));
    const std::string names[] = {CLEAVE_FAKE_NVML};
    {
        const FoundLinkFacts found = open_nvml(names);
        REQUIRE(found.facts);
        CHECK(sessions() == 1);
        const LinkFacts& facts = *found.facts;
        // Four direct links, and one through the switch: the second card has no more of those.
        CHECK(facts.fabric_bandwidth("0000:3b:00.0", "0000:5e:00.0") == 5 * 26'562'000'000);
        CHECK(facts.fabric_bandwidth("0000:5e:00.0", "0000:3b:00.0") == 5 * 26'562'000'000);
        CHECK_FALSE(facts.fabric_bandwidth("0000:3b:00.0", "0000:86:00.0"));
        CHECK_FALSE(facts.fabric_bandwidth("0000:3b:00.0", "0000:99:00.0"));
        CHECK(facts.pcie_bandwidth("0000:3b:00.0", "0000:86:00.0") == pcie_bytes_per_second(4, 8));
        CHECK_FALSE(facts.pcie_bandwidth("0000:3b:00.0", "0000:99:00.0"));
    }
    CHECK(sessions() == 0);
    absent(1);
    CHECK_THAT(open_nvml(names).reason, Contains("nvmlInit_v2: Driver Not Loaded"));
    absent(0);
    const std::string none[] = {"libno-nvml.so.1"}, wrong[] = {CLEAVE_FAKE_CUDA};
    CHECK_THAT(open_nvml(none).reason, Contains("libno-nvml.so.1"));
    CHECK_THAT(open_nvml(wrong).reason, Contains("lacks nvmlInit_v2"));
    ::dlclose(fake);
    CHECK(pcie_bytes_per_second(4, 16) == 25'000'000'000);
    CHECK(pcie_bytes_per_second(5, 16) > 49'900'000'000);
    CHECK(pcie_bytes_per_second(9, 16) == 0);
}

TEST_CASE(
    "a machine's links are the ones that NVML counted, else PCI Express as the slower slot has it",
    "[runtime]") {
    ::setenv("CLEAVE_NVML_LIBRARY", CLEAVE_FAKE_NVML, 1);
    {
        const cleave::test::InstalledFake fake(planner::DeviceKind::kCuda);
        const planner::Machine machine = cleave::test::machine_at_hand("cuda[0-2]");
        const auto link = [&](size_t from, size_t to) {
            return *machine.link(planner::DeviceId(from), planner::DeviceId(to));
        };
        CHECK(link(0, 1).kind == planner::LinkKind::kNvlink);
        CHECK(link(0, 1).bandwidth == 5 * 26'562'000'000);
        CHECK(link(0, 2).kind == planner::LinkKind::kPcie);
        CHECK(link(0, 2).bandwidth == pcie_bytes_per_second(4, 8));
        CHECK(link(2, 1).bandwidth == pcie_bytes_per_second(4, 8));
    }
    ::unsetenv("CLEAVE_NVML_LIBRARY");
}
