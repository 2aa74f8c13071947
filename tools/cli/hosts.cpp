// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/hosts.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

#include <poll.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "planner/machine/build_machine.h"
#include "runtime/base/hash.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/threads.h"
#include "runtime/cards/cards.h"
#include "runtime/hosts/interfaces.h"
#include "runtime/session/follow.h"
#include "tools/cli/calibrate.h"
#include "tools/cli/failure.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

std::optional<runtime::HostJob> job;
bool is_rank = false;
std::atomic<bool> terminated{false}, continued{false};
sem_t end_is_near;  // posted where the run has failed, and where mpirun ends this rank

// mpirun, or its daemon on this host, which started this process: a descriptor of it, or -1.
int launcher = -1;
pid_t launcher_id = 0;
std::atomic<bool> launcher_ended{false};

void end_soon() {
    terminated = true;
    cancel_token().cancel();
    ::sem_post(&end_is_near);
}

// mpirun ends ranks once it is interrupted, and when one of them has ended: by SIGCONT, mostly a
// second later SIGTERM, and SIGKILL, which may come within 20 ms of that (Open MPI 4.1 sleeps in
// between, and any signal wakes it).
void on_signal(int signal, siginfo_t* info, void*) {
    if (signal == SIGTERM) return end_soon();
    if (info->si_pid != launcher_id) return;  // a shell, of a job that it had stopped
    continued = true;
    ::sem_post(&end_is_near);
}

void handle(int signal) {
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigaction(signal, &action, nullptr);
}

// Until then, or for `seconds`.
void await_end(time_t seconds) {
    timespec end{};
    ::clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    while (::sem_clockwait(&end_is_near, CLOCK_MONOTONIC, &end) != 0 && errno == EINTR) {
    }
}

std::string why_cancelled() {
    if (launcher_ended) return "mpirun, or its daemon on this host, has ended";
    if (terminated)
        return "mpirun ended all ranks: it was interrupted, or one of them has ended, which it "
               "names";
    return "it was interrupted";
}

// Of the same program all ranks have the same.
std::string build_of_this_program() {
    const MappedFile program("/proc/self/exe");
    return Digest().add(program.bytes()).hex();
}

// The launcher ends all ranks once one has failed; where the network is gone it cannot reach them,
// and waits for what TCP says of that after a quarter of an hour. So it has 3 s, and is then killed
// by a process that outlives this one. (Open MPI 4.1.4 crashes at a SIGTERM while it waits so.)
void kill_launcher_soon() {
    if (launcher < 0 || ::fork() != 0) return;
    // Of a process with threads: only calls that signal handlers may make.
    const int kept = ::dup2(launcher, STDIN_FILENO);
    ::close_range(1, ~0u, 0);
    ::setsid();
    timespec left{3, 0};
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    ::syscall(SYS_pidfd_send_signal, kept, SIGKILL, nullptr, 0);
    ::_exit(0);
}

// By the thread that finds out first; no other ends this process before that is done.
void end_launcher_of_lost_rank() {
    static std::once_flag once;
    if (job->has_lost_rank()) std::call_once(once, kill_launcher_soon);
}

// The thread of a rank that says why it ends where the others have not within 2 s, or mpirun is
// about to kill this rank: a kernel on the cores of a host is not interrupted.
void watch_end() {
    constexpr time_t kForever = 1 << 30;
    bool at_once = false;
    do {
        await_end(kForever);
        at_once = continued.exchange(false) || terminated;
        if (at_once && !terminated) job->ask_around();
    } while (!terminated && job->failure().empty());
    if (at_once) say_failure(why_interrupted());
    end_launcher_of_lost_rank();
    if (at_once) return;
    await_end(2);
    say_failure(why_interrupted());
}

// No rank outlives its launcher, which is not there to kill it. It has a second to say so; this
// thread waits for nothing that another one holds.
void end_with_launcher() {
    pollfd ends{launcher, POLLIN, 0};
    while (::poll(&ends, 1, -1) < 0 && errno == EINTR) {
    }
    launcher_ended = true;
    end_soon();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::_exit(1);
}

}  // namespace

runtime::HostJob* host_job() {
    if (!job && runtime::is_launched_by_mpi()) {
        is_rank = true;
        runtime::choose_network();
        const cleave_mpi_table& mpi = runtime::open_mpi();
        // Before it has joined it has nothing to say of its launcher's end.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        launcher_id = ::getppid();
        launcher = static_cast<int>(::syscall(SYS_pidfd_open, launcher_id, 0));
        ::sem_init(&end_is_near, 0, 0);
        handle(SIGTERM);
        handle(SIGCONT);
        std::signal(SIGPIPE, SIG_IGN);  // where its words go to nobody the others still hear why
        runtime::JobOptions options;
        options.build = build_of_this_program();
        options.cancel = &cancel_token();
        options.waits = [join = options.join.count()] {
            say("waiting for the other processes of this run, {} s at most\n", join);
        };
        options.why_cancelled = why_cancelled;
        options.failed = [] { ::sem_post(&end_is_near); };
        job.emplace(mpi, options);
        start_thread(watch_end).detach();
        if (launcher >= 0) {
            start_thread(end_with_launcher).detach();
            ::prctl(PR_SET_PDEATHSIG, 0);
        }
        runtime::demand_all_processes(*job);
        std::string network;
        for (size_t r = 0; r < job->interfaces().size(); ++r)
            network += fmt::format("{} {} by {}", r == 0 ? ":" : ",",
                                   job->name(static_cast<int>(r)), job->interfaces()[r]);
        if (job->rank() == 0 && job->size() > 1)
            say("{} ranks on {}{}\n", job->size(), job->library(), network);
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
    if (!job) return is_rank;  // MPI may still be about to join
    if (message.empty() && job->rank() == 0) runtime::end_run(*job);
    job->leave(message);
    end_launcher_of_lost_rank();
    return true;
}

std::string why_hosts_failed(bool ask) {
    if (job && ask) job->look_around();
    return job ? job->failure() : "";
}

std::string why_interrupted() {
    if (const std::string why = why_hosts_failed(terminated); !why.empty()) return why;
    return terminated ? why_cancelled() : "";
}

}  // namespace cleave::tools
