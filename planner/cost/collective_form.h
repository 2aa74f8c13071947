// SPDX-License-Identifier: Apache-2.0
// How an all-reduce is carried out on given links: the form of least time, and for a ring the order
// in which it visits its members, so that neighbours are joined by the best links and slow ones are
// crossed as seldom as possible.
#pragma once

#include <span>
#include <vector>

#include "planner/cost/link_times.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct CollectiveForm {
    SumForm form = SumForm::kOneShot;
    std::vector<DeviceId> group;  // in device order; a ring's in its own
    int64_t ns = 0;               // of `bytes`
};

// `group` in device order. The cheapest form, that of planner/cost/link_times.h's all_reduce_form
// among equals. Of devices that exist here those that reach each other's memory sum by it, in one
// exchange or two phases; others exchange through host memory and have that form. The ring is the
// vendor's library's: of cards that have it, for rows of tokens or outputs (`is_rows`) of 8 MiB and
// more where they reach each other's memory, of 64 KiB and more where they are of several hosts,
// and else of any size; tensors of other graphs go by the host. Catalogue GPUs in several nodes
// have the library's tree or hierarchical sum.
CollectiveForm choose_all_reduce(const LinkTable& links, std::span<const DeviceId> group,
                                 int64_t bytes, bool is_prefill, bool is_rows = true);

// Whether a gather among `devices`, each of them once, goes by the vendor's library: rows between
// cards of one host that have it and do not reach each other's memory. Without it each payload
// would stop at the host, and captured decode with it.
bool gathers_by_library(const LinkTable& links, std::span<const DeviceId> devices, bool is_rows);

// From the first member on to the nearest one not visited yet; the first among equals.
std::vector<DeviceId> ring_order(const LinkTable& links, std::span<const DeviceId> group);

}  // namespace cleave::planner
