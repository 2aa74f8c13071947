// SPDX-License-Identifier: Apache-2.0
// `cleave doctor`: what this installation found, where and in which version, and what to do about
// what it did not.
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <nlohmann/json.hpp>

#include "codegen/compile/compile_program.h"
#include "codegen/compile/compiler.h"
#include "codegen/compile/llvm_library.h"
#include "planner/machine/host_facts.h"
#include "planner/machine/machine.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/cards/gpu_devices.h"
#include "runtime/drivers/cuda/cuda_driver.h"
#include "runtime/drivers/hip/hip_driver.h"
#include "runtime/drivers/host/host_topology.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Finding {
    std::string name;
    std::string purpose;
    bool found = false;
    bool needed = false;  // nothing runs without it
    std::string version;
    std::string path;
    std::vector<std::string> tried;  // for what is opened at run time
    std::string reason;              // when not found
    std::string fix;
};

// ---- Libraries that the program is linked with
// -----------------------------------------------------

std::string file_of(const void* symbol) {
    Dl_info info{};
    if (!symbol || !::dladdr(symbol, &info) || !info.dli_fname) return {};
    std::error_code error;
    const fs::path real = fs::canonical(info.dli_fname, error);
    return error ? info.dli_fname : real.string();
}

// The loaded file whose name begins so; empty: linked statically or not loaded.
std::string loaded_file(const std::string& prefix) {
    struct Search {
        const std::string& prefix;
        std::string path;
    } search{prefix, {}};
    ::dl_iterate_phdr(
        [](struct dl_phdr_info* info, size_t, void* data) {
            auto& s = *static_cast<Search*>(data);
            const fs::path path = info->dlpi_name;
            if (!path.filename().string().starts_with(s.prefix)) return 0;
            std::error_code error;
            const fs::path real = fs::canonical(path, error);
            s.path = error ? path.string() : real.string();
            return 1;
        },
        &search);
    return search.path;
}

Finding linked(const char* name, const char* purpose, const char* version, const char* file) {
    Finding f{name, purpose, true, true, version, loaded_file(file), {}, {}, {}};
    if (f.path.empty()) f.path = "linked statically";
    return f;
}

// ---- Libraries opened at run time
// --------------------------------------------------------------------

std::string dotted(int major, int minor) { return fmt::format("{}.{}", major, minor); }

// Versions as the libraries themselves state them.
std::string cuda_version(const DynamicLibrary& l) {
    auto* get = l.function<int(int*)>("cuDriverGetVersion");
    int v = 0;
    return get && get(&v) == 0 ? dotted(v / 1000, v % 1000 / 10) : "";
}
std::string hip_version(const DynamicLibrary& l) {
    auto* get = l.function<int(int*)>("hipRuntimeGetVersion");
    int v = 0;
    return get && get(&v) == 0 ? dotted(v / 10000000, v / 100000 % 100) : "";
}
std::string nccl_version(const DynamicLibrary& l) {
    auto* get = l.function<int(int*)>("ncclGetVersion");
    int v = 0;
    return get && get(&v) == 0 ? fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100) : "";
}

struct Optional {
    const char* name;
    const char* purpose;
    std::vector<std::string> files;
    const char* symbol;  // one that it must have; its file is the library's
    std::string (*version)(const DynamicLibrary&);
    const char* fix;
};

Finding look(const Optional& o) {
    Finding f{o.name, o.purpose, false, false, {}, {}, o.files, {}, o.fix};
    std::string why;
    const auto library = DynamicLibrary::open_first(o.files, &why);
    // The loader's own words matter only for a library that is there and does not load.
    const bool nowhere = why.find("No such file") != std::string::npos &&
                         why.find("undefined symbol") == std::string::npos &&
                         why.find("version `") == std::string::npos;
    if (!library) {
        f.reason = nowhere ? "not installed" : why;
        return f;
    }
    f.path = file_of(library->symbol(o.symbol));
    if (f.path.empty()) {
        f.reason = fmt::format("{} opened, but has no {}", library->name(), o.symbol);
        return f;
    }
    f.found = true;
    f.version = o.version(*library);
    f.reason.clear();
    f.fix.clear();
    return f;
}

// As the compiler itself looks for it, in a worker process.
Finding gpu_compiler(const char* name, const char* purpose, const codegen::GpuCompilerInfo& info,
                     const char* fix) {
    Finding f{name, purpose, info.available, false, info.name, {}, info.tried, {}, {}};
    if (info.available) {
        std::error_code error;
        const fs::path real = fs::canonical(info.path.empty() ? info.library : info.path, error);
        f.path = error ? info.library : real.string();
        if (!info.archs.empty()) f.version += ", compiles for " + info.archs;
        for (const std::string& other : info.passed_over)
            f.version += fmt::format("; passed over as newer than the driver: {}", other);
    } else {
        f.reason = info.misnamed.empty() ? "not found" : info.misnamed;
        f.fix = fix;
        if (info.passed_over.empty() || !info.misnamed.empty()) return f;
        f.reason = fmt::format("the driver loads nothing of {}", fmt::join(info.passed_over, ", "));
        f.fix = "install a newer driver, or a toolkit of its version of CUDA";
    }
    return f;
}

// hiprtcVersion counts by itself (9.0 in ROCm 5.2): HIP's own version is shown beside it where the
// library is HIP's, too.
codegen::GpuCompilerInfo hiprtc_with_archs() {
    codegen::GpuCompilerInfo info = codegen::hiprtc_info({});
    if (!info.available) return info;
    info.archs = codegen::archs_of_hiprtc({});
    if (!fs::path(info.library).filename().string().starts_with("libamdhip64")) return info;
    std::string why;
    const auto library = DynamicLibrary::open_first(std::span(&info.library, 1), &why);
    const std::string version = library ? hip_version(*library) : "";
    if (!version.empty()) info.name += " of HIP " + version;
    return info;
}

// As the command opened LLVM for the CPU's kernels.
codegen::GpuCompilerInfo clang_for_amd() {
    codegen::GpuCompilerInfo info = codegen::amdgpu_clang_info();
    if (info.available)
        info.path = file_of(reinterpret_cast<const void*>(codegen::find_llvm_library().version));
    return info;
}

std::vector<std::string> names_of(std::span<const std::string> names) {
    return {names.begin(), names.end()};
}

std::vector<Finding> gpu_findings() {
    const std::vector<Optional> all = {
        {"CUDA driver", "NVIDIA GPUs", names_of(runtime::cuda_library_names()),
         "cuDriverGetVersion", cuda_version, "install the NVIDIA driver"},
        {"NCCL",
         "collectives of NVIDIA GPUs",
         {"libnccl.so.2", "libnccl.so"},
         "ncclGetVersion",
         nccl_version,
         "install NCCL; without it collectives are staged through the host"},
        {"HIP runtime", "AMD GPUs", runtime::hip_library_names(), "hipRuntimeGetVersion",
         hip_version, "install ROCm's HIP runtime"},
        {"RCCL", "collectives of AMD GPUs",
         rocm_library_names(std::vector<std::string>{"librccl.so.1", "librccl.so"}),
         "ncclGetVersion", nccl_version,
         "install RCCL; without it collectives are staged through the host"},
    };
    std::vector<Finding> findings;
    for (const Optional& o : all) findings.push_back(look(o));
    codegen::CompileOptions for_cards;
    for_cards.cuda_driver = runtime::cuda_driver_version();
    findings.push_back(gpu_compiler("NVRTC", "kernels for NVIDIA GPUs",
                                    codegen::nvrtc_info(for_cards),
                                    "install the CUDA toolkit, or PyPI's nvidia-cuda-nvrtc"));
    findings.push_back(gpu_compiler(
        "hipRTC", "kernels for AMD GPUs", hiprtc_with_archs(),
        "install ROCm's hipRTC, or run tools/setup; without it Clang compiles for AMD GPUs"));
    findings.push_back(gpu_compiler("Clang for AMD", "AMD GPUs that hipRTC does not know",
                                    clang_for_amd(),
                                    "install LLVM and Clang 19 with AMD GPUs, or run tools/setup"));
    return findings;
}

Finding host_compiler(const codegen::HostCompilerInfo& info) {
    Finding f{"host compiler",
              "kernels for the CPU",
              info.available,
              true,
              info.version,
              {},
              codegen::llvm_library_names(),
              info.reason,
              {}};
    if (info.available)
        f.path = file_of(reinterpret_cast<const void*>(codegen::find_llvm_library().version));
    else
        f.fix =
            "install LLVM and Clang 19 (Debian: libclang-cpp19 and libllvm19), or run tools/setup; "
            "CLEAVE_LLVM_LIBRARY names libcleave_llvm.so where it lies elsewhere";
    return f;
}

Finding sentencepiece() {
    Finding f{"SentencePiece",
              "tokenizer.model",
              false,
              false,
              {},
              {},
              library_names("libcleave_sentencepiece.so"),
              {},
              {}};
    const auto library =
        DynamicLibrary::open_first(f.tried, &f.reason, DynamicLibrary::Scope::kIsolated);
    f.found = library.has_value();
    if (library) {
        std::error_code error;
        f.path = fs::weakly_canonical(library->name(), error).string();
    } else {
        f.fix = "build all of Cleave; models with a tokenizer.json do not need it";
    }
    return f;
}

std::vector<Finding> library_findings(const codegen::HostCompilerInfo& compiler) {
    return {host_compiler(compiler),
            linked("METIS", "orders and groups for the planner", CLEAVE_METIS_VERSION, "libmetis"),
            linked("ONNX", "reading models", CLEAVE_ONNX_VERSION, "libonnx"),
            linked("Protobuf", "ONNX and plan files", CLEAVE_PROTOBUF_VERSION, "libprotobuf"),
            linked("hwloc", "cores and memory of the host", CLEAVE_HWLOC_VERSION, "libhwloc"),
            linked("PCRE2", "tokenizer.json", CLEAVE_PCRE2_VERSION, "libpcre2-8"),
            sentencepiece()};
}

// ---- Caches
// ------------------------------------------------------------------------------------------

struct Cache {
    std::string what, path;
    int64_t bytes = 0, files = 0;
};

Cache measured(const std::string& what, const fs::path& path) {
    Cache cache{what, path.string(), 0, 0};
    std::error_code error;
    for (fs::recursive_directory_iterator
             at(path, fs::directory_options::skip_permission_denied, error),
         end;
         !error && at != end; at.increment(error))
        if (at->is_regular_file(error) && !at->is_symlink(error)) {
            cache.bytes += static_cast<int64_t>(at->file_size(error));
            ++cache.files;
        }
    return cache;
}

// The user's cache folder of Cleave, one entry for each folder in it; the kernels' always, even
// when there is none yet.
std::vector<Cache> caches() {
    fs::path root;
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
        root = fs::path(cache) / "cleave";
    else if (const char* home = std::getenv("HOME"); home && *home)
        root = fs::path(home) / ".cache" / "cleave";
    else
        return {};
    std::vector<Cache> found{measured("compiled kernels", root / "kernels")};
    std::vector<fs::path> others;
    std::error_code error;
    for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error))
        if (at->is_directory(error) && at->path().filename() != "kernels")
            others.push_back(at->path());
    std::sort(others.begin(), others.end());
    for (const fs::path& path : others) found.push_back(measured(path.filename().string(), path));
    return found;
}

// ---- Output
// --------------------------------------------------------------------------------------------

struct Report {
    codegen::HostCompilerInfo compiler = codegen::host_compiler_info();
    std::vector<Finding> libraries = library_findings(compiler);
    std::vector<Finding> gpus = gpu_findings();
    planner::HostFacts facts = planner::read_host_facts();
    runtime::HostTopology topology = runtime::read_host_topology();
    std::vector<Cache> kept = caches();

    bool ok() const {
        return std::all_of(libraries.begin(), libraries.end(),
                           [](const Finding& f) { return f.found || !f.needed; });
    }
};

Json to_json(const Finding& f) {
    return {{"name", f.name},     {"purpose", f.purpose}, {"found", f.found},
            {"needed", f.needed}, {"version", f.version}, {"path", f.path},
            {"tried", f.tried},   {"reason", f.reason},   {"fix", f.fix}};
}

std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find_first_of(" ,", at), text.size());
        if (end > at) out.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

Json to_json(const Report& r) {
    Json json{{"version", CLEAVE_VERSION},
              {"ok", r.ok()},
              {"cpu",
               {{"model", r.topology.cpu_model},
                {"target", r.compiler.cpu},
                {"features", words(r.compiler.features)},
                {"cores", r.facts.num_cores},
                {"threads", r.topology.threads},
                {"memory_bytes", r.facts.memory_bytes}}},
              {"libraries", Json::array()},
              {"gpus", Json::array()},
              {"caches", Json::array()}};
    for (const Finding& f : r.libraries) json["libraries"].push_back(to_json(f));
    for (const Finding& f : r.gpus) json["gpus"].push_back(to_json(f));
    for (const Cache& c : r.kept)
        json["caches"].push_back(
            {{"what", c.what}, {"path", c.path}, {"bytes", c.bytes}, {"files", c.files}});
    return json;
}

void print_finding(const Finding& f) {
    const std::string state = f.found ? "ok  " : f.needed ? red("FAIL") : "none";
    std::string text = f.found ? f.version : f.reason;
    if (f.found && !f.path.empty()) text += (text.empty() ? "" : "  ") + dim(f.path);
    fmt::print("{}  {:<14} {}\n", state, f.name, text);
    if (f.found) return;
    fmt::print("      {:<14} {}\n", "",
               dim(fmt::format("for {}; tried {}", f.purpose, fmt::join(f.tried, ", "))));
    if (!f.fix.empty()) fmt::print("      {:<14} {}\n", "", f.fix);
}

// Long lists of names over several lines, under the first word.
void print_wrapped(const std::string& label, const std::vector<std::string>& list) {
    constexpr size_t kIndent = 21;
    const auto width = static_cast<size_t>(std::max(60, terminal_width()));
    std::string line = fmt::format("      {:<14}", label);
    for (const std::string& word : list) {
        if (line.size() + 1 + word.size() > width) {
            fmt::print("{}\n", line);
            line = std::string(kIndent - 1, ' ');
        }
        line += " " + word;
    }
    fmt::print("{}\n", line);
}

void print_text(const Report& r) {
    fmt::print("{}\n", bold(std::string("cleave ") + CLEAVE_VERSION));
    fmt::print("ok    {:<14} {}, {} cores usable, {} of memory\n", "CPU",
               r.topology.cpu_model.empty() ? "unknown model" : r.topology.cpu_model,
               r.facts.num_cores, format_bytes(r.facts.memory_bytes));
    if (r.compiler.available) {
        fmt::print("      {:<14} {}\n", "target", r.compiler.cpu);
        print_wrapped("features", words(r.compiler.features));
    }
    for (const Finding& f : r.libraries) print_finding(f);
    for (const Finding& f : r.gpus) print_finding(f);
    for (const Cache& c : r.kept)
        fmt::print("      {:<14} {} in {} files  {}\n", "cache", format_bytes(c.bytes), c.files,
                   dim(c.path + " (" + c.what + ")"));
    fmt::print("{}\n", r.ok() ? "Nothing that is needed is missing."
                              : "Something that is needed is missing: see the lines marked FAIL.");
}

}  // namespace

void add_doctor(CLI::App& app) {
    auto json = std::make_shared<bool>(false);
    CLI::App* command = app.add_subcommand(
        "doctor", "check libraries, compilers and devices: what is found, what to install");
    command->add_flag("--json", *json, "JSON on standard output");
    command->footer("Example: cleave doctor");
    command->callback([json] {
        const Report report;
        if (*json)
            fmt::print("{}\n", to_json(report).dump(2));
        else
            print_text(report);
    });
}

}  // namespace cleave::tools
