// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/cpu_peers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "models/stand_in_weights.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/host/host_topology.h"
#include "runtime/generate/generate.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/benchmarks/cpu_limits.h"
#include "tools/benchmarks/random_gguf.h"
#include "tools/cli/host_bench.h"

namespace cleave::bench {

namespace {

constexpr int64_t kPrompt = 512, kDepth = 256, kNewTokens = 32;

// Tokens/s, by round.
struct Rates {
    std::vector<double> prefill, decode;
};

std::string quoted(const std::string& word) {
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

// A file or folder that goes with its owner.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& name)
        : path_((std::filesystem::temp_directory_path() /
                 fmt::format("cleave-bench-{}-{}", ::getpid(), name))
                    .string()) {}
    ~TemporaryFile() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

// What it prints; UserError with its first line that tells of an error where it fails.
std::string output_of(const std::string& command) {
    const TemporaryFile errors("errors.txt");
    std::FILE* pipe = ::popen(fmt::format("{} 2> {}", command, quoted(errors.path())).c_str(), "r");
    if (!pipe) throw UserError("{}: cannot be started", command);
    std::string text;
    std::array<char, 4096> some;
    while (const size_t n = std::fread(some.data(), 1, some.size(), pipe))
        text.append(some.data(), n);
    if (::pclose(pipe) == 0) return text;
    std::ifstream said(errors.path());
    std::string first;
    for (std::string line; first.empty() && std::getline(said, line);)
        if (line.find("rror") != std::string::npos || line.find("fail") != std::string::npos)
            first = line;
    throw UserError("{} failed: {}", command, first);
}

class LlamaCpp {
public:
    LlamaCpp(std::string folder, int threads) : folder_(std::move(folder)), threads_(threads) {}

    // `type`: of llama-quantize; every matrix has it.
    void quantize(const std::string& from, const std::string& to, const std::string& type) const {
        output_of(fmt::format("{} --pure {} {} {} {}", quoted(folder_ + "/llama-quantize"),
                              quoted(from), quoted(to), type, threads_));
    }
    void run(const std::string& model, Rates& rates) const {
        rates.prefill.push_back(rate(model, fmt::format("-p {} -n 0", kPrompt)));
        rates.decode.push_back(rate(model, fmt::format("-p 0 -n {} -d {}", kNewTokens, kDepth)));
    }

private:
    double rate(const std::string& model, const std::string& work) const {
        const std::string command =
            fmt::format("{} -m {} -t {} -r 1 -o json {}", quoted(folder_ + "/llama-bench"),
                        quoted(model), threads_, work);
        const nlohmann::json all = nlohmann::json::parse(output_of(command), nullptr, false);
        if (!all.is_array() || all.size() != 1 || !all[0].contains("avg_ts"))
            throw UserError("{}: no avg_ts in what it printed", command);
        return all[0]["avg_ts"].get<double>();
    }

    std::string folder_;
    int threads_;
};

// onnxruntime-genai, by a script of its own (tools/lib/ort_peer.py).
class OnnxRuntime {
public:
    OnnxRuntime(const PeersOptions& options, int threads)
        : options_(options), folder_("onnxruntime"), threads_(threads) {}
    // It has no products of bf16 on CPUs.
    bool has(DType dtype) const { return !options_.python.empty() && dtype != DType::kBF16; }
    void make(DType dtype) const {
        output_of(fmt::format("{} make {} {} {} {}", script(), quoted(options_.cleave),
                              quoted(options_.shape), quoted(folder_.path()), dtype_name(dtype)));
    }
    void run(DType dtype, Rates& rates) const {
        const std::string command =
            fmt::format("{} run {} {} {} {} {} {}", script(), quoted(folder_.path()),
                        dtype_name(dtype), threads_, kPrompt, kDepth, kNewTokens);
        const nlohmann::json made = nlohmann::json::parse(output_of(command), nullptr, false);
        if (!made.is_object() || !made.contains("prefill") || !made.contains("decode"))
            throw UserError("{}: no rates in what it printed", command);
        rates.prefill.push_back(made["prefill"].get<double>());
        rates.decode.push_back(made["decode"].get<double>());
    }

private:
    std::string script() const { return quoted(options_.python) + " tools/lib/ort_peer.py"; }

    const PeersOptions& options_;
    TemporaryFile folder_;
    int threads_;
};

// One device, which has all cores.
class Ours {
public:
    Ours(const importer::Graph& graph, DType dtype, planner::ComputeMode compute)
        : plan_(make_plan(graph, dtype, compute)),
          session_(plan_, {}),
          vocabulary_(graph.config.vocab_size) {}
    const planner::Plan& plan() const { return plan_; }

    void run(Rates& rates) {
        const double prefill_ms = generate(kPrompt, 1).prefill_ms;
        rates.prefill.push_back(1e3 * kPrompt / prefill_ms);
        rates.decode.push_back(1e3 / generate(kDepth, kNewTokens).decode_ms_per_token);
    }

private:
    static planner::Plan make_plan(const importer::Graph& graph, DType dtype,
                                   planner::ComputeMode compute) {
        planner::Workload workload;
        workload.context = kPrompt + kNewTokens;
        workload.prompt_tokens = kPrompt;
        workload.compute = compute;
        if (dtype_bits(dtype) < 16) workload.dtype = dtype;
        return planner::make_plan(
            graph,
            planner::build_machine(planner::parse_devices("host"), planner::read_host_facts()),
            workload, {});
    }
    runtime::GenerateResult generate(int64_t prompt_tokens, int64_t new_tokens) {
        runtime::GenerateOptions options;
        options.max_new_tokens = new_tokens;
        return runtime::generate(session_, plan_, {prompt(prompt_tokens, vocabulary_)}, options);
    }

    planner::Plan plan_;
    runtime::Session session_;
    int64_t vocabulary_;
};

struct Type {
    DType dtype;
    const char* peers;  // llama-quantize's name
};
constexpr Type kTypes[] = {
    {DType::kF32, "F32"}, {DType::kBF16, "BF16"}, {DType::kInt8, "Q8_0"}, {DType::kInt4, "Q4_0"}};

// What the machine allows one figure to be, tokens/s.
struct Bounds {
    double prefill = 0, decode = 0;
};
Bounds bounds_of(const planner::Plan& plan, DType dtype, const CpuLimits& limits) {
    double elements = 0;
    for (const importer::Op& op : plan.graph.ops)
        if (op.kind == importer::OpKind::kLinear)
            elements += static_cast<double>(plan.graph.weight(op.weights[0]).num_elements());
    // lm_head's rows are computed for the last token alone.
    elements -= static_cast<double>(plan.graph.config.vocab_size * plan.graph.config.hidden_size);
    double unit = limits.f32;
    if (plan.workload.compute == planner::ComputeMode::kFast) {
        const double narrow = dtype == DType::kBF16 ? limits.bf16 : limits.int8;
        if (dtype != DType::kF32 && narrow > 0) unit = narrow;
    }
    return {unit / (2 * elements),
            limits.read / static_cast<double>(decode_weight_bytes(plan.graph))};
}

CpuLimits at_best(const CpuLimits& a, const CpuLimits& b) {
    return {std::max(a.read, b.read), std::max(a.f32, b.f32), std::max(a.bf16, b.bf16),
            std::max(a.int8, b.int8)};
}

// Of each round.
struct Row {
    std::string weights;
    const char* figure;
    const std::vector<double>& ours;
    const std::vector<double>& llama_cpp;
    const std::vector<double>& onnxruntime;  // may be empty
    double bound;
};

// A row of the table; what it says goes into `rows`.
void print_row(const Row& row, nlohmann::json& rows) {
    const double own = tools::median(row.ours), other = tools::median(row.llama_cpp);
    std::string third;
    if (!row.onnxruntime.empty()) {
        const double its = tools::median(row.onnxruntime);
        third = fmt::format("{:>12.1f} {:>7.2f}x", its, own / its);
    }
    fmt::print("{:<12} {:<8} {:>8.1f} {:>9.0f}% {:>10.1f} {:>7.2f}x {}\n", row.weights, row.figure,
               own, 100 * own / row.bound, other, own / other, third);
    std::fflush(stdout);
    rows.push_back({{"weights", row.weights},
                    {"figure", row.figure},
                    {"tokens_per_second", row.ours},
                    {"llama_cpp_tokens_per_second", row.llama_cpp},
                    {"onnxruntime_genai_tokens_per_second", row.onnxruntime},
                    {"machine_allows_tokens_per_second", row.bound}});
}

}  // namespace

void beside_peers(const PeersOptions& options) {
    const int threads = static_cast<int>(std::thread::hardware_concurrency());
    const LlamaCpp llama_cpp(options.llama_cpp, threads);
    const OnnxRuntime onnxruntime(options, threads);
    const CpuLimits limits = measure_limits(threads, size_t{1} << 30);
    fmt::print(
        "{}, random weights, {} threads, {} rounds; tokens/s, medians; prefill of {}, decode "
        "behind {}\nplain loops: read {:.1f} GB/s; f32 {:.0f}, bf16 {:.0f}, int8 {:.0f} G "
        "operations/s (0: no such unit)\n\n",
        options.shape, threads, options.rounds, kPrompt, kDepth, limits.read / 1e9,
        limits.f32 / 1e9, limits.bf16 / 1e9, limits.int8 / 1e9);
    fmt::print("{:<12} {:<8} {:>8} {:>10} {:>10} {:>8} {:>12} {:>8}\n", "weights", "", "ours",
               "of limit", "llama.cpp", "ratio", "onnxruntime", "ratio");
    const TemporaryFile f32("original.gguf");
    write_random_gguf(shape_of(options.shape).config, f32.path());
    nlohmann::json rows = nlohmann::json::array();
    for (const Type& type : kTypes) {
        if (options.dtype && *options.dtype != type.dtype) continue;
        const bool is_f32 = type.dtype == DType::kF32;
        const TemporaryFile narrow(fmt::format("{}.gguf", type.peers));
        if (!is_f32) llama_cpp.quantize(f32.path(), narrow.path(), type.peers);
        if (onnxruntime.has(type.dtype)) onnxruntime.make(type.dtype);
        const planner::ComputeMode compute =
            is_f32 ? planner::ComputeMode::kExact
                   : options.compute.value_or(planner::ComputeMode::kFast);
        importer::Graph graph = graph_of(options.shape, type.dtype);
        const models::StandInWeights weights(graph);
        Ours ours(graph, type.dtype, compute);
        Rates own, theirs, third;
        CpuLimits best = limits;  // of all rounds: a machine's memory may be faster at times
        for (int round = 0; round < options.rounds; ++round) {
            best = at_best(best, measure_limits(threads, size_t{1} << 30));
            ours.run(own);
            llama_cpp.run(is_f32 ? f32.path() : narrow.path(), theirs);
            if (onnxruntime.has(type.dtype)) onnxruntime.run(type.dtype, third);
        }
        const Bounds bounds = bounds_of(ours.plan(), type.dtype, best);
        const std::string name =
            fmt::format("{}{}", dtype_name(type.dtype),
                        is_f32 ? "" : fmt::format(" {}", planner::compute_mode_name(compute)));
        print_row({name, "prefill", own.prefill, theirs.prefill, third.prefill, bounds.prefill},
                  rows);
        print_row({name, "decode", own.decode, theirs.decode, third.decode, bounds.decode}, rows);
    }
    if (options.json.empty()) return;
    const nlohmann::json report{{"shape", options.shape},
                                {"cpu", runtime::read_host_topology().cpu_model},
                                {"threads", threads},
                                {"prompt_tokens", kPrompt},
                                {"decode_behind_tokens", kDepth},
                                {"limits",
                                 {{"read_bytes_per_second", limits.read},
                                  {"f32_operations_per_second", limits.f32},
                                  {"bf16_operations_per_second", limits.bf16},
                                  {"int8_operations_per_second", limits.int8}}},
                                {"rows", rows}};
    std::ofstream out(options.json);
    out << report.dump(1) << '\n';
    out.close();
    if (!out) throw UserError("{}: cannot be written", options.json);
}

}  // namespace cleave::bench
