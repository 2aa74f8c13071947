// SPDX-License-Identifier: Apache-2.0
// A sequence's logits do not depend on what it shares passes and devices with.
#include <deque>
#include <map>

#include <fmt/format.h>

#include "runtime/engine/scheduler.h"
#include "runtime/execute/greedy.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/philox.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

std::vector<int32_t> random_prompt(uint64_t seed, int64_t length) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < length; ++i)
        tokens.push_back(
            static_cast<int32_t>(uniform_draw(seed, 0, static_cast<uint64_t>(i)) *
                                 static_cast<double>(small_shape().config.vocab_size)));
    return tokens;
}

importer::Graph four_layers() {
    models::Shape shape = small_shape();
    shape.config.num_layers = 4;
    return random_model(shape, 11);
}

constexpr int64_t kServedTokens = 12;

// Logits of each token of sequence `which`: its prompt's, and new ones' but the last's.
std::vector<float> logits_of(const importer::Graph& graph, const DeviceShape& shape, int64_t chunk,
                             const std::vector<std::vector<int32_t>>& prompts, size_t which,
                             DType kv_dtype = DType::kF32) {
    const auto batch = static_cast<int64_t>(prompts.size());
    planner::Workload workload = all_logits_workload(batch, 96, chunk);
    workload.kv_dtype = kv_dtype;
    planner::Plan plan = plan_for(graph, shape, workload);
    Session session(plan, reproducible_options());
    GenerateOptions options;
    options.max_new_tokens = kServedTokens;
    options.keep_logits = true;
    return generate(session, plan, prompts, options).sequences[which].logits;
}

// Rows of logits as the scheduler's passes give them, by request and position.
struct Served {
    std::vector<std::map<int64_t, std::vector<float>>> rows;
    SchedulerStatistics statistics;
};

Served serve(const importer::Graph& graph, const DeviceShape& shape,
             const planner::Workload& workload, const SchedulerOptions& options,
             const std::vector<ScheduledRequest>& requests) {
    planner::Plan plan = plan_for(graph, shape, workload);
    Session session(plan, reproducible_options());
    Scheduler scheduler(limits_of(plan), options);
    for (const ScheduledRequest& request : requests) REQUIRE(scheduler.add(request).request);
    Served served;
    served.rows.resize(requests.size());
    const auto vocab = static_cast<size_t>(plan.graph.config.vocab_size);
    std::deque<ScheduledPass> in_flight;
    while (!scheduler.idle()) {
        while (std::ssize(in_flight) < options.groups) {
            std::optional<ScheduledPass> pass = scheduler.next();
            if (!pass) break;
            session.submit(pass->batch,
                           pass->outputs.empty() ? PassResults::kNone : PassResults::kLogits);
            in_flight.push_back(*std::move(pass));
        }
        const PassResult result = session.take();
        std::vector<OutputToken> tokens;
        for (const ScheduledOutput& output : in_flight.front().outputs) {
            const auto row =
                std::span(result.logits).subspan(static_cast<size_t>(output.output) * vocab, vocab);
            served.rows[static_cast<size_t>(output.request)][output.position] = {row.begin(),
                                                                                 row.end()};
            tokens.push_back({largest_logit(row)});
        }
        scheduler.done(in_flight.front().id, tokens);
        in_flight.pop_front();
    }
    served.statistics = scheduler.statistics();
    return served;
}

ScheduledRequest request_of(const std::vector<int32_t>& prompt, bool prompt_logits = false) {
    ScheduledRequest request;
    request.prompt = prompt;
    request.max_new_tokens = kServedTokens;
    request.prompt_logits = prompt_logits;
    return request;
}

// `alone`: logits of every position of each request.
void check_rows(const Served& served, const std::vector<ScheduledRequest>& requests,
                const std::vector<std::vector<float>>& alone) {
    const auto vocab = small_shape().config.vocab_size;
    for (size_t r = 0; r < requests.size(); ++r) {
        const int64_t length = std::ssize(requests[r].prompt);
        const int64_t rows = kServedTokens + (requests[r].prompt_logits ? length - 1 : 0);
        CHECK(std::ssize(served.rows[r]) == rows);
        for (const auto& [position, row] : served.rows[r]) {
            CAPTURE(r, position);
            const auto begin = alone[r].begin() + position * vocab;
            CHECK(std::equal(row.begin(), row.end(), begin, begin + vocab));
        }
    }
}

planner::Workload served_workload(int64_t batch, int64_t kv_tokens) {
    planner::Workload workload = all_logits_workload(batch, 96, 64);
    workload.kv_tokens = kv_tokens;
    return workload;
}

}  // namespace

TEST_CASE("a sequence's logits have the same bits alone, in company, in chunks and on pipelines",
          "[e2e]") {
    const importer::Graph graph = four_layers();
    const std::vector<int32_t> prompt = random_prompt(1, 45);
    const DeviceShape one{"one device", "host", 1, 1};
    const std::vector<float> alone = logits_of(graph, one, 64, {prompt}, 0);
    REQUIRE(alone.size() ==
            static_cast<size_t>((45 + kServedTokens - 1) * small_shape().config.vocab_size));
    for (int64_t chunk : {1, 2, 3, 4, 7, 8, 9, 16, 33}) {
        CAPTURE(chunk);
        CHECK(logits_of(graph, one, chunk, {prompt}, 0) == alone);
    }
    for (size_t others : {1, 2, 11})
        for (size_t slot : {size_t{0}, others / 2, others}) {
            std::vector<std::vector<int32_t>> prompts;
            for (size_t i = 0; i <= others; ++i)
                prompts.push_back(
                    i == slot ? prompt : random_prompt(2 + i, static_cast<int64_t>(3 + 7 * i)));
            CAPTURE(others, slot);
            CHECK(logits_of(graph, one, 37, prompts, slot) == alone);
        }
    for (int stages : {2, 3, 4}) {
        CAPTURE(stages);
        const std::string devices = fmt::format("host[0-{}]", stages - 1);
        CHECK(logits_of(graph, {"stages", devices.c_str(), 1, stages}, 19,
                        {random_prompt(3, 30), prompt}, 1) == alone);
    }
}

TEST_CASE(
    "a request's logits have the same bits alone, in full passes, in chunks, from a cached prefix, "
    "after preemption and on pipelines",
    "[e2e][engine]") {
    const importer::Graph graph = four_layers();
    const DeviceShape one{"one device", "host", 1, 1};
    // The second begins as the first does; the fourth repeats it.
    std::vector<std::vector<int32_t>> prompts{random_prompt(1, 45), random_prompt(1, 40),
                                              random_prompt(2, 3), random_prompt(1, 45),
                                              random_prompt(3, 61)};
    std::vector<std::vector<float>> alone;
    std::vector<ScheduledRequest> requests, with_prompts;
    for (const std::vector<int32_t>& prompt : prompts) {
        alone.push_back(logits_of(graph, one, 64, {prompt}, 0));
        requests.push_back(request_of(prompt));
        with_prompts.push_back(request_of(prompt, true));
    }
    REQUIRE(alone[0].size() == alone[3].size());
    const std::vector<DeviceShape> shapes{
        one, {"pp 2", "host[0-1]", 1, 2}, {"pp 3", "host[0-2]", 1, 3}, {"pp 4", "host[0-3]", 1, 4}};
    for (const DeviceShape& shape : shapes) {
        INFO(shape.name);
        SchedulerOptions options;
        options.groups = shape.pipeline_stages;
        for (int64_t budget : {5, 17, 64}) {
            CAPTURE(budget);
            options.token_budget = budget;
            check_rows(serve(graph, shape, served_workload(5, 0), options, with_prompts),
                       with_prompts, alone);
        }
        for (int64_t budget : {1, 64}) {
            CAPTURE(budget);
            options.token_budget = budget;
            const Served cached = serve(graph, shape, served_workload(1, 0), options, requests);
            CHECK(cached.statistics.prefix_hits >= 2 * 32);
            check_rows(cached, requests, alone);
        }
        options.kv_mode = KvMode::kOvercommit;
        options.share_prefixes = false;
        options.token_budget = 64;
        const Served preempted = serve(graph, shape, served_workload(5, 112), options, requests);
        CHECK(preempted.statistics.preemptions > 0);
        check_rows(preempted, requests, alone);
    }
}

TEST_CASE("logits over keys and values of 8 bits do not depend on chunks, company or stages",
          "[e2e]") {
    const importer::Graph graph = four_layers();
    const std::vector<int32_t> prompt = random_prompt(1, 45);
    const DeviceShape one{"one device", "host", 1, 1}, two{"stages", "host[0-1]", 1, 2};
    for (DType dtype : {DType::kInt8, DType::kF8E4M3}) {
        CAPTURE(dtype_name(dtype));
        const std::vector<float> alone = logits_of(graph, one, 64, {prompt}, 0, dtype);
        CHECK(alone != logits_of(graph, one, 64, {prompt}, 0));
        for (int64_t chunk : {1, 7, 16}) {
            CAPTURE(chunk);
            CHECK(logits_of(graph, one, chunk, {prompt}, 0, dtype) == alone);
        }
        CHECK(logits_of(graph, two, 19, {random_prompt(3, 30), prompt}, 1, dtype) == alone);
    }
}
