// SPDX-License-Identifier: Apache-2.0
// tokenizer.json, or a chat template: an input that begins with '{' and a quote or a space is the
// former. A tokenizer that loads encodes and decodes.
#include <vector>

#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/use_tokenizer.h"

namespace {

using namespace cleave;
using namespace cleave::runtime;

void read_tokenizer(std::string_view bytes) {
    fuzz::use_tokenizer(*load_tokenizer(fuzz::write_file(bytes, "tokenizer.json")));
}

void read_template(std::string_view bytes) {
    const ChatTemplate chat(std::string(bytes), "fuzz.jinja",
                            {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const std::vector<ChatMessage> messages = {
        {"system", "Be brief."}, {"user", "Hello"}, {"assistant", "Hi"}, {"user", "Why? {{ }}"}};
    chat.render(messages, {.strftime_now = [](const std::string&) { return "1 May 2026"; }});
}

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    const bool is_json = bytes.size() > 1 && bytes[0] == '{' &&
                         (bytes[1] == '"' || bytes[1] == ' ' || bytes[1] == '\n');
    if (is_json)
        read_tokenizer(bytes);
    else
        read_template(bytes);
}
