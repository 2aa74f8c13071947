// SPDX-License-Identifier: Apache-2.0
// Token generation over a Session: chunked prefill, decode with the cache, greedy or sampled.
// Sequences of a batch may have different lengths; each keeps its own cache slot. Token ids in,
// token ids out: text is runtime/text's business.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/generate/logprobs.h"
#include "runtime/generate/sampling.h"
#include "runtime/session/session.h"

namespace cleave::runtime {

struct GenerateOptions {
    int64_t max_new_tokens = 128;
    SamplingOptions sampling;
    std::vector<int32_t> stop_ids;  // ends a sequence; the stop token is the last of its token_ids
    bool keep_logits = false;       // GenerateResult::logits; needs a plan with workload.all_logits
    std::optional<int32_t> logprobs;  // SequenceResult::logprobs with so many most likely tokens
    // Called for each new token; returning false ends that sequence (stop strings).
    std::function<bool(size_t sequence, int32_t token)> on_token;
    const CancelToken* cancel = nullptr;
    // Number of the first prompt among those of all replicas: draws and on_token count from it.
    size_t first_sequence = 0;
};

struct SequenceResult {
    std::vector<int32_t> token_ids;  // new tokens only
    std::vector<float>
        logits;  // rows: each prompt token, then each generated token after the first
    std::vector<TokenLogprobs> logprobs;  // of each of token_ids, where they were asked for
};

struct GenerateResult {
    std::vector<SequenceResult> sequences;
    double prefill_ms = 0;
    double decode_ms_per_token = 0;  // of one step, which gives every live sequence a token
    double tokens_per_second = 0;    // of the decode steps, all sequences together
};

// UserError when an option of the sampling is out of its range, when a prompt is empty or a prompt
// plus max_new_tokens exceeds the plan's context, or there are more prompts than the plan's batch,
// or all together exceed its KV pool; and where logits that are kept, or that a token is chosen
// from, are not numbers.
GenerateResult generate(Session& session, const planner::Plan& plan,
                        const std::vector<std::vector<int32_t>>& prompts,
                        const GenerateOptions& options);

// A replica of a plan (planner::replica_plan), opened.
struct OpenReplica {
    Session& session;
    const planner::Plan& plan;
};
// Where each replica's part of so many prompts begins, and the end: in order, by the plans' users,
// or equal parts where those have none.
std::vector<size_t> parts_of_prompts(std::span<const planner::Plan* const> replicas,
                                     size_t num_prompts);
// The same prompts on all replicas at once, each with its part of them; a sequence's tokens are
// those that it has alone. Times are of the slowest replica, and tokens/s of
// all. on_token is called by several threads, for one sequence by one.
GenerateResult generate(std::span<const OpenReplica> replicas,
                        const std::vector<std::vector<int32_t>>& prompts,
                        const GenerateOptions& options);

}  // namespace cleave::runtime
