// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/machine_load.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

namespace cleave::tools {
namespace {

std::optional<CpuTicks> read_ticks() {
    std::ifstream file("/proc/stat");
    if (!file) return std::nullopt;
    return parse_cpu_ticks(std::string(std::istreambuf_iterator<char>(file), {}));
}

double own_ticks() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9) *
           static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

std::optional<CpuTicks> parse_cpu_ticks(const std::string& stat) {
    std::istringstream line(stat.substr(0, stat.find('\n')));
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    // Guests' time is counted in user's and nice's.
    if (!(line >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal) ||
        name != "cpu")
        return std::nullopt;
    double busy = user + nice + system + irq + softirq;
    return CpuTicks{busy, steal, busy + idle + iowait + steal};
}

MachineLoad load_between(const CpuTicks& before, const CpuTicks& after, double own) {
    double all = after.all - before.all;
    if (all <= 0) return {};
    return {std::max(0.0, after.busy - before.busy - own) / all,
            std::max(0.0, after.stolen - before.stolen) / all};
}

LoadWatch::LoadWatch() : start_(read_ticks()), own_start_(own_ticks()) {}

std::optional<MachineLoad> LoadWatch::so_far() const {
    std::optional<CpuTicks> now = read_ticks();
    if (!start_ || !now) return std::nullopt;
    return load_between(*start_, *now, own_ticks() - own_start_);
}

}  // namespace cleave::tools
