// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/messages.h"

#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

TEST_CASE("what ranks send each other of a session comes back as it was", "[runtime]") {
    SessionMessage message{SessionCall::kPass, {}, PassResults::kLogits};
    message.batch = {{5, 6, 7}, {0, 1, 2}, {1, 1, 1}, {0, 3}, {2}, false, {4, 0, 9}, {{1, 2}}};
    const SessionMessage again = decode_session_message(encode(message));
    CHECK(again.call == SessionCall::kPass);
    CHECK(again.wanted == PassResults::kLogits);
    CHECK(again.batch.token_ids == message.batch.token_ids);
    CHECK(again.batch.sequence_starts == message.batch.sequence_starts);
    CHECK(again.batch.output_rows == message.batch.output_rows);
    CHECK(again.batch.blocks == message.batch.blocks);
    CHECK(again.batch.copies == message.batch.copies);
    CHECK(!again.batch.is_prefill);
    CHECK(decode_session_message(encode(SessionMessage{})).call == SessionCall::kEnd);

    const PassResult result = decode_result(encode(PassResult{7, {1.5f, -0.0f}, {3}}));
    CHECK(result.ticket == 7);
    CHECK(result.logits == std::vector<float>{1.5f, -0.0f});
    CHECK(result.tokens == std::vector<int32_t>{3});

    CHECK(decode_time(encode_time(-7)) == -7);

    RankReport report;
    report.transferred_bytes = 12;
    report.peak_memory = {{"host[0]@b", 99}};
    report.events.push_back({1, false, planner::StepId(3), planner::DeviceId(1), 5, 6, 7, {}});
    const RankReport same = decode_report(encode(report));
    CHECK(same.transferred_bytes == 12);
    CHECK(same.peak_memory == report.peak_memory);
    REQUIRE(same.events.size() == 1);
    CHECK(same.events[0].step == planner::StepId(3));
    CHECK(same.events[0].end_ns == 6);
}

TEST_CASE("a message that ends early or is too long is an error", "[runtime]") {
    const std::string bytes = encode(PassResult{7, {1.5f}, {3}});
    for (size_t size = 0; size < bytes.size(); ++size)
        CHECK_THROWS_AS(decode_result(bytes.substr(0, size)), InternalError);
    CHECK_THROWS_AS(decode_result(bytes + "x"), InternalError);
}
