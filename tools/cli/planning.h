// SPDX-License-Identifier: Apache-2.0
// From flags to a proven plan: machine, workload, search, and how it is run. What plan, run, emit
// and inspect share.
#pragma once

#include "planner/machine/device_list.h"
#include "planner/planner.h"
#include "runtime/cards/drivers.h"
#include "runtime/session/session.h"
#include "tools/cli/model_source.h"
#include "tools/cli/options.h"

namespace cleave::planner {
struct Case;  // planner/ask/case.h
}

namespace cleave::tools {

// The machine of --devices or --machine (both: the file's devices, chosen and ordered by
// --devices). Under mpirun that of all hosts.
planner::Machine machine_from_flags(const PlanFlags& flags, const RunFlags& run,
                                    runtime::Drivers& drivers);

// The machine of devices of this process, as `run` has them compute.
planner::Machine machine_of_devices(const std::vector<planner::DeviceSpec>& specs,
                                    const RunFlags& run, runtime::Drivers& drivers,
                                    const planner::Wiring& wiring = {});

// The GPUs of this machine as a device list; on standard error, which of them Cleave has no kernels
// for.
std::string gpus_at_hand(runtime::Drivers& drivers);

// The workload of the flags, tools/CLI.md's defaults filled in: batch 1, prompt 512, context
// min(4096, the model's).
planner::Workload workload_from_flags(const PlanFlags& flags, const LoadedModel& model);

// What the flags ask for, but for the plan of a .plan file: what plan_from_flags hands to
// make_plan.
planner::Case case_from_flags(LoadedModel model, const PlanFlags& flags, const RunFlags& run,
                              const planner::Workload& workload, runtime::Drivers& drivers);

// The plan of a .plan file (flags that would change it are a UserError), else a new one. Verified
// either way. `control` watches the passes of a new one.
planner::Plan plan_from_flags(LoadedModel model, const PlanFlags& flags, const RunFlags& run,
                              const planner::Workload& workload, runtime::Drivers& drivers,
                              const planner::PassControl& control = {});

// Says on standard error where --threads are more than the machine has cores.
void note_threads(const RunFlags& run);

// Says once why compiled kernels are not kept: before they are compiled where that is known then,
// or at the end, of those that were not.
void note_kernels_not_kept(bool at_the_end);

// The options of a session that follow from the flags alone; the user's interrupt ends it.
runtime::SessionOptions session_options(const RunFlags& run, runtime::Drivers& drivers);

}  // namespace cleave::tools
