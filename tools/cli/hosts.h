// SPDX-License-Identifier: Apache-2.0
// The command under mpirun: rank 0 does what the command line says, the others do their part of it.
#pragma once

#include <string>

#include "runtime/hosts/job.h"
#include "runtime/session/session.h"
#include "tools/cli/options.h"

namespace cleave::tools {

// The run that this process is a rank of, joined at the first call; null where mpirun did not start
// it. UserError where the ranks do not find one another.
runtime::HostJob* host_job();

// On a rank other than 0: does what rank 0 asks for until that one has ended, then returns true.
// False where this process does the command itself.
bool follows(const RunFlags& run, runtime::Drivers& drivers);

// On rank 0: the machine of a device list on the hosts of the run.
planner::Machine machine_of_hosts(const std::string& list, const RunFlags& run,
                                  runtime::Drivers& drivers);

// Before the process ends, with `message` for why it fails; empty: it does not. Returns whether
// this was a rank of a run: then only _exit may follow, as MPI may be at work still.
bool leave_hosts(const std::string& message);

// Of a process that was interrupted: why, where it was not the user.
std::string why_interrupted();

// Why the run that this process is a rank of has failed; empty: it has not, or there is none.
// `ask`: each other rank for a sign of life first, which takes up to 300 ms.
std::string why_hosts_failed(bool ask);

}  // namespace cleave::tools
