// SPDX-License-Identifier: Apache-2.0
// The matrix unit of some x86 CPUs (Intel AMX), as far as the system has a say in it.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace cleave {

// Whether this process may use the unit's tiles, from now on and in all threads: Linux saves their
// state for processes that have asked, and refuses where a thread's signal stack has no room for it
// (Linux, Documentation/arch/x86/xstate.rst). Any thread.
inline bool may_use_tiles() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

}  // namespace cleave
