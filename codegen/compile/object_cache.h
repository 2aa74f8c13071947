// SPDX-License-Identifier: Apache-2.0
// Compiled objects on disk, one file an entry, named by its key. Entries are written to a temporary
// name and renamed, so that readers and other processes see whole entries or none; a checksum finds
// damaged ones, which count as absent. Objects are code that this process runs, so the folder and
// its entries must be the user's own (or root's), and writable by nobody else. A folder that cannot
// be used is no error: nothing is cached, and why_not_cached says why. Thread-safe and
// process-safe.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "codegen/kernel/program.h"

namespace cleave::codegen {

class ObjectCache {
public:
    // `folder` empty: $XDG_CACHE_HOME/cleave/kernels or ~/.cache/cleave/kernels.
    explicit ObjectCache(const std::string& folder);
    ~ObjectCache();
    ObjectCache(const ObjectCache&) = delete;
    ObjectCache& operator=(const ObjectCache&) = delete;

    // The object of that key, with its name checked too; nothing when absent, damaged, no regular
    // file, or another user's.
    std::optional<CompiledKernel> find(const std::string& key, const std::string& name) const;
    void store(const std::string& key, const CompiledKernel& kernel) const;

    std::filesystem::path path(const std::string& key) const;

private:
    std::filesystem::path folder_;  // empty: no place to cache
    int opened_ = -1;               // folder_, once it is known to be the user's own
    mutable std::once_flag swept_;  // of what killed processes left
};

// Why an ObjectCache of that folder caches nothing, with what to do; empty: it does, or will make
// the folder. Changes nothing.
std::string why_not_cached(const std::string& folder = {});

}  // namespace cleave::codegen
