// SPDX-License-Identifier: Apache-2.0
// `cleave doctor`: what this installation found, where and in which version, and what to do about
// what it did not.
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <nlohmann/json.hpp>

#include "codegen/compile/choose.h"
#include "codegen/compile/host.h"
#include "codegen/compile/llvm_library.h"
#include "codegen/compile/object_cache.h"
#include "planner/machine/host_facts.h"
#include "planner/machine/machine.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/environment.h"
#include "runtime/base/folder.h"
#include "runtime/cards/drivers.h"
#include "runtime/drivers/host/host_topology.h"
#include "runtime/drivers/vendors.h"
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

Finding look(const runtime::VendorLibrary& o) {
    Finding f{o.name, o.purpose, false, false, {}, {}, o.usual(), {}, o.fix};
    std::string why;
    const auto library = DynamicLibrary::open_first(f.tried, &why);
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
Finding gpu_compiler(const codegen::GpuCompilerInfo& info) {
    Finding f{info.title, info.purpose, info.available, false, info.name, {}, info.tried, {}, {}};
    if (info.available) {
        std::error_code error;
        const fs::path real = fs::canonical(info.path.empty() ? info.library : info.path, error);
        f.path = error ? info.library : real.string();
        if (f.path.empty())  // Clang in this process: as LLVM was opened for the CPU's kernels
            f.path = file_of(reinterpret_cast<const void*>(codegen::find_llvm_library().version));
        if (!info.archs.empty()) f.version += ", compiles for " + info.archs;
        for (const std::string& other : info.passed_over)
            f.version += fmt::format("; passed over as newer than the driver: {}", other);
    } else {
        f.reason = info.misnamed.empty() ? "not found" : info.misnamed;
        f.fix = info.fix;
        if (info.passed_over.empty() || !info.misnamed.empty()) return f;
        f.reason = fmt::format("the driver loads nothing of {}", fmt::join(info.passed_over, ", "));
        f.fix = "install a newer driver, or a toolkit of its version of CUDA";
    }
    return f;
}

std::vector<Finding> gpu_findings(runtime::Drivers& drivers) {
    std::vector<Finding> findings;
    codegen::CompileOptions for_cards;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const runtime::DriverEntry& entry = runtime::driver_entry(vendor.vendor);
        for (const runtime::VendorLibrary* library : {&entry.driver, &entry.collectives})
            findings.push_back(look(*library));
        if (const runtime::FoundDriver& found = drivers.driver(vendor.kind); found.driver)
            for_cards.drivers[vendor.vendor] = found.driver->version();
    }
    for (const codegen::GpuCompilerInfo& info : codegen::gpu_compiler_infos(for_cards))
        findings.push_back(gpu_compiler(info));
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

struct Cache {
    std::string what, path, problem;
    int64_t bytes = 0, files = 0;
};

Cache measured(const std::string& what, const fs::path& path) {
    Cache cache{what, path.string(), "", 0, 0};
    for (std::vector<fs::path> folders{path}; !folders.empty();) {
        const fs::path folder = std::move(folders.back());
        folders.pop_back();
        for (const std::string& name : names_in(folder)) {
            const fs::path inside = folder / name;
            struct stat status{};
            if (::lstat(inside.c_str(), &status) != 0) continue;  // gone meanwhile
            if (S_ISDIR(status.st_mode)) folders.push_back(inside);
            if (!S_ISREG(status.st_mode)) continue;
            cache.bytes += int64_t{status.st_size};
            ++cache.files;
        }
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
    found.front().problem = codegen::why_not_kept();
    std::error_code error;
    for (const std::string& name : names_in(root))
        if (name != "kernels" && fs::is_directory(root / name, error))
            found.push_back(measured(name, root / name));
    return found;
}

// ---- Output

struct Report {
    explicit Report(runtime::Drivers& drivers) : gpus(gpu_findings(drivers)) {}

    codegen::HostCompilerInfo compiler = codegen::host_compiler_info();
    std::vector<Finding> libraries = library_findings(compiler);
    std::vector<Finding> gpus;
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
              {"caches", Json::array()},
              {"environment", Json::array()}};
    for (const Finding& f : r.libraries) json["libraries"].push_back(to_json(f));
    for (const Finding& f : r.gpus) json["gpus"].push_back(to_json(f));
    for (const Cache& c : r.kept)
        json["caches"].push_back({{"what", c.what},
                                  {"path", c.path},
                                  {"bytes", c.bytes},
                                  {"files", c.files},
                                  {"problem", c.problem}});
    for (const EnvironmentVariable& v : environment_variables())
        json["environment"].push_back(
            {{"name", v.name}, {"purpose", v.purpose}, {"value", environment(v.name)}});
    return json;
}

void print_finding(const Finding& f) {
    const std::string state = f.found ? "ok  " : f.needed ? red("FAIL") : "none";
    std::string text = f.found ? f.version : f.reason;
    if (f.found && !f.path.empty()) text += (text.empty() ? "" : "  ") + dim(f.path);
    show("{}  {:<14} {}\n", state, f.name, text);
    if (f.found) return;
    show("      {:<14} {}\n", "",
         dim(fmt::format("for {}; tried {}", f.purpose, fmt::join(f.tried, ", "))));
    if (!f.fix.empty()) show("      {:<14} {}\n", "", f.fix);
}

// Long lists of names over several lines, under the first word.
void print_wrapped(const std::string& label, const std::vector<std::string>& list) {
    constexpr size_t kIndent = 21;
    const auto width = static_cast<size_t>(prose_width());
    std::string line = fmt::format("      {:<14}", label);
    for (const std::string& word : list) {
        if (line.size() + 1 + word.size() > width) {
            show("{}\n", line);
            line = std::string(kIndent - 1, ' ');
        }
        line += " " + word;
    }
    show("{}\n", line);
}

void print_text(const Report& r) {
    show("{}\n", bold(std::string("cleave ") + CLEAVE_VERSION));
    show("ok    {:<14} {}, {} cores usable, {} of memory\n", "CPU",
         r.topology.cpu_model.empty() ? "unknown model" : r.topology.cpu_model, r.facts.num_cores,
         format_bytes(r.facts.memory_bytes));
    if (r.compiler.available) {
        show("      {:<14} {}\n", "target", r.compiler.cpu);
        print_wrapped("features", words(r.compiler.features));
    }
    for (const Finding& f : r.libraries) print_finding(f);
    for (const Finding& f : r.gpus) print_finding(f);
    for (const Cache& c : r.kept)
        show("      {:<14} {} in {} files  {}\n", "cache", format_bytes(c.bytes), c.files,
             dim(c.path + " (" + c.what + ")"));
    for (const Cache& c : r.kept)
        if (!c.problem.empty())
            show("warn  {:<14} kernels are not cached: {}\n", "cache", c.problem);
    std::vector<std::string> unset;
    for (const EnvironmentVariable& v : environment_variables()) {
        const std::string value = environment(v.name);
        if (value.empty())
            unset.emplace_back(v.name);
        else
            show("      {:<14} {}={}  {}\n", "set", v.name, value, dim(std::string(v.purpose)));
    }
    if (!unset.empty()) print_wrapped("not set", unset);
    show("{}\n", r.ok() ? "Nothing that is needed is missing."
                        : "Something that is needed is missing: see the lines marked FAIL.");
}

}  // namespace

void add_doctor(CLI::App& app, runtime::Drivers& drivers) {
    auto json = std::make_shared<bool>(false);
    CLI::App* command = app.add_subcommand(
        "doctor", "check libraries, compilers and devices: what is found, what to install");
    command->add_flag("--json", *json, "JSON on standard output");
    command->footer("Example: cleave doctor");
    command->callback([json, &drivers] {
        const Report report(drivers);
        if (*json)
            show_exactly(to_json(report).dump(2) + "\n");
        else
            print_text(report);
    });
}

}  // namespace cleave::tools
