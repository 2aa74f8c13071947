// SPDX-License-Identifier: Apache-2.0
// The server over an engine whose passes the test lets run one by one: what is promised to clients
// holds by order, not by time.
#include "tools/serve/server.h"

#include <malloc.h>
#include <sys/resource.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/errors.h"
#include "runtime/text/tokenizer.h"
#include "tests/runtime/engine/engine_support.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/http_client.h"
#include "tools/serve/grammar.h"

namespace cleave::serve {

using namespace cleave::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// Lets passes run: so many, or all.
class Gate {
public:
    void allow(int64_t passes) {
        const std::lock_guard lock(mutex_);
        allowed_ += passes;
        changed_.notify_all();
    }
    void open() { allow(int64_t{1} << 40); }
    void pass() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return allowed_ > 0; });
        --allowed_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int64_t allowed_ = 0;
};

// Remembers how many passes were in flight at once.
struct CountingRunner : FakeRunner {
    using FakeRunner::FakeRunner;
    runtime::Ticket submit(runtime::Batch batch, runtime::PassResults wanted) override {
        most_in_flight = std::max(most_in_flight.load(), ++in_flight);
        return FakeRunner::submit(std::move(batch), wanted);
    }
    runtime::PassResult take() override {
        runtime::PassResult result = FakeRunner::take();
        --in_flight;
        return result;
    }
    int64_t in_flight = 0;
    std::atomic<int64_t> most_in_flight{0};
};

struct FakeServer {
    explicit FakeServer(const PoolSizes& sizes = {}, const runtime::EngineOptions& options = {},
                        const ServerOptions& server_options = {})
        : plan(plan_of_sizes(sizes)),
          runner(plan),
          tokenizer(runtime::load_tokenizer(bundled_model().parent_path())) {
        model.name = "fake";
        model.tokenizer = tokenizer.get();
        model.vocab = kFakeVocab;
        model.context = sizes.context;
        model.grammars =
            std::make_shared<Grammars>(*tokenizer, model.vocab, std::vector<int32_t>());
        runner.before_pass = [this](int64_t) {
            gate.pass();
            if (fails) throw DeviceError("cuLaunchKernel", "CUDA_ERROR_ILLEGAL_ADDRESS", "cuda[0]");
        };
        engine.emplace(plan, runner, tokenizer.get(), options);
        server.emplace(*engine, plan, model, server_options);
    }
    ~FakeServer() {
        gate.open();
        server.reset();
    }

    template <class Holds>
    void wait_until(Holds&& holds) const {
        bool is_so = false;
        for (int i = 0; i < 200'000 && !(is_so = holds(engine->statistics())); ++i)
            std::this_thread::sleep_for(1ms);
        REQUIRE(is_so);
    }

    planner::Plan plan;
    CountingRunner runner;
    Gate gate;
    std::atomic<bool> fails{false};
    std::unique_ptr<runtime::Tokenizer> tokenizer;
    ServedModel model;
    std::optional<runtime::Engine> engine;
    std::optional<Server> server;
};

// Of a prompt of so many tokens, which are those of `first` and on.
std::string completion(int prompt_tokens, int tokens, bool stream = false, int first = 1) {
    Json body{{"max_tokens", tokens}, {"temperature", 0}, {"stream", stream}};
    for (int i = 0; i < prompt_tokens; ++i) body["prompt"].push_back((first + i) % kFakeVocab);
    return post_text("/v1/completions", body.dump());
}

std::string text_of(const HttpResult& result) {
    return Json::parse(result.body).at("choices").at(0).at("text");
}

}  // namespace

TEST_CASE(
    "a client that leaves in its prompt frees its blocks within two passes, and changes nobody",
    "[tools][serve]") {
    FakeServer alone;
    alone.gate.open();
    HttpClient one(alone.server->port());
    one.write(completion(5, 30));
    const std::string expected = text_of(one.read());
    for (const bool streams : {false, true}) {
        FakeServer serving;
        HttpClient neighbour(serving.server->port());
        neighbour.write(completion(5, 30));
        serving.wait_until([](const auto& now) { return now.accepted == 1; });
        std::optional<HttpClient> leaving(std::in_place, serving.server->port());
        leaving->write(completion(60, 4, streams, 20));
        serving.wait_until([](const auto& now) { return now.accepted == 2; });
        serving.gate.allow(2);  // the long prompt needs four
        serving.wait_until([](const auto& now) { return now.passes == 2; });
        REQUIRE(serving.engine->statistics().scheduler.running == 2);
        leaving.reset();
        // The server's thread takes events in order: an answer to a later one follows the end.
        CHECK(HttpClient(serving.server->port()).get("/health").status == 200);
        serving.gate.allow(2);
        serving.wait_until([](const auto& now) { return now.passes == 4; });
        const auto now = serving.engine->statistics().scheduler;
        CHECK(now.running == 1);
        CHECK(now.blocks_held <= 3);  // of 5 tokens and 30 new ones
        serving.gate.open();
        CHECK(text_of(neighbour.read()) == expected);
    }
}

TEST_CASE("a short prompt behind a long one has its first token within three passes",
          "[tools][serve]") {
    FakeServer serving({.batch = 4, .context = 512, .chunk = 16});
    HttpClient slow(serving.server->port()), quick(serving.server->port());
    slow.write(completion(400, 2));  // 25 passes
    serving.wait_until([](const auto& now) { return now.accepted == 1; });
    serving.gate.allow(2);
    serving.wait_until([](const auto& now) { return now.passes == 2; });
    quick.write(completion(4, 3, true));
    serving.wait_until([](const auto& now) { return now.accepted == 2; });
    // One more is in flight already.
    serving.gate.allow(1 + 3);
    CHECK_THAT(quick.read_some(), Contains("data: "));
}

TEST_CASE("a pass that does not end shows in /health, and nobody waits for it there",
          "[tools][serve]") {
    ServerOptions options;
    options.wedged_seconds = 0;
    FakeServer serving({}, {}, options);
    HttpClient asking(serving.server->port()), health(serving.server->port());
    CHECK(health.get("/health").status == 200);
    asking.write(completion(5, 3));
    serving.wait_until([](const auto& now) { return now.oldest_pass_seconds > 0; });
    CHECK(health.get("/health").status == 503);
    serving.gate.open();
    CHECK(asking.read().status == 200);
    serving.wait_until([](const auto& now) { return now.oldest_pass_seconds == 0; });
    CHECK(health.get("/health").status == 200);
}

TEST_CASE("a device that fails is told to every client, and the server is not healthy again",
          "[tools][serve]") {
    FakeServer serving;
    HttpClient streaming(serving.server->port()), whole(serving.server->port());
    streaming.write(completion(5, 30, true));
    serving.wait_until([](const auto& now) { return now.accepted == 1; });
    serving.gate.allow(2);
    CHECK_THAT(streaming.read_some(), Contains("data: "));
    whole.write(completion(5, 30));
    serving.wait_until([](const auto& now) { return now.accepted == 2; });
    serving.fails = true;
    serving.gate.open();
    std::string rest;
    while (rest.find("cuLaunchKernel failed on cuda[0]") == std::string::npos) {
        const std::string piece = streaming.read_some();
        INFO(rest);
        REQUIRE_FALSE(piece.empty());
        rest += piece;
    }
    const HttpResult failed = whole.read();
    CHECK(failed.status == 500);
    CHECK_THAT(failed.body, Contains("cuLaunchKernel failed on cuda[0]"));
    HttpClient later(serving.server->port());
    CHECK(later.get("/health").status == 503);
    later.write(completion(5, 3));
    CHECK(later.read().status == 503);
    CHECK(later.get("/v1/models").status == 200);
}

TEST_CASE("requests that are wrong in any way are told so, and the others run on",
          "[tools][serve]") {
    FakeServer serving;
    serving.gate.open();
    HttpClient client(serving.server->port());
    client.write(completion(5, 30));
    const std::string expected = text_of(client.read());
    const std::vector<std::string> bodies{"",
                                          "{",
                                          "[]",
                                          "null",
                                          "1e999",
                                          std::string(100'000, '['),
                                          "{\"prompt\": [99999]}",
                                          "{\"prompt\": [-1]}",
                                          "{\"prompt\": [1], \"max_tokens\": 1e300}",
                                          "{\"prompt\": [1], \"max_tokens\": 64}",
                                          "{\"prompt\": [1], \"n\": 129}",
                                          "{\"prompt\": [1], \"seed\": 1.5}",
                                          "{\"prompt\": [1], \"logit_bias\": {\"99999\": 1}}",
                                          "{\"prompt\": [1], \"stop\": [\"\"]}",
                                          "{\"prompt\": \"\\ud800\"}",
                                          "{\"prompt\": \"\xff\"}",
                                          "{\"prompt\": [[[1]]]}",
                                          "{\"prompt\": [1], \"temperature\": -1}"};
    for (const std::string& body : bodies) {
        INFO(body.substr(0, 60));
        for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                 "/detokenize", "/v1/render"}) {
            const HttpResult result = client.post(path, body);
            CHECK(result.status / 100 != 5);
            CHECK((std::string_view(path) != "/v1/completions" || result.status == 400));
            CHECK(Json::accept(result.body));
        }
    }
    client.write(completion(5, 30));
    CHECK(text_of(client.read()) == expected);
}

TEST_CASE("calls for more grammars than may wait are told to come again, and others are served",
          "[tools][serve]") {
    ServerOptions options;
    options.most_grammars = 0;
    FakeServer serving({}, {}, options);
    serving.gate.open();
    HttpClient client(serving.server->port());
    const HttpResult full = client.post(
        "/v1/completions", R"({"prompt": [1], "response_format": {"type": "json_object"}})");
    CHECK(full.status == 503);
    CHECK_THAT(full.head, Contains("Retry-After: 1\r\n"));
    CHECK_THAT(full.body, Contains("0 calls wait for their grammar; try again"));
    client.write(completion(5, 3));
    CHECK(client.read().status == 200);
}

TEST_CASE("/health and /metrics answer beside a thousand streams while no pass ends",
          "[tools][serve]") {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    constexpr int kStreams = 1000;
    FakeServer serving({.batch = kStreams, .context = 64, .chunk = 4096},
                       {{.max_queue = kStreams}});
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < kStreams; ++i) {
        clients.push_back(std::make_unique<HttpClient>(serving.server->port()));
        clients.back()->write(completion(3, 40, true, i));
    }
    serving.wait_until([](const auto& now) { return now.accepted == kStreams; });
    serving.gate.allow(8);
    serving.wait_until([](const auto& now) { return now.passes == 8; });
    HttpClient watcher(serving.server->port());
    for (int i = 0; i < 20; ++i) {
        CHECK(watcher.get("/health").status == 200);
        CHECK_THAT(watcher.get("/metrics").body, Contains("num_requests_running"));
    }
    CHECK(serving.engine->statistics().passes == 8);
    for (const auto& client : clients) CHECK_FALSE(client->read_some().empty());
}

// Bytes that are allocated once requests have ended, against those of the first few.
void check_memory(int requests) {
    FakeServer serving;
    serving.gate.open();
    std::optional<HttpClient> client(std::in_place, serving.server->port());
    size_t first = 0;
    for (int i = 1; i <= requests; ++i) {
        client->write(completion(1 + i % 40, 1 + i % 4, i % 3 == 0, i));
        if (i % 5 == 0)
            client.emplace(serving.server->port());  // it left without its answer
        else
            REQUIRE(client->read().status == 200);
        if (i % 1000 != 0) continue;
        serving.wait_until([](const auto& now) { return now.requests == 0; });
        const size_t now = mallinfo2().uordblks;
        if (first == 0 && i == requests / 2) first = now;
        if (i == requests) CHECK(now < first + (256 << 10));
    }
}

TEST_CASE("memory does not grow with requests, half of the way and at the end", "[tools][serve]") {
    check_memory(2000);
}

TEST_CASE("memory does not grow over 100,000 requests, a fifth of which were left",
          "[tools][serve][slow]") {
    check_memory(100'000);
}

TEST_CASE("stages that pipeline have a pass in flight each", "[tools][serve]") {
    FakeServer serving({.batch = 4}, {{.groups = 2}});
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 4; ++i) {
        clients.push_back(std::make_unique<HttpClient>(serving.server->port()));
        clients.back()->write(completion(5, 30, false, i));
    }
    serving.wait_until([](const auto& now) { return now.accepted == 4; });
    serving.gate.open();
    for (const auto& client : clients) CHECK(client->read().status == 200);
    CHECK(serving.runner.most_in_flight == 2);
}

}  // namespace cleave::serve
