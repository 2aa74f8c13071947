// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "runtime/base/errors.h"
#include "tools/cli/spelling.h"
#include "tools/serve/api_answer.h"
#include "tools/serve/fields.h"
#include "tools/serve/metrics.h"

namespace cleave::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDrainStep{100};

constexpr double kWedgedPasses = 20;

std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpAnswer json_answer(const Json& json, int status = 200) {
    return {status, "application/json", dump(json), 0, ""};
}

HttpAnswer error_answer(const ApiError& error) {
    HttpAnswer answer = json_answer(error_json(error), error.status);
    answer.retry_after = error.retry_after;
    return answer;
}

// Takes as long whatever the first difference is.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
    unsigned char difference = a.size() == b.size() ? 0 : 1;
    for (size_t i = 0; i < a.size(); ++i)
        difference |= static_cast<unsigned char>(a[i] ^ b[i % std::max<size_t>(1, b.size())]);
    return difference == 0;
}

ApiError library_error(const std::string& text) {
    ApiError error;
    error.message = tools::spell_for_api(text);
    return error;
}

using Reply = std::shared_ptr<HttpReply>;

}  // namespace

struct Server::Impl {
    Impl(runtime::Engine& e, const planner::Plan& p, const ServedModel& m, ServerOptions o)
        : engine(e), model(m), options(std::move(o)), metrics(p, m.name) {
        std::random_device device;
        instance = device();
        http = std::make_unique<HttpServer>(
            options.host, options.port, options.limits,
            [this](HttpRequest request, const Reply& reply) { handle(std::move(request), reply); },
            [this](const HttpRequest& head) { return locked_out(head); });
        http->start();
    }

    void handle(HttpRequest request, const Reply& reply);
    std::optional<HttpAnswer> locked_out(const HttpRequest& request) const;
    void answer_call(ApiCall call, const Reply& reply);
    ApiError refusal(const runtime::EngineAdmission& admission) const;
    int64_t seconds_until_room() const;
    HttpAnswer health() const;
    HttpAnswer models() const;
    HttpAnswer tokenizer_info() const;
    HttpAnswer tokenize(const Json& body) const;
    HttpAnswer detokenize(const Json& body) const;
    HttpAnswer render(const Json& body) const;

    runtime::Engine& engine;
    const ServedModel& model;
    const ServerOptions options;
    Metrics metrics;
    uint32_t instance = 0;
    std::atomic<uint64_t> calls{0};
    const Clock::time_point start = Clock::now();
    // Reads bodies and prompts, so that the HTTP thread never waits for a long one.
    boost::asio::thread_pool readers{2};
    // Those that may ask for a grammar, which takes seconds where a vocabulary is large.
    boost::asio::thread_pool grammar_readers{1};
    std::unique_ptr<HttpServer> http;
};

namespace {

enum class Route : uint8_t {
    kHealth,
    kMetrics,
    kModels,
    kPlan,
    kCompletions,
    kChat,
    kTokenizerInfo,
    kTokenize,
    kDetokenize,
    kRender
};
struct RouteRow {
    std::string_view method, path;
    Route route;
};
constexpr std::array kRoutes{
    RouteRow{"GET", "/health", Route::kHealth},
    RouteRow{"GET", "/metrics", Route::kMetrics},
    RouteRow{"GET", "/v1/models", Route::kModels},
    RouteRow{"GET", "/v1/plan", Route::kPlan},
    RouteRow{"POST", "/v1/completions", Route::kCompletions},
    RouteRow{"POST", "/v1/chat/completions", Route::kChat},
    RouteRow{"GET", "/tokenizer_info", Route::kTokenizerInfo},
    RouteRow{"POST", "/tokenize", Route::kTokenize},
    RouteRow{"POST", "/detokenize", Route::kDetokenize},
    RouteRow{"POST", "/v1/render", Route::kRender},
};

}  // namespace

// What exists is told to those alone who have the key.
std::optional<HttpAnswer> Server::Impl::locked_out(const HttpRequest& request) const {
    if (options.api_key.empty() || request.path == "/health" ||
        equal_in_constant_time(request.authorization, "Bearer " + options.api_key))
        return std::nullopt;
    ApiError error{.status = 401, .code = "invalid_api_key"};
    error.message = "no valid key: send the header Authorization: Bearer KEY";
    return error_answer(error);
}

void Server::Impl::handle(HttpRequest request, const Reply& reply) {
    const auto at = std::ranges::find(kRoutes, request.path, &RouteRow::path);
    if (std::optional<HttpAnswer> answer = locked_out(request))
        return reply->send(std::move(*answer));
    if (at == kRoutes.end()) {
        ApiError error{.status = 404};
        error.message = fmt::format("no route {}", request.path);
        return reply->send(error_answer(error));
    }
    const bool is_get = request.method == "GET" || request.method == "HEAD";
    if (is_get ? at->method != "GET" : at->method != request.method) {
        ApiError error{.status = 405};
        error.message = fmt::format("{} takes {}", at->path, at->method);
        HttpAnswer answer = error_answer(error);
        answer.allow = at->method;
        return reply->send(std::move(answer));
    }
    switch (at->route) {
        case Route::kHealth: return reply->send(health());
        case Route::kMetrics:
            return reply->send({200, "text/plain; version=0.0.4",
                                metrics.text(engine.statistics(), http->connections()), 0, ""});
        case Route::kModels: return reply->send(models());
        case Route::kTokenizerInfo: return reply->send(tokenizer_info());
        default: break;
    }
    const bool is_page = request.accept.find("text/html") != std::string::npos;
    const bool may_hold_answer = request.body.find("\"response_format\"") != std::string::npos ||
                                 request.body.find("\"tools\"") != std::string::npos;
    boost::asio::thread_pool& pool = may_hold_answer ? grammar_readers : readers;
    boost::asio::post(pool, [this, is_page, route = at->route, body = std::move(request.body),
                             reply] {
        try {
            switch (route) {
                case Route::kPlan:
                    return reply->send(is_page ? HttpAnswer{200, "text/html", options.plan_page()}
                                               : HttpAnswer{.body = options.plan_json()});
                case Route::kCompletions:
                    return answer_call(parse_completion(body, model, 0), reply);
                case Route::kChat: return answer_call(parse_chat(body, model, 0), reply);
                case Route::kTokenize: return reply->send(tokenize(parse_body(body)));
                case Route::kDetokenize: return reply->send(detokenize(parse_body(body)));
                default: return reply->send(render(parse_body(body)));
            }
        } catch (const ApiError& error) {
            reply->send(error_answer(error));
        } catch (const UserError& error) {
            reply->send(error_answer(library_error(error.what())));
        } catch (const nlohmann::json::exception& error) {
            reply->send(error_answer(library_error(error.what())));
        } catch (const std::exception& error) {
            ApiError failure{.status = 500, .type = "server_error"};
            failure.message = error.what();
            reply->send(error_answer(failure));
        }
    });
}

// Seconds in which as many requests as wait have ended at the rate so far.
int64_t Server::Impl::seconds_until_room() const {
    const runtime::EngineStatistics now = engine.statistics();
    int64_t ended = 0;
    for (const int64_t count : now.finished) ended += count;
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double wait = seconds * static_cast<double>(now.scheduler.waiting) /
                        static_cast<double>(std::max<int64_t>(1, ended));
    return std::clamp<int64_t>(std::llround(std::ceil(wait)), 1, 120);
}

ApiError Server::Impl::refusal(const runtime::EngineAdmission& admission) const {
    ApiError error = library_error(admission.reason);
    if (admission.refusal == runtime::Refusal::kNeverFits) return error;
    error.status = 503;
    error.type = "server_error";
    if (admission.refusal != runtime::Refusal::kDead) error.retry_after = seconds_until_room();
    return error;
}

void Server::Impl::answer_call(ApiCall call, const Reply& reply) {
    if (const int64_t slots = engine.limits().slots; call.copies > slots)
        refuse("n", fmt::format("n: {} texts of one prompt run at once, and this server has room "
                                "for {} sequences",
                                call.copies, slots));
    auto answer = std::make_shared<ApiAnswer>(
        call, model,
        fmt::format("{}-{:08x}{:08x}", call.is_chat ? "chatcmpl" : "cmpl", instance,
                    calls.fetch_add(1)),
        reply);
    std::vector<runtime::RequestId> ids;
    const auto cancel_all = [this](const std::vector<runtime::RequestId>& all) {
        for (const runtime::RequestId id : all) engine.cancel(id);
    };
    for (size_t i = 0; i < call.requests.size(); ++i) {
        runtime::EngineAdmission admission;
        try {
            admission = engine.add(std::move(call.requests[i]),
                                   [this, i, answer](const runtime::EngineEvent& event) {
                                       if (event.ends_request) metrics.add(event.usage);
                                       answer->take(i, event);
                                   });
        } catch (const UserError& error) {
            answer->fail(library_error(error.what()));
            return cancel_all(ids);
        }
        if (!admission.request) {
            answer->fail(refusal(admission));
            return cancel_all(ids);
        }
        ids.push_back(*admission.request);
    }
    reply->when_gone([cancel_all, ids] { cancel_all(ids); });
}

HttpAnswer Server::Impl::health() const {
    const runtime::EngineStatistics now = engine.statistics();
    const double usual = now.passes > 0 ? now.pass_seconds / static_cast<double>(now.passes) : 0;
    const bool is_wedged =
        now.oldest_pass_seconds > std::max(options.wedged_seconds, kWedgedPasses * usual);
    if (now.fault.empty() && !is_wedged) return json_answer({{"status", "ok"}});
    return json_answer({{"status", now.fault.empty() ? "wedged" : "dead"},
                        {"fault", now.fault},
                        {"pass_seconds", now.oldest_pass_seconds}},
                       503);
}

HttpAnswer Server::Impl::models() const {
    Json row{{"id", model.name},
             {"object", "model"},
             {"created", 0},
             {"owned_by", "cleave"},
             {"max_model_len", model.context}};
    return json_answer({{"object", "list"}, {"data", Json::array({row})}});
}

// What lm-eval asks before it has texts tokenised here; names are tokenizer_config.json's.
HttpAnswer Server::Impl::tokenizer_info() const {
    const auto text = [&](std::optional<int32_t> id) {
        return id ? Json(model.tokenizer->token_text(*id)) : Json();
    };
    return json_answer({{"bos_token", text(model.tokenizer->bos_id())},
                        {"eos_token", text(model.tokenizer->eos_id())},
                        {"model_max_length", model.context}});
}

HttpAnswer Server::Impl::tokenize(const Json& body) const {
    std::vector<int32_t> ids;
    if (body.contains("messages")) {
        ids = render_chat(body, model).ids;
    } else {
        const auto text = body.find("prompt");
        if (text == body.end() || !text->is_string()) {
            refuse("prompt", "prompt: expected a text; or messages, a chat");
        }
        ids = model.tokenizer->encode(text->get_ref<const std::string&>(),
                                      flag(body, "add_special_tokens", true));
    }
    const auto count = ids.size();
    return json_answer(
        {{"tokens", std::move(ids)}, {"count", count}, {"max_model_len", model.context}});
}

HttpAnswer Server::Impl::detokenize(const Json& body) const {
    const auto list = body.find("tokens");
    std::vector<int32_t> ids;
    bool fits = list != body.end() && list->is_array();
    for (size_t i = 0; fits && i < list->size(); ++i) {
        const Json& id = (*list)[i];
        fits = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < model.vocab;
        if (fits) ids.push_back(id.get<int32_t>());
    }
    if (!fits) {
        ApiError error{.param = "tokens"};
        error.message = fmt::format("tokens: expected a list of ids from 0 to {}", model.vocab - 1);
        throw error;
    }
    return json_answer({{"prompt", model.tokenizer->decode(ids)}});
}

HttpAnswer Server::Impl::render(const Json& body) const {
    const RenderedChat chat = render_chat(body, model);
    return json_answer({{"prompt", chat.text}, {"token_ids", chat.ids}});
}

Server::Server(runtime::Engine& engine, const planner::Plan& plan, const ServedModel& model,
               ServerOptions options)
    : impl_(std::make_unique<Impl>(engine, plan, model, std::move(options))) {}

Server::~Server() { drain(std::chrono::seconds(0)); }

uint16_t Server::port() const { return impl_->http->port(); }

bool Server::drain(std::chrono::duration<double> at_most, const std::function<bool()>& gives_up) {
    impl_->http->close();
    impl_->grammar_readers.join();
    impl_->readers.join();  // what was asked before is accepted
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(at_most);
    bool all = impl_->engine.drain(kDrainStep * 0);
    while (!all && Clock::now() < end && !gives_up()) all = impl_->engine.drain(kDrainStep);
    // Whoever waits still is told; then no event holds a reply.
    impl_->engine.shutdown();
    impl_->http->stop();
    return all;
}

}  // namespace cleave::serve
