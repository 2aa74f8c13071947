// SPDX-License-Identifier: Apache-2.0
// The engine over sessions: requests that come, go and share have the tokens of each alone.
#include <random>
#include <thread>

#include "runtime/engine/engine.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/runtime/engine/engine_support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kContext = 48;

EngineRequest model_request(std::mt19937& random) {
    EngineRequest request;
    const auto kind = static_cast<int32_t>(random() % 3);
    for (size_t i = 0, length = 1 + random() % 24; i < length; ++i)
        request.prompt.push_back(i < 18 ? kind + 1 : static_cast<int32_t>(random() % 131));
    request.max_new_tokens = 1 + static_cast<int64_t>(random() % 20);
    if (random() % 2) {
        request.sampling.temperature = 0.8f;
        request.sampling.top_k = 30;
        request.sampling.seed = random() % 100;
    }
    if (random() % 4 == 0) request.sampling.repetition_penalty = 1.2f;
    if (random() % 4 == 0) request.logprobs = 1;
    return request;
}

std::vector<int32_t> generated_alone(Session& session, const planner::Plan& plan,
                                     const EngineRequest& request) {
    GenerateOptions options;
    options.max_new_tokens = request.max_new_tokens;
    options.sampling = request.sampling;
    return generate(session, plan, {request.prompt}, options).sequences[0].token_ids;
}

}  // namespace

TEST_CASE(
    "on any devices, chunks and pools a request has the tokens that generate() gives it alone",
    "[e2e][engine]") {
    const importer::Graph graph = random_model(small_shape(), 3);
    const std::vector<DeviceShape> shapes{{"one device", "host", 1, 1},
                                          {"tp 2", "host[0-1]", 2, 1},
                                          {"tp 3", "host[0-2]", 3, 1},
                                          {"pp 2", "host[0-1]", 1, 2},
                                          {"tp 2 x pp 2", "host[0-3]", 2, 2}};
    for (uint32_t seed = 0; seed < 10; ++seed) {
        std::mt19937 random(seed);
        const DeviceShape& shape = shapes[seed % shapes.size()];
        planner::Workload workload;
        workload.batch = 1 + static_cast<int64_t>(random() % 5);
        workload.context = kContext;
        workload.prompt_tokens = 16;
        workload.prefill_chunk =
            std::max<int64_t>(workload.batch, 1 + static_cast<int64_t>(random() % 64));
        workload.kv_tokens =
            kContext + static_cast<int64_t>(random() % static_cast<size_t>(kContext * 2));
        CAPTURE(seed, shape.name, workload.batch, workload.prefill_chunk, workload.kv_tokens);
        planner::Plan plan = plan_for(graph, shape, workload);
        SessionOptions poisoned;
        poisoned.poison = true;
        Session session(plan, poisoned);
        std::vector<EngineRequest> requests;
        for (int i = 0; i < 12; ++i) requests.push_back(model_request(random));
        Recorder recorder;
        {
            SessionRunner runner(session);
            EngineOptions options;
            options.scheduler.groups = 1 + static_cast<int64_t>(random() % 3);
            options.scheduler.kv_mode = random() % 2 ? KvMode::kOvercommit : KvMode::kReserve;
            Engine engine(plan, runner, nullptr, options);
            std::vector<RequestId> ids;
            for (size_t key = 0; key < requests.size(); ++key) {
                const EngineAdmission admission =
                    engine.add(requests[key], recorder.sink(static_cast<int64_t>(key), 1));
                REQUIRE(admission.request);
                ids.push_back(*admission.request);
                if (random() % 4 == 0) engine.cancel(ids[random() % ids.size()]);
            }
            recorder.wait();
            CHECK(engine.drain(60s));
            CHECK(engine.statistics().scheduler.blocks_held == 0);
        }
        CHECK(recorder.mistakes().empty());
        for (size_t key = 0; key < requests.size(); ++key) {
            const ToldCopy& told = recorder.told(static_cast<int64_t>(key)).copies[0];
            std::vector<int32_t> alone = generated_alone(session, plan, requests[key]);
            REQUIRE(told.finish);
            if (*told.finish == FinishReason::kCancelled) {
                REQUIRE(told.tokens.size() <= alone.size());
                alone.resize(told.tokens.size());
            }
            CHECK(told.tokens == alone);
        }
    }
}
