// SPDX-License-Identifier: Apache-2.0
// What the routes of `cleave serve` answer, of a process as its users have it.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/http_client.h"
#include "tests/tools/serve/serve_process.h"

using namespace cleave::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

Json greedy_body(const std::string& prompt, int tokens) {
    return {{"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0}};
}

}  // namespace

TEST_CASE("more texts of a prompt than run at once are those of a server with room for all",
          "[tools][serve]") {
    Json body = greedy_body("Once upon a time", 8);
    body["temperature"] = 1;
    body["seed"] = 3;
    body["n"] = 7;
    body["echo"] = true;
    body["logprobs"] = 1;
    const Json all = ServeProcess().post("/v1/completions", body);
    REQUIRE(all["choices"].size() == 7);
    const ServeProcess small("host", {"--batch", "2"});
    const Json parts = small.post("/v1/completions", body);
    REQUIRE(parts["choices"].size() == 7);
    for (size_t i = 0; i < 7; ++i) {
        const Json &one = all["choices"][i], &other = parts["choices"][i];
        CHECK(other["index"] == i);
        CHECK(other["text"] == one["text"]);
        CHECK(other["finish_reason"] == one["finish_reason"]);
        CHECK(other["logprobs"]["tokens"] == one["logprobs"]["tokens"]);
    }
    CHECK(parts["usage"]["prompt_tokens"] == all["usage"]["prompt_tokens"]);
    CHECK(parts["usage"]["completion_tokens"] == all["usage"]["completion_tokens"]);
    body["stream"] = true;
    HttpClient client(small.port());
    const std::vector<std::string> events =
        events_of(client.post("/v1/completions", body.dump()).body);
    std::vector<std::string> texts(7);
    for (size_t i = 0; i + 1 < events.size(); ++i) {
        const Json choice = Json::parse(events[i])["choices"][0];
        texts.at(choice["index"]) += choice["text"].get<std::string>();
    }
    for (size_t i = 0; i < 7; ++i) CHECK(all["choices"][i]["text"] == texts[i]);
}

TEST_CASE("an echo has the prompt's log-probabilities, which are those of the tokens when new",
          "[tools][serve]") {
    const ServeProcess server;
    Json body = greedy_body("Once upon a time", 8);
    body["logprobs"] = 2;
    body["ignore_eos"] = true;
    const Json made = server.post("/v1/completions", body)["choices"][0];
    Json ids = server.post("/tokenize", {{"prompt", "Once upon a time"}})["tokens"];
    const size_t prompt = ids.size();
    for (const Json& token : made["logprobs"]["top_logprobs"]) CHECK(token.size() >= 2);
    // The new tokens' ids: greedy ones, found by asking for one more each time.
    const Json run = Json::parse(run_cleave({"run", bundled_model().string(), "--devices", "host",
                                             "--context", "256", "--prompt", "Once upon a time",
                                             "--max-new-tokens", "8", "--ignore-eos", "--json"})
                                     .output);
    for (const Json& id : run["token_ids"]) ids.push_back(id);
    const Json scored = server.post(
        "/v1/completions",
        {{"prompt", ids}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}})["choices"][0];
    const Json all = scored["logprobs"]["token_logprobs"];
    REQUIRE(all.size() == ids.size());
    CHECK(all[0].is_null());
    for (size_t i = 0; i < 8; ++i)
        CHECK(all[prompt + i].get<double>() ==
              Approx(made["logprobs"]["token_logprobs"][i].get<double>()).margin(1e-3));
    CHECK_THAT(scored["text"].get<std::string>(),
               Contains("Once upon a time" + made["text"].get<std::string>()));
}

TEST_CASE("what a server knows of itself is at its routes", "[tools][serve]") {
    const ServeProcess server;
    CHECK(server.get("/health")["status"] == "ok");
    CHECK(server.get("/v1/models")["data"][0]["id"] == "bundled");
    CHECK(server.get("/v1/plan").contains("devices"));
    CHECK(server.metric("decode_pass_seconds_predicted") > 0);
    HttpClient client(server.port());
    CHECK_THAT(client.get("/v1/plan", "Accept: text/html\r\n").body, Contains("<html"));
    CHECK(server.get("/tokenizer_info")["bos_token"] == "<s>");
    CHECK(server.get("/tokenizer_info")["eos_token"] == "</s>");
    const Json ids = server.post("/tokenize", {{"prompt", "A dog and a cat"}});
    CHECK(ids["count"] == ids["tokens"].size());
    CHECK(server.post("/detokenize", {{"tokens", ids["tokens"]}})["prompt"] == "A dog and a cat");
    const Json chat =
        server.post("/v1/render", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}});
    CHECK_THAT(chat["prompt"].get<std::string>(), Contains("Hi"));
    // The begin-of-sequence token is there once, whoever writes it.
    const int bos = ids["tokens"][0];
    CHECK(std::ranges::count(chat["token_ids"], Json(bos)) == 1);
    CHECK(server.get("/v1/models/bundled")["max_model_len"] == 256);
    CHECK(server.get("/v1/models/other")["error"]["code"] == "model_not_found");
    CHECK(client.get("/nowhere").status == 404);
    CHECK_THAT(client.get("/nowhere").body, Contains("there are /health, /metrics, /v1/models"));
    for (const char* path : {"/chat/completions", "/v1/v1/chat/completions"})
        CHECK_THAT(
            client.post(path, "{}").body,
            Contains("did you mean /v1/chat/completions? A client's base URL ends with /v1"));
    CHECK(client.get("/v1/models/").status == 200);
    client.write("OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
    const HttpResult options = client.read();
    CHECK(options.status == 405);
    CHECK_THAT(options.head, Contains("Allow: GET, HEAD"));
    const HttpResult wrong = client.get("/v1/completions");
    CHECK(wrong.status == 405);
    CHECK_THAT(wrong.head, Contains("Allow: POST"));
    CHECK(client.post("/v1/completions", "{").status == 400);
    for (const char* wrong_type : {"1", "\"yes\"", "[]"})
        CHECK(client
                  .post("/tokenize",
                        fmt::format(R"({{"prompt": "a", "add_special_tokens": {}}})", wrong_type))
                  .status == 400);
    const HttpResult copies = client.post("/v1/completions", R"({"prompt": "a", "n": 129})");
    CHECK(copies.status == 400);
    CHECK_THAT(copies.body, Contains("n: expected a whole number from 1 to 128"));
    const HttpResult far = client.post("/v1/completions", greedy_body("a", 1000).dump());
    CHECK(far.status == 400);
    CHECK_THAT(far.body, Contains("256"));
    CHECK(client.get("/health").status == 200);
}

TEST_CASE("how busy each stage was is measured, and shares of the time are at most 1",
          "[tools][serve]") {
    const ServeProcess server("host[0-1]", {"--pp", "2"});
    const auto shares = [&] {
        const std::string text = HttpClient(server.port()).get("/metrics").body;
        std::vector<double> found;
        const std::string name = "\ncleave:stage_busy_ratio{";
        for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += name.size())
            found.push_back(std::stod(text.substr(text.find("} ", at) + 2)));
        return found;
    };
    CHECK(shares().empty());  // no pass has run
    server.post("/v1/completions", greedy_body("Once upon a time", 30));
    const std::vector<double> busy = shares();
    REQUIRE(busy.size() == 2);
    for (const double share : busy) {
        CHECK(share > 0);
        CHECK(share <= 1);
    }
    CHECK(busy[0] + busy[1] <= 1.01);  // one sequence is in one stage at a time
}
