// SPDX-License-Identifier: Apache-2.0
// Answers that keep a schema. Tokens are drawn from what a rule allows, as a model of random
// weights would: what the rule promises may not rest on a model that means well.
#include "tools/serve/grammar.h"

#include <cstdlib>
#include <fstream>
#include <random>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tools/serve/schema.h"
#include "tools/serve/tool_call.h"

namespace cleave::serve {

using namespace cleave::test;
using Catch::Matchers::Contains;

namespace {

constexpr int32_t kEnd = 2;  // "</s>"

struct Vocabulary {
    Vocabulary()
        : tokenizer(runtime::load_tokenizer(bundled_model().parent_path())),
          grammars(*tokenizer, tokenizer->vocab_size(), {kEnd}) {}

    std::string text_of(int32_t id) const {
        std::string text;
        runtime::DecodeState state{false, 0};
        tokenizer->append_token(id, true, state, text);
        return text;
    }

    std::unique_ptr<runtime::Tokenizer> tokenizer;
    Grammars grammars;
};

std::vector<int32_t> allowed_by(runtime::TokenRule& rule, int64_t vocab) {
    const std::span<const uint32_t> words = rule.allowed();
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocab; ++id)
        if (words.empty() || (words[static_cast<size_t>(id / 32)] >> (id % 32) & 1))
            ids.push_back(id);
    return ids;
}

// Tokens drawn until the rule calls the text whole; nothing after 2000. Every other one closes
// something where it may, for what is drawn has no reason to end.
std::optional<std::string> draw(const Vocabulary& vocabulary, runtime::TokenRule& rule,
                                std::mt19937& random) {
    std::string text;
    for (int i = 0; i < 2000; ++i) {
        const std::vector<int32_t> ids = allowed_by(rule, vocabulary.tokenizer->vocab_size());
        REQUIRE_FALSE(ids.empty());
        int32_t id = ids[random() % ids.size()];
        if (random() % 2)
            for (const int32_t one : ids)
                if (one == kEnd ||
                    std::string("\"]}").find(vocabulary.text_of(one)) != std::string::npos)
                    id = one;
        const bool is_whole = rule.take(id);
        CHECK(is_whole == (id == kEnd));
        if (is_whole) return text;
        text += vocabulary.text_of(id);
    }
    return std::nullopt;
}

const std::vector<std::string> kSchemas{
    R"({"type": "object"})",
    R"({"type": "array"})",
    R"({"type": "string"})",
    R"({"type": "number"})",
    "true",
    R"({"type": "object", "properties": {}})",
    R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["b"]})",
    R"({"properties": {"a": {"type": "boolean"}, "ä/b~c": {"type": "null"}}, "required": ["ä/b~c"],
        "additionalProperties": true})",
    R"({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
        "additionalProperties": {"type": "integer"}})",
    R"({"type": "object", "additionalProperties": {"type": "integer"}})",
    R"({"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 1000}, "minItems": 2,
        "maxItems": 4})",
    R"({"type": "array", "minItems": 2})",
    R"({"type": "array", "maxItems": 1})",
    R"({"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": false})",
    R"({"type": "array", "prefixItems": [{"const": "x"}], "items": {"type": "boolean"}, "minItems": 3})",
    R"({"type": "string", "minLength": 3, "maxLength": 6})",
    R"({"type": "string", "minLength": 5})",
    R"({"type": ["string", "null"], "maxLength": 2})",
    R"({"type": "string", "pattern": "^[a-c]{2,4}-\\d+$"})",
    R"({"type": "string", "pattern": "^(cat|dog)s?$"})",
    R"({"type": "string", "pattern": "^[ab]{100,128}$"})",
    R"({"type": "string", "minLength": 3, "maxLength": 200})",
    R"({"type": "string", "pattern": "^.[^x][^a-c\\.]?$"})",
    R"({"type": "string", "format": "date-time"})",
    R"({"type": "string", "format": "uuid"})",
    R"({"type": "string", "format": "email"})",
    R"({"type": "integer", "exclusiveMinimum": 7, "maximum": 9})",
    R"({"type": "integer", "minimum": 1234567})",
    R"({"type": "integer", "maximum": -3})",
    R"({"type": "number", "minimum": 0.5, "maximum": 2})",
    R"({"type": "number", "exclusiveMinimum": -1.25, "exclusiveMaximum": 3})",
    R"({"type": "number", "minimum": 100})",
    R"({"enum": ["a", 1, null, {"k": [1.5, "\n"]}, "quote \" and ü"]})",
    R"({"type": "string", "enum": ["red", "green"]})",
    R"({"const": {"a": [true, false]}})",
    R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]})",
    R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
                   "required": ["kind", "x"]},
                  {"$ref": "#/$defs/b"}],
        "$defs": {"b": {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}}})",
    R"({"oneOf": [{"type": "integer"}, {"type": ["string", "null"]}]})",
    R"({"allOf": [{"type": "boolean"}]})",
    R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
        "properties": {"value": {"type": "integer"},
                       "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["value", "next"]}}})",
    R"({"type": "object", "title": "T", "description": "d", "properties": {
        "list": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}}})",
};

}  // namespace

TEST_CASE("whatever a rule allows is valid for its schema, by another implementation",
          "[tools][serve]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python (tools/test sets it)");
    const Vocabulary vocabulary;
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "answers").string();
    std::mt19937 random(1);
    {
        std::ofstream file(path);
        for (const std::string& text : kSchemas) {
            INFO(text);
            const Json schema = Json::parse(text);
            const runtime::TokenRuleMaker make = vocabulary.grammars.json(schema, "schema");
            int whole = 0;
            for (int i = 0; i < 25; ++i) {
                const auto answer = draw(vocabulary, *make(), random);
                if (!answer) continue;
                ++whole;
                file << Json{{"schema", schema}, {"text", *answer}}.dump(
                            -1, ' ', true, Json::error_handler_t::replace)
                     << "\n";
            }
            CHECK(whole > 12);
        }
    }
    const CommandResult validated = run_program(
        {python, (source_root() / "tests/tools/serve/validate_answers.py").string(), path});
    INFO(validated.output << validated.error);
    CHECK(validated.exit_code == 0);
}

TEST_CASE("a schema that cannot be kept is refused with the path in it", "[tools][serve]") {
    const Vocabulary vocabulary;
    const std::vector<std::pair<std::string, std::string>> rows{
        {R"(false)", ""},
        {R"([])", ""},
        {R"({"type": "strin"})", "/type"},
        {R"({"type": []})", "/type"},
        {R"({"minimum": 3})", "/minimum"},
        {R"({"type": "string", "minLenght": 3})", "/minLenght"},
        {R"({"type": "string", "minLength": 4, "maxLength": 3})", "/maxLength"},
        {R"({"type": "string", "minLength": -1})", "/minLength"},
        {R"({"type": "string", "pattern": "a", "maxLength": 3})", "/maxLength"},
        {R"({"type": "string", "pattern": "(?=a)b"})", ""},
        {R"({"type": "string", "pattern": "a^b"})", ""},
        {R"({"type": "string", "pattern": "\\bword"})", "/pattern"},
        {R"({"type": "string", "pattern": "\\W"})", "/pattern"},
        {R"({"type": "string", "pattern": "[^a\\w]"})", "/pattern"},
        {R"({"type": "string", "pattern": "say \"x\""})", "/pattern"},
        {R"({"type": "string", "pattern": "(a"})", ""},
        {R"({"type": "string", "pattern": "((a{99}){99}){99}"})", "/pattern"},
        {R"({"type": "string", "pattern": "a{129}"})", "/pattern"},
        {R"({"type": "string", "pattern": "[a-z]{0,300}"})", "/pattern"},
        {R"({"type": "string", "format": "shape"})", "/format"},
        {R"({"type": "integer", "multipleOf": 3})", "/multipleOf"},
        {R"({"type": "integer", "minimum": 3, "maximum": 2})", ""},
        {R"({"type": "integer", "minimum": 0.5})", "/minimum"},
        {R"({"type": "integer", "exclusiveMinimum": true})", "/exclusiveMinimum"},
        {R"({"type": "array", "uniqueItems": true})", "/uniqueItems"},
        {R"({"type": "array", "contains": {}})", "/contains"},
        {R"({"type": "array", "items": [{"type": "string"}]})", "/items"},
        {R"({"type": "array", "items": false, "minItems": 1})", "/minItems"},
        {R"({"type": "object", "required": ["a"]})", "/required"},
        {R"({"type": "object", "patternProperties": {}})", "/patternProperties"},
        {R"({"type": "object", "minProperties": 1})", "/minProperties"},
        {R"({"type": "object", "properties": {"a": {"not": {}}}})", "/properties/a/not"},
        {R"({"type": "object", "properties": {"a/b": {"items": {"if": {}}}}})",
         "/properties/a~1b/items/if"},
        {R"({"type": "object", "properties": {"a\"": true}})", "/properties/a\""},
        {R"({"enum": []})", "/enum"},
        {R"({"type": "string", "enum": ["a", 1]})", "/enum"},
        {R"({"const": 1, "minimum": 0})", "/minimum"},
        {R"({"const": 9007199254740993})", "/const"},
        {R"({"anyOf": [{"type": "string"}], "type": "string"})", "/type"},
        {R"({"anyOf": [{"type": "string"}, {"type": "string", "format": "x"}]})",
         "/anyOf/1/format"},
        {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "/oneOf/1"},
        {R"({"allOf": [{"type": "string"}, {"maxLength": 3}]})", "/allOf"},
        {R"({"$ref": "#/$defs/a"})", "/$ref"},
        {R"({"$ref": "http://example.com/a"})", "/$ref"},
        {R"({"$ref": "#"})", "/$ref"},
        {R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})", "/anyOf/1/$ref"},
        {R"({"$defs": {"a": {"type": "array", "items": {"not": {}}}}, "$ref": "#/$defs/a"})",
         "/$defs/a/items/not"},
    };
    for (const auto& [text, path] : rows) {
        INFO(text);
        try {
            vocabulary.grammars.json(Json::parse(text), "schema");
            CHECK(false);
        } catch (const ApiError& error) {
            CHECK(error.status == 400);
            CHECK(error.param == "schema" + path);
            CHECK_THAT(error.message, Contains("schema" + path + ": "));
        }
    }
    // Of any depth, and of any size.
    std::string deep;
    for (int i = 0; i < 100; ++i) deep += R"({"type": "array", "items": )";
    deep += "true" + std::string(100, '}');
    CHECK_THROWS_AS(kept_schema(Json::parse(deep), "schema"), ApiError);
    CHECK_THROWS_AS(kept_schema({{"const", std::string(70000, 'a')}}, "schema"), ApiError);
}

TEST_CASE("a call of a tool has a tool's name and arguments that are valid for it",
          "[tools][serve]") {
    const Vocabulary vocabulary;
    const Json city{{"type", "object"},
                    {"properties", {{"city", {{"enum", {"Paris", "Oslo"}}}}}},
                    {"required", {"city"}}};
    const std::vector<Tool> tools{
        {"weather", city, "tools[0]"},
        {"now", {{"type", "object"}, {"properties", Json::object()}}, "tools[1]"}};
    std::mt19937 random(2);
    std::map<std::string, int> calls;
    for (const bool optional : {false, true}) {
        const runtime::TokenRuleMaker make = vocabulary.grammars.tool_call(tools, optional);
        for (int i = 0; i < 20; ++i) {
            const std::unique_ptr<runtime::TokenRule> rule = make();
            const int32_t brace = *vocabulary.tokenizer->token_id("{");
            if (optional) rule->take(brace);
            const auto rest = draw(vocabulary, *rule, random);
            REQUIRE(rest);
            const Json call = Json::parse((optional ? "{" : "") + *rest);
            CHECK(call.size() == 2);
            ++calls[call["name"]];
            const Json& arguments = call["parameters"];
            if (call["name"] == "now") CHECK(arguments == Json::object());
            if (call["name"] == "weather")
                CHECK(
                    (arguments == Json{{"city", "Paris"}} || arguments == Json{{"city", "Oslo"}}));
        }
    }
    CHECK(calls.size() == 2);
    // One that does not begin with a brace is free.
    const std::unique_ptr<runtime::TokenRule> free = vocabulary.grammars.tool_call(tools, true)();
    const int32_t letter = *vocabulary.tokenizer->token_id("a");
    CHECK(std::ranges::count(allowed_by(*free, vocabulary.tokenizer->vocab_size()), letter) == 1);
    CHECK_FALSE(free->take(letter));
    CHECK(free->allowed().empty());
}

TEST_CASE("pieces of a call's arguments put together are its object, wherever it is cut",
          "[tools][serve]") {
    const std::string arguments = R"({"a": "}\", \"parameters\": {", "b": {}})";
    const std::string text = tool_call_head("f") + arguments + std::string(kToolCallTail);
    for (size_t size = 1; size <= text.size(); ++size) {
        ToolCallReader reader;
        std::string name, all;
        for (size_t at = 0; at < text.size(); at += size) {
            CHECK_FALSE(reader.is_whole());
            const ToolCallReader::Piece piece = reader.push(text.substr(at, size));
            name += piece.name;
            all += piece.arguments;
        }
        CHECK(name == "f");
        CHECK(all == arguments);
        CHECK(reader.is_whole());
    }
}

}  // namespace cleave::serve
