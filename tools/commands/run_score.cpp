// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/forecast.h"
#include "runtime/engine/replay.h"
#include "runtime/generate/score.h"
#include "tools/cli/files.h"
#include "tools/cli/prompts.h"
#include "tools/cli/terminal.h"
#include "tools/commands/run_work.h"
#include "tools/commands/serving.h"

namespace cleave::tools {

using Json = nlohmann::ordered_json;

void run_score(const RunArguments& flags, Ready& ready) {
    const std::string text = read_text_file("--score", flags.score_file);
    if (!ready.tokenizer) throw UserError("--score needs a tokenizer: {}", ready.no_tokenizer);
    std::vector<int32_t> tokens = ready.tokenizer->encode(text);
    check_token_ids(tokens, ready.model);
    if (tokens.size() < 2)
        throw UserError("{}: too short to score: it has {} tokens", flags.score_file,
                        tokens.size());
    planner::Plan plan = make_run_plan(flags, ready);
    Interruptible interruptible;
    auto session = open_session(plan, flags);
    runtime::ScoreResult score;
    {
        ProgressBar scored("tokens scored");
        score = runtime::score(*session, plan, tokens,
                               [&](int64_t done, int64_t total) { scored.update(done, total); });
    }
    if (!flags.trace.empty()) write_trace(flags, plan, *session);
    if (flags.json)
        fmt::print(
            "{}\n",
            Json{{"tokens", score.tokens}, {"nll", score.nll}, {"perplexity", score.perplexity}}
                .dump(2));
    else
        show("{} tokens, {:.4f} nats a token, perplexity {:.3f}\n", score.tokens, score.nll,
             score.perplexity);
}

// The trace on the plan's devices, beside what its costs say of it.
void run_serve_trace(const RunArguments& flags, Ready& ready) {
    const std::vector<runtime::TraceRequest> trace = trace_from_flag(flags.serve, kServeTrace);
    planner::Plan plan = make_run_plan(flags, ready);
    runtime::ReplayOptions options;
    options.scheduler = scheduler_options(flags.serve, plan);
    options.scheduler.groups = runtime::default_groups(plan, flags.run.threads);
    options.cancel = &cancel_token();
    const runtime::ServeReport predicted = runtime::forecast(plan, trace, options.scheduler);
    Interruptible interruptible;
    const OpenedReplicas opened = open_replicas(plan, flags);
    std::vector<std::unique_ptr<runtime::SessionRunner>> runners;
    std::vector<runtime::ReplayedReplica> replicas;
    for (size_t r = 0; r < opened.plans.size(); ++r) {
        runners.push_back(std::make_unique<runtime::SessionRunner>(*opened.sessions[r]));
        replicas.push_back({opened.plans[r], *runners.back()});
    }
    runtime::ServeReport measured;
    {
        ProgressBar requests("requests served");
        options.progress = [&](int64_t done, int64_t total) { requests.update(done, total); };
        measured = runtime::replay(replicas, trace, options);
    }
    if (!flags.trace.empty()) write_trace(flags, opened);
    show_replay(plan, predicted, measured, flags.json);
}

}  // namespace cleave::tools
