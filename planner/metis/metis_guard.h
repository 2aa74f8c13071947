// SPDX-License-Identifier: Apache-2.0
// METIS ends an internal error by raising SIGABRT (no memory) or SIGTERM (anything else). It traps
// these itself for most of a call, with signal(), which forgets how a handler was installed
// (sigaction's flags and mask). Here a call runs with both trapped from its first to its last
// instruction, and the handlers that were there before are put back exactly, in every case. In:
// a call without C++ frames that own anything, since a trapped signal jumps over them.
#pragma once

#include <functional>

namespace cleave::planner {

// What the call returned, or the signal that ended it. One at a time in a process: handlers are
// process-wide.
struct GuardedResult {
    int returned = 0;
    int signal = 0;  // 0: none
};
GuardedResult call_guarded(const std::function<int()>& call);

}  // namespace cleave::planner
