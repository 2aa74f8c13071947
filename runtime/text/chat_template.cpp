// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"
#include "runtime/text/companions.h"
#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/parser.h"
#include "runtime/text/json_view.h"
#include "runtime/text/tokenizer_config.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace fs = std::filesystem;

namespace {

// More than the longest contexts that there are.
constexpr size_t kMostRendered = size_t{16} << 20;

std::string local_time(const std::string& format) {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    std::string text(256 + format.size() * 8, '\0');
    text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
    return text;
}

// Runs `work`; a TemplateError becomes a UserError that names the template and the line.
template <class Work>
auto with_place(const std::string& name, Work&& work) {
    try {
        return work();
    } catch (const jinja::TemplateError& error) {
        std::string what = error.what();  // which may be the template's own words
        std::ranges::replace_if(what, [](unsigned char c) { return c < 0x20; }, ' ');
        throw UserError("{}, line {} of the chat template: {}", name, error.line, what);
    }
}

// "chat_template" is a template, or a list of {"name", "template"}.
std::string read_template(const JsonView& json) {
    if (!json.raw().is_array()) return json.as_string();
    std::string names;
    for (size_t i = 0; i < json.size(); ++i) {
        const JsonView entry = json.at(i);
        const std::string& name = entry.at("name").as_string();
        if (name == "default") return entry.at("template").as_string();
        names.append(names.empty() ? "" : ", ").append(name);
    }
    json.fail("no template is named 'default' (there are: " + names + ")");
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, std::string name,
                           std::map<std::string, std::string> special_tokens)
    : name_(std::move(name)), special_tokens_(std::move(special_tokens)) {
    body_ = with_place(name_, [&] {
        return std::make_shared<const std::vector<jinja::Stmt>>(
            jinja::parse_template(replace_invalid_utf8(source)));
    });
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages,
                                 const ChatOptions& options) const {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const ChatMessage& message : messages) {
        json.push_back(
            {{"role", message.role}, {"content", replace_invalid_utf8(message.content)}});
    }
    return render(json, options);
}

std::string ChatTemplate::render(const nlohmann::ordered_json& messages,
                                 const ChatOptions& options) const {
    return with_place(name_, [&] {
        jinja::Namespaces namespaces;
        auto variables = jinja::builtin_functions(
            options.strftime_now ? options.strftime_now : local_time, namespaces);
        const auto set = [&](const std::string& name, jinja::Value value) {
            for (auto& [known, old] : variables) {
                if (known == name) {
                    old = std::move(value);
                    return;
                }
            }
            variables.emplace_back(name, std::move(value));
        };
        // What Hugging Face's apply_chat_template passes when nothing is given.
        set("tools", jinja::Value());
        set("documents", jinja::Value());
        for (const auto& [name, text] : special_tokens_) set(name, jinja::Value(text));
        set("messages", jinja::Value::from_json(messages));
        set("add_generation_prompt", jinja::Value(options.add_generation_prompt));
        for (const auto& [name, value] : options.variables.items())
            set(name, jinja::Value::from_json(value));
        const jinja::Budget budget;
        std::string text = jinja::Evaluator().render(*body_, std::move(variables));
        if (text.size() > kMostRendered)
            throw UserError(
                "{}: the chat template makes {} bytes of the messages, at most {} are "
                "tokenised",
                name_, text.size(), kMostRendered);
        return text;
    });
}

std::optional<ChatTemplate> load_chat_template(const fs::path& path) {
    const fs::path place = place_of_companions(path);
    const TokenizerConfig config = load_tokenizer_config(place);
    const fs::path file = place / "chat_template.jinja";
    if (is_there(file))
        return ChatTemplate(read_regular_file(file), file.string(), config.special_tokens);
    const auto json = find_companion(place, "tokenizer_config.json");
    if (!json || !json->root().has("chat_template")) return std::nullopt;
    const std::string source = read_template(json->root().at("chat_template"));
    return ChatTemplate(source, json->root().where(), config.special_tokens);
}

}  // namespace cleave::runtime
