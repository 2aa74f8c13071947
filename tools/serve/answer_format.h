// SPDX-License-Identifier: Apache-2.0
// What an answer has to keep, as OpenAI's API asks for it: response_format, tools and tool_choice.
// In: a client's body. Out: rules for its requests (tools/serve/grammar.h), and the tools as a chat
// template takes them. Fails closed: what cannot be kept is an ApiError that names it.
#pragma once

#include "tools/serve/api_calls.h"

namespace cleave::serve {

// Sets the rule of `request`, and whether an answer of `call` is a call of a function.
void set_answer_format(const Json& body, const ServedModel& model, ApiCall& call,
                       runtime::EngineRequest& request);

// The tools that a chat's template shows to the model; null: none.
Json template_tools(const Json& body);

// Whether the template has to have a place for them: else the model could not know of them.
bool needs_template(const Json& body);

}  // namespace cleave::serve
