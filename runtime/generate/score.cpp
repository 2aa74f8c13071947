// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/score.h"

#include <algorithm>
#include <cmath>

#include "runtime/generate/batching.h"
#include "runtime/generate/nan_check.h"

namespace cleave::runtime {

namespace {

using planner::Plan;
using Progress = std::function<void(int64_t, int64_t)>;

// -log softmax(logits)[token], in double.
double negative_log_likelihood(std::span<const float> logits, int32_t token) {
    double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
    return most + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

// Adds the likelihood of tokens (scored, end) of the window [begin, end).
void score_window(Session& session, const Plan& plan, const std::vector<int32_t>& tokens,
                  size_t begin, size_t end, size_t scored, ScoreResult& result,
                  const Progress& progress) {
    std::vector<std::vector<int32_t>> window{{tokens.begin() + static_cast<ptrdiff_t>(begin),
                                              tokens.begin() + static_cast<ptrdiff_t>(end)}};
    size_t vocab = static_cast<size_t>(plan.graph.config.vocab_size);
    size_t position = begin;  // of the token whose logits come next
    // One pass at a time: the logits of a whole window would be large.
    for (const PrefillPass& pass : make_prefill_passes(window, plan.workload.prefill_chunk, true)) {
        std::vector<float> logits = std::move(session.run({&pass.batch, 1}).front());
        for (size_t row = 0; row < pass.batch.output_rows.size(); ++row, ++position) {
            if (position + 1 < scored || position + 1 >= end) continue;
            const auto of_row = std::span<const float>(logits).subspan(row * vocab, vocab);
            check_numbers(plan, of_row, fmt::format("position {} of the text", position));
            result.nll += negative_log_likelihood(of_row, tokens[position + 1]);
            ++result.tokens;
        }
        if (progress) progress(result.tokens, std::ssize(tokens) - 1);
    }
}

}  // namespace

ScoreResult score(Session& session, const Plan& plan, const std::vector<int32_t>& tokens,
                  const Progress& progress) {
    if (tokens.size() < 2)
        throw UserError("a text of {} tokens cannot be scored; at least 2 are needed",
                        tokens.size());
    if (!plan.workload.all_logits) {
        throw UserError(
            "the plan has no room for the logits of every token; plan with all logits wanted");
    }
    if (plan.workload.context < 2)
        throw UserError("a context of 1 token cannot score a text; use $context 2 or more");
    check_token_ids(tokens, plan.graph.config.vocab_size, "the text");
    size_t context = static_cast<size_t>(plan.workload.context);
    size_t stride = std::max<size_t>(1, context / 2);
    ScoreResult result;
    size_t scored = 1;  // tokens before this one are done; the first has nothing before it
    for (size_t begin = 0; scored < tokens.size(); begin += stride) {
        size_t end = std::min(tokens.size(), begin + context);
        score_window(session, plan, tokens, begin, end, scored, result, progress);
        scored = end;
    }
    result.nll /= static_cast<double>(result.tokens);
    result.perplexity = std::exp(result.nll);
    return result;
}

}  // namespace cleave::runtime
