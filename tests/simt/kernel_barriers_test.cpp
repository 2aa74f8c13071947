// SPDX-License-Identifier: Apache-2.0
// Every kernel that ships, with each of its barriers deleted in turn: the emulator reports it, at
// some order of the threads, or the numbers are wrong, or that kernel does not need it, which other
// means show. And that the list of what ships leaves nothing out.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "codegen/text/embedded_templates.h"
#include "codegen/text/templates.h"
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
        for (const auto& [place, text] :
             simt_test::sync_places(codegen::flatten_template(file.name)))
            places.insert(place);
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

// Barriers of the kernel's text, by place, each with the lines around it.
std::map<std::string, std::string> places_of(const Shipped& shipped) {
    std::map<std::string, std::string> places;
    for (const std::string& source : shipped.sources())
        places.merge(simt_test::sync_places(source));
    return places;
}

SourceChange without(const std::string& place, const std::string& instead = ";") {
    return [=](const std::string& source) {
        return simt_test::without_sync_at(source, place, instead);
    };
}

// Where a thread that comes by is reported.
constexpr const char* kTrap = "*reinterpret_cast<volatile float*>(16) = 1.0f;";

enum class Fate { kCaught, kAbsent, kUnreached, kSpare, kMissed };

// What becomes of a kernel without the barrier. Where nothing is reported and all numbers are
// right, the checks are not believed alone: what is compiled is the same, or nobody comes by, or
// the kernel without any checks writes the same bits in eight orders although shared memory holds
// no numbers at first.
Fate fate_of(const Shipped& shipped, const std::string& place) {
    if (!shipped.wrong(without(place), 0, 6).empty()) return Fate::kCaught;
    if (shipped.objects({}) == shipped.objects(without(place))) return Fate::kAbsent;
    if (shipped.wrong(without(place, kTrap), 0, 1).empty()) return Fate::kUnreached;
    return shipped.same_bits(without(place), 8) ? Fate::kSpare : Fate::kMissed;
}

// Barriers that some kernels come by and do not need, by their lines.
struct Spare {
    const char* text;
    const char* why;
};
constexpr Spare kSpare[] = {
    {"async_wait<kAhead - 1>(); Tiles::publish();",
     "quantised weights are expanded as they are staged: nothing is copied asynchronously"},
    {"wgmma_wait<kLag>(); if constexpr (kLag == 0) columns.hold();",
     "no more slices than stages: none is copied over another, and settle() waits for them all"},
    {"barrier(); tiles.write(c, kCStride);",
     "of an even number of slices the last lies beside the table of results, not under it"},
    {"barrier(); DEVICE float scale(int t) const {",
     "without a norm, and few rows a group: a thread reads the products that it wrote"},
    {"warp_sync(); p.accumulate();",
     "in 16 bits a lane of NVIDIA's has its part of the weights as operand where it had them as "
     "sum"},
    {"barrier(); if (thread_x() != 0) return;", "a block of one warp"},
    {"barrier(); return fine;", "before the flag is cleared again another barrier comes"},
    {"flush_to_peers(); barrier();", "a meeting sends nothing"},
    {"see_peers(); return fine;", "a meeting reads nothing"},
    {"release(u32* const (&here)[N], u32* const (&there)[N], u32 messages = 1) { barrier();",
     "the norm's barrier comes behind the last read"},
};
const Spare* spare(const std::string& text) {
    const auto* found = std::find_if(std::begin(kSpare), std::end(kSpare), [&](const Spare& s) {
        return text.find(s.text) != std::string::npos;
    });
    return found == std::end(kSpare) ? nullptr : found;
}

// The functions of the templates that generated stubs call.
std::set<std::string> entries_of_codegen() {
    std::set<std::string> functions, entries;
    for (const codegen::EmbeddedFile& file : codegen::embedded_templates())
        if (file.name.starts_with("gpu/"))
            functions.merge(
                matches(std::string(file.text), "template <class C[^>]*>\nDEVICE void (\\w+)\\("));
    for (const char* file :
         {"codegen/gpu/kernels.cpp", "codegen/gpu/products.cpp", "codegen/gpu/elementwise.cpp",
          "codegen/gpu/exchange.cpp", "codegen/text/elementwise.h"})
        for (const std::string& word : matches(text_of(file), "\"(\\w+)\""))
            if (functions.count(word)) entries.insert(word);
    return entries;
}

}  // namespace

TEST_CASE("every kernel without one of its barriers is caught, and every barrier in some kernel",
          "[simt]") {
    std::set<std::string> unproved = places_of_templates(), met;
    REQUIRE(unproved.size() >= 30);
    for (const std::string& arch : shipped_archs())
        for (const Shipped& shipped : shipped_kernels(arch)) {
            // On one architecture the kernel, on as many as it takes the barrier.
            bool caught = !shipped.own || !met.insert(shipped.name).second;
            if (caught && unproved.empty()) continue;
            const std::map<std::string, std::string> places = places_of(shipped);
            for (const auto& [place, text] : places) {
                if (caught && !unproved.count(place)) continue;
                if (shipped.wrong(without(place), 0, 6).empty()) continue;
                unproved.erase(place);
                caught = true;
            }
            INFO(shipped.name << " on " << arch);
            if (caught) continue;
            for (const auto& [place, text] : places)
                CHECK(fate_of(shipped, place) != Fate::kMissed);
        }
    CHECK(unproved == std::set<std::string>{});
}

TEST_CASE("every barrier deleted from every kernel is caught or not needed there", "[simt][slow]") {
    std::map<Fate, int> pairs;
    std::set<std::string> unproved = places_of_templates(), used;
    for (const std::string& arch : shipped_archs())
        for (const Shipped& shipped : shipped_kernels(arch)) {
            if (!shipped.own) continue;
            for (const auto& [place, text] : places_of(shipped)) {
                INFO(shipped.name << " on " << arch << " without " << place << ", " << text);
                const Fate fate = fate_of(shipped, place);
                ++pairs[fate];
                CHECK(fate != Fate::kMissed);
                if (fate == Fate::kCaught) unproved.erase(place);
                if (fate != Fate::kSpare) continue;
                const Spare* reason = spare(text);
                CHECK(reason != nullptr);
                if (reason) used.insert(reason->text);
            }
        }
    WARN(fmt::format(
        "{} kernels' barriers caught, {} not compiled, {} never reached, {} not needed",
        pairs[Fate::kCaught], pairs[Fate::kAbsent], pairs[Fate::kUnreached], pairs[Fate::kSpare]));
    CHECK(unproved == std::set<std::string>{});
    for (const Spare& reason : kSpare) {
        INFO("no kernel shows that it does without: " << reason.text);
        CHECK(used.count(reason.text) == 1);
    }
}

// What devices do to each other is told by what orders it, not by when they come: threads by index,
// one run, and no thread late.
TEST_CASE("an exchange without one of its barriers is told in the first order", "[simt]") {
    int told = 0;
    for (const std::string& arch : shipped_archs())
        for (const Shipped& shipped : shipped_exchanges(arch)) {
            CHECK(shipped.wrong({}, 0, 1) == "");
            for (const auto& [place, text] : places_of(shipped)) {
                INFO(shipped.name << " on " << arch << " without " << place << ", " << text);
                const std::string wrong = shipped.wrong(without(place), 0, 1);
                told += !wrong.empty();
                if (!wrong.empty() || spare(text)) continue;
                CHECK((shipped.objects({}) == shipped.objects(without(place)) ||
                       shipped.wrong(without(place, kTrap), 0, 1).empty()));
            }
        }
    CHECK(told >= 60);
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
                std::set<std::string> entry = matches(stub, "\n    (\\w+)<Config>\\(");
                // What a launch that overlaps does before its wait stands beside it.
                std::erase_if(entry, [](const std::string& e) { return e.ends_with("_ahead"); });
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
