// SPDX-License-Identifier: Apache-2.0
// `tools/bench load`: how fast weights come from a file onto a host device, cut and converted, as a
// share of what reading the same file costs: with its pages in memory, and, where the file system
// lets go of them, from the disk. Exporters store matrices transposed, as MatMul takes them, so
// nearly all are. Nothing here is a test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "importer/onnx/import.h"
#include "importer/weights/quantize.h"
#include "models/onnx_writer.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/errors.h"
#include "runtime/base/thread_team.h"
#include "runtime/session/session.h"

namespace {

using namespace cleave;
namespace fs = std::filesystem;

double seconds_since(std::chrono::steady_clock::time_point before) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

// Of reading it once in blocks of 8 MiB, by as many threads as cores.
double seconds_of_reading(const Descriptor& file) {
    const int64_t size = ::lseek(file.get(), 0, SEEK_END);
    constexpr int64_t kBlock = int64_t{8} << 20;
    runtime::ThreadTeam team(runtime::available_cores(), false);
    std::vector<std::vector<char>> blocks(static_cast<size_t>(team.threads()),
                                          std::vector<char>(kBlock));
    const auto before = std::chrono::steady_clock::now();
    team.split((size + kBlock - 1) / kBlock, [&](int64_t begin, int64_t end, int thread) {
        std::vector<char>& block = blocks[static_cast<size_t>(thread)];
        for (int64_t b = begin; b < end; ++b)
            if (::pread(file.get(), block.data(), kBlock, b * kBlock) < 0) std::abort();
    });
    return seconds_since(before);
}

void drop_pages(const Descriptor& file) {
    ::fsync(file.get());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

planner::Plan plan_of(const importer::Graph& graph) {
    planner::Workload workload;
    workload.context = 64;
    workload.prompt_tokens = 32;
    return planner::make_plan(
        graph, planner::build_machine(planner::parse_devices("host"), planner::read_host_facts()),
        workload, {});
}

void print_row(const char* pages, const std::string& dtype, const Descriptor& data, int64_t bytes,
               planner::Plan plan) {
    constexpr int kRounds = 3;
    const bool cold = pages == std::string("disk");
    runtime::SessionOptions options;
    options.poison = true;  // the device's memory is there before, as a GPU's is
    double read = 1e9, load = 1e9;
    for (int i = 0; i < kRounds; ++i) {  // by turns, as machines change their speed
        if (cold) drop_pages(data);
        read = std::min(read, seconds_of_reading(data));
        if (cold) drop_pages(data);
        load = std::min(load, runtime::Session(plan, options).loading().seconds);
    }
    const double gigabytes = static_cast<double>(bytes) * 1e-9;
    fmt::print("{:<8} {:<8} {:>8.2f} GB/s {:>8.2f} GB/s {:>8.0f} %\n", pages, dtype,
               gigabytes / read, gigabytes / load, 100 * read / load);
    std::fflush(stdout);
}

void run(const std::string& model) {
    const importer::Graph graph = importer::import_onnx(model);
    const std::string path = model + ".data";
    const Descriptor data(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!data) throw UserError("cannot open {}", path);
    const auto bytes = static_cast<int64_t>(fs::file_size(path));
    fmt::print("{}: {:.2f} GB, {} cores\n", graph.name, static_cast<double>(bytes) * 1e-9,
               runtime::available_cores());
    fmt::print("{:<8} {:<8} {:>13} {:>13} {:>10}\n", "from", "to", "read", "loaded", "share");
    for (const char* pages : {"memory", "disk"}) {
        print_row(pages, "as it is", data, bytes, plan_of(graph));
        if (pages == std::string("disk")) continue;
        for (DType to : {DType::kInt8, DType::kInt4})
            print_row(pages, std::string(dtype_name(to)), data, bytes,
                      plan_of(importer::quantize_weights(graph, to)));
    }
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc > 1) {
        run(argv[1]);
        return 0;
    }
    const fs::path folder = fs::temp_directory_path() / fmt::format("cleave-load-{}", ::getpid());
    fs::create_directories(folder);
    try {
        models::WriteOptions options;
        options.dtype = DType::kBF16;
        run(models::write_onnx_llama(*models::find_shape("llama-3.2-1b"), folder.string(),
                                     options));
    } catch (...) {
        fs::remove_all(folder);
        throw;
    }
    fs::remove_all(folder);
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "bench load: {}\n", error.what());
    return 1;
}
