// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/plan_serve.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/plan/text_table.h"
#include "runtime/base/errors.h"
#include "runtime/engine/forecast.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {

std::vector<runtime::TraceRequest> trace_from_flag(const std::string& flag) {
    try {
        bool is_rate = flag.find('=') != std::string::npos && !std::filesystem::exists(flag);
        return is_rate ? runtime::trace_at_rate(flag) : runtime::load_trace(flag);
    } catch (const UserError& error) {
        throw UserError("--serve: {}", error.what());
    }
}

namespace {

nlohmann::ordered_json forecast_json(const planner::Plan& plan, const runtime::Forecast& f) {
    auto both = [](const runtime::Percentiles& p) {
        return nlohmann::ordered_json{{"p50", p.p50}, {"p99", p.p99}};
    };
    return {{"model", plan.graph.name},
            {"requests", f.requests},
            {"refused", f.refused},
            {"refusal", f.refusal},
            {"prompt_tokens", f.prompt_tokens},
            {"output_tokens", f.output_tokens},
            {"seconds", f.seconds},
            {"tokens_per_second", f.tokens_per_second},
            {"first_token_ms", both(f.first_token_ms)},
            {"token_gap_ms", both(f.token_gap_ms)},
            {"request_ms", both(f.request_ms)},
            {"kv_tokens", f.kv_tokens},
            {"most_kv_tokens", f.most_kv_tokens},
            {"mean_kv_use", f.mean_kv_use},
            {"mean_sequences", f.mean_sequences},
            {"passes", f.passes},
            {"preemptions", f.preemptions},
            {"groups_in_flight", f.groups},
            {"stage_busy", f.stage_busy}};
}

std::string forecast_text(const planner::Plan& plan, const runtime::Forecast& f) {
    std::string text = fmt::format(
        "{}: {} requests, {} prompt tokens, {} new tokens, predicted\n"
        "  throughput   {:10.1f} tokens/s over {:.3f} s; {:.1f} sequences run on average\n"
        "  first token  {:10.3f} ms p50 {:10.3f} ms p99\n"
        "  token gap    {:10.3f} ms p50 {:10.3f} ms p99\n"
        "  request      {:10.3f} ms p50 {:10.3f} ms p99\n"
        "  KV           {:10} of {} tokens in use at most, {:.1f} % on average\n"
        "  passes       {:10}; {} in flight, {}\n",
        plan.graph.name, f.requests, f.prompt_tokens, f.output_tokens, f.tokens_per_second,
        f.seconds, f.mean_sequences, f.first_token_ms.p50, f.first_token_ms.p99, f.token_gap_ms.p50,
        f.token_gap_ms.p99, f.request_ms.p50, f.request_ms.p99, f.most_kv_tokens, f.kv_tokens,
        100 * f.mean_kv_use, f.passes, planner::count_text(f.groups, "group"),
        planner::count_text(f.preemptions, "preemption"));
    for (size_t s = 0; s < f.stage_busy.size(); ++s) {
        text += fmt::format("  stage {:<6} {:10.1f} % busy\n", s, 100 * f.stage_busy[s]);
    }
    if (f.refused > 0) {
        text += fmt::format("  refused      {:10}; the first: {}\n", f.refused, f.refusal);
    }
    return text;
}

}  // namespace

void show_forecast(const planner::Plan& plan, const std::vector<runtime::TraceRequest>& trace,
                   bool overcommit, bool json) {
    if (plan.kv_slabs.empty()) {
        throw UserError("--serve: {} has no KV cache; supported are language models with one",
                        plan.graph.name);
    }
    runtime::SchedulerOptions options{.groups = 0};
    if (overcommit) options.kv_mode = runtime::KvMode::kOvercommit;
    runtime::Forecast result = runtime::forecast(plan, trace, options);
    if (json) {
        show("{}\n", forecast_json(plan, result).dump(2));
    } else {
        show("{}", forecast_text(plan, result));
    }
}

}  // namespace cleave::tools
