// SPDX-License-Identifier: Apache-2.0
#include "codegen/text/templates.h"

#include <map>
#include <mutex>
#include <vector>

#include "codegen/text/embedded_templates.h"
#include "runtime/base/errors.h"
#include "runtime/base/split.h"

namespace cleave::codegen {

namespace {

std::string folder_of(std::string_view name) {
    size_t slash = name.rfind('/');
    return slash == std::string_view::npos ? std::string() : std::string(name.substr(0, slash + 1));
}

// GPU files keep their line numbers, so that compilers and the simt device name the place in the
// file.
bool is_numbered(std::string_view name) { return name.starts_with("gpu/"); }

constexpr std::string_view kBlock = "// ---- codegen/templates/";

// What a file adds to a flattened text, and the files that go before it.
struct Block {
    std::vector<std::string> includes;
    std::string text;
};

Block block_of(std::string_view name) {
    constexpr std::string_view kInclude = "#include \"";
    Block block;
    block.text = std::string(kBlock) + std::string(name) + "\n";
    if (is_numbered(name)) block.text += "#line 1 \"" + std::string(name) + "\"\n";
    for (const std::string& line : split_ended(std::string(template_file(name)), '\n')) {
        const bool is_include = line.starts_with(kInclude);
        if (is_include)
            block.includes.push_back(
                folder_of(name) +
                line.substr(kInclude.size(), line.find('"', kInclude.size()) - kInclude.size()));
        if (!is_include && line != "#pragma once" && !line.starts_with("// SPDX")) {
            block.text += line + "\n";
        } else if (is_numbered(name)) {
            block.text += "\n";
        }
    }
    return block;
}

void append(std::string_view name, std::set<std::string>& seen, std::string& text) {
    if (!seen.insert(std::string(name)).second) return;
    const Block block = block_of(name);
    for (const std::string& include : block.includes) append(include, seen, text);
    text += block.text;
}

// Length of the template file at the beginning of `rest`, as flattening leaves it; 0: there is
// none.
size_t length_of_block(std::string_view rest, std::string_view* name) {
    static const std::map<std::string_view, std::string>& blocks = *[] {
        auto* all = new std::map<std::string_view, std::string>;
        for (const EmbeddedFile& file : embedded_templates())
            if (is_numbered(file.name)) (*all)[file.name] = block_of(file.name).text;
        return all;
    }();
    if (!rest.starts_with(kBlock)) return 0;
    *name = rest.substr(kBlock.size(), rest.find('\n') - kBlock.size());
    const auto found = blocks.find(*name);
    return found != blocks.end() && rest.starts_with(found->second) ? found->second.size() : 0;
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

TemplatePart find_templates(std::string_view source) {
    TemplatePart part;
    std::string_view name;
    while (part.begin < source.size() && length_of_block(source.substr(part.begin), &name) == 0) {
        const size_t end = source.find('\n', part.begin);
        const std::string_view line = source.substr(part.begin, end - part.begin);
        const bool is_comment = line.starts_with("//") && !line.ends_with('\\');
        if (end == std::string_view::npos || !(line.empty() || is_comment)) return {};
        part.begin = end + 1;
    }
    part.end = part.prelude_end = part.begin;
    while (const size_t length = length_of_block(source.substr(part.end), &name)) {
        part.end += length;
        if (name == "gpu/prelude.cuh") part.prelude_end = part.end;
    }
    return part;
}

}  // namespace cleave::codegen
