// SPDX-License-Identifier: Apache-2.0
// Cuts each device's weight shards out of the memory-mapped files, converts them, and uploads them,
// all devices at once; fills the rotary tables. A chunk of a shard is the only copy made on the
// way, by several threads while the file's next part comes from the disk; for a GPU it is made in
// one of two blocks of pinned memory while the card copies from the other. On the host a shard that
// its file has as kernels read it is not copied: it is used where the file is mapped.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "planner/plan/plan.h"
#include "runtime/base/cancel.h"
#include "runtime/device/device.h"
#include "runtime/load/arenas.h"

namespace cleave::runtime {

struct UploadOptions {
    std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;  // one call at a time
    const CancelToken* cancel = nullptr;
    int watchdog_seconds = 60;  // for which no device may do nothing
    int threads = 0;            // that cut and convert, for all devices together; 0: one per core
    // Weights that are not used in place come from a copy in the cache, which is made where there
    // is none (load/packed_copy.h).
    bool keep_packed = false;
    std::function<void(const std::string& line)> note;  // what was kept or not, for the user
};

// UserError naming the first weight without data. Called before anything is allocated.
void check_weights_present(const planner::Plan& plan);

// The bytes brought to all devices, those in place among them. The arenas keep what is mapped.
int64_t upload_weights(const planner::Plan& plan, Arenas& arenas,
                       std::span<const std::unique_ptr<Device>> devices,
                       const UploadOptions& options);

// cos then sin, each [positions, rotary_dim / 2], evaluated in double: RoFormer (arXiv 2104.09864),
// times the table's magnitude.
std::vector<float> rope_table_from_frequencies(const importer::RopeTable& table, int64_t positions);

}  // namespace cleave::runtime
