// SPDX-License-Identifier: Apache-2.0
// Chat templates: the Jinja text that turns a conversation into the prompt a model was trained on.
// In: a template as Hugging Face models carry it, and the messages. Out: the prompt, special tokens
// written out, ready for Tokenizer::encode(text, add_special = false). What the template language
// is and what of it is supported: runtime/text/jinja/. Anything else is a UserError that names the
// template, the line and the construct.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

namespace jinja {
struct Stmt;
}

struct ChatMessage {
    std::string role;  // "system", "user", "assistant", ...
    std::string content;
};

struct ChatOptions {
    bool add_generation_prompt = true;  // end with the beginning of the assistant's answer
    // More variables for the template, by name: tools, documents, enable_thinking, date_string,
    // ...
    nlohmann::ordered_json variables = nlohmann::ordered_json::object();
    // What a template gets for today's date, from a strftime format; local time when empty.
    std::function<std::string(const std::string& format)> strftime_now;
};

class ChatTemplate {
public:
    // `name`: the file, for errors. `special_tokens`: "bos_token" and the like, with their texts.
    ChatTemplate(const std::string& source, std::string name,
                 std::map<std::string, std::string> special_tokens = {});

    std::string render(std::span<const ChatMessage> messages,
                       const ChatOptions& options = {}) const;
    // Messages with more than a role and a text (tool calls): a JSON list of objects.
    std::string render(const nlohmann::ordered_json& messages,
                       const ChatOptions& options = {}) const;

private:
    std::string name_;
    std::map<std::string, std::string> special_tokens_;
    std::shared_ptr<const std::vector<jinja::Stmt>> body_;
};

// The template beside a tokenizer: chat_template.jinja, else "chat_template" of
// tokenizer_config.json (of several, the one named "default"). Nothing when the folder has none.
// `path`: the folder or a file in it.
std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& path);

}  // namespace cleave::runtime
