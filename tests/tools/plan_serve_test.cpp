// SPDX-License-Identifier: Apache-2.0
// `cleave plan --serve`, and the forecast behind it.
#include <fstream>

#include <nlohmann/json.hpp>

#include "models/llama_graph.h"
#include "planner/cost/groups.h"
#include "planner/planner.h"
#include "runtime/engine/forecast.h"
#include "runtime/engine/pass_costs.h"
#include "tests/planner/support/json_schema.h"
#include "tests/planner/support/machines.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Json = nlohmann::json;
using Catch::Contains;

namespace {

planner::Plan plan_of(const std::string& devices, const planner::Workload& workload,
                      const planner::PlanOptions& options = {}) {
    models::Shape shape = *models::find_shape("llama-110m");
    return planner::make_plan(models::build_llama_graph(shape, DType::kBF16),
                              machine_of(devices, small_host(4, 64)), workload, options);
}

std::string write_trace(const TemporaryFolder& folder, const std::string& text) {
    std::string path = (folder.path() / "trace.csv").string();
    std::ofstream(path) << text;
    return path;
}

std::string trace_error(const std::string& text) {
    return user_error([&] { parse_trace(text, "t.csv"); });
}

Json forecast_of(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plan");
    arguments.push_back("--json");
    CommandResult result = run_cleave(arguments);
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    Json json = Json::parse(result.output);
    Json schema = Json::parse(read_file(source_root() / "tools/schema/forecast.schema.json"));
    CHECK(schema_errors(schema, json).empty());
    return json;
}

}  // namespace

TEST_CASE("a trace's error has its line, its column and what is supported", "[tools]") {
    const std::string header = "arrival_ms,prompt_tokens,output_tokens\n";
    CHECK(parse_trace(header + "0,5,6\r\n\n1.5,7,8", "t").size() == 2);
    CHECK_THAT(trace_error(""), Contains("t.csv:1:1: empty; a trace begins with arrival_ms,"));
    CHECK_THAT(trace_error("time,in,out\n1,2,3\n"),
               Contains("t.csv:1:1: the header is \"time,in,out\"; a trace begins with"));
    CHECK_THAT(trace_error(header), Contains("t.csv:2:1: no request below the header"));
    CHECK_THAT(trace_error(header + "1,2\n"), Contains("t.csv:2:1: 2 fields; a row has three"));
    CHECK_THAT(trace_error(header + "0,5,6\n0,x,6\n"),
               Contains("t.csv:3:3: \"x\" is no prompt_tokens: a whole number from 1"));
    CHECK_THAT(trace_error(header + "0,5,0\n"), Contains("t.csv:2:5: \"0\" is no output_tokens"));
    CHECK_THAT(trace_error(header + "-1,5,6\n"), Contains("t.csv:2:1: \"-1\" is no arrival_ms"));
    CHECK_THAT(trace_error(header + "nan,5,6\n"), Contains("\"nan\" is no arrival_ms"));
    CHECK_THAT(trace_error(header + "9,5,6\n8,5,6\n"),
               Contains("t.csv:3:1: \"8\" is no arrival after the row above"));
    CHECK_THAT(user_error([] { load_trace("/nowhere.csv"); }),
               Contains("/nowhere.csv: cannot be read: No such file") &&
                   Contains("; a trace is a CSV file with the header arrival_ms,"));
    CHECK_THAT(user_error([] { load_trace("/dev/zero"); }),
               Contains("/dev/zero: is a pipe or a device"));
}

TEST_CASE("a rate makes the same arrivals every time, and that many a second", "[tools]") {
    auto trace = trace_at_rate("rate=20,prompt=100,output=50,requests=4000,seed=3");
    auto again = trace_at_rate("rate=20,prompt=100,output=50,requests=4000,seed=3");
    REQUIRE(trace.size() == 4000);
    CHECK(trace.back().arrival_ms == again.back().arrival_ms);
    CHECK(trace.back().arrival_ms == Approx(200e3).epsilon(0.05));
    CHECK((trace[7].prompt_tokens == 100 && trace[7].output_tokens == 50));
    CHECK(trace_at_rate("rate=1,prompt=1,output=1").size() == 256);
    auto error = [](const std::string& words) { return user_error([&] { trace_at_rate(words); }); };
    CHECK_THAT(error("rate=1,prompt=5"), Contains("no output= in"));
    CHECK_THAT(error("rate=x,prompt=5,output=6"), Contains("\"rate=x\" in"));
    CHECK_THAT(error("rate=1,prompt=5,output=6,users=3"), Contains("\"users=3\" in"));
    CHECK_THAT(error("rate=0,prompt=5,output=6"), Contains("rate is a number a second from 1e-06"));
    CHECK_THAT(error("rate=1,prompt=1.5,output=6"), Contains("prompt is a whole number from 1"));
}

TEST_CASE("a bad --serve is refused with one message", "[tools]") {
    TemporaryFolder folder;
    auto refused = [](std::vector<std::string> arguments, const std::string& piece) {
        arguments.insert(arguments.begin(), "plan");
        CommandResult result = run_cleave(arguments);
        CHECK(result.exit_code == 1);
        CHECK(result.output.empty());
        CHECK_THAT(result.error, Contains(piece));
    };
    std::string bad = write_trace(folder, "arrival_ms,prompt_tokens,output_tokens\n0,5\n");
    refused({"stories-260k", "--serve", bad}, "--serve: " + bad + ":2:1: 2 fields");
    refused({"stories-260k", "--serve", "none.csv"}, "--serve: none.csv: cannot be read");
    refused({"stories-260k", "--serve", "rate=5"}, "--serve: no prompt= in \"rate=5\"");
    refused({"stories-260k", "--overcommit"}, "--overcommit goes with --serve");
    refused({"stories-260k", "--pass-ms", "3"}, "--pass-ms goes with --serve");
    refused({"--cost-graph", "x.json", "--serve", "rate=5"}, "--serve: a cost graph takes no");
}

TEST_CASE("a forecast is the same every time, and refuses what does not fit", "[tools]") {
    TemporaryFolder folder;
    std::string trace = write_trace(
        folder, "arrival_ms,prompt_tokens,output_tokens\n0,100,20\n1,300,30\n1,9000,5\n");
    std::vector<std::string> arguments{"llama-110m", "--devices", "sim:h100", "--batch", "4",
                                       "--context",  "1024",      "--serve",  trace};
    Json first = forecast_of(arguments), second = forecast_of(arguments);
    CHECK(first == second);
    CHECK(first["requests"] == 2);
    CHECK(first["refused"] == 1);
    CHECK(first["refusal"] == "a prompt of 9000 tokens; the context has 1024");
    CHECK(first["output_tokens"] == 50);
    CHECK(first["kv_tokens"] == 4096);
    arguments.insert(arguments.begin(), "plan");
    CommandResult text = run_cleave(arguments);
    CHECK(text.exit_code == 0);
    CHECK_THAT(text.output, Contains("llama-110m: 2 requests, 400 prompt tokens, 50 new tokens"));
    CHECK_THAT(text.output, Contains("the first: a prompt of 9000 tokens"));
}

TEST_CASE("a request alone takes the plan's own times", "[tools]") {
    planner::Workload workload;
    workload.prompt_tokens = 512;
    workload.context = 1024;
    planner::Plan plan = plan_of("sim:h100", workload);
    ServeReport alone = forecast(plan, {{0, 512, 512}}, {});
    CHECK(alone.first_token_ms.p50 ==
          Approx(static_cast<double>(plan.prediction.prefill_ns) / 1e6).epsilon(0.05));
    CHECK(alone.token_gap_ms.p50 ==
          Approx(static_cast<double>(plan.prediction.decode_ns_per_token) / 1e6).epsilon(0.05));
    CHECK(alone.passes == 512);
}

TEST_CASE("more sequences at once give more tokens a second, and each waits longer", "[tools]") {
    auto at_batch = [](int64_t batch) {
        planner::Workload workload;
        workload.batch = batch;
        workload.context = 512;
        workload.prompt_tokens = 128;
        return forecast(plan_of("sim:h100", workload),
                        trace_at_rate("rate=100000,prompt=128,output=100,requests=64"), {});
    };
    ServeReport one = at_batch(1), sixteen = at_batch(16);
    CHECK(sixteen.tokens_per_second > 6 * one.tokens_per_second);
    CHECK(sixteen.token_gap_ms.p50 > one.token_gap_ms.p50);
    CHECK(sixteen.mean_sequences > 14);
}

TEST_CASE("a pool that is too small for all makes requests wait, or preempts", "[tools]") {
    planner::Workload workload;
    workload.batch = 8;
    workload.context = 512;
    workload.prompt_tokens = 64;
    workload.kv_tokens = 1024;
    planner::Plan plan = plan_of("sim:h100", workload);
    auto trace = trace_at_rate("rate=100000,prompt=64,output=200,requests=32");
    ServeReport reserve = forecast(plan, trace, {});
    ServeReport overcommit = forecast(plan, trace, {.kv_mode = KvMode::kOvercommit});
    CHECK(reserve.preemptions == 0);
    CHECK(overcommit.preemptions > 0);
    CHECK(reserve.kv_tokens == 1024);
    CHECK(overcommit.mean_sequences > reserve.mean_sequences);
    CHECK(reserve.output_tokens == 32 * 200);
    CHECK(overcommit.output_tokens == 32 * 200);
    for (const ServeReport* f : {&reserve, &overcommit}) CHECK(f->most_kv_tokens <= f->kv_tokens);
}

TEST_CASE("groups in flight keep the stages of a pipeline busy", "[tools]") {
    planner::Workload workload;
    workload.batch = 256;
    workload.context = 1024;
    workload.prompt_tokens = 512;
    planner::PlanOptions options;
    options.pipeline_stages = 2;
    planner::Plan plan = plan_of("sim:h100[0-1]", workload, options);
    auto trace = trace_at_rate("rate=100000,prompt=64,output=100,requests=256");
    ServeReport one = forecast(plan, trace, {.groups = 1}),
                two = forecast(plan, trace, {.groups = 2});
    CHECK(one.stage_busy.size() == 2);
    CHECK(one.stage_busy[0] + one.stage_busy[1] < 1.01);
    CHECK(two.stage_busy[0] + two.stage_busy[1] > one.stage_busy[0] + one.stage_busy[1]);
    ServeReport chosen = forecast(plan, trace, {.groups = 0});
    CHECK(chosen.groups == planner::groups_in_flight(plan, 256));
}

TEST_CASE("a forecast hides the way between hosts behind other groups, as its plan does",
          "[tools][hosts]") {
    const planner::Machine machine =
        on_two_hosts(machine_of("host[0-1]", small_host(4, 64)), 1'000'000'000, 100'000'000);
    planner::Workload workload;
    workload.batch = 64;
    workload.context = 128;
    workload.prompt_tokens = 1;
    const planner::Plan plan = planner::make_plan(
        models::build_llama_graph(*models::find_shape("llama-110m"), DType::kBF16), machine,
        workload, {.pipeline_stages = 2, .objective = planner::Objective::kThroughput});
    const planner::Serving& serving = plan.prediction.serving;
    REQUIRE(serving.groups > 2);
    const auto trace = trace_at_rate("rate=100000,prompt=1,output=127,requests=64");
    const ServeReport report = forecast(plan, trace, {.groups = serving.groups});
    CHECK(report.tokens_per_second ==
          Approx(64e9 / static_cast<double>(serving.tpot_ns)).epsilon(0.1));
    CHECK(forecast(plan, trace, {.groups = 0}).groups > 2);
}

TEST_CASE("twice the requests on two replicas are served as one half on one", "[tools][replicas]") {
    planner::Workload workload;
    workload.batch = 4;
    workload.context = 512;
    workload.prompt_tokens = 64;
    const planner::Plan one =
        plan_of("sim:h100[0]", workload, {.objective = planner::Objective::kThroughput});
    workload.batch = 8;
    const planner::Plan two = plan_of(
        "sim:h100[0-1]", workload, {.objective = planner::Objective::kThroughput, .replicas = 2});
    REQUIRE(two.num_replicas() == 2);
    const auto half = trace_at_rate("rate=500,prompt=64,output=40,requests=32,seed=3");
    std::vector<TraceRequest> twice;
    for (const TraceRequest& request : half) twice.insert(twice.end(), 2, request);
    twice.push_back({twice.back().arrival_ms, 9000, 5});
    const ServeReport a = forecast(one, half, {}), b = forecast(two, twice, {});
    CHECK(b.requests == 2 * a.requests);
    CHECK(b.refused == 1);
    CHECK(b.output_tokens == 2 * a.output_tokens);
    CHECK(b.seconds == Approx(a.seconds));
    CHECK(b.tokens_per_second == Approx(2 * a.tokens_per_second));
    CHECK(b.first_token_ms.p99 == Approx(a.first_token_ms.p99));
    CHECK(b.token_gap_ms.p99 == Approx(a.token_gap_ms.p99));
    CHECK(b.passes == 2 * a.passes);
    CHECK(b.kv_tokens == 2 * a.kv_tokens);
    CHECK(b.mean_sequences == Approx(2 * a.mean_sequences));
    CHECK(b.mean_kv_use == Approx(a.mean_kv_use));
    CHECK(b.stage_busy.size() == 2);
}

TEST_CASE("stages that share a host's cores take turns in a forecast", "[tools]") {
    planner::Workload workload;
    workload.batch = 64;
    workload.context = 256;
    workload.prompt_tokens = 64;
    planner::PlanOptions options;
    options.pipeline_stages = 2;
    auto trace = trace_at_rate("rate=100000,prompt=64,output=50,requests=64");
    const auto busy = [&](const char* devices) {
        const ServeReport report =
            forecast(plan_of(devices, workload, options), trace, {.groups = 2});
        return report.stage_busy[0] + report.stage_busy[1];
    };
    CHECK(busy("host[0-1]") < 1.01);
    CHECK(busy("sim:host[0-1]") > 1.2);  // each has cores of its own
    CHECK(forecast(plan_of("host[0-1]", workload, options), trace, {.groups = 0}).groups == 1);
}

TEST_CASE("a bound on passes is the largest budget that keeps it by the plan's own costs",
          "[tools]") {
    planner::Workload workload;
    workload.batch = 8;
    workload.context = 2048;
    workload.prompt_tokens = 1024;
    workload.prefill_chunk = 4096;
    planner::Plan plan = plan_of("sim:h100", workload);
    auto trace = trace_at_rate("rate=100000,prompt=1024,output=20,requests=16");
    ServeReport unbounded = forecast(plan, trace, {});
    PassCosts costs(plan);
    CHECK(costs.tokens_within(1e6) == workload.max_tokens());
    CHECK(unbounded.token_budget == workload.max_tokens());
    int64_t last = workload.batch;
    for (double share : {0.4, 0.6, 0.8}) {
        double bound = share * unbounded.pass_ms.p99;
        int64_t budget = costs.tokens_within(bound);
        CHECK(budget >= last);
        CHECK(budget < workload.max_tokens());
        last = budget;
        ServeReport bounded = forecast(plan, trace, {.token_budget = budget});
        CHECK(bounded.token_budget == budget);
        CHECK(bounded.pass_ms.p99 < 1.1 * bound);
        CHECK(bounded.token_gap_ms.p99 < unbounded.token_gap_ms.p99);
    }
    CHECK_THAT(user_error([&] { costs.tokens_within(1e-6); }),
               Contains("a pass with a token of each of 8 sequences takes"));
}

TEST_CASE("single tokens beside a prompt cost what their keys cost in decode", "[tools]") {
    planner::Workload workload;
    workload.batch = 32;
    workload.context = 4096;
    const planner::Plan plan = plan_of("host[0-1]", workload);
    PassCosts costs(plan);
    const auto whole = [&](const PassSize& size) {
        double ns = 0;
        for (const StageTime& stage : costs.stage_times(size)) ns += stage.whole_ns;
        return ns;
    };
    constexpr int64_t kSingles = 16, kKeys = 2048, kPrompt = 128;
    constexpr int64_t kPromptKeys = kPrompt * (kPrompt + 1) / 2, kOfSingles = kSingles * kKeys;
    const PassSize mixed{.tokens = kPrompt + kSingles,
                         .outputs = kSingles,
                         .keys = kPromptKeys + kOfSingles,
                         .is_prefill = true,
                         .singles = kSingles,
                         .single_keys = kOfSingles};
    PassSize without = mixed;
    without.keys = kPromptKeys;
    without.singles = without.single_keys = 0;
    const double of_keys =
        whole({kSingles, kSingles, kOfSingles}) - whole({kSingles, kSingles, kSingles});
    CHECK(of_keys > 0);
    CHECK(std::abs(whole(mixed) - whole(without) - of_keys) < 1e-6 * whole(mixed));

    // As a pass has them: in front, and those alone in their sequences only.
    Batch batch;
    batch.positions = {40, 7, 0, 1, 2, 9};
    batch.token_ids = batch.slots = {0, 1, 2, 2, 2, 3};
    batch.sequence_starts = {0, 1, 2, 5, 6};
    batch.output_rows = {0, 1, 4, 5};
    const PassSize size = size_of(batch);
    CHECK(size.singles == 2);
    CHECK(size.single_keys == 41 + 8);
    CHECK(size.keys == 41 + 8 + 1 + 2 + 3 + 10);
    batch.is_prefill = false;
    CHECK(size_of(batch).singles == 0);
}
