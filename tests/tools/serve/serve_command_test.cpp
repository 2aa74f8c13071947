// SPDX-License-Identifier: Apache-2.0
// `cleave serve` as its users have it: a process that is asked over HTTP and ended by signals.
#include <signal.h>

#include <cstdlib>
#include <future>
#include <optional>

#include <fmt/format.h>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/http_client.h"
#include "tests/tools/serve/serve_process.h"
#include "tests/tools/support/terminal.h"

using namespace cleave::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

Json greedy(const std::string& prompt, int tokens) {
    return {{"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0}};
}

std::string text_of_events(const std::vector<std::string>& events) {
    std::string text;
    for (size_t i = 0; i + 1 < events.size(); ++i)
        text += Json::parse(events[i])["choices"][0]["text"].get<std::string>();
    return text;
}

std::string text_of_run(const std::string& prompt, int tokens) {
    const CommandResult run =
        run_cleave({"run", bundled_model().string(), "--devices", "host", "--context", "256",
                    "--prompt", prompt, "--max-new-tokens", std::to_string(tokens), "--json"});
    REQUIRE(run.exit_code == 0);
    return Json::parse(run.output)["text"];
}

}  // namespace

TEST_CASE("a served model says what cleave run says, whole and in a stream, on any devices",
          "[tools][serve]") {
    const std::string prompt = "Once upon a time";
    const std::string expected = text_of_run(prompt, 30);
    for (const std::string devices : {"host", "host[0-3]"}) {
        INFO(devices);
        const ServeProcess server(devices);
        const Json whole = server.post("/v1/completions", greedy(prompt, 30));
        CHECK(whole["object"] == "text_completion");
        CHECK(whole["model"] == "bundled");
        CHECK(whole["choices"][0]["text"] == expected);
        CHECK(whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"].get<int>() +
                                                    whole["usage"]["completion_tokens"].get<int>());
        Json body = greedy(prompt, 30);
        body["stream"] = true;
        HttpClient client(server.port());
        const std::vector<std::string> events =
            events_of(client.post("/v1/completions", body.dump()).body);
        REQUIRE(events.size() > 2);
        CHECK(events.back() == "[DONE]");
        CHECK(text_of_events(events) == expected);
    }
}

TEST_CASE("clients at once share a plan's replicas, and have the texts of one",
          "[tools][serve][replicas]") {
    const ServeProcess server("host[0-2]",
                              {"--batch", "6", "--objective", "throughput", "--replicas", "3"});
    std::vector<std::future<Json>> together;
    for (int i = 0; i < 12; ++i)
        together.push_back(std::async(std::launch::async, [&server, i] {
            return server.post("/v1/completions", greedy(fmt::format("Number {} was", i), 40));
        }));
    std::vector<Json> texts;
    for (std::future<Json>& one : together) texts.push_back(one.get()["choices"][0]["text"]);
    for (int i = 0; i < 12; i += 5)
        CHECK(texts[static_cast<size_t>(i)] == text_of_run(fmt::format("Number {} was", i), 40));
    CHECK(server.get("/health") == Json({{"status", "ok"}, {"replicas", 3}, {"alive", 3}}));
    CHECK(server.metric("generation_tokens_total") == 12 * 40);
    CHECK(server.metric("admission_rejections_total") == 0);
    const std::string metrics = HttpClient(server.port()).get("/metrics").body;
    for (const char* one : {R"(device="host[0]"} 0.)", R"(device="host[1]"} 0.)",
                            R"(device="host[2]"} 0.)", R"(replica="2",stage="0")"})
        CHECK_THAT(metrics, Contains(one));
}

TEST_CASE("clients at once have the texts that each has alone", "[tools][serve]") {
    const ServeProcess server("host", {"--batch", "4"});
    std::vector<Json> bodies;
    for (int i = 0; i < 12; ++i) {
        Json body = greedy(fmt::format("Once there was a number {}", i), 20 + i);
        if (i % 2) body["temperature"] = 0.9, body["seed"] = i;
        if (i % 3 == 0) body["n"] = 2;
        bodies.push_back(body);
    }
    std::vector<Json> alone;
    for (const Json& body : bodies)
        alone.push_back(server.post("/v1/completions", body)["choices"]);
    std::vector<std::future<Json>> together;
    for (const Json& body : bodies)
        together.push_back(std::async(
            std::launch::async, [&] { return server.post("/v1/completions", body)["choices"]; }));
    for (size_t i = 0; i < bodies.size(); ++i) CHECK(together[i].get() == alone[i]);
}

TEST_CASE("a chat is answered in pieces with one role, one end and its usage", "[tools][serve]") {
    const ServeProcess server;
    Json body{{"messages", {{{"role", "user"}, {"content", "Tell me of a dog."}}}},
              {"max_completion_tokens", 12},
              {"temperature", 0}};
    const Json whole = server.post("/v1/chat/completions", body);
    CHECK(whole["object"] == "chat.completion");
    CHECK(whole["choices"][0]["message"]["role"] == "assistant");
    const std::string expected = whole["choices"][0]["message"]["content"];
    CHECK_FALSE(expected.empty());
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    HttpClient client(server.port());
    const std::vector<std::string> events =
        events_of(client.post("/v1/chat/completions", body.dump()).body);
    REQUIRE(events.size() > 2);
    std::string text;
    int roles = 0, ends = 0;
    for (size_t i = 0; i + 2 < events.size(); ++i) {
        const Json choice = Json::parse(events[i])["choices"][0];
        text += choice["delta"].value("content", "");
        roles += choice["delta"].contains("role") ? 1 : 0;
        ends += choice["finish_reason"].is_null() ? 0 : 1;
    }
    CHECK(text == expected);
    CHECK(roles == 1);
    CHECK(ends == 1);
    CHECK(Json::parse(events[events.size() - 2])["usage"] == whole["usage"]);
}

TEST_CASE("a client that leaves ends its requests, streaming or not, also those that wait",
          "[tools][serve]") {
    const ServeProcess server("host", {"--batch", "2"});
    const Json neighbour = server.post("/v1/completions", greedy("One day", 100))["choices"];
    for (const bool streams : {false, true}) {
        Json body = greedy("", 240);
        body["prompt"] = std::vector<std::string>(100, "Once");
        body["ignore_eos"] = true;
        body["stream"] = streams;
        std::optional<HttpClient> client(server.port());
        client->write(post_text("/v1/completions", body.dump()));
        server.wait_until("num_requests_waiting", [](double waiting) { return waiting > 90; });
        std::future<Json> beside = std::async(std::launch::async, [&] {
            return server.post("/v1/completions", greedy("One day", 100))["choices"];
        });
        client.reset();
        server.wait_until("num_requests_waiting", [](double waiting) { return waiting == 0; });
        CHECK(beside.get() == neighbour);
        server.wait_until("num_requests_running", [](double running) { return running == 0; });
        CHECK(server.metric("kv_cache_usage_perc") == 0);
    }
}

TEST_CASE("every route but /health asks for the key", "[tools][serve]") {
    const ServeProcess server("host", {"--api-key", "secret"});
    HttpClient client(server.port());
    CHECK(client.get("/health").status == 200);
    for (const char* path : {"/metrics", "/v1/models", "/v1/plan", "/v1/completions",
                             "/invocations", "/", "/tokenize", "/v1/render"})
        for (const char* key :
             {"", "Authorization: Bearer secreu\r\n", "Authorization: Bearer secretsecret\r\n",
              "Authorization: Basic secret\r\n"}) {
            INFO(path << " " << key);
            CHECK(client.get(path, key).status == 401);
        }
    const std::string key = "Authorization: Bearer secret\r\n";
    CHECK(client.get("/v1/models", key).status == 200);
    CHECK(client.post("/v1/completions", greedy("a", 2).dump(), key).status == 200);
}

TEST_CASE("OpenAI's own package, and clients that leave or read late, have what they ask for",
          "[tools][serve]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python (tools/test sets it)");
    const std::string prompt = "Once upon a time";
    const ServeProcess server("host", {"--api-key", "secret"});
    const CommandResult client =
        run_program({"env", "PYTHONDONTWRITEBYTECODE=1", python,
                     (source_root() / "tests/tools/serve/openai_client.py").string(),
                     std::to_string(server.port()), "secret", prompt, text_of_run(prompt, 30)});
    INFO(client.error);
    CHECK(client.output.empty());
    CHECK(client.exit_code == 0);
}

TEST_CASE("whatever is sent to a route is answered as openapi.json says, and never by a 5xx",
          "[tools][serve]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python (tools/test sets it)");
    const ServeProcess server("host", {"--api-key", "secret"});
    const TemporaryFolder folder;  // where it may leave its own cache
    const std::string checks =
        "not_a_server_error,status_code_conformance,response_schema_conformance,"
        "content_type_conformance,ignored_auth";
    const CommandResult client = run_program({"env",
                                              "-C",
                                              folder.path().string(),
                                              "PYTHONDONTWRITEBYTECODE=1",
                                              python,
                                              "-m",
                                              "schemathesis.cli",
                                              "run",
                                              (source_root() / "tools/serve/openapi.json").string(),
                                              "--url",
                                              fmt::format("http://127.0.0.1:{}", server.port()),
                                              "-H",
                                              "Authorization: Bearer secret",
                                              "--phases",
                                              "coverage,fuzzing",
                                              "--max-examples",
                                              "5",
                                              "--no-color",
                                              "--generation-deterministic",
                                              "--request-timeout",
                                              "200",
                                              "--checks",
                                              checks});
    INFO(client.output << client.error);
    CHECK(client.exit_code == 0);
    CHECK(server.get("/health")["status"] == "ok");
}

TEST_CASE("a full queue is told to come again, and those in it are served", "[tools][serve]") {
    const ServeProcess server("host", {"--batch", "1", "--max-queue", "1"});
    Json body = greedy("Once", 200);
    body["ignore_eos"] = true;
    HttpClient first(server.port()), second(server.port());
    first.write(post_text("/v1/completions", body.dump()));
    server.wait_until("num_requests_running", [](double running) { return running == 1; });
    // Their prompts are accepted together or not at all.
    Json many = body;
    many["prompt"] = std::vector<std::string>(20, "Once");
    const HttpResult refused = second.post("/v1/completions", many.dump());
    CHECK(refused.status == 503);
    CHECK_THAT(refused.head, Contains("Retry-After: "));
    CHECK(first.read().status == 200);
    CHECK(second.post("/v1/completions", body.dump()).status == 200);
}

TEST_CASE("SIGTERM lets requests end, a second one does not wait", "[tools][serve]") {
    for (const bool twice : {false, true}) {
        ServeProcess server;
        Json body = greedy("Once", 200);
        body["ignore_eos"] = true;
        body["stream"] = true;
        // Which take long.
        if (twice) body["prompt"] = std::vector<std::string>(200, "Once");
        HttpClient client(server.port());
        client.write(post_text("/v1/completions", body.dump()));
        REQUIRE_FALSE(client.read_some().empty());
        server.send(SIGTERM);
        while (true) {  // until it listens no more
            try {
                HttpClient(server.port()).get("/health");
            } catch (const std::exception&) {
                break;
            }
        }
        if (twice) server.send(SIGTERM);
        std::string rest;
        for (std::string piece; !(piece = client.read_some()).empty();) rest += piece;
        CHECK_THAT(rest, Contains(twice ? "the server is ending" : "[DONE]"));
        CHECK(server.wait() == 0);
    }
}

TEST_CASE("on a terminal a server shows one line of what it does, drawn anew, until Ctrl-C",
          "[tools][serve]") {
    Terminal terminal({"serve", bundled_model().string(), "--port", "0", "--devices", "host",
                       "--threads", "1", "--context", "256"});
    const std::string idle = terminal.read_until("KV   0 %");
    CHECK_THAT(idle, Contains("listening on http://127.0.0.1:"));
    CHECK_THAT(idle, Contains("   0 running,    0 waiting,        0 tokens/s, KV   0 %"));
    // The next one takes its place.
    const std::string next = terminal.read_until("KV   0 %");
    CHECK_THAT(next, Contains("\r") && !Contains("\n"));
    terminal.type("\x03");
    CHECK_THAT(terminal.read_until("requests are left"), Contains("ending: 0"));
    CHECK(terminal.wait() == 0);
}

TEST_CASE("the lines of README.md that ask a server work as they are", "[tools][serve]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python (tools/test sets it)");
    const std::string readme = read_file(source_root() / "README.md");
    const ServeProcess server;
    const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
        const size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        return text.replace(at, from.size(), to);
    };
    const size_t curl = readme.find("curl http://127.0.0.1:8080/v1/completions");
    const size_t package = readme.find("python3 -c 'import openai;");
    REQUIRE(curl != std::string::npos);
    REQUIRE(package != std::string::npos);
    const std::string port = std::to_string(server.port());
    const std::vector<std::string> lines{
        readme.substr(curl, readme.find('\n', curl) - curl),
        replaced(readme.substr(package, readme.find(")'\n", package) + 2 - package), "python3",
                 python)};
    for (const std::string& line : lines) {
        INFO(line);
        const CommandResult asked = run_program({"sh", "-c", replaced(line, "8080", port)});
        INFO(asked.error);
        CHECK(asked.exit_code == 0);
        CHECK_FALSE(asked.output.empty());
        if (line.starts_with("curl")) CHECK(Json::parse(asked.output)["choices"].size() == 1);
    }
}

TEST_CASE("what cannot be served is refused before anything listens", "[tools][serve]") {
    const CommandResult shape = run_cleave({"serve", "llama-3-8b", "--devices", "host"});
    CHECK(shape.exit_code == 1);
    CHECK_THAT(shape.error, Contains("no weights to serve"));
    const CommandResult host = run_cleave(
        {"serve", bundled_model().string(), "--devices", "host", "--host", "nowhere.example"});
    CHECK(host.exit_code == 1);
    CHECK_THAT(host.error, Contains("nowhere.example is no address"));
    // Before a model is loaded.
    const ServeProcess taken;
    const CommandResult port =
        run_cleave({"serve", "absent.onnx", "--port", std::to_string(taken.port())});
    CHECK(port.exit_code == 1);
    CHECK_THAT(port.error, Contains("in use; give another --port, or 0 for a free one"));
}
