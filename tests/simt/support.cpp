// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/support.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "codegen/templates.h"

namespace cleave::simt_test {

std::string with_prelude(const std::string& body) {
    return codegen::flatten_template("gpu/prelude.cuh") +
           "namespace cleave {\n#line 1 \"test.cu\"\n" + body + "\n}\n";
}

namespace {

// Places of the calls, each with its length. The prelude's own text ends where its last file does.
std::vector<std::pair<size_t, size_t>> syncs_of(const std::string& source) {
    std::vector<std::pair<size_t, size_t>> found;
    size_t kernel = source.find("#line 1", source.find("#line 1 \"gpu/prelude.cuh\"") + 1);
    for (size_t at = kernel; at < source.size(); ++at) {
        for (const char* call : {"barrier();", "warp_sync();", "async_wait<0>();", "async_fence();",
                                 "wgmma_fence();", "wgmma_commit();", "wgmma_wait<0>();"}) {
            bool word = at == 0 || !(std::isalnum(static_cast<unsigned char>(source[at - 1])) ||
                                     source[at - 1] == '_');
            if (word && source.compare(at, std::strlen(call), call) == 0)
                found.emplace_back(at, std::strlen(call));
        }
    }
    return found;
}

}  // namespace

int count_syncs(const std::string& source) { return static_cast<int>(syncs_of(source).size()); }

std::string without_sync(const std::string& source, int index) {
    auto [at, length] = syncs_of(source).at(static_cast<size_t>(index));
    return source.substr(0, at) + ";" + source.substr(at + length);
}

std::string sync_place(const std::string& source, int index) {
    size_t at = syncs_of(source).at(static_cast<size_t>(index)).first;
    constexpr std::string_view kMark = "#line 1 \"";
    size_t mark = source.rfind(kMark, at), name = mark + kMark.size();
    size_t text = source.find('\n', mark) + 1;
    auto lines = std::count(source.begin() + static_cast<std::ptrdiff_t>(text),
                            source.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return source.substr(name, source.find('"', name) - name) + ":" + std::to_string(lines + 1);
}

std::string without_sync_at(const std::string& source, const std::string& place) {
    for (int i = 0; i < count_syncs(source); ++i)
        if (sync_place(source, i) == place) return without_sync(source, i);
    return source;
}

simt::SimtReport run(const simt::SimtProgram& program, const std::vector<uint64_t>& args,
                     const Shape& shape, const simt::LaunchOptions& options) {
    return simt::launch(program, args, {shape.blocks, 1, 1}, {shape.threads, 1, 1},
                        shape.dynamic_bytes, options);
}

}  // namespace cleave::simt_test
