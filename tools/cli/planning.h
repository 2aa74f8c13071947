// SPDX-License-Identifier: Apache-2.0
// From flags to a proven plan: machine, workload, search, and how it is run. What plan, run, emit
// and inspect share.
#pragma once

#include "planner/plan/plan.h"
#include "runtime/session/session.h"
#include "tools/cli/model_source.h"
#include "tools/cli/options.h"

namespace cleave::tools {

// The machine of --devices or --machine (both: the file's devices, chosen and ordered by
// --devices).
planner::Machine machine_from_flags(const PlanFlags& flags, const RunFlags& run);

// The GPUs of this machine as a device list; on standard error, which of them Cleave has no kernels
// for.
std::string gpus_at_hand();

// The workload of the flags, tools/CLI.md's defaults filled in: batch 1, prompt 512, context
// min(4096, the model's).
planner::Workload workload_from_flags(const PlanFlags& flags, const LoadedModel& model);

// The plan of a .plan file (flags that would change it are a UserError), else a new one. Verified
// either way.
planner::Plan plan_from_flags(LoadedModel model, const PlanFlags& flags, const RunFlags& run,
                              const planner::Workload& workload);

// The options of a session that follow from the flags alone; the user's interrupt ends it.
runtime::SessionOptions session_options(const RunFlags& run);

}  // namespace cleave::tools
