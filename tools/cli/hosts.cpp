// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/hosts.h"

#include <csignal>
#include <optional>

#include <sys/prctl.h>

#include "planner/machine/build_machine.h"
#include "runtime/base/hash.h"
#include "runtime/base/mapped_file.h"
#include "runtime/cards/cards.h"
#include "runtime/session/follow.h"
#include "tools/cli/calibrate.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

std::optional<runtime::HostJob> job;
volatile std::sig_atomic_t terminated = 0;

// By which mpirun ends ranks: once it is interrupted, and when one of them has ended.
void on_terminate(int) {
    terminated = 1;
    cancel_token().cancel();
}

// Of the same program all ranks have the same.
std::string build_of_this_program() {
    const MappedFile program("/proc/self/exe");
    return Digest().add(program.bytes()).hex();
}

}  // namespace

runtime::HostJob* host_job() {
    if (!job && runtime::is_launched_by_mpi()) {
        const cleave_mpi_table& mpi = runtime::open_mpi();
        // Whoever starts ranks on this host takes them along when it is killed.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        std::signal(SIGTERM, on_terminate);
        runtime::JobOptions options;
        options.build = build_of_this_program();
        options.cancel = &cancel_token();
        job.emplace(mpi, options);
    }
    return job ? &*job : nullptr;
}

namespace {

// This rank's devices of the list, described as if it were the only machine.
runtime::DescribeDevices own_devices(const RunFlags& run, runtime::Drivers& drivers) {
    return [&run, &drivers](const std::string& list) {
        const std::string here = job->hosts()[static_cast<size_t>(job->rank())];
        std::string all = list;
        if (all.empty()) all = gpus_at_hand(drivers);
        if (all.empty()) all = "host";
        std::vector<planner::DeviceSpec> mine;
        for (planner::DeviceSpec& spec :
             planner::devices_on_hosts(planner::parse_devices(all), job->hosts())) {
            if (spec.machine != here) continue;
            spec.machine.clear();
            mine.push_back(spec);
        }
        return machine_of_devices(mine, run, drivers);
    };
}

}  // namespace

bool follows(const RunFlags& run, runtime::Drivers& drivers) {
    if (!host_job() || job->rank() == 0) return false;
    const Interruptible interruptible;
    runtime::follow(*job, session_options(run, drivers), own_devices(run, drivers));
    return true;
}

planner::Machine machine_of_hosts(const std::string& list, const RunFlags& run,
                                  runtime::Drivers& drivers) {
    return runtime::machine_of_run(*job, list, own_devices(run, drivers));
}

bool leave_hosts(const std::string& message) {
    if (!job) return false;
    if (message.empty() && job->rank() == 0) runtime::end_run(*job);
    job->leave(message);
    return true;
}

std::string why_interrupted() {
    if (job && !job->failure().empty()) return job->failure();
    if (terminated)
        return "mpirun ended this rank: it was interrupted, or another rank has ended, as it says";
    return "";
}

}  // namespace cleave::tools
