// SPDX-License-Identifier: Apache-2.0
// Compiled objects on disk, one file an entry, named by its key. Entries are written to a temporary
// name and renamed, so that readers and other processes see whole entries or none; a checksum finds
// damaged ones, which count as absent. Objects are code that this process runs, so the folder and
// its entries must be the user's own (or root's), and writable by nobody else. A folder that cannot
// be used is no error: nothing is cached, and why_not_cached says why. Together the entries are
// kept under a limit: those that were not used for longest go first. Thread-safe and process-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel/program.h"
#include "runtime/base/descriptor.h"

namespace cleave::codegen {

class ObjectCache {
public:
    // `folder` empty: $XDG_CACHE_HOME/cleave/kernels or ~/.cache/cleave/kernels.
    explicit ObjectCache(const std::string& folder);

    // The object of that key, with its name checked too; nothing when absent, damaged, no regular
    // file, or another user's. It counts as used now. `made_from`: the text that the key is a
    // digest of. An entry made from another is absent: no two texts of one digest take each other's
    // place.
    std::optional<CompiledKernel> find(const std::string& key, const std::string& name,
                                       std::string_view made_from = {}) const;
    void store(const std::string& key, const CompiledKernel& kernel,
               std::string_view made_from = {}) const;

    std::filesystem::path path(const std::string& key) const;

private:
    std::filesystem::path folder_;  // empty: no place to cache
    Descriptor opened_;             // folder_, once it is known to be the user's own
    // Bytes since the folder was last looked through; more than any limit before that.
    mutable std::atomic<int64_t> stored_{INT64_MAX / 2};
};

inline constexpr int64_t kDefaultCacheLimit = int64_t{4} << 30;

struct CacheEntry {
    std::string key;
    std::string name, compiler;  // read_names reads them
    int64_t bytes = 0;
    std::chrono::system_clock::time_point used;  // last, to within an hour
};
struct CacheContents {
    std::filesystem::path folder;
    int64_t limit = kDefaultCacheLimit;  // of all entries' bytes
    std::vector<CacheEntry> entries;     // used longest ago first
    int64_t bytes() const;
};

// Each throws UserError where the folder has no place, cannot be used (why_not_cached) or looked
// through, or where what should go stays. Each but read_names takes an ObjectCache's folder. One
// that is not there yet has no entries.
CacheContents cache_contents(const std::string& folder = {});
// Removes all entries; what is left.
CacheContents clear_cache(const std::string& folder = {});
// Keeps the limit in the folder, for all later processes, and removes what is over it.
CacheContents limit_cache(int64_t bytes, const std::string& folder = {});

// Reads every entry for its kernel's name and compiler; of a damaged one they stay empty.
void read_names(CacheContents& contents);

// Why an ObjectCache of that folder caches nothing, with what to do; empty: it does, or will make
// the folder. Changes nothing.
std::string why_not_cached(const std::string& folder = {});
// The same, or why it keeps nothing new: below a file, read-only, a full disk.
std::string why_not_kept(const std::string& folder = {});

// Why an entry that this process made was not kept; empty: all were.
std::string why_not_stored();

}  // namespace cleave::codegen
