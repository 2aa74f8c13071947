// SPDX-License-Identifier: Apache-2.0
// Every kernel that ships, with each of its barriers deleted in turn: the emulator reports it, at some order of the
// threads, or the numbers are wrong. And that the list of what ships leaves nothing out.
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "codegen/embedded_templates.h"
#include "codegen/templates.h"
#include "tests/simt/shipped.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

std::string text_of(const std::string& file) {
    std::ifstream stream(source_root() / file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// Every barrier, fence and wait of the templates, whatever kernel it is in.
std::set<std::string> places_of_templates() {
    std::set<std::string> places;
    for (const codegen::EmbeddedFile& file : codegen::embedded_templates()) {
        if (!file.name.starts_with("gpu/")) continue;
        const std::string source = codegen::flatten_template(file.name);
        for (int i = 0; i < simt_test::count_syncs(source); ++i)
            places.insert(simt_test::sync_place(source, i));
    }
    return places;
}

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
    std::set<std::string> found;
    const std::regex regex(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
        found.insert((*at)[1]);
    return found;
}

// The functions of the templates that generated stubs call.
std::set<std::string> entries_of_codegen() {
    std::set<std::string> functions, entries;
    for (const codegen::EmbeddedFile& file : codegen::embedded_templates())
        if (file.name.starts_with("gpu/"))
            functions.merge(
                matches(std::string(file.text), "template <class C[^>]*>\nDEVICE void (\\w+)\\("));
    for (const char* file : {"codegen/gpu_kernels.cpp", "codegen/gpu_products.cpp",
                             "codegen/gpu_elementwise.cpp", "codegen/peer_kernels.cpp"})
        for (const std::string& word : matches(text_of(file), "\"(\\w+)\""))
            if (functions.count(word)) entries.insert(word);
    return entries;
}

}  // namespace

TEST_CASE("a kernel without one of its barriers is caught", "[simt]") {
    // A barrier is needed when some kernel that contains its line cannot do without it.
    std::set<std::string> unproved = places_of_templates();
    REQUIRE(unproved.size() >= 30);
    for (const std::string& arch : shipped_archs())
        for (const Shipped& shipped : shipped_kernels(arch)) {
            if (unproved.empty()) return;
            std::set<std::string> places;
            for (const std::string& source : shipped.sources())
                for (int i = 0; i < simt_test::count_syncs(source); ++i)
                    places.insert(simt_test::sync_place(source, i));
            for (const std::string& place : places) {
                if (!unproved.count(place)) continue;
                const auto without = [&](const std::string& source) {
                    return simt_test::without_sync_at(source, place);
                };
                if (!shipped.wrong(without, 0, 6).empty()) unproved.erase(place);
            }
        }
    CHECK(unproved == std::set<std::string>{});
}

TEST_CASE("the list of shipped kernels has every entry of the templates with each of its switches",
          "[simt]") {
    std::set<std::string> called, files;
    std::map<std::string, std::set<std::string>> switches;    // "entry kName" -> "true", "false"
    for (const char* arch : {"sm_90a", "gfx90a", "gfx1100"})  // sources alone: the others add none
        for (const Shipped& shipped : shipped_kernels(arch))
            for (const std::string& source : shipped.sources()) {
                files.merge(matches(source, "#line 1 \"(gpu/\\w+\\.cuh)\""));
                const std::string stub = source.substr(source.rfind("struct Config"));
                const std::set<std::string> entry = matches(stub, "\n    (\\w+)<Config>\\(");
                REQUIRE(entry.size() == 1);
                called.insert(*entry.begin());
                for (const char* value : {"true", "false"})
                    for (const std::string& name :
                         matches(stub, fmt::format("constexpr bool (\\w+) = {};", value)))
                        switches[*entry.begin() + " " + name].insert(value);
            }
    CHECK(called == entries_of_codegen());
    for (const codegen::EmbeddedFile& file : codegen::embedded_templates())
        if (file.name.starts_with("gpu/")) CHECK(files.count(std::string(file.name)) == 1);
    for (const auto& [name, values] : switches) {
        INFO(name);
        CHECK(values == std::set<std::string>{"false", "true"});
    }
}
