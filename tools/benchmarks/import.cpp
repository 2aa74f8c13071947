// SPDX-License-Identifier: Apache-2.0
// `tools/bench import`: what reading a model costs. A 405B-shaped graph without weights in every
// form that models/ builds (goal: under 2 s and 500 MB on one core), an 8B-shaped model whose 16 GB
// of weights are a sparse file (goal: not one page of them is touched), and a Hugging Face folder
// of 70B shape (goal: under 2 s and 200 MB). Each import is a process of its own on one core.
// Nothing here is a test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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
#include <nlohmann/json.hpp>

#include "importer/onnx/import.h"
#include "models/convert.h"
#include "models/llama_graph.h"
#include "models/model_folder.h"
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
        const importer::Graph graph = fs::is_directory(path) && models::has_safetensors(path)
                                          ? models::import_folder(path)
                                          : importer::import_onnx(path, {weights_may_be_absent});
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

constexpr int kShards = 30;

// A Hugging Face folder of 30 shards, as the 70B models are published: headers, and sparse files.
void write_shards(const fs::path& folder, const importer::Graph& graph) {
    std::vector<nlohmann::ordered_json> headers(kShards);
    std::vector<int64_t> sizes(kShards, 0);
    nlohmann::ordered_json map;
    const auto name_of = [](int shard) {
        return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, kShards);
    };
    for (const importer::Weight& weight : graph.weights) {
        const auto shard = static_cast<int>(map.size() * kShards / graph.weights.size());
        headers[shard][weight.name] = {
            {"dtype", "BF16"},
            {"shape", weight.shape},
            {"data_offsets", {sizes[shard], sizes[shard] + weight.packed_bytes()}}};
        sizes[shard] += weight.packed_bytes();
        map[weight.name] = name_of(shard);
    }
    for (int shard = 0; shard < kShards; ++shard) {
        const std::string header = headers[shard].dump();
        const uint64_t length = header.size();
        const fs::path file = folder / name_of(shard);
        std::ofstream(file, std::ios::binary)
            .write(reinterpret_cast<const char*>(&length), sizeof(length))
            .write(header.data(), static_cast<std::streamsize>(length));
        fs::resize_file(file, sizeof(length) + length + static_cast<uint64_t>(sizes[shard]));
    }
    std::ofstream(folder / "model.safetensors.index.json")
        << nlohmann::ordered_json{{"weight_map", map}};
}

// The names of `Graph` and of Hugging Face differ.
std::string stored_name(std::string name) {
    const auto change = [&](std::string_view from, std::string_view to) {
        if (const size_t at = name.find(from); at != std::string::npos)
            name.replace(at, from.size(), to);
    };
    change("input_norm", "input_layernorm");
    change("post_norm", "post_attention_layernorm");
    change("final_norm", "norm");
    for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"})
        change(projection, std::string("self_attn.") + projection);
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"})
        change(projection, std::string("mlp.") + projection);
    return name == "model.lm_head.weight" ? "lm_head.weight" : name;
}

void bench_70b_folder(const fs::path& folder) {
    write_in_child("llama-3-70b", folder, models::OnnxForm::kDecomposed);
    fs::remove(folder / "model.onnx");
    importer::Graph graph =
        models::build_llama_graph(*models::find_shape("llama-3-70b"), DType::kBF16);
    for (importer::Weight& weight : graph.weights) weight.name = stored_name(weight.name);
    write_shards(folder, graph);
    const Cost cost = best_of(folder.string(), false);
    fmt::print(
        "70B Hugging Face folder, 30 shards (sparse files), bf16\n"
        "  {:.2f} s ({:.2f} s CPU), peak {:.0f} MB, {} layers\n",
        cost.seconds, cost.cpu_seconds, cost.megabytes, cost.layers);
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
        fs::remove(folder / "model.onnx");
        fs::remove(folder / "model.onnx.data");
        bench_70b_folder(folder);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        code = 1;
    }
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return code;
}
