// SPDX-License-Identifier: Apache-2.0
// Answers that keep a JSON schema, by xgrammar: Dong et al., arXiv 2411.15100. In: a vocabulary,
// and schemas of clients. Out: rules for the engine, which allow the tokens that can still become
// JSON that is valid for the schema, and the end where it is.
// Answers are JSON on one line, ", " and ": " between values, so that none is whitespace without
// end. A schema that cannot be kept is an ApiError with its path. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/token_rule.h"
#include "runtime/text/tokenizer.h"
#include "tools/serve/api_calls.h"

namespace cleave::serve {

// A function that the model may call.
struct Tool {
    std::string name;
    Json parameters;    // JSON schema of an object
    std::string param;  // where the client has it, for errors
};

class Grammars {
public:
    // The tokenizer must outlive it. `stop_ids` end an answer that is whole; where there are none,
    // it ends as soon as it may. `vocab`: columns of the logits.
    Grammars(const runtime::Tokenizer& tokenizer, int64_t vocab, std::vector<int32_t> stop_ids);
    ~Grammars();

    // The whole text is JSON that is valid for `schema`.
    runtime::TokenRuleMaker json(const Json& schema, const std::string& param) const;

    // The whole text is a call in Llama 3's form, {"name": NAME, "parameters": OBJECT}
    // (tools/serve/tool_call.h). `optional`: or it does not begin with a brace, and is free.
    runtime::TokenRuleMaker tool_call(const std::vector<Tool>& tools, bool optional) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::serve
