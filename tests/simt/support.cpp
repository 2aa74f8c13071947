// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/support.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "codegen/text/templates.h"

namespace cleave::simt_test {

std::string with_prelude(const std::string& body) {
    return codegen::flatten_template("gpu/prelude.cuh") +
           "namespace cleave {\n#line 1 \"test.cu\"\n" + body + "\n}\n";
}

namespace {

// Places of the calls, each with its length. The prelude's own text ends where its last file does.
std::vector<std::pair<size_t, size_t>> syncs_of(const std::string& source) {
    std::vector<std::pair<size_t, size_t>> found;
    const size_t kernel = source.find("#line 1", source.find("#line 1 \"gpu/prelude.cuh\"") + 1);
    for (const char* call :
         {"barrier();", "warp_sync();", "async_wait<0>();", "async_wait<kAhead - 1>();",
          "async_fence();", "wgmma_fence();", "wgmma_commit();", "wgmma_wait<0>();",
          "wgmma_wait<kLag>();", "flush_to_peers();", "see_peers();"})
        for (size_t at = source.find(call, kernel); at != std::string::npos;
             at = source.find(call, at + 1)) {
            const char before = at == 0 ? ' ' : source[at - 1];
            if (!std::isalnum(static_cast<unsigned char>(before)) && before != '_')
                found.emplace_back(at, std::strlen(call));
        }
    std::sort(found.begin(), found.end());
    return found;
}

// "gpu/linear.cuh:41", by the source's #line marks.
std::string place_of(const std::string& source, size_t at) {
    constexpr std::string_view kMark = "#line 1 \"";
    size_t mark = source.rfind(kMark, at), name = mark + kMark.size();
    size_t text = source.find('\n', mark) + 1;
    auto lines = std::count(source.begin() + static_cast<std::ptrdiff_t>(text),
                            source.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return source.substr(name, source.find('"', name) - name) + ":" + std::to_string(lines + 1);
}

// The call between the lines of code before and behind it.
std::string text_around(const std::string& source, size_t at, size_t length) {
    const auto code_of = [&](size_t begin, size_t end) {
        begin = source.find_first_not_of(" \t", begin);
        if (begin >= end || source.compare(begin, 2, "//") == 0) return std::string();
        std::string line = source.substr(begin, end - begin);
        return line.find_first_not_of("{} ") == std::string::npos ? std::string() : line;
    };
    std::string before, behind;
    for (size_t end = source.rfind('\n', at); before.empty() && end > 0;) {
        const size_t begin = source.rfind('\n', end - 1) + 1;
        before = code_of(begin, end);
        end = begin - 1;
    }
    for (size_t begin = source.find('\n', at) + 1; behind.empty() && begin < source.size();) {
        const size_t end = source.find('\n', begin);
        behind = code_of(begin, end);
        begin = end + 1;
    }
    return before + " " + source.substr(at, length) + " " + behind;
}

}  // namespace

int count_syncs(const std::string& source) { return static_cast<int>(syncs_of(source).size()); }

std::string without_sync(const std::string& source, int index) {
    auto [at, length] = syncs_of(source).at(static_cast<size_t>(index));
    return source.substr(0, at) + ";" + source.substr(at + length);
}

std::map<std::string, std::string> sync_places(const std::string& source) {
    std::map<std::string, std::string> places;
    for (const auto& [at, length] : syncs_of(source))
        places.emplace(place_of(source, at), text_around(source, at, length));
    return places;
}

std::string without_sync_at(const std::string& source, const std::string& place,
                            const std::string& text) {
    for (const auto& [at, length] : syncs_of(source))
        if (place_of(source, at) == place)
            return source.substr(0, at) + text + source.substr(at + length);
    return source;
}

simt::SimtReport run(const simt::SimtProgram& program, const std::vector<uint64_t>& args,
                     const Shape& shape, const simt::LaunchOptions& options) {
    return simt::launch(program, args, {shape.blocks, 1, 1}, {shape.threads, 1, 1},
                        shape.dynamic_bytes, options);
}

}  // namespace cleave::simt_test
