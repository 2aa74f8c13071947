// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/run_work.h"

#include <algorithm>

#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/base/thread_team.h"
#include "runtime/execute/predicted_passes.h"
#include "runtime/session/follow.h"
#include "tools/cli/files.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {

bool needs_all_logits(const RunArguments& flags) {
    return !flags.dump_logits.empty() || !flags.score_file.empty() || !flags.check.empty();
}

planner::Plan make_run_plan(const RunArguments& flags, Ready& ready) {
    planner::Workload workload;
    PlanFlags plan = flags.plan;
    if (ready.model.plan) {
        workload = ready.model.plan->workload;
    } else {
        if (plan.batch == 0 && plan.concurrency == 0)
            plan.batch = std::max<int64_t>(1, static_cast<int64_t>(ready.prompts.size()));
        workload = workload_from_flags(plan, ready.model);
        int64_t longest = 1;
        for (const auto& p : ready.prompts)
            longest = std::max(longest, static_cast<int64_t>(p.size()));
        if (!ready.prompts.empty() && longest < workload.context) workload.prompt_tokens = longest;
        workload.all_logits = needs_all_logits(flags);
    }
    if (!ready.model.plan && !flags.score_file.empty() && plan.replicas.empty())
        plan.replicas = "1";  // a text is one sequence
    planner::Plan made =
        plan_from_flags(std::move(ready.model), plan, flags.run, workload, flags.drivers);
    name_weight_folders(flags.model, made);
    return made;
}

std::unique_ptr<runtime::Session> open_session(planner::Plan& plan, const RunArguments& flags) {
    ProgressBar compile("compiling kernels"), upload("loading weights");
    runtime::SessionOptions options = session_options(flags.run, flags.drivers);
    options.compile.gpu_compiler = flags.gpu_compiler;
    options.step_by_step = flags.step_by_step;
    options.compile.progress = [&](int done, int total) { compile.update(done, total); };
    options.upload_progress = [&](int64_t done, int64_t total) {
        upload.update(done, total, true);
    };
    options.record_trace = !flags.trace.empty();
    options.plan_message = [traced = options.record_trace](const planner::Plan& of_all) {
        return runtime::plan_message(of_all, traced);
    };
    return std::make_unique<runtime::Session>(plan, options);
}

OpenedReplicas open_replicas(const planner::Plan& plan, RunArguments flags) {
    if (!plan.others.empty() && !flags.trace.empty())
        throw UserError(
            "--trace {}: its passes are those of replicas that are alike, and this plan has some "
            "of other makes; give --replicas with their number",
            flags.trace);
    OpenedReplicas opened;
    flags.run.threads = runtime::threads_of_each(flags.run.threads, plan.num_replicas());
    for (int64_t r = 0; r < plan.num_replicas(); ++r)
        opened.plans.push_back(planner::replica_plan(plan, r));
    for (planner::Plan& one : opened.plans) opened.sessions.push_back(open_session(one, flags));
    return opened;
}

void write_trace(const RunArguments& flags, const planner::Plan& plan,
                 const runtime::Session& session) {
    runtime::PredictedPasses predicted(plan);
    const std::string json = runtime::trace_to_perfetto(session.trace(), plan, &predicted);
    write_file("--trace", flags.trace, json);
}

void write_trace(const RunArguments& flags, const OpenedReplicas& opened) {
    runtime::PredictedPasses predicted(opened.plans[0]);  // replicas are alike
    std::vector<runtime::ReplicaTrace> replicas;
    for (size_t r = 0; r < opened.plans.size(); ++r)
        replicas.push_back({&opened.sessions[r]->trace(), &opened.plans[r],
                            opened.sessions[0]->now_ns() - opened.sessions[r]->now_ns()});
    write_file("--trace", flags.trace, runtime::trace_to_perfetto(replicas, &predicted));
}

}  // namespace cleave::tools
