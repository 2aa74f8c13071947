// SPDX-License-Identifier: Apache-2.0
// The table of vendors, its entries, and the list of files that a new vendor touches.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "planner/machine/gpu_arch.h"
#include "runtime/base/environment.h"
#include "runtime/drivers/vendors.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = CLEAVE_SOURCE_DIR;

std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    REQUIRE(in);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

// The files of the n-th list below "How to add a vendor".
std::set<std::string> listed(size_t n) {
    std::istringstream readme(text_of(kRoot / "runtime/README.md"));
    std::vector<std::set<std::string>> lists;
    bool in_section = false, in_list = false;
    for (std::string line; std::getline(readme, line);) {
        if (line.starts_with("## ")) in_section = line == "## How to add a vendor";
        const bool item = in_section && line.starts_with("- `");
        if (item && !in_list) lists.emplace_back();
        if (item) lists.back().insert(line.substr(3, line.find('`', 3) - 3));
        in_list = item;
    }
    REQUIRE(lists.size() == 2);
    return lists[n];
}

// Sources outside the vendors' own folders with one of the vendors' enumerators.
std::set<std::string> naming_vendors() {
    const std::regex names(R"(\bk(Cuda|Hip|Nvidia|Amd|Nvlink|Xgmi)\b)");
    std::set<std::string> files;
    for (const char* folder : {"importer", "planner", "codegen", "runtime", "models", "tools"})
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
            const std::string file = fs::relative(entry.path(), kRoot).string();
            const std::string extension = entry.path().extension().string();
            if ((extension != ".h" && extension != ".cpp") ||
                file.starts_with("runtime/drivers/cuda/") ||
                file.starts_with("runtime/drivers/hip/"))
                continue;
            if (std::regex_search(text_of(entry.path()), names)) files.insert(file);
        }
    return files;
}

}  // namespace

TEST_CASE("a new vendor touches the files that the README lists, twelve at most", "[runtime]") {
    const std::set<std::string> touched = listed(0), of_one = listed(1);
    CHECK(touched.size() <= 12);
    std::set<std::string> known = touched;
    known.insert(of_one.begin(), of_one.end());
    for (const std::string& file : naming_vendors()) {
        INFO(file << " names a vendor and is not in runtime/README.md");
        CHECK(known.contains(file));
    }
    // And no file is listed without a reason.
    const std::regex words("cuda|hip|nvidia|amd|CLEAVE_GFX", std::regex::icase);
    for (const std::string& file : known) {
        INFO(file << " is listed in runtime/README.md and names no vendor");
        CHECK(std::regex_search(text_of(kRoot / file), words));
    }
}

TEST_CASE("each vendor has a row, an entry, architectures and variables in the list", "[runtime]") {
    std::set<planner::DeviceKind> kinds;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        CAPTURE(vendor.kind_name);
        CHECK(&planner::vendor_facts(vendor.vendor) == &vendor);
        CHECK(planner::vendor_of(vendor.kind) == &vendor);
        CHECK(planner::vendor_of(vendor.own_link) == &vendor);
        CHECK(planner::is_card(vendor.kind));
        CHECK(kinds.insert(vendor.kind).second);
        const DriverEntry& entry = driver_entry(vendor.vendor);
        for (const VendorLibrary* library : {&entry.driver, &entry.collectives, &entry.links}) {
            CHECK_NOTHROW(environment(library->variable));
            CHECK(!library->usual().empty());
        }
        int archs = 0;
        for (const planner::GpuArch& arch : planner::gpu_archs())
            archs += arch.vendor == vendor.vendor && arch.name.starts_with(vendor.arch_prefix);
        CHECK(archs > 0);
    }
    for (planner::DeviceKind kind : planner::kDeviceKinds)
        CHECK(planner::is_card(kind) == kinds.contains(kind));
}

TEST_CASE("a device is of the vendor that drives it, or whose architecture it simulates",
          "[runtime]") {
    planner::DeviceInfo device;
    CHECK(planner::vendor_of(device) == nullptr);
    device.kind = planner::DeviceKind::kSim;
    device.arch = "gfx90a";
    REQUIRE(planner::vendor_of(device));
    CHECK(planner::vendor_of(device)->vendor == planner::Vendor::kAmd);
    device.arch = "sm_80";
    CHECK(planner::vendor_of(device)->vendor == planner::Vendor::kNvidia);
    device.kind = planner::DeviceKind::kHip;
    CHECK(planner::vendor_of(device)->vendor == planner::Vendor::kAmd);
}

TEST_CASE("no file but one reads variables of Cleave's own from the environment", "[runtime]") {
    for (const char* folder : {"importer", "planner", "codegen", "runtime"})
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
            const std::string extension = entry.path().extension().string();
            if (extension != ".h" && extension != ".cpp") continue;
            INFO(entry.path().string());
            CHECK(text_of(entry.path()).find("getenv(\"CLEAVE_") == std::string::npos);
        }
    CHECK_THROWS_AS(environment("CLEAVE_NOT_IN_THE_LIST"), InternalError);
}
