// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/origin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <map>

namespace cleave::gpu_check {

nlohmann::ordered_json cleave_variables() {
    std::map<std::string, std::string> variables;  // in the order of their names
    for (char** entry = environ; *entry; ++entry) {
        const std::string text = *entry;
        if (text.starts_with("CLEAVE_"))
            variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    }
    return variables.empty() ? nlohmann::ordered_json::object() : nlohmann::ordered_json(variables);
}

bool is_fake(const std::string& library) {
    void* opened = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!opened) return false;
    const bool fake = ::dlsym(opened, "fake_reset") != nullptr;
    ::dlclose(opened);
    return fake;
}

}  // namespace cleave::gpu_check
