// SPDX-License-Identifier: Apache-2.0
#include "codegen/templates.h"

#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "codegen/embedded_templates.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

std::string folder_of(std::string_view name) {
    size_t slash = name.rfind('/');
    return slash == std::string_view::npos ? std::string() : std::string(name.substr(0, slash + 1));
}

void append(std::string_view name, std::set<std::string>& seen, std::string& text) {
    if (!seen.insert(std::string(name)).second) return;
    constexpr std::string_view kInclude = "#include \"";
    // GPU files keep their line numbers, so that compilers and the simt device name the place in the file.
    bool numbered = name.starts_with("gpu/");
    std::string body;
    std::istringstream lines{std::string(template_file(name))};
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(kInclude)) {
            size_t end = line.find('"', kInclude.size());
            append(folder_of(name) + line.substr(kInclude.size(), end - kInclude.size()), seen,
                   text);
            if (numbered) body += "\n";
        } else if (line != "#pragma once" && !line.starts_with("// SPDX")) {
            body += line + "\n";
        } else if (numbered) {
            body += "\n";
        }
    }
    text += "// ---- codegen/templates/" + std::string(name) + "\n";
    if (numbered) text += "#line 1 \"" + std::string(name) + "\"\n";
    text += body;
}

}  // namespace

std::string_view template_file(std::string_view name) {
    for (const EmbeddedFile& file : embedded_templates())
        if (file.name == name) return file.text;
    throw InternalError("no template " + std::string(name) + " was embedded");
}

const FlattenedTemplate& flattened_template(std::string_view name,
                                            const std::set<std::string>& left_out) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, std::set<std::string>>, FlattenedTemplate> made;
    const std::lock_guard lock(mutex);
    const auto key = std::pair(std::string(name), left_out);
    if (const auto found = made.find(key); found != made.end()) return found->second;
    FlattenedTemplate flattened;
    std::set<std::string> seen = left_out;
    append(name, seen, flattened.text);
    flattened.digest.add(std::string_view(flattened.text));
    return made.emplace(key, std::move(flattened)).first->second;
}

}  // namespace cleave::codegen
