// SPDX-License-Identifier: Apache-2.0
// What the parts of `cleave run` share: its flags, the model that they name, and the plan opened as
// sessions. run.cpp has the flags, run_generate.cpp texts, run_score.cpp what is done with a file
// of text or of requests, run_check.cpp the comparison with a host.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cards/drivers.h"
#include "runtime/session/session.h"
#include "runtime/text/tokenizer.h"
#include "tools/cli/model_source.h"
#include "tools/cli/options.h"
#include "tools/cli/prompts.h"
#include "tools/cli/sampling_flags.h"
#include "tools/commands/opened_replicas.h"
#include "tools/commands/run_tensors.h"
#include "tools/commands/serving.h"

namespace cleave::tools {

inline constexpr const char* kServeTrace = "--serve-trace";
// What --check compares with: one host device, in the run's types or in f32.
inline constexpr const char* kCheckHost = "host";
inline constexpr const char* kCheckF32 = "f32";

struct RunArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    RunFlags run;
    PromptFlags prompt;
    TensorFlags tensors;
    int64_t max_new_tokens = 0;  // 0: kDefaultNewTokens, or what the context leaves
    std::string input;           // "-"
    SamplingFlags sampling;
    std::optional<int32_t> logprobs;
    std::vector<std::string> stop;
    std::string check;  // kCheckHost, kCheckF32, or empty
    bool ignore_eos = false, json = false, quiet = false, step_by_step = false;
    std::string score_file, dump_logits, trace, gpu_compiler;
    ServeFlags serve;
};

struct Ready {
    LoadedModel model;
    std::unique_ptr<runtime::Tokenizer> tokenizer;
    std::string no_tokenizer;
    std::vector<std::vector<int32_t>> prompts;
};

bool needs_all_logits(const RunArguments& flags);

// The plan of a run: as many slots as prompts, logits of every token where the flags want them.
// Moves the model's graph into it.
planner::Plan make_run_plan(const RunArguments& flags, Ready& ready);

// These within an Interruptible. A session refers to its plan.
std::unique_ptr<runtime::Session> open_session(planner::Plan& plan, const RunArguments& flags);
OpenedReplicas open_replicas(const planner::Plan& plan, RunArguments flags);

void write_trace(const RunArguments& flags, const planner::Plan& plan,
                 const runtime::Session& session);
void write_trace(const RunArguments& flags, const OpenedReplicas& opened);

// What `ready` has prompts for, or a text or requests of the flags.
void run_generate(const RunArguments& flags, Ready& ready);
void run_score(const RunArguments& flags, Ready& ready);
void run_serve_trace(const RunArguments& flags, Ready& ready);

}  // namespace cleave::tools
