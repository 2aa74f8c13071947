// SPDX-License-Identifier: Apache-2.0
// When requests arrive and how long they are: what a forecast predicts and a replay sends. In: a
// CSV file with the header arrival_ms,prompt_tokens,output_tokens, or a rate. Out: requests in
// order of arrival.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::runtime {

struct TraceRequest {
    double arrival_ms = 0;  // since the start
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
};

// Why no pass is needed to refuse the request: its prompt alone exceeds a context of so many
// tokens. Empty where it does not.
std::string prompt_too_long(const TraceRequest& request, int64_t context);

// UserError with path, line and column for anything else than the header and rows of a number and
// two whole numbers from 1 on, with arrivals that never go back; for a file without rows.
std::vector<TraceRequest> load_trace(const std::string& path);

// `name` stands for the file in errors.
std::vector<TraceRequest> parse_trace(std::string_view text, const std::string& name);

// rate=R,prompt=P,output=O[,requests=N][,seed=S]: N requests (256) of P and O tokens, R a second on
// average. Arrivals are a Poisson process; the same seed (0) gives the same ones. UserError naming
// the word that is missing or wrong.
std::vector<TraceRequest> trace_at_rate(const std::string& words);

}  // namespace cleave::runtime
