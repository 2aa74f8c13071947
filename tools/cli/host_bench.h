// SPDX-License-Identifier: Apache-2.0
// Small Llamas of stand-in weights run on host devices, and their traces taken apart by kind and
// size of step, from which `calibrate` makes rates. In: a shape, the numbers of devices and
// threads. Out: for each class of steps its amounts by the plan and its usual time. A configuration
// is run in several rounds, with those of the others between them: a machine whose memory slows
// down for a second then slows a part of the samples of every figure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "models/shapes.h"
#include "models/stand_in_weights.h"
#include "planner/machine/host_facts.h"
#include "planner/plan/plan.h"
#include "runtime/base/cancel.h"
#include "runtime/session/session.h"

namespace cleave::tools {

double median(std::vector<double> values);  // of one value at least

// Steps of one kind and size in a pass: the plan's amounts, and the measured time.
struct Sample {
    planner::KernelKind kernel = planner::KernelKind::kOpaque;
    bool communicates = false;
    double flops = 0, weights = 0, bytes = 0, key_bytes = 0;  // of one step
    double ns = 0;                                            // usual
};

struct HostRun {
    std::vector<Sample> prefill, decode;
    double decode_ns = 0;    // of a token
    double launches_ns = 0;  // of those, the launches of one device (they are alike on the others)
    int communications = 0;  // of a decode pass
    double spread = 0;       // the slowest generation's token over the fastest's, less 1
};

// The figure of several generations of tokens, each its own median: their mean, without the slowest
// and the fastest tenth. Virtual machines are moved between cores that share a path to memory and
// cores that do not, for seconds at a time, and rates then differ by half: a mean has the share of
// each state, where a median or another quantile jumps from one to the other.
double usual(std::vector<double> medians);

// A graph and its weights, for several configurations.
struct BenchModel {
    BenchModel(const models::Shape& shape, DType dtype);
    importer::Graph graph;
    models::StandInWeights weights;
};

// How long a configuration runs at a time. Short rounds need the session to stay open, and so the
// memory of all configurations at once.
struct RoundLength {
    int generations = 2;
    int64_t new_tokens = 24;
    bool keep_open = false;
};

// One configuration: `model` on host devices. `threads` 0: all cores.
class HostBench {
public:
    HostBench(const BenchModel& model, const planner::HostFacts& facts, const RoundLength& length,
              int devices, int tensor_parallel, int threads = 0);

    // Opens a session unless one is open, generates, closes it unless it is to stay. Throws
    // Cancelled when `cancel` is set.
    void round(const CancelToken* cancel);
    HostRun result() const;

private:
    struct Times {
        Sample sample;
        std::vector<std::vector<double>> ns;  // by generation
    };
    using Classes = std::map<std::tuple<bool, planner::KernelKind, double>, Times>;

    void take_apart(const runtime::Trace& trace, bool is_prefill);
    static std::vector<Sample> medians(const Classes& classes);
    double launches_ns(const std::vector<Sample>& samples) const;

    RoundLength length_;
    int threads_ = 0;
    planner::Plan plan_;
    std::unique_ptr<runtime::Session> session_;
    int32_t passes_seen_ = 0;  // of the session's trace
    Classes prefill_, decode_;
    std::vector<std::vector<double>> token_ns_;  // by generation
};

}  // namespace cleave::tools
