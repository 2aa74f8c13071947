// SPDX-License-Identifier: Apache-2.0
// The flags that several commands share (tools/CLI.md), as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "planner/machine/build_machine.h"
#include "planner/plan/workload.h"
#include "runtime/base/cancel.h"

namespace cleave::tools {

// Set by Ctrl-C while an Interruptible lives: the work inside looks at it between steps and cleans
// up. Outside of one, Ctrl-C ends the process at once: nothing is being written then.
CancelToken& cancel_token();

class Interruptible {
public:
    Interruptible();
    ~Interruptible();
    Interruptible(const Interruptible&) = delete;
    Interruptible& operator=(const Interruptible&) = delete;
    static bool active() noexcept;  // async-signal-safe
};

// Validators that say what they expect: "--tp 0: expected a whole number from 1 to 1024".
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator real_number(double least, double most);

struct ModelFlags {
    std::string model;
    std::string weights = "any";  // "none": external data may be absent
};

struct PlanFlags {
    std::string devices;  // empty: every GPU found, else host
    bool alone = false;   // of this process, also under mpirun
    std::string machine_file;
    planner::Wiring wiring;
    int tensor_parallel = 0;
    int pipeline_stages = 0;
    std::string replicas;  // a number, "auto", or empty
    std::string objective = "latency";
    std::vector<std::string> pins;
    bool whole_layers = false;
    bool no_metis = false;
    bool ignore_affinities = false;
    int64_t batch = 0;                  // 0: the command's default
    int64_t concurrency = 0;            // 0: batch, or as many users as fit
    double max_ttft = 0, max_tpot = 0;  // ms; 0: no limit
    std::vector<std::string> prices;
    int64_t context = 0;
    int64_t prompt_tokens = 0;
    int64_t prefill_chunk = 512;
    std::string dtype;
    std::string kv_dtype;
    std::string compute;  // "exact", "fast", or empty
    std::string activation_dtype;
    std::string kv_tokens;  // a number, "auto", or empty
};

struct RunFlags {
    int threads = 0;
    std::string cpu_arch;
    bool reproducible = false;
    std::string nvrtc;
    std::optional<uint64_t> simt_seed;  // of commands that run kernels
    bool keep_packed = false;           // of commands that load weights
};

void add_model_flags(CLI::App& app, ModelFlags& flags, bool required = true);
void add_plan_flags(CLI::App& app, PlanFlags& flags);
// Options for what joins sim: devices, in that group of the command's help.
void add_wiring(CLI::App& app, planner::Wiring& wiring, const std::string& group);
void add_run_flags(CLI::App& app, RunFlags& flags);
void add_keep_packed(CLI::App& app, RunFlags& flags);

// UserError naming the flag for a value that is no dtype.
DType dtype_flag(const std::string& flag, const std::string& value);

// Search options; UserError for an objective or a pin that cannot be read.
planner::PlanOptions plan_options(const PlanFlags& flags);

}  // namespace cleave::tools
