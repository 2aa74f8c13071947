// SPDX-License-Identifier: Apache-2.0
// Requests by HTTP to a server on this machine whose tokens are streamed as server-sent events, one
// a token. What it answers is timed as a client sees it. One thread for all requests. Linux.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/serve_trace.h"

namespace cleave::bench {

struct HttpTimes {
    double tokens_per_second = 0;  // from the first arrival to the last token
    std::vector<double> gaps_ms;   // between two tokens of a request
    std::vector<double> first_ms;  // from the arrival to the first token
};

// Posts bodies[i] at trace[i].arrival_ms, in real time. UserError where the server answers with an
// error, or with fewer tokens than the trace has.
HttpTimes stream_trace(int port, const std::string& path, const std::vector<std::string>& bodies,
                       const std::vector<runtime::TraceRequest>& trace);

// A socket; -1: nobody listens at that port of 127.0.0.1.
int connect_to(int port);
void send_all(int socket, std::string_view text);  // UserError

}  // namespace cleave::bench
