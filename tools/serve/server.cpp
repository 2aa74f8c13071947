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
#include <fmt/ranges.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "runtime/base/errors.h"
#include "runtime/base/reason.h"
#include "runtime/base/threads.h"
#include "tools/cli/spelling.h"
#include "tools/serve/api_answer.h"
#include "tools/serve/fields.h"
#include "tools/serve/metrics.h"
#include "tools/serve/text_routes.h"

namespace cleave::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDrainStep{100};

constexpr double kWedgedPasses = 20;

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

enum class Route : uint8_t {
    kHealth,
    kMetrics,
    kModels,
    kModel,
    kPlan,
    kCompletions,
    kChat,
    kTokenizerInfo,
    kTokenize,
    kDetokenize,
    kRender
};

// What `work` throws is the answer.
template <class Work>
void answer_or_error(const Reply& reply, const Work& work) {
    try {
        work();
    } catch (const ApiError& error) {
        reply->send(error_answer(error));
    } catch (const UserError& error) {
        reply->send(error_answer(library_error(error.what())));
    } catch (const nlohmann::json::exception& error) {
        reply->send(error_answer(library_error(error.what())));
    } catch (const std::exception& error) {
        ApiError failure{.status = 500, .type = "server_error"};
        failure.message = reason_of(error);
        reply->send(error_answer(failure));
    }
}

// Threads for what the HTTP thread must not wait for. What throws there is dropped, and its reply
// with it, which answers the client; asio's own pool would end the process.
class Readers {
public:
    explicit Readers(int threads) : context_(threads) {
        for (int i = 0; i < threads; ++i) threads_.start([this] { run(); });
    }
    template <class Work>
    void post(Work work) {
        boost::asio::post(context_, std::move(work));
    }
    // Returns when all is done; nothing may be posted any more.
    void join() {
        work_.reset();
        threads_.join();
    }

private:
    void run() noexcept {
        bool is_done = false;
        while (!is_done) {
            try {
                context_.run();
                is_done = true;
            } catch (const std::exception&) {
                is_done = false;
            }
        }
    }

    boost::asio::io_context context_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
        context_.get_executor()};
    Threads threads_{[this] { context_.stop(); }};
};

}  // namespace

struct Server::Impl {
    Impl(runtime::EngineGroup e, const planner::Plan& p, const ServedModel& m, ServerOptions o)
        : engines(std::move(e)), model(m), options(std::move(o)), metrics(p, m.name) {
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
    void answer_body(Route route, const std::string& body, bool is_page, const Reply& reply);
    void post_grammar(std::function<void()> work, const Reply& reply);
    void answer_call(ApiCall call, const Reply& reply);
    ApiError refusal(const runtime::EngineAdmission& admission) const;
    int64_t seconds_until_room() const;
    HttpAnswer health() const;

    const runtime::EngineGroup engines;
    const ServedModel& model;
    const ServerOptions options;
    Metrics metrics;
    uint32_t instance = 0;
    std::atomic<uint64_t> calls{0};
    const Clock::time_point start = Clock::now();
    std::atomic<int64_t> waiting_grammars{0};
    std::atomic<double> grammar_seconds{0};  // of the one before
    // Reads bodies and prompts, so that the HTTP thread never waits for a long one.
    Readers readers{2};
    // Those that may ask for a grammar, which takes seconds where a vocabulary is large.
    Readers grammar_readers{1};
    std::unique_ptr<HttpServer> http;
};

namespace {

struct RouteRow {
    std::string_view method, path;
    Route route;
};
constexpr std::array kRoutes{
    RouteRow{"GET", "/health", Route::kHealth},
    RouteRow{"GET", "/metrics", Route::kMetrics},
    RouteRow{"GET", "/v1/models", Route::kModels},
    RouteRow{"GET", "/v1/models/", Route::kModel},  // and a name
    RouteRow{"GET", "/v1/plan", Route::kPlan},
    RouteRow{"POST", "/v1/completions", Route::kCompletions},
    RouteRow{"POST", "/v1/chat/completions", Route::kChat},
    RouteRow{"GET", "/tokenizer_info", Route::kTokenizerInfo},
    RouteRow{"POST", "/tokenize", Route::kTokenize},
    RouteRow{"POST", "/detokenize", Route::kDetokenize},
    RouteRow{"POST", "/v1/render", Route::kRender},
};

// Null where there is none. A slash at the end of a path is none.
const RouteRow* route_of(std::string_view path) {
    if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    for (const RouteRow& row : kRoutes)
        if (row.path == path || (row.path.ends_with('/') && path.starts_with(row.path)))
            return &row;
    return nullptr;
}

// A base URL without /v1, or with it twice, is what most clients have wrong.
ApiError no_route(const std::string& path) {
    ApiError error{.status = 404};
    error.message = fmt::format("no route {}", path);
    std::vector<std::string_view> paths;
    for (const RouteRow& row : kRoutes) {
        if (row.path.ends_with('/')) continue;
        paths.push_back(row.path);
        if (path.size() < 2 || (!row.path.ends_with(path) && !path.ends_with(row.path))) continue;
        error.message +=
            fmt::format("; did you mean {}? A client's base URL ends with /v1", row.path);
        return error;
    }
    error.message += fmt::format("; there are {}", fmt::join(paths, ", "));
    return error;
}

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
    const RouteRow* at = route_of(request.path);
    if (std::optional<HttpAnswer> answer = locked_out(request))
        return reply->send(std::move(*answer));
    if (!at) return reply->send(error_answer(no_route(request.path)));
    const bool is_get = request.method == "GET" || request.method == "HEAD";
    if (is_get ? at->method != "GET" : at->method != request.method) {
        ApiError error{.status = 405};
        error.message = fmt::format("{} takes {}", at->path, at->method);
        HttpAnswer answer = error_answer(error);
        answer.allow = at->method == "GET" ? "GET, HEAD" : at->method;
        return reply->send(std::move(answer));
    }
    switch (at->route) {
        case Route::kHealth: return reply->send(health());
        case Route::kMetrics:
            return reply->send({200, "text/plain; version=0.0.4",
                                metrics.text(engines, http->connections()), 0, ""});
        case Route::kModels: return reply->send(models_answer(model));
        case Route::kModel:
            return answer_or_error(reply, [&] {
                reply->send(model_answer(request.path.substr(at->path.size()), model));
            });
        case Route::kTokenizerInfo: return reply->send(tokenizer_info_answer(model));
        default: break;
    }
    const bool is_page = request.accept.find("text/html") != std::string::npos;
    const bool may_hold_answer = request.body.find("\"response_format\"") != std::string::npos ||
                                 request.body.find("\"tools\"") != std::string::npos;
    auto work = [this, is_page, route = at->route, body = std::move(request.body), reply] {
        answer_or_error(reply, [&] { answer_body(route, body, is_page, reply); });
    };
    if (may_hold_answer) return post_grammar(std::move(work), reply);
    readers.post(std::move(work));
}

void Server::Impl::answer_body(Route route, const std::string& body, bool is_page,
                               const Reply& reply) {
    switch (route) {
        case Route::kPlan:
            return reply->send(is_page ? HttpAnswer{200, "text/html", options.plan_page()}
                                       : HttpAnswer{.body = options.plan_json()});
        case Route::kCompletions: return answer_call(parse_completion(body, model, 0), reply);
        case Route::kChat: return answer_call(parse_chat(body, model, 0), reply);
        case Route::kTokenize: return reply->send(tokenize_answer(parse_body(body), model));
        case Route::kDetokenize: return reply->send(detokenize_answer(parse_body(body), model));
        default: return reply->send(render_answer(parse_body(body), model));
    }
}

// Not for a client that left while it waited. On the HTTP thread.
void Server::Impl::post_grammar(std::function<void()> work, const Reply& reply) {
    const auto waiting = static_cast<int64_t>(waiting_grammars);
    if (waiting >= options.most_grammars) {
        ApiError error{.status = 503, .type = "server_error"};
        error.message = fmt::format("{} calls wait for their grammar; try again", waiting);
        error.retry_after = std::clamp<int64_t>(
            std::llround(static_cast<double>(waiting) * grammar_seconds), 1, 120);
        return reply->send(error_answer(error));
    }
    ++waiting_grammars;
    auto has_left = std::make_shared<std::atomic<bool>>(false);
    reply->when_gone([has_left] { *has_left = true; });
    const std::shared_ptr<void> waits(nullptr, [this](void*) { --waiting_grammars; });
    grammar_readers.post([this, has_left, waits, work = std::move(work)] {
        const Clock::time_point begin = Clock::now();
        if (!*has_left) work();
        grammar_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    });
}

// Seconds in which as many requests as wait have ended at the rate so far.
int64_t Server::Impl::seconds_until_room() const {
    const runtime::EngineStatistics now = engines.statistics();
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
    split_copies(call, engines.limits());
    auto answer = std::make_shared<ApiAnswer>(
        call, model,
        fmt::format("{}-{:08x}{:08x}", call.is_chat ? "chatcmpl" : "cmpl", instance,
                    calls.fetch_add(1)),
        reply);
    std::vector<runtime::RequestId> ids;
    const auto cancel_all = [this](const std::vector<runtime::RequestId>& all) {
        for (const runtime::RequestId id : all) engines.cancel(id);
    };
    for (size_t i = 0; i < call.requests.size(); ++i) {
        runtime::EngineAdmission admission;
        try {
            admission = engines.add(std::move(call.requests[i]),
                                    [this, i, answer](const runtime::EngineEvent& event) {
                                        if (event.ends_request) metrics.add(event.usage);
                                        answer->take(i, event);
                                    });
        } catch (const UserError& error) {
            answer->fail(library_error(error.what()));
            return cancel_all(ids);
        } catch (...) {
            cancel_all(ids);
            throw;
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
    const runtime::EngineStatistics now = engines.statistics();
    const double usual = now.passes > 0 ? now.pass_seconds / static_cast<double>(now.passes) : 0;
    const bool is_wedged =
        now.oldest_pass_seconds > std::max(options.wedged_seconds, kWedgedPasses * usual);
    if (now.fault.empty() && !is_wedged) {
        Json alive{{"status", "ok"}};
        if (engines.size() > 1)
            alive.update({{"replicas", engines.size()}, {"alive", engines.alive()}});
        return json_answer(alive);
    }
    return json_answer({{"status", now.fault.empty() ? "wedged" : "dead"},
                        {"fault", now.fault},
                        {"pass_seconds", now.oldest_pass_seconds}},
                       503);
}

Server::Server(runtime::EngineGroup engines, const planner::Plan& plan, const ServedModel& model,
               ServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(engines), plan, model, std::move(options))) {}

Server::~Server() { drain(std::chrono::seconds(0)); }

uint16_t Server::port() const { return impl_->http->port(); }

bool Server::drain(std::chrono::duration<double> at_most, const std::function<bool()>& gives_up) {
    impl_->http->close();
    impl_->grammar_readers.join();
    impl_->readers.join();  // what was asked before is accepted
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(at_most);
    bool all = impl_->engines.drain(kDrainStep * 0);
    while (!all && Clock::now() < end && !gives_up()) all = impl_->engines.drain(kDrainStep);
    // Whoever waits still is told; then no event holds a reply.
    impl_->engines.shutdown();
    impl_->http->stop();
    return all;
}

}  // namespace cleave::serve
