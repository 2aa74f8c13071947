// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/serve_report.h"

#include <algorithm>
#include <cmath>

#include "planner/plan/kv_room.h"

namespace cleave::runtime {

double percentile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    auto place = values.begin() + static_cast<ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
    std::ranges::nth_element(values, place);
    return *place;
}

void ServeMeter::arrive(int64_t request, double at_ms, int64_t prompt_tokens) {
    if (start_ms_ < 0) start_ms_ = used_ms_ = last_ms_ = at_ms;
    ++result_.requests;
    result_.prompt_tokens += prompt_tokens;
    progress_[request] = {.arrival_ms = at_ms};
}

void ServeMeter::refuse(const std::string& reason) {
    if (result_.refused++ == 0) result_.refusal = reason;
}

void ServeMeter::token(int64_t request, double at_ms, bool ends) {
    Progress& progress = progress_.at(request);
    if (progress.tokens++ == 0) {
        first_ms_.push_back(at_ms - progress.arrival_ms);
    } else {
        gaps_ms_.push_back(at_ms - progress.last_ms);
    }
    progress.last_ms = last_ms_ = at_ms;
    ++result_.output_tokens;
    if (!ends) return;
    whole_ms_.push_back(at_ms - progress.arrival_ms);
    progress_.erase(request);
}

void ServeMeter::use(double at_ms, const SchedulerStatistics& now) {
    int64_t held = now.blocks_held * planner::kKvBlock;
    result_.most_kv_tokens = std::max(result_.most_kv_tokens, held);
    kv_time_ += static_cast<double>(held) * (at_ms - used_ms_);
    sequences_time_ += static_cast<double>(now.running) * (at_ms - used_ms_);
    used_ms_ = at_ms;
}

ServeReport ServeMeter::report(const EngineLimits& limits, const SchedulerOptions& options,
                               const SchedulerStatistics& end) {
    ServeReport result = result_;
    double ms = std::max(1e-9, start_ms_ < 0 ? 0 : last_ms_ - start_ms_);
    result.seconds = ms / 1e3;
    result.tokens_per_second = static_cast<double>(result.output_tokens) * 1e3 / ms;
    auto both = [](const std::vector<double>& values) {
        return Percentiles{percentile(values, 0.5), percentile(values, 0.99)};
    };
    result.first_token_ms = both(first_ms_);
    result.token_gap_ms = both(gaps_ms_);
    result.request_ms = both(whole_ms_);
    result.pass_ms = both(pass_ms_);
    result.kv_tokens = planner::kv_tokens(limits.num_blocks);
    result.mean_kv_use = kv_time_ / ms / static_cast<double>(result.kv_tokens);
    result.mean_sequences = sequences_time_ / ms;
    result.passes = end.passes;
    result.preemptions = end.preemptions;
    result.groups = limits.whole_passes ? 1 : options.groups;
    const bool is_bounded = options.token_budget > 0 && !limits.whole_passes;
    result.token_budget = is_bounded ? options.token_budget : limits.max_tokens;
    return result;
}

}  // namespace cleave::runtime
