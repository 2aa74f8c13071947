// SPDX-License-Identifier: Apache-2.0
// What ranks of a run send each other of a session, as bytes: little-endian int32 and int64, each
// list behind its length. Ranks are of one build, so there are no versions. Bytes that are no such
// message are an InternalError.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/execute/pass.h"
#include "runtime/execute/trace.h"

namespace cleave::runtime {

// Of rank 0 to the others while a session is open: the next pass, or what they have done so far,
// or the time by their clocks, or its end.
enum class SessionCall : uint8_t { kPass, kReport, kTime, kEnd };

struct SessionMessage {
    SessionCall call = SessionCall::kEnd;
    Batch batch;  // of kPass, as the next
    PassResults wanted = PassResults::kNone;
};
std::string encode(const SessionMessage& message);
SessionMessage decode_session_message(const std::string& bytes);

std::string encode(const PassResult& result);
PassResult decode_result(const std::string& bytes);

// What one rank has done.
struct RankReport {
    int64_t transferred_bytes = 0, loaded_bytes = 0;
    int64_t payload_bytes = 0, message_bytes = 0;              // that it sent to other ranks
    std::vector<std::pair<std::string, int64_t>> peak_memory;  // by device
    std::vector<TraceEvent> events;
};
std::string encode(const RankReport& report);
RankReport decode_report(const std::string& bytes);

// An answer to kTime: on the clock of the sender's events.
std::string encode_time(int64_t now_ns);
int64_t decode_time(const std::string& bytes);

// Seconds of work by device of the plan, of those that have any (Session::busy_seconds). The
// second puts them in their places of `all`, which it makes as long as it has to be; a device that
// is none of `devices` is an InternalError. Empty bytes: no word of them yet.
std::string encode_busy(const std::vector<std::optional<double>>& seconds);
void decode_busy(const std::string& bytes, size_t devices, std::vector<std::optional<double>>& all);

}  // namespace cleave::runtime
