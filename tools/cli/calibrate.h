// SPDX-License-Identifier: Apache-2.0
// Measures the host that the process runs on, through the project's own kernels and runtime:
// small Llamas of stand-in weights run as sessions with a trace, on one host device and on two.
// Out: the rates of planner::HostCalibration, and where they are kept from one command to the next.
// Takes some seconds, all cores and under 2 GB of memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "planner/machine/host_facts.h"
#include "planner/machine/machine.h"
#include "runtime/base/cancel.h"
#include "tools/cli/host_bench.h"

namespace cleave::tools {

// How far a measurement is to be trusted.
struct Measurement {
    double spread =
        0;  // the slowest generation's token over the fastest's, less 1; of the worst configuration
    double other_load = 0;  // share of the cores' time that other programs used meanwhile
    double stolen = 0;      // and that the hypervisor gave to others

    // Why it is doubtful and what to do; empty when it is not.
    std::string warning() const;
};

// A calibration in rounds of all configurations. Between rounds the caller may run what it wants to
// compare: on a machine whose speed changes by the minute, both see the same changes. Not
// thread-safe.
class HostCalibrator {
public:
    explicit HostCalibrator(const planner::HostFacts& facts, const RoundLength& length = {});
    ~HostCalibrator();
    static int num_configurations();

    // By the length some seconds or one. `progress` is called before each configuration. Throws
    // Cancelled when `cancel` is set.
    void round(const std::function<void()>& progress, const CancelToken* cancel);
    // Of one round at least; as calibrate_host. Load is what other programs used during the rounds
    // alone.
    Measurement result(planner::HostFacts& facts) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Fills the calibration, and memory_bandwidth with what host devices reach that work at the same
// time. Rates are of mean times (host_bench.h). `progress` gets (done, total). Throws Cancelled
// when `cancel` is set.
Measurement calibrate_host(planner::HostFacts& facts,
                           const std::function<void(int64_t, int64_t)>& progress,
                           const CancelToken* cancel);

// $XDG_CONFIG_HOME/cleave/host.json or ~/.config/cleave/host.json, of a rank of mpirun
// host.NAME.json, as hosts may share a home; empty when there is no home.
std::string calibration_path();

// The processor and its usable cores: what a calibration belongs to.
std::string host_identity(const planner::HostFacts& facts);

// read_host_facts with the kept calibration of this machine, if any. `threads` 0: all. A file of
// another machine or for other threads is not used; `note` then has the reason. It also has the
// warnings of the measurement.
planner::HostFacts facts_of_this_host(int threads, std::string* note = nullptr);

}  // namespace cleave::tools
