// SPDX-License-Identifier: Apache-2.0
// Entry: "CLEAVEO3", then 64-bit little-endian: sizes of the texts (name, compiler, object, what
// matrix instructions were counted in, their names and counts), then the resources; the texts; 32
// characters of the digest of all before; what the kernel was made from, and the length of that. An
// entry's time of modification is that of its last use.
// The file "limit", where there is one, has the limit in bytes, in decimal digits.
#include "codegen/compile/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>
#include <tuple>

#include <fmt/format.h>

#include "codegen/compile/gpu_objects.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"
#include "runtime/base/own_folder.h"
#include "runtime/base/path_state.h"
#include "runtime/base/reason.h"

namespace cleave::codegen {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kMagic = "CLEAVEO3";
constexpr size_t kDigestSize = 32;
constexpr std::string_view kSuffix = ".o";
constexpr const char* kLimitFile = "limit";
// An entry whose use is younger than this is not told to be used again: reading stays reading.
constexpr auto kUseGrain = std::chrono::hours(1);

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
    const auto* first = reinterpret_cast<const std::byte*>(object.data());
    kernel.object.assign(first, first + object.size());
    return kernel;
}

struct Entry {
    std::string_view encoded, made_from;
};

Entry split_entry(std::string_view text) {
    if (text.size() < 8) return {};
    const auto length = static_cast<uint64_t>(Reader{text.substr(text.size() - 8)}.number());
    text.remove_suffix(8);
    if (length > text.size()) return {};
    return {text.substr(0, text.size() - length), text.substr(text.size() - length)};
}

// A kernel's object has at most some megabytes.
constexpr off_t kMostBytes = off_t{1} << 30;

// All of a regular file of the user's own; empty for what is absent, closed to us or something
// else. `error`: why one that is there could not be read.
std::string read_own(int folder, const std::string& name, std::error_code& error) {
    error.clear();
    // Not blocking: a FIFO would wait for a writer.
    const Descriptor file(
        ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
        if (errno != ENOENT && errno != ELOOP && errno != ENXIO && errno != EACCES)
            error = last_error();
        return {};
    }
    if (!S_ISREG(status.st_mode) || !is_own(status) || status.st_size > kMostBytes) return {};
    auto bytes = read_bytes(file, static_cast<size_t>(status.st_size));
    if (!bytes) error = last_error();
    return std::move(bytes).value_or("");
}

std::string entry_file(const std::string& key) { return key + std::string(kSuffix); }

// The limit that the folder keeps; a damaged one counts as none.
int64_t limit_of(int folder, std::error_code& error) {
    const std::string text = read_own(folder, kLimitFile, error);
    int64_t limit = 0;
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), limit);
    const bool whole = wrong == std::errc() && end == text.data() + text.size();
    return whole && limit >= 0 ? limit : kDefaultCacheLimit;
}

// All entries of an opened folder, used longest ago first. `error`: why not all is known.
CacheContents look_through(const fs::path& path, int folder, std::error_code& error) {
    CacheContents all{path, limit_of(folder, error), {}};
    if (error) return all;
    for (const OwnFile& file : files_of(folder, kSuffix, error))
        all.entries.push_back({file.name.substr(0, file.name.size() - kSuffix.size()), "", "",
                               file.bytes, file.used});
    return all;
}

// Removes entries from the front until the rest has at most so many bytes, or one cannot be
// removed, which is returned.
std::error_code shrink(CacheContents& all, int folder, int64_t most) {
    int64_t bytes = all.bytes();
    std::error_code error;
    auto at = all.entries.begin();
    for (; at != all.entries.end() && bytes > most; ++at) {
        if (::unlinkat(folder, entry_file(at->key).c_str(), 0) != 0 && errno != ENOENT) {
            error = last_error();
            break;
        }
        bytes -= at->bytes;
    }
    all.entries.erase(all.entries.begin(), at);
    return error;
}

std::atomic<int> not_stored{0};  // errno of the last entry that was not

fs::path folder_of(const std::string& given) {
    return given.empty() ? cache_folder("kernels") : fs::path(given);
}

}  // namespace

ObjectCache::ObjectCache(const std::string& folder) : folder_(folder_of(folder)) {
    if (folder_.empty()) return;
    make_own_folders(folder_);
    std::string ignored;
    opened_ = open_own(folder_, ignored);
}

fs::path ObjectCache::path(const std::string& key) const { return folder_ / entry_file(key); }

std::optional<CompiledKernel> ObjectCache::find(const std::string& key, const std::string& name,
                                                std::string_view made_from) const {
    if (!opened_) return std::nullopt;
    std::error_code ignored;  // what cannot be read is compiled again
    const std::string entry = entry_file(key), text = read_own(opened_.get(), entry, ignored);
    const Entry read = split_entry(text);
    if (read.made_from != made_from) return std::nullopt;
    std::optional<CompiledKernel> kernel = decode(read.encoded);
    if (!kernel || kernel->name != name) return std::nullopt;
    kernel->from_cache = true;
    struct stat status{};
    if (::fstatat(opened_.get(), entry.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        used_at(status) < std::chrono::system_clock::now() - kUseGrain)
        ::utimensat(opened_.get(), entry.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    return kernel;
}

void ObjectCache::store(const std::string& key, const CompiledKernel& kernel,
                        std::string_view made_from) const {
    if (!opened_) return;
    clear_the_way(opened_.get(), entry_file(key));
    AtomicFile file(entry_file(key), 0600, opened_.get());
    std::string text = encode(kernel);
    text += made_from;
    put(text, static_cast<int64_t>(made_from.size()));
    file.stream().write(text.data(), static_cast<std::streamsize>(text.size()));
    // A cache that cannot be written is no error.
    if (const std::error_code error = file.commit()) {
        not_stored = error.value();
        return;
    }
    // The folder is looked through at a process's first entry, then after each sixteenth of the
    // limit: a process is over the limit by no more than that.
    const int64_t size = static_cast<int64_t>(text.size());
    std::error_code unknown;
    if (stored_.fetch_add(size) + size < limit_of(opened_.get(), unknown) / 16) return;
    stored_ = 0;
    CacheContents all = look_through(folder_, opened_.get(), unknown);
    if (!unknown) unknown = shrink(all, opened_.get(), all.limit);
}

int64_t CacheContents::bytes() const {
    int64_t sum = 0;
    for (const CacheEntry& entry : entries) sum += entry.bytes;
    return sum;
}

namespace {

void refuse(const fs::path& path, const std::error_code& error) {
    if (error) throw UserError("{}: {}", path.string(), error.message());
}

[[noreturn]] void refuse_cache(const std::string& why) {
    throw UserError("no cache of kernels: {}", why);
}

Descriptor open_cache(const fs::path& path) {
    std::string why;
    Descriptor opened = open_own(path, why);
    if (!why.empty()) refuse_cache(why);
    return opened;
}

// Calls use(folder's contents, its descriptor) where there is a folder. The use's error is of the
// folder.
template <class Use>
CacheContents with_contents(const std::string& folder, const Use& use) {
    const fs::path path = folder_of(folder);
    if (path.empty()) refuse_cache(kNoCachePlace);
    if (!is_there(path)) return {path, kDefaultCacheLimit, {}};
    const Descriptor opened = open_cache(path);
    std::error_code error;
    CacheContents all = look_through(path, opened.get(), error);
    refuse(path, error);
    refuse(path, use(all, opened.get()));
    return all;
}

}  // namespace

CacheContents cache_contents(const std::string& folder) {
    return with_contents(folder, [](const CacheContents&, int) { return std::error_code(); });
}

void read_names(CacheContents& contents) {
    if (contents.entries.empty()) return;  // of a folder that need not be there
    const Descriptor opened = open_cache(contents.folder);
    for (CacheEntry& entry : contents.entries) {
        std::error_code error;
        const std::string text = read_own(opened.get(), entry_file(entry.key), error);
        refuse(contents.folder / entry_file(entry.key), error);
        if (const auto kernel = decode(split_entry(text).encoded)) {
            entry.name = kernel->name;
            entry.compiler = kernel->compiler;
        }
    }
}

CacheContents clear_cache(const std::string& folder) {
    return with_contents(folder,
                         [](CacheContents& all, int opened) { return shrink(all, opened, -1); });
}

CacheContents limit_cache(int64_t bytes, const std::string& folder) {
    const fs::path path = folder_of(folder);
    if (!path.empty()) make_own_folders(path);
    return with_contents(folder, [&](CacheContents& all, int opened) {
        clear_the_way(opened, kLimitFile);
        AtomicFile file(kLimitFile, 0600, opened);
        file.stream() << bytes;
        refuse(path / kLimitFile, file.commit());
        all.limit = bytes;
        return shrink(all, opened, bytes);
    });
}

std::string why_not_cached(const std::string& folder) {
    const fs::path path = folder_of(folder);
    if (path.empty()) return kNoCachePlace;
    std::error_code unknown;
    if (!fs::exists(path, unknown) && !unknown) return "";
    std::string why;
    open_own(path, why);
    return why;
}

std::string why_not_stored() {
    const int error = not_stored;
    return error == 0 ? "" : std::error_code(error, std::generic_category()).message();
}

std::string why_not_kept(const std::string& folder) {
    if (std::string why = why_not_cached(folder); !why.empty()) return why;
    constexpr uint64_t kLeast = 1 << 20;  // bytes, of a few kernels
    std::error_code ignored;
    fs::path place = fs::absolute(folder_of(folder), ignored);
    while (!fs::exists(place, ignored) && place.has_relative_path()) place = place.parent_path();
    if (!fs::is_directory(place, ignored)) return fmt::format("{} is no folder", place.string());
    if (::access(place.c_str(), W_OK | X_OK) != 0)
        return fmt::format("{}: {}", place.string(), last_error().message());
    struct statvfs disk{};
    if (::statvfs(place.c_str(), &disk) == 0 && disk.f_blocks > 0 &&
        uint64_t{disk.f_bavail} * disk.f_frsize < kLeast)
        return fmt::format("{}: its disk is full", place.string());
    return "";
}

}  // namespace cleave::codegen
