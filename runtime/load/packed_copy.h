// SPDX-License-Identifier: Apache-2.0
// Weights as devices hold them, in one file of the cache: what a model's files had to be cut,
// converted or rounded for. A session that finds its copy maps it, and does none of that again.
// Weights that are used in place from the model's own files are not in it.
// The file: "CLEAVEP1", the size of a text, the text; from the next page on, for each shard, what
// its buffer begins with. The text has all that decides the bytes: weights, shards, and the model's
// files by path, size and the times at which they changed. A copy whose text is another is absent,
// and makes way for the new one. As with a model's own files nobody looks at the bytes themselves:
// the folder is the user's own, and a file is written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "importer/weights/weight_reader.h"
#include "planner/plan/plan.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/own_folder.h"
#include "runtime/device/device.h"

namespace cleave::runtime {

int64_t shard_columns(const planner::Plan& plan, const planner::WeightShard& shard);

// Bytes of a shard as its device holds them; of a quantised one with the room between its parts.
int64_t shard_bytes(const planner::Plan& plan, const planner::WeightShard& shard);

// Whether the device reads weights where a file is mapped. A NUMA node's are in its own memory.
bool reads_mapped(const Device& device);

// Where the shard's file has it as such a device's kernels read it; else nothing.
std::span<const std::byte> in_place(const importer::WeightReader& reader, const Device& device,
                                    const planner::WeightShard& shard);

class PackedCopy {
public:
    // Of the plan's shards on devices of this process (others are null). Maps the copy if there is
    // one. UserError where one of the model's files is not there.
    PackedCopy(const planner::Plan& plan, std::span<const std::unique_ptr<Device>> devices,
               const importer::WeightReader& reader);
    ~PackedCopy();

    // The shard's bytes, as long as this lives; nothing where there is no copy, or it has no place
    // in it.
    std::span<const std::byte> find(const planner::WeightShard& shard) const;
    // Part of a shard for a copy that was not there, `offset` bytes into its buffer. Any thread.
    void write(const planner::WeightShard& shard, int64_t offset, std::span<const std::byte> part);
    // After all parts: the new copy is there. One line for the user, of what was kept and where or
    // why nothing was; empty where nothing was to be kept.
    std::string commit();

private:
    // The position of the shard in the file; -1: not in it.
    int64_t offset_of(const planner::WeightShard& shard) const {
        return offsets_[static_cast<size_t>(&shard - plan_.weights.data())];
    }
    // The digest of what is in the file. It names it, behind the model's name, so that a model that
    // changed takes the place of what it was.
    std::string content(const importer::WeightReader& reader) const;
    // Maps the copy that begins so; false where there is none.
    bool find_kept(const std::string& start);
    // Begins a new copy, or says why not.
    void begin(const std::string& start);

    const planner::Plan& plan_;
    std::filesystem::path folder_, name_;
    std::string why_not_;
    std::vector<int64_t> offsets_;  // by shard of the plan, in the file; -1: not in it
    int64_t bytes_ = 0;             // of the file
    Descriptor opened_;             // the folder
    std::optional<MappedFile> kept_;
    std::mutex mutex_;
    std::optional<AtomicFile> made_;
};

// The copies of the cache, of all models.
struct PackedEntries {
    std::filesystem::path folder;
    // "folder.model.onnx.5ca85fb9890dc718580c753a7ec1b0ab.packed", used longest ago first.
    std::vector<OwnFile> entries;
    int64_t bytes() const;
};

// UserError where the folder cannot be used or looked through, or, of the second, where a copy
// stays; it returns what is left. A folder that is not there has none.
PackedEntries packed_entries();
PackedEntries clear_packed();

}  // namespace cleave::runtime
