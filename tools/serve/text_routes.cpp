// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/text_routes.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/serve/fields.h"

namespace cleave::serve {
namespace {

Json model_json(const ServedModel& model) {
    return {{"id", model.name},
            {"object", "model"},
            {"created", 0},
            {"owned_by", "cleave"},
            {"max_model_len", model.context}};
}

}  // namespace

std::string dump_json(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpAnswer json_answer(const Json& json, int status) {
    return {status, "application/json", dump_json(json), 0, ""};
}

HttpAnswer error_answer(const ApiError& error) {
    HttpAnswer answer = json_answer(error_json(error), error.status);
    answer.retry_after = error.retry_after;
    return answer;
}

HttpAnswer models_answer(const ServedModel& model) {
    return json_answer({{"object", "list"}, {"data", Json::array({model_json(model)})}});
}

HttpAnswer model_answer(std::string_view name, const ServedModel& model) {
    check_model({{"model", std::string(name)}}, model);
    return json_answer(model_json(model));
}

HttpAnswer tokenizer_info_answer(const ServedModel& model) {
    const auto text = [&](std::optional<int32_t> id) {
        return id ? Json(model.tokenizer->token_text(*id)) : Json();
    };
    return json_answer({{"bos_token", text(model.tokenizer->bos_id())},
                        {"eos_token", text(model.tokenizer->eos_id())},
                        {"model_max_length", model.context}});
}

HttpAnswer tokenize_answer(const Json& body, const ServedModel& model) {
    std::vector<int32_t> ids;
    if (body.contains("messages")) {
        ids = render_chat(body, model).ids;
    } else {
        const auto text = body.find("prompt");
        if (text == body.end() || !text->is_string())
            refuse("prompt", "prompt: expected a text; or messages, a chat");
        ids = model.tokenizer->encode(text->get_ref<const std::string&>(),
                                      flag(body, "add_special_tokens", true));
    }
    const auto count = ids.size();
    return json_answer(
        {{"tokens", std::move(ids)}, {"count", count}, {"max_model_len", model.context}});
}

HttpAnswer detokenize_answer(const Json& body, const ServedModel& model) {
    const auto list = body.find("tokens");
    std::vector<int32_t> ids;
    bool fits = list != body.end() && list->is_array();
    for (size_t i = 0; fits && i < list->size(); ++i) {
        const Json& id = (*list)[i];
        fits = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < model.vocab;
        if (fits) ids.push_back(id.get<int32_t>());
    }
    if (!fits)
        refuse("tokens",
               fmt::format("tokens: expected a list of ids from 0 to {}", model.vocab - 1));
    return json_answer({{"prompt", model.tokenizer->decode(ids)}});
}

HttpAnswer render_answer(const Json& body, const ServedModel& model) {
    const RenderedChat chat = render_chat(body, model);
    return json_answer({{"prompt", chat.text}, {"token_ids", chat.ids}});
}

}  // namespace cleave::serve
