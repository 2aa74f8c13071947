// SPDX-License-Identifier: Apache-2.0
// What the calls that may be made to fail share (fail_call.cpp).
#pragma once

#include <cerrno>

// Not seen by the program: what a preloaded library exports stands before its own.
#pragma GCC visibility push(hidden)

namespace cleave::faults {

enum class Kind {
    kNone,
    kMemory,
    kOpen,
    kRead,
    kWrite,
    kRename,
    kMap,
    kThread,
    kProcess,
    kLibrary,
    kCompile,
    kSocket,
    kAccept,
    kWait,
    kReceive,
    kSend,
    kShrink,
    kSite,
    kClose,
    kFolder,
    kState,
    kRemove
};
// The kind that CLEAVE_FAIL names.
extern Kind failing;

// Whether this call of that kind is the one that fails; it is counted.
bool fails(Kind kind);
// A client's connection was taken: calls count from the first on, with CLEAVE_FAIL_SERVER.
void note_client();

// -1 and errno, as a call of the system answers.
template <class Result>
Result refused(int error, Result answer) {
    errno = error;
    return answer;
}

// The C library's own.
void* next_symbol(const char* name);
template <class Call>
Call* next(const char* name) {
    return reinterpret_cast<Call*>(next_symbol(name));
}

// Whether it is a wake-up of threads, which the system does not refuse.
bool is_event(int file);

}  // namespace cleave::faults

#pragma GCC visibility pop
