// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/answer_format.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "tools/serve/fields.h"
#include "tools/serve/grammar.h"

namespace cleave::serve {
namespace {

constexpr size_t kMostTools = 128, kMostName = 64;

bool is_tool_name(const Json& name) {
    if (!name.is_string()) return false;
    const std::string& text = name.get_ref<const std::string&>();
    return !text.empty() && text.size() <= kMostName &&
           std::ranges::all_of(text, [](unsigned char c) {
               return c < 128 && (std::isalnum(c) != 0 || c == '_' || c == '-');
           });
}

std::vector<Tool> tools_of(const Json& body) {
    const Json* list = field(body, "tools");
    std::vector<Tool> tools;
    if (!list) return tools;
    if (!list->is_array() || list->size() > kMostTools)
        refuse("tools", fmt::format("tools: expected a list of at most {}", kMostTools));
    std::set<std::string> names;
    for (size_t i = 0; i < list->size(); ++i) {
        const std::string at = fmt::format("tools[{}]", i);
        const Json& tool = (*list)[i];
        const Json* function = tool.is_object() ? field(tool, "function") : nullptr;
        if (!function || tool.value("type", Json()) != "function" || !function->is_object())
            refuse(at, at + ": expected {\"type\": \"function\", \"function\": {...}}");
        const Json name = function->value("name", Json());
        if (!is_tool_name(name) || !names.insert(name.get<std::string>()).second)
            refuse(
                at + ".function.name",
                fmt::format("{}.function.name: expected a name of its own, of at most {} letters, "
                            "digits, _ and -",
                            at, kMostName));
        Tool made{name.get<std::string>(), Json(), at + ".function.parameters"};
        const Json* parameters = field(*function, "parameters");
        made.parameters =
            parameters ? *parameters : Json{{"type", "object"}, {"properties", Json::object()}};
        if (!made.parameters.is_object() || made.parameters.value("type", Json()) != "object")
            refuse(made.param, made.param + ": expected a schema of {\"type\": \"object\"}");
        tools.push_back(std::move(made));
    }
    return tools;
}

// "none", "auto", "required", or the one tool that must be called.
struct Choice {
    std::string kind;
    std::string name;
};

Choice choice_of(const Json& body, const std::vector<Tool>& tools) {
    const Json* choice = field(body, "tool_choice");
    if (!choice) return {tools.empty() ? "none" : "auto", ""};
    if (choice->is_string()) {
        const std::string kind = choice->get<std::string>();
        if (kind != "none" && kind != "auto" && kind != "required")
            refuse("tool_choice", "tool_choice: expected none, auto, required, or a function");
        if (!tools.empty()) return {kind, ""};
        if (kind == "required") refuse("tool_choice", "tool_choice: required goes with tools");
        return {"none", ""};
    }
    const Json* function = choice->is_object() ? field(*choice, "function") : nullptr;
    if (!function || !function->is_object() || choice->value("type", Json()) != "function" ||
        !function->value("name", Json()).is_string())
        refuse("tool_choice",
               "tool_choice: expected a text, or {\"type\": \"function\", \"function\": "
               "{\"name\": ...}}");
    const std::string name = (*function)["name"].get<std::string>();
    if (std::ranges::none_of(tools, [&](const Tool& tool) { return tool.name == name; }))
        refuse("tool_choice",
               fmt::format("tool_choice: {} is not among the tools", Json(name).dump()));
    return {"named", name};
}

// The schema of response_format, and where it is; null: texts are free.
Json schema_of(const Json& body, std::string& param) {
    const Json* format = field(body, "response_format");
    if (!format) return nullptr;
    const Json type = format->is_object() ? format->value("type", Json()) : Json();
    if (type == "text") return nullptr;
    param = "response_format";
    if (type == "json_object") return {{"type", "object"}};
    if (type != "json_schema")
        refuse(
            "response_format",
            "response_format: expected {\"type\": \"text\"}, \"json_object\" or \"json_schema\"");
    const Json* described = field(*format, "json_schema");
    const Json* schema =
        described && described->is_object() ? field(*described, "schema") : nullptr;
    param = "response_format.json_schema.schema";
    if (!schema) refuse(param, param + " is missing: a JSON schema");
    return *schema;
}

// What would have an answer go on where it is whole.
void check_whole(const Json& body, const std::string& param) {
    if (flag(body, "ignore_eos", false))
        refuse(
            "ignore_eos",
            fmt::format("ignore_eos: an answer of {} ends where it is whole: leave it out", param));
}

}  // namespace

void set_answer_format(const Json& body, const ServedModel& model, ApiCall& call,
                       runtime::EngineRequest& request) {
    for (const char* name : {"tools", "tool_choice"})
        if (!call.is_chat && field(body, name))
            refuse(name, fmt::format("{}: goes with chats alone", name));
    flag(body, "parallel_tool_calls", true);  // an answer has one call at most
    std::string param;
    const Json schema = schema_of(body, param);
    std::vector<Tool> tools = tools_of(body);
    const Choice choice = choice_of(body, tools);
    const bool calls = choice.kind != "none";
    if (schema.is_null() && !calls) return;
    if (!schema.is_null() && calls)
        refuse("response_format",
               "response_format: goes with tools where tool_choice is \"none\" alone");
    check_whole(body, calls ? "tools" : "response_format");
    CLEAVE_CHECK(model.grammars) << "no grammars";
    if (!calls) {
        request.rule = model.grammars->json(schema, param);
        return;
    }
    if (choice.kind == "named")
        std::erase_if(tools, [&](const Tool& tool) { return tool.name != choice.name; });
    call.calls_tools = choice.kind == "auto" ? ToolCalls::kMay : ToolCalls::kMust;
    request.rule = model.grammars->tool_call(tools, choice.kind == "auto");
}

Json template_tools(const Json& body) {
    const std::vector<Tool> tools = tools_of(body);
    return choice_of(body, tools).kind == "none" ? Json() : *field(body, "tools");
}

bool needs_template(const Json& body) { return choice_of(body, tools_of(body)).kind == "auto"; }

}  // namespace cleave::serve
