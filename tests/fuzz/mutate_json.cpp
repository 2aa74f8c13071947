// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/mutate_json.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/harness.h"

namespace cleave::fuzz {
namespace {

using Json = nlohmann::ordered_json;
using Random = std::mt19937_64;

constexpr size_t kMostNodes = 5000;
constexpr size_t kMostText = 400;

// Names of JSON Schema, and of the fields of calls.
constexpr std::array kNames{"type",
                            "properties",
                            "required",
                            "additionalProperties",
                            "items",
                            "prefixItems",
                            "minItems",
                            "maxItems",
                            "minLength",
                            "maxLength",
                            "pattern",
                            "format",
                            "minimum",
                            "maximum",
                            "enum",
                            "const",
                            "anyOf",
                            "oneOf",
                            "allOf",
                            "$ref",
                            "$defs",
                            "not",
                            "a",
                            "b",
                            "prompt",
                            "messages",
                            "role",
                            "content",
                            "tools",
                            "tool_choice",
                            "tool_calls",
                            "function",
                            "name",
                            "parameters",
                            "arguments",
                            "response_format",
                            "json_schema",
                            "schema",
                            "n",
                            "stop",
                            "stream",
                            "stream_options",
                            "logprobs",
                            "top_logprobs",
                            "echo",
                            "max_tokens",
                            "seed",
                            "temperature",
                            "logit_bias",
                            "ignore_eos",
                            "tokens",
                            "chat_template_kwargs",
                            "include_usage",
                            "exclusiveMaximum"};

constexpr std::array kTexts{"object",
                            "array",
                            "string",
                            "number",
                            "integer",
                            "boolean",
                            "null",
                            "text",
                            "json_object",
                            "json_schema",
                            "function",
                            "required",
                            "auto",
                            "none",
                            "user",
                            "assistant",
                            "system",
                            "tool",
                            "#",
                            "#/$defs/a",
                            "#/properties/a",
                            "date-time",
                            "uuid",
                            "email",
                            "^[a-c]{2,4}\\d+$",
                            "(a|b)*c?",
                            "{",
                            "{\"name\": \"a\", \"parameters\": {}}",
                            "\xe2\x82\xac\xf0\x9f\x98\x80",
                            ""};

template <class List>
auto& pick(List& list, Random& random) {
    return *std::next(std::begin(list), static_cast<ptrdiff_t>(random() % std::size(list)));
}

Json any_value(Random& random) {
    switch (random() % 12) {
        case 0: return nullptr;
        case 1: return random() % 2 == 0;
        case 2: return static_cast<int64_t>(random() % 5) - 1;
        case 3: return static_cast<int64_t>(random() % 5000);
        case 4: return 0.5;
        case 5: return static_cast<int64_t>(random());
        case 6: return 1e300;
        case 7: return Json::array();
        case 8: return Json::object();
        case 9: return std::string(random() % kMostText, 'x');
        default: return pick(kTexts, random);
    }
}

void collect(Json& value, std::vector<Json*>& nodes) {
    if (nodes.size() >= kMostNodes) return;
    nodes.push_back(&value);
    if (!value.is_structured()) return;
    for (Json& inner : value) collect(inner, nodes);
}

Json wrapped(const Json& value, Random& random) {
    switch (random() % 7) {
        case 0: return Json::array({value});
        case 1: return {{"type", "array"}, {"items", value}};
        case 2: return {{"anyOf", Json::array({value, {{"type", "null"}}})}};
        case 3: return {{"oneOf", Json::array({value, {{"const", 1}}})}};
        case 4: return {{"allOf", Json::array({value})}};
        case 5: return {{"type", "object"}, {"properties", {{"a", value}}}, {"required", {"a"}}};
        default: return {{pick(kNames, random), value}};
    }
}

void change_object(Json& object, const Json& other, Random& random) {
    const std::string name = pick(kNames, random);
    if (object.empty() || random() % 3 == 0) {
        object[name] = random() % 2 == 0 ? any_value(random) : other;
        return;
    }
    auto at = std::next(object.begin(), static_cast<ptrdiff_t>(random() % object.size()));
    if (random() % 2 == 0) {
        object.erase(at);
        return;
    }
    Json value = at.value();
    object.erase(at);
    object[name] = std::move(value);
}

void change_array(Json& array, const Json& other, Random& random) {
    if (array.empty() || random() % 3 == 0) {
        array.push_back(random() % 2 == 0 ? any_value(random) : other);
        return;
    }
    Json& first = array[random() % array.size()];
    if (random() % 2 == 0)
        std::swap(first, array[random() % array.size()]);
    else
        array.erase(random() % array.size());
}

void change_text(Json& value, Random& random) {
    std::string text = value.get<std::string>();
    const size_t size = text.size();
    text.resize(size + 16);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
    value = random() % 4 == 0 ? std::string(pick(kTexts, random)) : text;
}

void change_number(Json& value, Random& random) {
    const double number = value.get<double>();
    const std::array numbers{number + 1, number - 1, number * 2, -number, number / 2};
    const double changed = pick(numbers, random);
    if (value.is_number_integer() && std::abs(changed) < 9e18)
        value = static_cast<int64_t>(changed);
    else
        value = changed;
}

void change(Json& root, Random& random) {
    std::vector<Json*> nodes;
    collect(root, nodes);
    Json& node = *pick(nodes, random);
    const Json other = *pick(nodes, random);  // a copy: it may have `node` in it
    switch (random() % 8) {
        case 0: node = any_value(random); return;
        case 1: node = other; return;
        case 2: node = wrapped(node, random); return;
        default: break;
    }
    if (node.is_object()) return change_object(node, other, random);
    if (node.is_array()) return change_array(node, other, random);
    if (node.is_string()) return change_text(node, random);
    if (node.is_number()) return change_number(node, random);
    node = any_value(random);
}

}  // namespace

void mutate_json(Json& value, uint64_t seed) {
    Random random(seed);
    for (uint64_t count = 1 + random() % 4; count > 0; --count) change(value, random);
}

}  // namespace cleave::fuzz
