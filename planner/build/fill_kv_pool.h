// SPDX-License-Identifier: Apache-2.0
// In: a Plan that fits, with a KV pool of any size. Out: the largest pool that its devices have
// room for, in a closed form; slabs and the accounts of memory follow. Nothing else changes: no
// step depends on the number of blocks.
#pragma once

#include "planner/plan/plan.h"

namespace cleave::planner {

void fill_kv_pool(Plan& plan);

}  // namespace cleave::planner
