// SPDX-License-Identifier: Apache-2.0
// What else the machine did while something was measured, as Linux counts it in /proc/stat
// (proc(5)): other programs' time on the cores, and time that a hypervisor gave to others. Where
// there is no such file, nothing is known.
#pragma once

#include <optional>
#include <string>

namespace cleave::tools {

// Of all cores since the system started, in ticks of the clock.
struct CpuTicks {
    double busy = 0, stolen = 0, all = 0;
};
// From the text of /proc/stat; nothing where that is not understood.
std::optional<CpuTicks> parse_cpu_ticks(const std::string& stat);

// Shares of all cores' time.
struct MachineLoad {
    double others = 0, stolen = 0;
};
// Between two readings `before` and `after`, in which this process used `own` ticks of processor
// time.
MachineLoad load_between(const CpuTicks& before, const CpuTicks& after, double own);

// Watches from its construction on.
class LoadWatch {
public:
    LoadWatch();
    std::optional<MachineLoad> so_far() const;

private:
    std::optional<CpuTicks> start_;
    double own_start_ = 0;
};

}  // namespace cleave::tools
