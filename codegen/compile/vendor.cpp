// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/vendor.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/compile/gpu_objects.h"
#include "codegen/compile/object_cache.h"
#include "codegen/compile/vendor_libraries.h"
#include "codegen/compile/worker_pool.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// hipRTC compiles a copy of its own: "/tmp/comgr-1a2b/input/CompileSource:2:7" becomes "NAME:2:7".
std::string with_file_name(std::string log, const std::string& file) {
    constexpr std::string_view kCopy = "/input/CompileSource";
    for (size_t at = 0; (at = log.find(kCopy, at)) != std::string::npos; at += file.size()) {
        size_t begin = log.find_last_of(" \n'\"", at);
        begin = begin == std::string::npos ? 0 : begin + 1;
        log.replace(begin, at + kCopy.size() - begin, file);
        at = begin;
    }
    return log;
}

// A run-time compiler as it names sources and tells of its objects.
struct Library {
    const char* name;
    const char* suffix;
    void (*measure)(CompiledKernel& compiled, const WorkerResult& result, const GpuArch& arch);
};
constexpr Library kNvrtc{"NVRTC", ".cu",
                         [](CompiledKernel& compiled, const WorkerResult& result, const GpuArch&) {
                             measure_cubin(compiled, result.log);
                             count_in_ptx(compiled, result.ptx);
                         }};
constexpr Library kHiprtc{"hipRTC", ".hip",
                          [](CompiledKernel& compiled, const WorkerResult&, const GpuArch& arch) {
                              measure_code_object(compiled, arch);
                          }};

// A library in workers, and the options of one arch.
class VendorCompiler final : public KernelCompiler {
public:
    VendorCompiler(const Library& library, const GpuArch& arch,
                   std::shared_ptr<CompileWorkers> workers, Names arguments)
        : library_(library),
          arch_(arch),
          workers_(std::move(workers)),
          arguments_(std::move(arguments)) {}

    std::string name() const override {
        return fmt::format("{} {} ({}), {}", library_.name, workers_->version(),
                           fs::path(workers_->library()).filename().string(), arch_.name);
    }

    // Two libraries of one version may differ, in builtins too: the path counts.
    std::string key() const override {
        std::string text = fmt::format("{} {} {} {}", library_.name, workers_->version(),
                                       workers_->library(), arch_.name);
        for (const std::string& argument : arguments_) text += " " + argument;
        return text;
    }

    CompiledKernel compile(const Kernel& kernel) const override {
        const std::string file = kernel.name + library_.suffix;
        WorkerResult result = workers_->compile(file, kernel.source, arguments_);
        if (result.status == WorkerResult::Status::kDied)
            throw UserError("{} did not compile kernel {}: {}", name(), kernel.name,
                            with_file_name(std::move(result.log), file));
        if (result.status != WorkerResult::Status::kOk)
            throw_does_not_compile(kernel.name, name(), with_file_name(std::move(result.log), file),
                                   kernel.source);
        CompiledKernel compiled;
        compiled.name = kernel.name;
        compiled.compiler = name();
        const auto* bytes = reinterpret_cast<const std::byte*>(result.object.data());
        compiled.object.assign(bytes, bytes + result.object.size());
        library_.measure(compiled, result, arch_);
        return compiled;
    }

    const GpuArch* limits() const override { return &arch_; }

private:
    const Library& library_;
    const GpuArch& arch_;
    std::shared_ptr<CompileWorkers> workers_;
    Names arguments_;
};

std::shared_ptr<CompileWorkers> start(const std::string& kind, Names names,
                                      const CompileOptions& options) {
    return std::make_shared<CompileWorkers>(kind, std::move(names), options.timeout_seconds,
                                            options.cancel);
}

// Empty where nobody loads the objects.
std::string cuda_driver(const CompileOptions& options) {
    const auto found = options.drivers.find(planner::Vendor::kNvidia);
    return found == options.drivers.end() ? "" : found->second;
}

// A CUDA driver loads cubins of its own major version of CUDA, whatever the minor, and of older
// ones (CUDA Compatibility, "Minor Version Compatibility"); text in PTX, which none of ours is,
// would have to be no newer than itself.
bool loads_objects_of(const std::string& driver, const std::string& nvrtc) {
    return driver.empty() || std::atoi(nvrtc.c_str()) <= std::atoi(driver.c_str());
}

struct FoundNvrtc {
    std::shared_ptr<CompileWorkers> workers;  // of the last that was tried
    Names passed_over;
    bool loads = true;  // the driver, what that one makes
};

FoundNvrtc find_nvrtc(Names names, const CompileOptions& options) {
    FoundNvrtc found;
    while (!names.empty()) {
        found.workers = start("nvrtc", names, options);
        if (!found.workers->reason().empty()) return found;
        const std::string &version = found.workers->version(), &library = found.workers->library();
        found.loads = loads_objects_of(cuda_driver(options), version);
        if (found.loads) return found;
        found.passed_over.push_back(fmt::format("NVRTC {} ({})", version, library));
        // With it go the names before, which are no libraries, and its other names.
        names.erase(names.begin(), std::find(names.begin(), names.end(), library));
        std::erase_if(names, [&](const std::string& name) {
            std::error_code error;
            return name == library || fs::equivalent(name, library, error);
        });
    }
    return found;
}

// "CLEAVE_NVRTC=/opt/none: it gives no NVRTC" where the user's variable names nothing that opens,
// whatever else was found.
std::string misnamed(const char* variable, const std::string& kind, const CompileWorkers& first,
                     const CompileOptions& options) {
    const Names names = names_in_variable(variable, "lib" + kind);
    if (names.empty()) return "";
    const auto is_named = [&](const std::string& library) {
        return std::find(names.begin(), names.end(), library) != names.end();
    };
    if (first.reason().empty() && is_named(first.library())) return "";
    const CompileWorkers alone(kind, names, options.timeout_seconds, options.cancel);
    if (alone.reason().empty()) return "";
    return fmt::format("{}={} gives no {}: {}; name another, or unset it", variable,
                       std::getenv(variable), kind == "nvrtc" ? "NVRTC" : "hipRTC",
                       first.reason().empty() ? alone.reason() : first.reason());
}

// The variable is not looked at beside --nvrtc.
std::string misnamed_nvrtc(const CompileWorkers& first, const CompileOptions& options) {
    return options.nvrtc.empty() ? misnamed(kNvrtcVariable, "nvrtc", first, options) : "";
}

bool lists(const std::string& archs, std::string_view arch) {
    return (" " + archs + " ").find(fmt::format(" {} ", arch)) != std::string::npos;
}

WorkerResult probe_hiprtc(CompileWorkers& workers, Names arguments, std::string_view arch) {
    arguments.front() = fmt::format("--offload-arch={}", arch);
    return workers.compile("probe.hip", "extern \"C\" __attribute__((global)) void probe() {}\n",
                           arguments);
}

// Whether a probe that failed says no for certain: the log calls the arch unknown, or the library
// aborts on it and not on one that every version knows. All else (time, memory, a damaged
// installation) says nothing about the arch.
bool says_unknown_arch(CompileWorkers& workers, const Names& arguments, const WorkerResult& probe) {
    constexpr std::string_view kWords[] = {"invalid target ID", "unknown target",
                                           "unsupported target", "unsupported HIP gpu architecture",
                                           "invalid offload arch"};
    if (probe.status == WorkerResult::Status::kFailed)
        return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view words) {
            return probe.log.find(words) != std::string::npos;
        });
    return probe.log.find(fmt::format("signal {} ", SIGABRT)) != std::string::npos &&
           probe_hiprtc(workers, arguments, "gfx906").status == WorkerResult::Status::kOk;
}

// Old versions of hipRTC abort on an arch that they do not know, and none can be asked: one empty
// kernel tells. UserError where it does not compile. What is certain is kept on disk: an object for
// yes, none for no, with the probe's words.
void require_arch_of_hiprtc(CompileWorkers& workers, const GpuArch& arch, const Names& arguments,
                            const CompileOptions& options) {
    const std::string library = fmt::format("hipRTC {} ({})", workers.version(), workers.library());
    const auto refuse = [&](const std::string& words) {
        throw UserError(
            "{} does not know {}: of an empty kernel for it {}; a newer ROCm may, and so may "
            "$gpu_compiler clang",
            library, arch.name, words);
    };
    ObjectCache cache(options.cache_dir);
    const std::string key = Digest()
                                .add(fmt::format("hipRTC knows {} {} {}", workers.library(),
                                                 workers.version(), arch.name))
                                .hex();
    if (options.use_cache)
        if (std::optional<CompiledKernel> known = cache.find(key, "probe")) {
            if (known->object.empty()) refuse(known->compiler);
            return;
        }
    WorkerResult result = probe_hiprtc(workers, arguments, arch.name);
    CompiledKernel answer;
    answer.name = "probe";
    const bool knows = result.status == WorkerResult::Status::kOk;
    if (knows) answer.object.resize(1);
    answer.compiler = with_file_name(result.log, "probe.hip");
    if (!knows && !says_unknown_arch(workers, arguments, result))
        throw UserError(
            "{} did not compile an empty kernel for {}, and does not say that it does not know it: "
            "{}; it is asked again next time, and $gpu_compiler clang does without it",
            library, arch.name, answer.compiler);
    if (options.use_cache) cache.store(key, answer);
    if (!knows) refuse(answer.compiler);
}

GpuCompilerInfo info_of(const std::string& vendor, const Names& names,
                        const CompileWorkers& workers) {
    GpuCompilerInfo info;
    info.tried = names;
    info.reason = workers.reason();
    info.available = info.reason.empty();
    if (!info.available) return info;
    info.name = vendor + " " + workers.version();
    info.library = workers.library();
    info.path = workers.path();
    info.archs = workers.archs();
    return info;
}

// Another library, where one was found, is not to be taken.
void refuse(GpuCompilerInfo& info, const std::string& misnamed) {
    if (misnamed.empty()) return;
    info.available = false;
    info.reason = info.misnamed = misnamed;
}

}  // namespace

std::unique_ptr<KernelCompiler> make_nvrtc_compiler(const GpuArch& arch,
                                                    const CompileOptions& options) {
    const FoundNvrtc found = find_nvrtc(nvrtc_names(options.nvrtc), options);
    const std::shared_ptr<CompileWorkers>& workers = found.workers;
    if (!found.passed_over.empty() && (!found.loads || !workers->reason().empty()))
        throw UserError(
            "compiling for {}: the driver is of CUDA {} and loads what NVRTC of CUDA {} or older "
            "makes; found {}; give $nvrtc PATH of such a one (PyPI's nvidia-cuda-nvrtc-cu12 for "
            "CUDA 12), or install a newer driver",
            arch.name, cuda_driver(options), std::atoi(cuda_driver(options).c_str()),
            fmt::join(found.passed_over, ", "));
    if (const std::string wrong = misnamed_nvrtc(*workers, options); !wrong.empty())
        throw MisnamedCompiler(wrong);
    if (!workers->reason().empty())
        throw UserError(
            "compiling for {} needs NVRTC, which was not found: {}; install the CUDA toolkit or "
            "PyPI's nvidia-cuda-nvrtc, or give $nvrtc PATH",
            arch.name, workers->reason());
    if (!workers->archs().empty() && !lists(workers->archs(), fmt::format("sm_{}", arch.number)))
        throw UserError("NVRTC {} ({}) does not know {}; it knows {}: give $nvrtc PATH of another",
                        workers->version(), workers->library(), arch.name, workers->archs());
    return std::make_unique<VendorCompiler>(kNvrtc, arch, workers,
                                            Names{fmt::format("--gpu-architecture={}", arch.name),
                                                  "--std=c++17", "--ptxas-options=-v"});
}

std::unique_ptr<KernelCompiler> make_hiprtc_compiler(const GpuArch& arch,
                                                     const CompileOptions& options) {
    auto workers = start("hiprtc", hiprtc_names(), options);
    if (const std::string wrong = misnamed(kHiprtcVariable, "hiprtc", *workers, options);
        !wrong.empty())
        throw MisnamedCompiler(wrong);
    if (!workers->reason().empty()) throw UserError("hipRTC was not found: {}", workers->reason());
    Names arguments{fmt::format("--offload-arch={}", arch.name), "-std=c++17", "-O3"};
    require_arch_of_hiprtc(*workers, arch, arguments, options);
    return std::make_unique<VendorCompiler>(kHiprtc, arch, workers, std::move(arguments));
}

GpuCompilerInfo nvrtc_info(const CompileOptions& options) {
    const Names names = nvrtc_names(options.nvrtc);
    FoundNvrtc found = find_nvrtc(names, options);
    GpuCompilerInfo info = info_of("NVRTC", names, *found.workers);
    info.available = info.available && found.loads;
    if (!found.loads) info.reason = "newer than the driver";
    info.passed_over = std::move(found.passed_over);
    refuse(info, misnamed_nvrtc(*found.workers, options));
    return info;
}

GpuCompilerInfo hiprtc_info(const CompileOptions& options) {
    const Names names = hiprtc_names();
    const auto workers = start("hiprtc", names, options);
    GpuCompilerInfo info = info_of("hipRTC", names, *workers);
    refuse(info, misnamed(kHiprtcVariable, "hiprtc", *workers, options));
    return info;
}

namespace {

// "6.4", of major * 10^7 + minor * 10^5 + patch (HIP_VERSION); empty: it does not say.
std::string hip_version(const DynamicLibrary& library) {
    auto* get = library.function<int(int*)>("hipRuntimeGetVersion");
    int v = 0;
    return get && get(&v) == 0 ? fmt::format("{}.{}", v / 10'000'000, v / 100'000 % 100) : "";
}

}  // namespace

GpuCompilerInfo hiprtc_info_with_archs(const CompileOptions& options) {
    GpuCompilerInfo info = hiprtc_info(options);
    if (!info.available) return info;
    for (const GpuArch& arch : gpu_archs()) {
        if (!takes_compiler(arch, "hiprtc")) continue;
        try {
            make_hiprtc_compiler(arch, options);
            info.archs += (info.archs.empty() ? "" : " ") + std::string(arch.name);
        } catch (const UserError&) {
            continue;  // it does not know the architecture
        }
    }
    // hiprtcVersion counts by itself (9.0 in ROCm 5.2): where the library is HIP's, too, HIP says
    // its own.
    if (!fs::path(info.library).filename().string().starts_with("libamdhip64")) return info;
    std::string why;
    const auto library = DynamicLibrary::open_first(std::span(&info.library, 1), &why);
    if (const std::string version = library ? hip_version(*library) : ""; !version.empty())
        info.name += " of HIP " + version;
    return info;
}

}  // namespace cleave::codegen
