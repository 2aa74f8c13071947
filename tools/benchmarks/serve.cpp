// SPDX-License-Identifier: Apache-2.0
// `tools/bench serve [SHAPE] [--rounds N] [--rows NAME,...] [--http] [--llama-cpp FOLDER]`: serving
// many requests at once as ratios of two runs on this machine, each beside its goal. Nothing here
// is a test.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/benchmarks/flags.h"
#include "tools/benchmarks/serve_bench.h"
#include "tools/cli/calibrate.h"

namespace {

using namespace cleave;
using bench::Row;

struct Flags {
    std::string shape = "llama-110m";
    int rounds = 3;
    std::vector<std::string> rows;  // empty: all
    std::string llama_cpp;          // a folder with llama-server
};

constexpr const char* kRows[] = {"batching", "concurrency", "run",   "waste", "cache",
                                 "prefix",   "gap",         "short", "bits",  "http",
                                 "peer",     "groups",      "engine"};

// $CLEAVE_LLAMA_CPP, else the folder of PATH that has llama-server; empty: none.
std::string find_llama_cpp() {
    if (const char* folder = std::getenv("CLEAVE_LLAMA_CPP")) return folder;
    const char* path = std::getenv("PATH");
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
        std::error_code ignored;
        if (std::filesystem::exists(std::filesystem::path(folder) / "llama-server", ignored))
            return folder;
    }
    return "";
}

Flags read_flags(int argc, char** argv) {
    Flags flags;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const bool has_value = word.starts_with("--");
        if (!has_value) {
            flags.shape = word;
            continue;
        }
        if (word == "--http") {
            flags.rows.insert(flags.rows.end(), {"http", "peer"});
            continue;
        }
        if (i + 1 == argc) throw UserError("{} needs a value", word);
        const std::string value = argv[++i];
        if (word == "--rounds") {
            flags.rounds = static_cast<int>(bench::whole_number(word, value, 1, 1000));
        } else if (word == "--rows") {
            std::istringstream names(value);
            for (std::string name; std::getline(names, name, ',');) {
                if (std::ranges::find(kRows, name) == std::end(kRows))
                    throw UserError("--rows {}: rows are {}", name, fmt::join(kRows, ", "));
                flags.rows.push_back(name);
            }
        } else if (word == "--llama-cpp") {
            flags.llama_cpp = value;
        } else {
            throw UserError("{}: flags are --rounds, --rows, --http and --llama-cpp", word);
        }
    }
    if (flags.llama_cpp.empty()) flags.llama_cpp = find_llama_cpp();
    return flags;
}

void print(const Row& row) {
    const double value = tools::median(row.ratios);
    const auto [least, most] = std::ranges::minmax_element(row.ratios);
    const bool reached = row.at_least ? value >= row.goal : value <= row.goal;
    const std::string goal = row.goal == 0
                                 ? std::string("-")
                                 : fmt::format("{} {:.2f} {}", row.at_least ? ">=" : "<=", row.goal,
                                               reached ? "reached" : "MISSED");
    fmt::print("{:<26} {:>7.3f} {:>17} {:>16}  {}\n", row.name, value,
               fmt::format("{:.3f} to {:.3f}", *least, *most), goal, row.detail);
    std::fflush(stdout);
}

void table(const Flags& flags) {
    const bench::ServeModel model(flags.shape);
    fmt::print("{} f32, random weights, host, {} cores, {} rounds, {} slots\n\n", flags.shape,
               std::thread::hardware_concurrency(), flags.rounds, bench::kSlots);
    const auto wanted = [&](const char* name) {
        return flags.rows.empty() || std::ranges::find(flags.rows, name) != flags.rows.end();
    };
    std::vector<Row> groups;
    if (wanted("groups")) groups = bench::groups_in_flight(model, flags.rounds);
    fmt::print("{:<26} {:>7} {:>17} {:>16}\n", "ratio", "median", "rounds", "goal");
    for (const Row& row : groups) print(row);
    if (wanted("engine"))
        for (const int64_t sequences : {16, 128, 768})
            print(bench::engine_alone(sequences, flags.rounds));
    bench::Served served(model);
    const int rounds = flags.rounds;
    if (wanted("batching")) print(continuous_batching(served, rounds));
    if (wanted("concurrency")) print(concurrency(model, served, rounds));
    if (wanted("run")) print(beside_run(served, rounds));
    if (wanted("waste")) print(kv_waste(served));
    if (wanted("cache")) print(sharing_without_hits(served, rounds));
    if (wanted("prefix")) print(shared_prefix(served, rounds));
    if (wanted("gap")) print(gap_beside_long_prompt(served, rounds));
    if (wanted("short"))
        for (const Row& row : short_behind_long(served, rounds)) print(row);
    if (wanted("bits"))
        for (const Row& row : reproducible(model, served, rounds)) print(row);
    if (wanted("http")) {
        print(bench::http_alone(served.plan, rounds));
        print(http_beside_engine(served, rounds));
    }
    if (!wanted("peer")) return;
    if (flags.llama_cpp.empty())
        fmt::print(
            "nothing beside llama.cpp's server: no llama-server in --llama-cpp FOLDER, "
            "$CLEAVE_LLAMA_CPP or PATH (the head of tests/tools/export_peers_test.cpp builds "
            "it)\n");
    else
        for (const Row& row : beside_llama_cpp(served, flags.llama_cpp, rounds)) print(row);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        table(read_flags(argc, argv));
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
