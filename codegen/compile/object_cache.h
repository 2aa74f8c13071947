// SPDX-License-Identifier: Apache-2.0
// Compiled objects on disk, one file an entry, named by its key. Entries are written to a temporary
// name and renamed, so that readers and other processes see whole entries or none; a checksum finds
// damaged ones, which count as absent. Thread-safe and process-safe. A folder that cannot be
// written is no error: nothing is cached.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "codegen/kernel/program.h"

namespace cleave::codegen {

class ObjectCache {
public:
    // `folder` empty: $XDG_CACHE_HOME/cleave/kernels or ~/.cache/cleave/kernels.
    explicit ObjectCache(const std::string& folder);

    // The object of that key, with its name checked too; nothing when absent or damaged.
    std::optional<CompiledKernel> find(const std::string& key, const std::string& name) const;
    void store(const std::string& key, const CompiledKernel& kernel) const;

    std::filesystem::path path(const std::string& key) const;

private:
    std::filesystem::path folder_;  // empty: no place to cache
};

}  // namespace cleave::codegen
