// SPDX-License-Identifier: Apache-2.0
// `tools/bench import`: what reading a model costs. A 405B-shaped graph without weights in every
// form that models/ builds (goal: under 2 s and 500 MB on one core), and an 8B-shaped model whose
// 16 GB of weights are a sparse file (goal: not one page of them is touched). Each import is a
// process of its own on one core. Nothing here is a test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "importer/onnx/import.h"
#include "models/onnx_writer.h"
#include "runtime/base/errors.h"

namespace {

using namespace cleave;
namespace fs = std::filesystem;

constexpr double kGoalSeconds = 2.0, kGoalMegabytes = 500.0;
constexpr int kRepeats = 3;

struct NamedForm {
    const char* name;
    models::OnnxForm form;
};
constexpr NamedForm kForms[] = {{"decomposed, opset 17", models::OnnxForm::kDecomposed},
                                {"Attention, opset 23", models::OnnxForm::kAttention},
                                {"GroupQueryAttention", models::OnnxForm::kGroupQueryAttention},
                                {"local functions", models::OnnxForm::kFunctions}};

// What one import cost, as the kernel counted it.
struct Cost {
    double seconds = 0, cpu_seconds = 0, megabytes = 0;
    int64_t layers = 0;
};

void stay_on_one_core() {
    cpu_set_t all, one;
    CPU_ZERO(&all);
    CPU_ZERO(&one);
    if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    ::sched_setaffinity(0, sizeof(one), &one);
}

// The child's part: imports, and writes the time and the number of layers to `pipe`. The parent
// forks before it has built anything large, so the child's peak is the import's own.
[[noreturn]] void import_in_child(const std::string& path, bool weights_may_be_absent, int pipe) {
    stay_on_one_core();
    Cost cost;
    try {
        const auto start = std::chrono::steady_clock::now();
        const importer::Graph graph = importer::import_onnx(path, {weights_may_be_absent});
        cost.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        cost.layers = graph.config.num_layers;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        ::_exit(1);
    }
    ::_exit(::write(pipe, &cost, sizeof(cost)) == sizeof(cost) ? 0 : 1);
}

Cost measure(const std::string& path, bool weights_may_be_absent) {
    int pipe[2];
    if (::pipe(pipe) != 0) throw InternalError("pipe failed");
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) import_in_child(path, weights_may_be_absent, pipe[1]);
    ::close(pipe[1]);
    Cost cost;
    const bool complete = ::read(pipe[0], &cost, sizeof(cost)) == sizeof(cost);
    ::close(pipe[0]);
    int status = 0;
    struct rusage usage{};
    if (::wait4(child, &status, 0, &usage) != child || status != 0 || !complete)
        throw InternalError("the import of " + path + " failed");
    cost.cpu_seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    cost.megabytes = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
    return cost;
}

Cost best_of(const std::string& path, bool weights_may_be_absent) {
    Cost best = measure(path, weights_may_be_absent);
    for (int i = 1; i < kRepeats; ++i) {
        const Cost next = measure(path, weights_may_be_absent);
        best.seconds = std::min(best.seconds, next.seconds);
        best.cpu_seconds = std::min(best.cpu_seconds, next.cpu_seconds);
        best.megabytes = std::max(best.megabytes, next.megabytes);
    }
    return best;
}

// In a child: building a model of that size must not count as the import's memory.
void write_in_child(const std::string& shape, const fs::path& folder, models::OnnxForm form) {
    const pid_t child = ::fork();
    if (child == 0) {
        models::WriteOptions options;
        options.weights = models::WriteOptions::Weights::kNone;
        options.dtype = DType::kBF16;
        options.form = form;
        try {
            models::write_onnx_llama(*models::find_shape(shape), folder.string(), options);
        } catch (const std::exception& error) {
            fmt::print(stderr, "{}\n", error.what());
            ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0)
        throw InternalError("writing the model failed");
}

// Pages of the file that are in memory.
int64_t resident_pages(const fs::path& path, int64_t size) {
    const int file = ::open(path.c_str(), O_RDONLY);
    void* map = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    if (map == MAP_FAILED) throw InternalError("mmap failed");
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> there(static_cast<size_t>((size + page - 1) / page));
    const bool known = ::mincore(map, static_cast<size_t>(size), there.data()) == 0;
    ::munmap(map, static_cast<size_t>(size));
    if (!known) throw InternalError("mincore failed");
    return std::count_if(there.begin(), there.end(), [](unsigned char c) { return (c & 1) != 0; });
}

void bench_405b(const fs::path& folder) {
    fmt::print("405B shape without weights, bf16 (goal: {:.0f} s, {:.0f} MB on one core)\n",
               kGoalSeconds, kGoalMegabytes);
    for (const NamedForm& form : kForms) {
        write_in_child("llama-3.1-405b", folder, form.form);
        const fs::path model = folder / "model.onnx";
        const Cost cost = best_of(model.string(), true);
        fmt::print(
            "  {:<22} {:>5.2f} s ({:.2f} s CPU), peak {:>4.0f} MB, {} layers, file {:.1f} MB{}\n",
            form.name, cost.seconds, cost.cpu_seconds, cost.megabytes, cost.layers,
            static_cast<double>(fs::file_size(model)) / 1e6,
            cost.seconds > kGoalSeconds || cost.megabytes > kGoalMegabytes ? "  OVER THE GOAL"
                                                                           : "");
    }
}

void bench_8b(const fs::path& folder) {
    write_in_child("llama-3-8b", folder, models::OnnxForm::kDecomposed);
    const fs::path model = folder / "model.onnx", data = folder / "model.onnx.data";
    constexpr int64_t kBytes = int64_t{17} * 1000 * 1000 * 1000;
    if (::close(::open(data.c_str(), O_WRONLY | O_CREAT, 0600)) != 0 ||
        ::truncate(data.c_str(), kBytes) != 0)
        throw InternalError("cannot make a sparse file in " + folder.string());
    const int64_t before = resident_pages(data, kBytes);
    const Cost cost = best_of(model.string(), false);
    const int64_t after = resident_pages(data, kBytes);
    struct stat info{};
    ::stat(data.c_str(), &info);
    fmt::print(
        "8B shape with {:.1f} GB of external data (a sparse file), bf16\n  {:.2f} s ({:.2f} s "
        "CPU), peak {:.0f} MB; "
        "pages of the data in memory: {} before, {} after; {} blocks on disk{}\n",
        static_cast<double>(kBytes) / 1e9, cost.seconds, cost.cpu_seconds, cost.megabytes, before,
        after, static_cast<int64_t>(info.st_blocks), after > before ? "  TOUCHED" : "");
}

}  // namespace

int main() {
    std::string name = (fs::temp_directory_path() / "cleave-bench-XXXXXX").string();
    if (!::mkdtemp(name.data())) {
        fmt::print(stderr, "cannot make a folder in {}\n", fs::temp_directory_path().string());
        return 1;
    }
    const fs::path folder = name;
    int code = 0;
    try {
        bench_405b(folder);
        bench_8b(folder);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        code = 1;
    }
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return code;
}
