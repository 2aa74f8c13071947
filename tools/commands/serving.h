// SPDX-License-Identifier: Apache-2.0
// What commands over an engine share: the flags of `cleave plan --serve` and `cleave run
// --serve-trace`, how a trace was served, as text or JSON, and a session as `cleave serve` and
// `cleave chat` open it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "planner/plan/plan.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/serve_report.h"
#include "runtime/engine/serve_trace.h"
#include "runtime/session/session.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "tools/cli/model_source.h"
#include "tools/cli/options.h"

namespace cleave::tools {

struct ServeFlags {
    std::string trace;  // TRACE.csv, or rate=R,prompt=P,output=O
    bool overcommit = false;
    double pass_ms = 0;  // 0: passes as large as the plan has room for
};

// `name` is that of the option with the trace.
void add_serve_flags(CLI::App& app, ServeFlags& flags, const std::string& name,
                     const std::string& does);

// UserError naming the flag that needs the trace of option `name`, which was not given.
void check_serve_flags(const ServeFlags& flags, const std::string& name);

// UserError naming the option.
std::vector<runtime::TraceRequest> trace_from_flag(const ServeFlags& flags,
                                                   const std::string& name);

// Groups are left open. UserError for a model without a KV cache, and for a --pass-ms that has no
// room for a token of each sequence.
runtime::SchedulerOptions scheduler_options(const ServeFlags& flags, const planner::Plan& plan);

// Kernels compiled and weights loaded, with progress on a terminal. Ctrl-C ends it.
std::unique_ptr<runtime::Session> open_session(planner::Plan& plan, const RunFlags& flags,
                                               runtime::Drivers& drivers);

// UserError for a shape name, a plan of one, and --weights none: `does` ("serve") needs weights.
void check_has_weights(const LoadedModel& model, const ModelFlags& flags, const std::string& does);

// A model that takes and gives texts.
struct TextModel {
    LoadedModel model;
    std::unique_ptr<runtime::Tokenizer> tokenizer;  // never null
    std::string template_folder;
    std::optional<runtime::ChatTemplate> chat;  // of that folder, where it has one
    std::vector<int32_t> stop_ids;
};

// `tokenizer` is --tokenizer; `command` ("serve") and `does` ("serve") are for errors. UserError
// where there are no weights or no tokenizer.
TextModel load_text_model(const ModelFlags& model, const PlanFlags& plan,
                          const std::string& tokenizer, const std::string& command,
                          const std::string& does);

// The plan of its file, or a new one. Takes the model out of `text`. Of a .plan file, says which
// folders it reads weights from.
planner::Plan plan_text_model(TextModel& text, const ModelFlags& model, const PlanFlags& plan,
                              const RunFlags& run, runtime::Drivers& drivers);

// Prints on standard output.
void show_forecast(const planner::Plan& plan, const runtime::ServeReport& predicted, bool json);
void show_replay(const planner::Plan& plan, const runtime::ServeReport& predicted,
                 const runtime::ServeReport& measured, bool json);

}  // namespace cleave::tools
