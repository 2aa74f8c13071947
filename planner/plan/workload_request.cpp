// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/workload_request.h"

#include <algorithm>

#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kDefaultPrompt = 512;

void not_negative(const char* name, int64_t value) {
    if (value < 0) throw UserError("{} {}: give 1 or more", name, value);
}

}  // namespace

Workload fill_workload(const WorkloadRequest& request, int64_t max_positions) {
    not_negative("$batch", request.batch);
    not_negative("$context", request.context);
    not_negative("$prompt_tokens", request.prompt_tokens);
    not_negative("$prefill_chunk", request.prefill_chunk);
    Workload workload;
    const int64_t limit = max_positions > 0 ? max_positions : kDefaultContext;
    workload.batch = request.batch > 0 ? request.batch : 1;
    workload.context = request.context > 0 ? request.context : std::min(kDefaultContext, limit);
    if (max_positions > 0 && workload.context > max_positions)
        throw UserError("$context {}: the model's positions end at {}", workload.context,
                        max_positions);
    if (workload.context < 2)
        throw UserError("$context {}: a sequence has a prompt and a new token; give 2 or more",
                        workload.context);
    workload.prompt_tokens = request.prompt_tokens > 0           ? request.prompt_tokens
                             : workload.context > kDefaultPrompt ? kDefaultPrompt
                                                                 : (workload.context + 1) / 2;
    if (workload.prompt_tokens >= workload.context)
        throw UserError(
            "$prompt_tokens {}: the prompt leaves no room in a context of {}; raise $context",
            workload.prompt_tokens, workload.context);
    workload.prefill_chunk = request.prefill_chunk;
    workload.kv_tokens = request.kv_tokens;
    return workload;
}

Pin parse_pin(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
        throw UserError("$pins {}: expected WHAT=DEVICE, e.g. $pins 'layers.0-15=cuda[0]'", text);
    return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace cleave::planner
