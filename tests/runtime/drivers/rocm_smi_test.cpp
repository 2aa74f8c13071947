// SPDX-License-Identifier: Apache-2.0
// Links between AMD's cards as ROCm SMI tells them, on a fake of the library, and what is declared
// of it by hand against AMD's own rocm_smi.h where there is one.
#if __has_include(<rocm_smi/rocm_smi.h>)
#include <rocm_smi/rocm_smi.h>
#define CLEAVE_HAS_ROCM_SMI_HEADER 1
#endif

#include <dlfcn.h>

#include <filesystem>
#include <type_traits>

#include "planner/machine/build_machine.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/drivers/hip/hip_driver.h"
#include "runtime/drivers/rocm_smi/rocm_smi.h"
#include "runtime/drivers/rocm_smi/symbols.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;

#ifdef CLEAVE_HAS_ROCM_SMI_HEADER
namespace {

// NOLINTBEGIN(bugprone-macro-parentheses): parts of declarations
#define CLEAVE_SAME_SMI(name, parameters) \
    static_assert(std::is_same_v<decltype(&::name), rsmi_status_t(*) parameters>, #name);
CLEAVE_ROCM_SMI_FUNCTIONS(CLEAVE_SAME_SMI)
// NOLINTEND(bugprone-macro-parentheses)
#define CLEAVE_EQUAL_SMI(name, value) \
    static_assert(static_cast<long long>(::name) == (value), #name);
CLEAVE_ROCM_SMI_CONSTANTS(CLEAVE_EQUAL_SMI)
static_assert(sizeof(::RSMI_IO_LINK_TYPE) == sizeof(runtime::rocm_smi::RSMI_IO_LINK_TYPE));

}  // namespace
#endif

TEST_CASE("ROCm SMI's declarations are AMD's own", "[runtime]") {
#ifdef CLEAVE_HAS_ROCM_SMI_HEADER
    SUCCEED("compiled against AMD's rocm_smi.h");
#else
    CLEAVE_SKIP("this machine has no rocm_smi/rocm_smi.h to compare with");
#endif
}

TEST_CASE("AMD's cards are joined as ROCm SMI says, whatever its order, and its session ends",
          "[runtime]") {
    void* fake = ::dlopen(CLEAVE_FAKE_ROCM_SMI, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(fake);
    auto* sessions = reinterpret_cast<int (*)()>(::dlsym(fake, "fake_sessions"));
    auto* failing = reinterpret_cast<void (*)(const char*)>(::dlsym(fake, "fake_failing"));
    const std::string first = "0000:c1:00.0", second = "0000:c6:00.0", third = "0000:d1:00.0",
                      unknown = "0000:99:00.0";
    const std::string names[] = {CLEAVE_FAKE_ROCM_SMI};
    {
        const FoundLinkFacts found = open_rocm_smi(names);
        REQUIRE(found.facts);
        CHECK(sessions() == 1);
        const LinkFacts& facts = *found.facts;
        CHECK(facts.fabric_bandwidth(first, second) == 200'000'000'000);
        CHECK(facts.fabric_bandwidth(second, first) == 200'000'000'000);
        CHECK_FALSE(facts.fabric_bandwidth(second, third));  // a card lies between
        CHECK_FALSE(facts.fabric_bandwidth(first, third));
        CHECK_FALSE(facts.fabric_bandwidth(first, first));
        CHECK_FALSE(facts.fabric_bandwidth(first, unknown));
        CHECK(facts.pcie_bandwidth(first, third) == 25'000'000'000);
        CHECK_FALSE(facts.pcie_bandwidth(first, second));
        CHECK_FALSE(facts.pcie_bandwidth(unknown, second));
        for (const char* call : {"rsmi_topo_get_link_type", "rsmi_minmax_bandwidth_get"}) {
            failing(call);
            CHECK_FALSE(facts.fabric_bandwidth(first, second));
        }
    }
    CHECK(sessions() == 0);
    for (const char* call : {"rsmi_init", "rsmi_num_monitor_devices", "rsmi_dev_pci_id_get"}) {
        failing(call);
        const FoundLinkFacts found = open_rocm_smi(names);
        CHECK_FALSE(found.facts);
        CHECK_THAT(found.reason, Contains(call) && Contains("RSMI_STATUS_INIT_ERROR"));
        CHECK(sessions() == 0);
    }
    failing("");
    const std::string none[] = {"librocm_none.so.7", "librocm_none.so"},
                      wrong[] = {CLEAVE_FAKE_HIP};
    CHECK_THAT(open_rocm_smi(none).reason,
               Contains("librocm_none.so.7") && Contains("librocm_none.so:"));
    CHECK_THAT(open_rocm_smi(wrong).reason, Contains("lacks rsmi_init"));
    ::dlclose(fake);
}

TEST_CASE("a machine's links of AMD's cards are the ones that ROCm SMI told", "[runtime]") {
    const cleave::test::Environment named("CLEAVE_ROCM_SMI_LIBRARY", CLEAVE_FAKE_ROCM_SMI);
    const cleave::test::InstalledFake fake(planner::DeviceKind::kHip);
    const planner::Machine machine = cleave::test::machine_at_hand("hip[0-2]");
    const auto link = [&](size_t from, size_t to) {
        return *machine.link(planner::DeviceId(from), planner::DeviceId(to));
    };
    CHECK(link(0, 1).kind == planner::LinkKind::kXgmi);
    CHECK(link(0, 1).bandwidth == 200'000'000'000);
    CHECK(link(0, 2).kind == planner::LinkKind::kPcie);
    CHECK(link(0, 2).bandwidth == 25'000'000'000);
    CHECK(list_gpus(fake.drivers(), planner::DeviceKind::kHip).no_links.empty());
    const cleave::test::Environment none("CLEAVE_ROCM_SMI_LIBRARY", "librocm_none.so");
    Drivers anew;
    CHECK_THAT(list_gpus(anew, planner::DeviceKind::kHip).no_links, Contains("librocm_none.so"));
}

TEST_CASE("ROCm's libraries are found where it is installed, before the loader's own",
          "[runtime]") {
    const cleave::test::TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "lib" / "libamdhip64.so.6";
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::copy_file(cleave::test::FakeGpu(planner::DeviceKind::kHip).path(), file);
    const cleave::test::Environment root("ROCM_PATH", folder.path().string());
    const std::vector<std::string> names = hip_library_names();
    CHECK(names.front() == file.string());
    CHECK(names.back() == "libamdhip64.so");
    const FoundDriver found = open_hip_driver();
    REQUIRE(found.driver);
    CHECK(found.driver->library() == file.string());
    const std::string absent[] = {"libno-such-library.so"};
    CHECK(rocm_library_names(absent) == std::vector<std::string>{"libno-such-library.so"});
}
