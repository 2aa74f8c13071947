// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/vendor_libraries.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/folder.h"

namespace cleave::codegen {

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// Files "STEM.so" and "STEM.so.*" of a folder, the newest version first; nothing for a folder that
// is not there.
void add_folder(Names& names, const fs::path& folder, const std::string& stem) {
    Names found;
    for (const std::string& file : names_in(folder))
        if (file == stem + ".so" || file.starts_with(stem + ".so.")) found.push_back(folder / file);
    std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
        return a.size() != b.size() ? a.size() > b.size() : a > b;
    });
    names.insert(names.end(), found.begin(), found.end());
}

// Subfolders of `folder` whose names begin with `prefix`, the last first: /usr/local/cuda-13.0
// before cuda-12.8.
std::vector<fs::path> folders_like(const fs::path& folder, const std::string& prefix) {
    std::vector<fs::path> found;
    for (const std::string& name : names_in(folder))
        if (name.starts_with(prefix)) found.push_back(folder / name);
    std::reverse(found.begin(), found.end());
    return found;
}

// Of the vendors' and the system's variables.
std::string foreign_variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

void add_path(Names& names, const std::string& path, const std::string& stem) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
        names.push_back(path);
        return;
    }
    const size_t before = names.size();
    for (const char* sub : {"", "lib", "lib64"}) add_folder(names, fs::path(path) / sub, stem);
    if (names.size() == before) names.push_back((fs::path(path) / (stem + ".so")).string());
}

// PyPI's packages: nvidia/cuda_nvrtc/lib (CUDA 12) or nvidia/cu13/lib, below a site-packages
// folder.
void add_python(Names& names, const fs::path& site) {
    for (const fs::path& folder : folders_like(site / "nvidia", "cu"))
        add_folder(names, folder / "lib", "libnvrtc");
}

// Beside programs that are on PATH: a toolkit's nvcc, a Python with the package (also of a
// distribution).
void add_beside_programs(Names& names) {
    const std::string path = foreign_variable("PATH");
    for (size_t at = 0; at < path.size();) {
        const size_t end = std::min(path.find(':', at), path.size());
        const fs::path folder = path.substr(at, end - at);
        at = end + 1;
        if (folder.filename() != "bin" || !folder.is_absolute()) continue;
        const fs::path prefix = folder.parent_path();
        for (const char* sub : {"lib64", "lib", "targets/x86_64-linux/lib"})
            add_folder(names, prefix / sub, "libnvrtc");
        for (const fs::path& python : folders_like(prefix / "lib", "python"))
            for (const char* site : {"site-packages", "dist-packages"})
                add_python(names, python / site);
    }
}

void unique(Names& names) {
    Names kept;
    for (std::string& name : names)
        if (std::find(kept.begin(), kept.end(), name) == kept.end())
            kept.push_back(std::move(name));
    names = std::move(kept);
}

}  // namespace

Names names_in_variable(const char* variable, const std::string& stem) {
    Names names;
    if (const std::string chosen = foreign_variable(variable); !chosen.empty())
        add_path(names, chosen, stem);
    return names;
}

Names nvrtc_names(const std::string& given) {
    Names names;
    if (!given.empty()) {  // asked for by name: no other will do
        add_path(names, given, "libnvrtc");
        return names;
    }
    names = names_in_variable(kNvrtcVariable, "libnvrtc");
    for (const char* variable : {"CUDA_PATH", "CUDA_HOME"})
        if (std::string folder = foreign_variable(variable); !folder.empty())
            add_path(names, folder, "libnvrtc");
    std::vector<fs::path> toolkits{"/usr/local/cuda"};
    for (fs::path& folder : folders_like("/usr/local", "cuda-")) toolkits.push_back(folder);
    for (const fs::path& toolkit : toolkits)
        for (const char* sub : {"lib64", "lib", "targets/x86_64-linux/lib"})
            add_folder(names, toolkit / sub, "libnvrtc");
    if (std::string environment_folder = foreign_variable("VIRTUAL_ENV");
        !environment_folder.empty())
        for (const fs::path& python : folders_like(fs::path(environment_folder) / "lib", "python"))
            add_python(names, python / "site-packages");
    add_beside_programs(names);
    for (const char* name : {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"})
        names.emplace_back(name);
    unique(names);
    return names;
}

// Since ROCm 6 libhiprtc alone has the functions; before, libamdhip64 has them too, or alone.
Names hiprtc_names() {
    Names names = names_in_variable(kHiprtcVariable, "libhiprtc");
    const std::vector<std::string> roots = rocm_roots();
    for (const char* stem : {"libhiprtc", "libamdhip64"})
        for (const std::string& root : roots) add_folder(names, fs::path(root) / "lib", stem);
    for (const char* name : {"libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so",
                             "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"})
        names.emplace_back(name);
    unique(names);
    return names;
}

}  // namespace cleave::codegen
