// SPDX-License-Identifier: Apache-2.0
// What the search decides and the later passes make explicit: stages in order, the devices of each,
// and how they share its work. Also what the passes hand each other besides the Plan.
#pragma once

#include <string>
#include <vector>

#include "planner/analysis/fuse.h"
#include "planner/analysis/sharding.h"
#include "planner/plan/plan.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {

struct StageChoice {
    std::vector<DeviceId> devices;
    int begin = 0, end = 0;  // groups [begin, end)
    StageShares shares;      // one weight per device
};

struct Placement {
    std::vector<StageChoice> stages;
};

// The graph as the passes read it; made once, shared by all candidates.
struct Analysis {
    const Graph& graph;
    GraphSplits splits;
    std::vector<FusedGroup> groups;
    std::vector<Unit> units;
    std::vector<int> last_group;  // by ValueId: the last group that reads it, or -1
    std::vector<int> made_by;     // by ValueId: the group that makes it, or -1
};
Analysis analyse(const Graph& graph);

// dtype of a weight on devices: --dtype for matrices (quantised ones are expanded), as the graph
// has it otherwise, which is quantised by make_plan where --dtype says so.
DType device_dtype(const importer::Weight& weight, const Workload& workload);

// Columns of a matrix that one scale serves on devices, so that no cut may lie between them: its
// own blocks where it is quantised, else 1.
int64_t column_block(const importer::Weight& weight, const Workload& workload);

// Bytes of rows x columns of a weight on a device, packed, with scales where there are some.
int64_t shard_bytes(const importer::Weight& weight, int64_t rows, int64_t columns, DType dtype);

inline constexpr int64_t kAlignment = 256;
inline int64_t align_up(int64_t bytes) { return round_up(bytes, kAlignment); }

}  // namespace cleave::planner
