// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/report.h"

#include <fmt/format.h>

namespace cleave::runtime::simt {

std::string_view fault_name(Fault fault) {
    switch (fault) {
        case Fault::kGlobalBounds: return "global memory out of bounds";
        case Fault::kSharedBounds: return "shared memory out of bounds";
        case Fault::kPrivateBounds: return "private array out of bounds";
        case Fault::kWildAccess: return "wild access";
        case Fault::kMisaligned: return "misaligned access";
        case Fault::kRace: return "race";
        case Fault::kUninitialised: return "uninitialised shared memory";
        case Fault::kAsyncCopy: return "asynchronous copy";
        case Fault::kAsyncProduct: return "asynchronous product";
        case Fault::kStaleRead: return "stale read";
        case Fault::kDivergentBarrier: return "divergent barrier";
        case Fault::kDivergentWarp: return "divergent warp operation";
        case Fault::kInactiveLane: return "inactive lane";
        case Fault::kDeadlock: return "deadlock";
        case Fault::kCacheBlock: return "block outside the KV pool";
        case Fault::kUnwrittenRow: return "row of the KV cache that was never written";
        case Fault::kEarlyAccess: return "access before the launches before have ended";
        case Fault::kNoWait: return "no wait for the launches before";
    }
    return "fault";
}

std::string Finding::text() const {
    return fmt::format("{}:{}: {} in kernel {}, block ({}, {}, {}), thread ({}, {}, {}): {}", file,
                       line, fault_name(fault), kernel, block[0], block[1], block[2], thread[0],
                       thread[1], thread[2], detail);
}

}  // namespace cleave::runtime::simt
