// SPDX-License-Identifier: Apache-2.0
// The routes that need the model's texts alone, and no pass: what it is called, token ids of texts
// and chats, and texts of ids. In: a client's JSON. Out: the answer, or an ApiError. Pure.
#pragma once

#include <string_view>

#include "tools/serve/api_calls.h"
#include "tools/serve/http_server.h"

namespace cleave::serve {

// Bytes that are no UTF-8 become the replacement character.
std::string dump_json(const Json& json);
HttpAnswer json_answer(const Json& json, int status = 200);
HttpAnswer error_answer(const ApiError& error);

// A list of the one model.
HttpAnswer models_answer(const ServedModel& model);
// It alone; 404 for another name.
HttpAnswer model_answer(std::string_view name, const ServedModel& model);
// What lm-eval asks before it has texts tokenised here; names are tokenizer_config.json's.
HttpAnswer tokenizer_info_answer(const ServedModel& model);
HttpAnswer tokenize_answer(const Json& body, const ServedModel& model);
HttpAnswer detokenize_answer(const Json& body, const ServedModel& model);
// The exact text and ids that a chat becomes.
HttpAnswer render_answer(const Json& body, const ServedModel& model);

}  // namespace cleave::serve
