// SPDX-License-Identifier: Apache-2.0
// planner/plan/plan.h <-> planner/file/plan.proto, field by field. Nothing is checked but what a
// field can hold: enumerations are in range. Indices are the reader's to check.
#pragma once

#include "planner/file/plan.pb.h"
#include "planner/plan/plan.h"

namespace cleave::planner::codec {

void put(const Plan& plan, plan::v1::Plan* out);
// UserError for a number that is no value of its enumeration.
void take(const plan::v1::Plan& in, Plan& plan);

}  // namespace cleave::planner::codec
