// SPDX-License-Identifier: Apache-2.0
// Times from amounts: a roofline per launch (Williams, Waterman and Patterson, CACM 2009) with efficiencies, and
// alpha-beta times for transfers and collectives over the links they use (Thakur, Rabenseifner and Gropp, IJHPCA
// 2005). In: amounts at a point of the workload. Out: integer nanoseconds of one step alone on its devices.
#pragma once

#include <span>

#include "planner/amounts.h"
#include "planner/plan.h"

namespace cleave::planner {

// How an all-reduce of `members` is carried out. Decode payloads are all latency, and one exchange has the least of
// it. Large ones go round the ring, or, between devices that exchange through host memory, in two phases: one
// exchange would make every member sum every contribution (on 8 host devices prefill took twice as long).
CollectiveImplementation all_reduce_form(bool through_host, bool is_prefill, size_t members);

// Links as a matrix, so that a lookup costs nothing: [from][to], nullptr where there is none.
class LinkTable {
public:
    explicit LinkTable(const Machine& machine);
    const Link* at(DeviceId from, DeviceId to) const {
        return links_[from.index() * count_ + to.index()];
    }

    // Time of `bytes` from one device to another; staged through the hosts where there is no link.
    int64_t transfer_ns(DeviceId from, DeviceId to, int64_t bytes) const;

    // All-reduce of `bytes` a member, by implementation; neighbours in the group's order are the ring's.
    int64_t all_reduce_ns(std::span<const DeviceId> group, int64_t bytes,
                          CollectiveImplementation implementation) const;

    // Pieces of `bytes` in all, gathered on `to`.
    int64_t gather_ns(std::span<const DeviceId> from, DeviceId to, int64_t bytes) const;

private:
    const Machine* machine_;
    size_t count_;
    std::vector<const Link*> links_;
};

// One launch alone on `device`. `dtype` is that of the matrices it multiplies.
int64_t launch_ns(const Device& device, DType dtype, int64_t flops, int64_t bytes);

// dtype of the largest matrix of a group, f32 where it has none.
DType compute_dtype(const Analysis& analysis, const FusedGroup& group, const Workload& workload);

// Prefill reads a key once for a tile of queries, decode once for each query.
inline constexpr int64_t kPrefillKeyReuse = 32;

// Bytes that `amounts` move in a pass at a point of the workload.
int64_t bytes_moved(const LaunchAmounts& amounts, const BatchPoint& point, bool is_prefill);

// Time of `amounts` at a point of the workload.
int64_t launch_ns(const Device& device, DType dtype, const LaunchAmounts& amounts,
                  const BatchPoint& point, bool is_prefill);

}  // namespace cleave::planner
