// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/api_calls.h"

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tools/serve/grammar.h"

namespace cleave::serve {

using namespace cleave::test;
using Catch::Matchers::Contains;

namespace {

struct Bundled {
    Bundled() : tokenizer(runtime::load_tokenizer(bundled_model().parent_path())) {
        model.name = "bundled";
        model.tokenizer = tokenizer.get();
        model.chat = runtime::load_chat_template(bundled_model());
        model.stop_ids = {2};
        model.vocab = tokenizer->vocab_size();
        model.context = 64;
        model.grammars = std::make_shared<Grammars>(*tokenizer, model.vocab, model.stop_ids);
    }
    std::unique_ptr<runtime::Tokenizer> tokenizer;
    ServedModel model;
};

template <class Call>
ApiError error_of(Call&& call) {
    try {
        call();
    } catch (const ApiError& error) {
        return error;
    }
    return {};
}

}  // namespace

TEST_CASE("a completion has OpenAI's defaults", "[tools][serve]") {
    const Bundled bundled;
    const ApiCall call = parse_completion(R"({"prompt": "Once upon"})", bundled.model, 7);
    REQUIRE(call.requests.size() == 1);
    const runtime::EngineRequest& request = call.requests[0];
    CHECK(request.prompt == bundled.tokenizer->encode("Once upon"));
    CHECK(request.max_new_tokens == 16);
    CHECK(request.sampling.temperature == 1);
    CHECK(request.sampling.top_p == 1);
    CHECK(request.copies == 1);
    CHECK(request.stop_ids == bundled.model.stop_ids);
    CHECK(request.salt == 7);
    CHECK_FALSE(request.logprobs);
    CHECK_FALSE(call.stream);
    // Nobody gave a seed: another text each time.
    const ApiCall again = parse_completion(R"({"prompt": "Once upon"})", bundled.model, 7);
    CHECK(again.requests[0].sampling.seed != request.sampling.seed);
}

TEST_CASE("each field of a completion reaches its request", "[tools][serve]") {
    const Bundled bundled;
    const ApiCall call = parse_completion(
        R"({"model": "bundled", "prompt": ["a", [1, 5, 6]], "max_tokens": 3, "n": 2, "stream": true,
            "stream_options": {"include_usage": true}, "temperature": 0.5, "top_p": 0.9, "top_k": 7,
            "min_p": 0.1, "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2,
            "seed": 11, "stop": ["x", "yz"], "logit_bias": {"5": -100}, "logprobs": 2, "echo": true,
            "ignore_eos": true, "user": "somebody"})",
        bundled.model, 0);
    CHECK(call.stream);
    CHECK(call.include_usage);
    CHECK(call.echo);
    CHECK(call.copies == 2);
    REQUIRE(call.requests.size() == 2);
    CHECK(call.requests[0].prompt == bundled.tokenizer->encode("a"));
    CHECK(call.requests[1].prompt == std::vector<int32_t>{1, 5, 6});
    for (const runtime::EngineRequest& r : call.requests) {
        CHECK(r.max_new_tokens == 3);
        CHECK(r.copies == 2);
        CHECK(r.sampling.temperature == 0.5f);
        CHECK(r.sampling.top_p == 0.9f);
        CHECK(r.sampling.top_k == 7);
        CHECK(r.sampling.min_p == 0.1f);
        CHECK(r.sampling.repetition_penalty == 1.5f);
        CHECK(r.sampling.presence_penalty == -1);
        CHECK(r.sampling.frequency_penalty == 2);
        CHECK(r.sampling.seed == 11);
        REQUIRE(r.sampling.logit_bias.size() == 1);
        CHECK(r.sampling.logit_bias[0].id == 5);
        CHECK(r.stop_texts == std::vector<std::string>{"x", "yz"});
        CHECK(r.logprobs == 2);
        CHECK(r.prompt_logprobs == 2);
        CHECK(r.stop_ids.empty());
    }
}

TEST_CASE("a chat is its template's text, and may use what the context leaves", "[tools][serve]") {
    const Bundled bundled;
    REQUIRE(bundled.model.chat);
    const std::string messages =
        R"("messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}])";
    const ApiCall call =
        parse_chat("{" + messages + R"(, "logprobs": true, "top_logprobs": 3})", bundled.model, 0);
    const RenderedChat rendered = render_chat(
        Json::parse(R"({"messages": [{"role": "user", "content": "Hello"}]})"), bundled.model);
    REQUIRE(call.requests.size() == 1);
    CHECK(call.requests[0].prompt == rendered.ids);
    CHECK(rendered.ids == bundled.tokenizer->encode(rendered.text, false));
    CHECK(call.requests[0].max_new_tokens == 64 - static_cast<int64_t>(rendered.ids.size()));
    CHECK(call.requests[0].logprobs == 3);
    CHECK(parse_chat("{" + messages + R"(, "max_completion_tokens": 5, "max_tokens": 9})",
                     bundled.model, 0)
              .requests[0]
              .max_new_tokens == 5);
}

TEST_CASE("a call that is wrong, or asks for what is not done, names its field", "[tools][serve]") {
    const Bundled bundled;
    const auto completion = [&](const std::string& fields) {
        return error_of(
            [&] { parse_completion(R"({"prompt": "a")" + fields + "}", bundled.model, 0); });
    };
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"temperature", "-1"},
        {"temperature", "\"hot\""},
        {"top_p", "2"},
        {"n", "0"},
        {"n", "1.5"},
        {"max_tokens", "-1"},
        {"max_tokens", "0"},
        {"stream", "1"},
        {"stop", "[\"\"]"},
        {"stop", "5"},
        {"seed", "0.5"},
        {"logprobs", "21"},
        {"logit_bias", "[1]"},
        {"logit_bias", "{\"a\": 1}"},
        {"stream_options", "true"},
        {"response_format", "{\"type\": \"xml\"}"},
        {"tools", "[{}]"},
        {"suffix", "\"b\""},
        {"best_of", "3"},
        {"guided_json", "{\"type\": \"object\"}"},
        {"presence_penalty", "2.5"},
        {"stop_token_ids", "[\"a\"]"},
        {"stop_token_ids", "5"},
        {"add_special_tokens", "1"},
        {"min_tokens", "3"},
        {"use_beam_search", "true"},
        {"skip_special_tokens", "false"},
        {"modalities", "[\"text\", \"audio\"]"},
        {"min_p", "-0.1"},
    };
    for (const auto& [name, value] : wrong) {
        const ApiError error = completion(", \"" + name + "\": " + value);
        INFO(name << ": " << value);
        CHECK(error.status == 400);
        CHECK(error.param == name);
        CHECK_THAT(error.message, Contains(name));
    }
    const ApiError other = completion(R"(, "model": "gpt-4o")");
    CHECK(other.status == 404);
    CHECK(other.code == "model_not_found");
    CHECK_THAT(other.message, Contains("gpt-4o") && Contains("bundled"));
    for (const std::string body :
         {"", "[]", "{", "{}", R"({"prompt": []})", R"({"prompt": {}})", R"({"prompt": [1, -1]})",
          R"({"prompt": [1, "a"]})", R"({"prompt": [["a"]]})", R"({"prompt": "\ud800"})"}) {
        INFO(body);
        CHECK(error_of([&] { parse_completion(body, bundled.model, 0); }).status == 400);
        CHECK_FALSE(error_of([&] { parse_completion(body, bundled.model, 0); }).message.empty());
    }
    std::string long_prompt = "1";
    for (int i = 0; i < 64; ++i) long_prompt += ",1";
    const ApiError too_long = error_of(
        [&] { parse_completion("{\"prompt\": [" + long_prompt + "]}", bundled.model, 0); });
    CHECK(too_long.code == "context_length_exceeded");
    CHECK(too_long.param == "prompt");
    CHECK_THAT(too_long.message, Contains("65 tokens leave no room in the context of 64"));
    const ApiError too_many = error_of(
        [&] { parse_completion(R"({"prompt": [1, 1, 1], "max_tokens": 62})", bundled.model, 0); });
    CHECK(too_many.code == "context_length_exceeded");
    CHECK(too_many.param == "max_tokens");
    CHECK_THAT(too_many.message, Contains("3 tokens and 62 new ones are 65; the context has 64"));
}

TEST_CASE("a field that is mistyped, or has another server's name, is refused with ours",
          "[tools][serve]") {
    const Bundled bundled;
    const std::vector<std::pair<std::string, std::string>> rows{
        {"max_token", "max_tokens"},
        {"max_tokenss", "max_tokens"},
        {"temprature", "temperature"},
        {"tempearture", "temperature"},
        {"Temperature", "temperature"},
        {"stops", "stop"},
        {"max_new_tokens", "max_tokens"},
        {"n_predict", "max_tokens"},
        {"repeat_penalty", "repetition_penalty"}};
    for (const auto& [name, ours] : rows) {
        const ApiError error = error_of([&] {
            parse_completion(R"({"prompt": "a", ")" + name + R"(": 1})", bundled.model, 0);
        });
        CHECK(error.status == 400);
        CHECK(error.param == name);
        CHECK_THAT(error.message, Contains(name) && Contains(ours));
        // Null is as good as absent.
        CHECK_NOTHROW(
            parse_completion(R"({"prompt": "a", ")" + name + R"(": null})", bundled.model, 0));
    }
}

TEST_CASE("the order of a body's names is kept: a schema's properties have it", "[tools][serve]") {
    CHECK(parse_body(R"({"z": {"y": 1, "x": 2}, "a": 3})").dump() ==
          R"({"z":{"y":1,"x":2},"a":3})");
}

TEST_CASE("fields of other servers that change nothing are taken", "[tools][serve]") {
    const Bundled bundled;
    const ApiCall call = parse_completion(
        R"({"prompt": "a", "min_tokens": 0, "use_beam_search": false, "skip_special_tokens": true,
            "length_penalty": 1.0, "modalities": ["text"], "guided_json": null, "functions": [],
            "best_of": 1, "user": "x", "store": true})",
        bundled.model, 0);
    CHECK(call.requests.size() == 1);
}

TEST_CASE("a completion's own stop ids end it beside the model's, and special tokens are a choice",
          "[tools][serve]") {
    const Bundled bundled;
    const runtime::EngineRequest request =
        parse_completion(R"({"prompt": "a", "stop_token_ids": [7], "add_special_tokens": false})",
                         bundled.model, 0)
            .requests.at(0);
    CHECK(request.stop_ids == std::vector<int32_t>{7, 2});
    CHECK(request.prompt == bundled.tokenizer->encode("a", false));
    CHECK(request.prompt != bundled.tokenizer->encode("a", true));
    for (const std::string field : {"echo", "add_special_tokens"}) {
        const ApiError error = error_of([&] {
            parse_chat(
                R"({"messages": [{"role": "user", "content": "Hi"}], ")" + field + R"(": true})",
                bundled.model, 0);
        });
        CHECK(error.param == field);
    }
}

TEST_CASE("copies that do not run at once follow in requests of their own", "[tools][serve]") {
    const Bundled bundled;
    // A context of 64 tokens has four blocks.
    for (const auto& [blocks, most] : {std::pair{33, 3}, std::pair{9, 2}, std::pair{5, 1}}) {
        ApiCall call = parse_completion(R"({"prompt": ["a", "b"], "n": 7, "max_tokens": 62})",
                                        bundled.model, 0);
        split_copies(call, {.slots = 3, .context = 64, .num_blocks = blocks});
        int64_t next = 0;
        size_t prompts = 0;
        for (const runtime::EngineRequest& part : call.requests) {
            if (part.first_copy == 0) ++prompts, next = 0;
            CHECK(part.first_copy == next);
            CHECK(part.copies == std::min<int64_t>(most, 7 - next));
            next += part.copies;
            CHECK(part.prompt == bundled.tokenizer->encode(prompts == 1 ? "a" : "b"));
        }
        CHECK(prompts == 2);
        CHECK(next == 7);
    }
}

TEST_CASE("likeliest tokens of a chat go with log-probabilities alone", "[tools][serve]") {
    const Bundled bundled;
    const ApiError error = error_of([&] {
        parse_chat(R"({"messages": [{"role": "user", "content": "Hi"}], "top_logprobs": 2})",
                   bundled.model, 0);
    });
    CHECK(error.param == "top_logprobs");
}

TEST_CASE("a chat that is no list of texts is refused", "[tools][serve]") {
    const Bundled bundled;
    for (const std::string messages :
         {"", R"("messages": [])", R"("messages": ["a"])", R"("messages": [{"content": "a"}])",
          R"("messages": [{"role": "user", "content": 5}])",
          R"("messages": [{"role": "user", "content": [{"type": "image_url"}]}])"}) {
        INFO(messages);
        const ApiError error =
            error_of([&] { parse_chat("{" + messages + "}", bundled.model, 0); });
        CHECK(error.status == 400);
        CHECK(error.param == "messages");
    }
    ServedModel without = bundled.model;
    without.chat.reset();
    without.no_chat = "the model has none";
    CHECK_THAT(error_of([&] {
                   parse_chat(R"({"messages": [{"role": "user", "content": "a"}]})", without, 0);
               }).message,
               Contains("no chat template: the model has none"));
}

}  // namespace cleave::serve
