// SPDX-License-Identifier: Apache-2.0
// Entry: "CLEAVEO2", then 64-bit little-endian: sizes of the texts (name, compiler, object, what
// matrix instructions were counted in, their names and counts), then the resources; the texts; 32
// characters of the digest of all before.
#include "codegen/compile/object_cache.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "codegen/compile/gpu_objects.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kMagic = "CLEAVEO2";
constexpr size_t kDigestSize = 32;

fs::path default_folder() {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
        return fs::path(cache) / "cleave" / "kernels";
    if (const char* home = std::getenv("HOME"); home && *home)
        return fs::path(home) / ".cache" / "cleave" / "kernels";
    return {};
}

void put(std::string& text, int64_t number) {
    for (int i = 0; i < 8; ++i) text += static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
}

// Takes pieces off the front of an entry; `ok` turns false when one is missing.
struct Reader {
    std::string_view text;
    bool ok = true;

    std::string_view take(size_t size) {
        if (size > text.size()) {
            ok = false;
            return {};
        }
        std::string_view piece = text.substr(0, size);
        text.remove_prefix(size);
        return piece;
    }
    int64_t number() {
        uint64_t value = 0;
        std::string_view bytes = take(8);
        for (size_t i = 0; i < bytes.size(); ++i)
            value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
        return static_cast<int64_t>(value);
    }
};

// "v_mfma_f32_16x16x16_f16 32\n", a line each.
std::string counts_text(const CompiledKernel& kernel) {
    std::string text;
    for (const auto& [name, count] : kernel.matrix_instructions)
        text += fmt::format("{} {}\n", name, count);
    return text;
}

std::string encode(const CompiledKernel& kernel) {
    const std::string_view object(reinterpret_cast<const char*>(kernel.object.data()),
                                  kernel.object.size());
    const std::string counts = counts_text(kernel);
    const std::string_view texts[] = {kernel.name, kernel.compiler, object, kernel.counted_in,
                                      counts};
    const Resources& r = kernel.measured;
    std::string text(kMagic);
    for (std::string_view piece : texts) put(text, static_cast<int64_t>(piece.size()));
    for (int64_t value : {r.shared_bytes, r.registers, r.spill_bytes, r.stack_bytes, r.code_bytes,
                          int64_t{r.known}})
        put(text, value);
    for (std::string_view piece : texts) text += piece;
    text += Digest().add(std::string_view(text)).hex();
    return text;
}

std::optional<CompiledKernel> decode(std::string_view text) {
    if (text.size() < kMagic.size() + kDigestSize || !text.starts_with(kMagic)) return std::nullopt;
    std::string_view covered = text.substr(0, text.size() - kDigestSize);
    if (Digest().add(covered).hex() != text.substr(covered.size())) return std::nullopt;
    Reader reader{covered.substr(kMagic.size())};
    CompiledKernel kernel;
    size_t sizes[5];
    for (size_t& size : sizes) size = static_cast<size_t>(reader.number());
    Resources& r = kernel.measured;
    for (int64_t* value :
         {&r.shared_bytes, &r.registers, &r.spill_bytes, &r.stack_bytes, &r.code_bytes})
        *value = reader.number();
    r.known = reader.number() != 0;
    kernel.name = reader.take(sizes[0]);
    kernel.compiler = reader.take(sizes[1]);
    std::string_view object = reader.take(sizes[2]);
    kernel.counted_in = reader.take(sizes[3]);
    kernel.matrix_instructions = parse_counts(reader.take(sizes[4]));
    if (!reader.ok || !reader.text.empty()) return std::nullopt;
    kernel.object.resize(object.size());
    std::memcpy(kernel.object.data(), object.data(), object.size());
    return kernel;
}

}  // namespace

ObjectCache::ObjectCache(const std::string& folder)
    : folder_(folder.empty() ? default_folder() : fs::path(folder)) {}

fs::path ObjectCache::path(const std::string& key) const { return folder_ / (key + ".o"); }

std::optional<CompiledKernel> ObjectCache::find(const std::string& key,
                                                const std::string& name) const {
    if (folder_.empty()) return std::nullopt;
    std::ifstream file(path(key), std::ios::binary);
    if (!file) return std::nullopt;
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::optional<CompiledKernel> kernel = decode(text);
    if (!kernel || kernel->name != name) return std::nullopt;
    kernel->from_cache = true;
    return kernel;
}

void ObjectCache::store(const std::string& key, const CompiledKernel& kernel) const {
    if (folder_.empty()) return;
    std::error_code ignored;
    fs::create_directories(folder_, ignored);
    AtomicFile file(path(key));
    const std::string text = encode(kernel);
    file.stream().write(text.data(), static_cast<std::streamsize>(text.size()));
    ignored = file.commit();  // a cache that cannot be written is no error
}

}  // namespace cleave::codegen
