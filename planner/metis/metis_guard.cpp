// SPDX-License-Identifier: Apache-2.0
#include "planner/metis/metis_guard.h"

#include <pthread.h>

#include <array>
#include <csetjmp>
#include <csignal>
#include <mutex>

namespace cleave::planner {
namespace {

constexpr std::array<int, 2> kSignals{SIGABRT, SIGTERM};

std::mutex one_at_a_time;
sigjmp_buf way_out;                                 // of the call that holds the mutex
pthread_t caller;                                   // its thread
std::array<struct sigaction, kSignals.size()> old;  // what was there before

// A signal that another thread gets, or that nobody here raised, is not METIS's: it goes where it
// would have gone.
void trap(int signal, siginfo_t*, void*) {
    if (pthread_equal(pthread_self(), caller)) siglongjmp(way_out, signal);
    for (size_t i = 0; i < kSignals.size(); ++i)
        if (kSignals[i] == signal) sigaction(signal, &old[i], nullptr);
    raise(signal);
}

void install() {
    struct sigaction action{};
    action.sa_sigaction = trap;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &old[i]);
}

void restore() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old[i], nullptr);
}

}  // namespace

GuardedResult call_guarded(const std::function<int()>& call) {
    std::lock_guard lock(one_at_a_time);
    GuardedResult result;
    caller = pthread_self();
    // The mask is saved: a handler runs with its own signal blocked, and the jump leaves it for
    // good.
    int caught = sigsetjmp(way_out, 1);
    if (caught != 0) {
        restore();
        return {0, caught};
    }
    install();
    try {
        result.returned = call();
    } catch (...) {
        restore();
        throw;
    }
    restore();
    return result;
}

}  // namespace cleave::planner
