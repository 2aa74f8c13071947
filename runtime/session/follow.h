// SPDX-License-Identifier: Apache-2.0
// The part of the ranks other than 0 in a run on several hosts: they describe their devices, open
// the sessions that rank 0 opens, each its own devices of the same plan, and walk the passes that
// rank 0 submits. And what all ranks compare before anything loads.
#pragma once

#include "runtime/session/session.h"

namespace cleave::runtime {

// A rank's own devices of a device list ("" for all that it has), with their names in the run.
using DescribeDevices = std::function<planner::Machine(const std::string& list)>;

// Of a rank other than 0: until rank 0 says that the run has ended. Throws what a Session throws,
// or HostError where rank 0 is lost.
void follow(HostJob& job, const SessionOptions& options, const DescribeDevices& describe);

// Of rank 0: the devices of all hosts in the order of the list, and the network between them,
// measured. UserError with the words of each rank that has not what the list says.
planner::Machine machine_of_run(HostJob& job, const std::string& list,
                                const DescribeDevices& describe);

// Of rank 0, once it has no more sessions to open: the others return from `follow`.
void end_run(HostJob& job);

// Of the files that have the plan's weights: names, sizes and contents, of a file of more than
// 4 GiB so many bytes, spread evenly. UserError for one that is absent or of another size than the
// plan says.
std::string digest_of_files(const planner::Plan& plan);

// SessionOptions::plan_message: the plan, the digest of its files, and whether all ranks trace its
// steps, as rank 0 does. Throws what digest_of_files throws.
std::string plan_message(const planner::Plan& plan, bool record_trace);

}  // namespace cleave::runtime
