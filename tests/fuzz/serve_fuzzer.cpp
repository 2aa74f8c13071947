// SPDX-License-Identifier: Apache-2.0
// What clients send to `cleave serve`. An input that begins with a brace is a body, for every route
// that takes one: calls become requests, and tokens drawn under their rules become answers. Any
// other is what a client writes on a connection: in one piece and in many, its answers are equal.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "runtime/engine/live_request.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/mutate_json.h"
#include "tools/serve/api_answer.h"
#include "tools/serve/grammar.h"
#include "tools/serve/http_connection.h"
#include "tools/serve/text_routes.h"

namespace {

using namespace cleave;
using namespace cleave::serve;

// A call costs a pass over the vocabulary for each of its tokens.
constexpr int64_t kMostTokens = 24, kMostCopies = 2;
constexpr size_t kMostRequests = 2;

// As Llama 3's, in short: it has a place for tools and for calls.
constexpr const char* kTemplate =
    "{{ bos_token }}{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.tool_calls %}{% for c in "
    "m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% else "
    "%}{{ m.content | trim }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|assistant|>' }}{% endif %}";

// GPT-2's alphabet of bytes, special tokens, and a few longer ones of JSON.
std::string small_tokenizer() {
    Json vocab{{"<s>", 0}, {"</s>", 1}, {"<|user|>", 2}, {"<|assistant|>", 3}};
    Json added = Json::array(), merges = Json::array();
    for (const auto& [text, id] : vocab.items())
        added.push_back({{"id", id}, {"content", text}, {"special", true}});
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
        const bool is_itself = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        const int point = is_itself ? byte : next++;
        std::string text(1, static_cast<char>(point));
        if (point >= 128)
            text = {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
        vocab[text] = vocab.size();
    }
    for (const auto& [left, right] :
         std::initializer_list<std::pair<std::string, std::string>>{{"{", "\""},
                                                                    {"\"", ":"},
                                                                    {"\":", "\xc4\xa0"},
                                                                    {"\"", "}"},
                                                                    {",", "\xc4\xa0"},
                                                                    {"a", "n"}}) {
        merges.push_back({left, right});
        vocab[left + right] = vocab.size();
    }
    return Json{{"added_tokens", added},
                {"pre_tokenizer",
                 {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                {"decoder", {{"type", "ByteLevel"}}},
                {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}}
        .dump();
}

struct Served {
    Served()
        : tokenizer(
              runtime::load_tokenizer(fuzz::write_file(small_tokenizer(), "tokenizer.json"))) {
        model.name = "fuzz";
        model.tokenizer = tokenizer.get();
        model.chat.emplace(kTemplate, "fuzz.jinja",
                           std::map<std::string, std::string>{{"bos_token", "<s>"}});
        model.stop_ids = {1};
        model.vocab = tokenizer->vocab_size();
        model.context = 256;
        model.grammars = std::make_shared<Grammars>(*tokenizer, model.vocab, model.stop_ids);
    }
    std::unique_ptr<runtime::Tokenizer> tokenizer;
    ServedModel model;
};

const ServedModel& served_model() {
    static const Served kServed;
    return kServed.model;
}

void expect(bool holds) {
    if (!holds) std::abort();
}

// Collects what a client would read.
class CollectedReply : public HttpReply {
public:
    void send(HttpAnswer answer) override { whole = std::move(answer); }
    void write(std::string piece) override { events += piece; }
    void finish() override { has_finished = true; }
    void when_gone(std::function<void()>) override {}

    std::optional<HttpAnswer> whole;
    std::string events;
    bool has_finished = false;
};

void check_answer(const CollectedReply& reply) {
    expect(reply.whole.has_value() != reply.has_finished);
    if (reply.whole) return expect(Json::accept(reply.whole->body));
    constexpr std::string_view kDone = "data: [DONE]\n\n";
    std::string_view rest = reply.events;
    while (!rest.empty() && rest != kDone) {
        const size_t end = rest.find("\n\n");
        expect(rest.starts_with("data: ") && end != std::string_view::npos);
        expect(Json::accept(rest.substr(6, end - 6)));
        rest.remove_prefix(end + 2);
    }
}

// Every copy of the request, by logits that differ from step to step.
void answer_request(const runtime::EngineRequest& request, size_t number, ApiAnswer& answer,
                    const ServedModel& model) {
    runtime::LiveRequest live(request, [](const runtime::EngineEvent&) {}, model.tokenizer);
    std::vector<float> logits(static_cast<size_t>(model.vocab));
    uint64_t state = request.prompt.size();
    const auto next_row = [&] {
        for (float& logit : logits) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            logit = static_cast<float>(state >> 40) / static_cast<float>(1 << 20);
        }
    };
    const auto length = static_cast<int64_t>(request.prompt.size());
    for (int64_t row = 0; request.prompt_logprobs && row + 1 < length; ++row) {
        runtime::EngineEvent event;
        next_row();
        expect(live.take_prompt_row(logits, row, event));
        answer.take(number, event);
    }
    const int64_t tokens = std::min(kMostTokens, request.max_new_tokens);
    for (int64_t copy = 0; copy < request.copies; ++copy)
        for (int64_t i = 0; i < tokens; ++i) {
            runtime::EngineEvent event;
            event.copy = copy;
            next_row();
            expect(live.take_token(logits, 5, length + i - 1, i + 1 == tokens, event));
            // A rule always has a token that goes on, for each byte is one.
            expect(event.finish != runtime::FinishReason::kFault);
            answer.take(number, event);
            if (event.finish) break;
        }
}

void answer_call(ApiCall call, const ServedModel& model) {
    call.requests.resize(std::min(kMostRequests, call.requests.size()));
    for (runtime::EngineRequest& request : call.requests)
        request.copies = std::min(kMostCopies, request.copies);
    split_copies(call, {.slots = 1, .context = model.context, .num_blocks = 100});
    const auto reply = std::make_shared<CollectedReply>();
    ApiAnswer answer(call, model, "id", reply);
    for (size_t i = 0; i < call.requests.size(); ++i) {
        runtime::EngineRequest& request = call.requests[i];
        try {
            runtime::check_request(request, model.vocab, model.tokenizer);
        } catch (const UserError& error) {
            ApiError told;
            told.message = error.what();
            answer.fail(told);
            break;
        }
        if (request.max_new_tokens == 0) request.max_new_tokens = 1;
        answer_request(request, i, answer, model);
    }
    check_answer(*reply);
}

// A call whose answers are drawn in the same way each time.
ApiCall with_seed(ApiCall call) {
    for (runtime::EngineRequest& request : call.requests) request.sampling.seed = 1;
    return call;
}

using Read = HttpAnswer (*)(std::string_view body, const ServedModel& model);

constexpr std::array<std::pair<std::string_view, Read>, 5> kReaders{{
    {"/v1/completions",
     [](std::string_view body, const ServedModel& model) {
         answer_call(with_seed(parse_completion(body, model, 0)), model);
         return HttpAnswer{};
     }},
    {"/v1/chat/completions",
     [](std::string_view body, const ServedModel& model) {
         answer_call(with_seed(parse_chat(body, model, 0)), model);
         return HttpAnswer{};
     }},
    {"/tokenize",
     [](std::string_view body, const ServedModel& model) {
         return tokenize_answer(parse_body(body), model);
     }},
    {"/detokenize",
     [](std::string_view body, const ServedModel& model) {
         return detokenize_answer(parse_body(body), model);
     }},
    {"/v1/render", [](std::string_view body,
                      const ServedModel& model) { return render_answer(parse_body(body), model); }},
}};

HttpAnswer answer_body(const Read& read, std::string_view body) {
    try {
        return read(body, served_model());
    } catch (const ApiError& error) {
        expect(!error.message.empty());
        return error_answer(error);
    } catch (const UserError& error) {
        return {.status = 400, .body = error.what()};
    }
}

// On the connection's thread, and by what it read alone.
void answer_http(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) noexcept {
    for (const auto& [path, read] : kReaders)
        if (request.path == path) return reply->send(answer_body(read, request.body));
    if (request.path == "/nobody") return;
    if (request.path == "/stream") {
        for (const char byte : request.body) reply->write(std::string(3, byte));
        return reply->finish();
    }
    reply->send({.body = request.method + request.path + request.accept + request.body});
}

std::optional<HttpAnswer> refuse_strangers(const HttpRequest& head) {
    if (head.path != "/locked") return std::nullopt;
    return plain_error(401, "no key");
}

// What the server writes to a client that writes `bytes` in pieces of that size, reads, and leaves.
std::string answers_to(std::string_view bytes, size_t piece) {
    HttpShared shared;
    shared.limits.header_bytes = 2000;
    shared.limits.body_bytes = 8000;
    shared.handler = answer_http;
    shared.gate = refuse_strangers;
    boost::asio::io_context context{1};
    int ends[2];
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    std::string answers;
    const auto run = [&] {
        context.restart();
        while (context.poll() > 0) {
        }
        std::array<char, 4096> read{};
        for (ssize_t got = 0; (got = recv(ends[1], read.data(), read.size(), MSG_DONTWAIT)) > 0;) {
            answers.append(read.data(), static_cast<size_t>(got));
            context.restart();
            while (context.poll() > 0) {
            }
        }
    };
    boost::asio::ip::tcp::socket socket(context);
    socket.assign(boost::asio::ip::tcp::v4(), ends[0]);
    make_connection(std::move(socket), shared)->read_request();
    while (!bytes.empty()) {
        const ssize_t sent =
            send(ends[1], bytes.data(), std::min(piece, bytes.size()), MSG_DONTWAIT | MSG_NOSIGNAL);
        run();
        if (sent <= 0) break;  // the server reads no more
        bytes.remove_prefix(static_cast<size_t>(sent));
    }
    shutdown(ends[1], SHUT_WR);
    run();
    close(ends[1]);
    run();
    expect(shared.count == 0);
    return answers;
}

// But for the line that asks for a body, which depends on what has come.
std::string without_continue(std::string answers) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    for (size_t at = 0; (at = answers.find(kContinue, at)) != std::string::npos;)
        answers.erase(at, kContinue.size());
    return answers;
}

// Answers to the same bytes, cut in two ways. Of a head with several faults, the one that is told
// is the first that had come: the last answers may be other refusals.
bool are_alike(std::string_view a, std::string_view b) {
    if (a == b) return true;
    const size_t last = a.rfind("HTTP/1.1 ");
    return last != std::string_view::npos && last == b.rfind("HTTP/1.1 ") &&
           a.substr(0, last) == b.substr(0, last) && a.substr(last).starts_with("HTTP/1.1 4") &&
           b.substr(last).starts_with("HTTP/1.1 4");
}

void read_http(std::string_view bytes) {
    const std::string whole = without_continue(answers_to(bytes, bytes.size()));
    expect(whole.empty() || whole.starts_with("HTTP/1.1 "));
    const std::string cut = without_continue(answers_to(bytes, 1 + bytes.size() / 16));
    if (!are_alike(cut, whole)) {
        fmt::print(stderr, "whole:\n{}\ncut:\n{}\n", whole, cut);
        std::abort();
    }
}

// The size of the changed body, or 0 where it does not fit.
size_t mutate_body(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    std::string head;
    if (!bytes.starts_with('{')) {
        const size_t end = bytes.find("\r\n\r\n{");
        if (end == std::string_view::npos) return 0;
        head = bytes.substr(0, end + 4);
        bytes.remove_prefix(end + 4);
    }
    Json body = Json::parse(bytes, nullptr, false);
    if (body.is_discarded()) return 0;
    fuzz::mutate_json(body, seed);
    if (!body.is_object()) return 0;
    const std::string text = dump_json(body);
    constexpr std::string_view kLength = "Content-Length: ";
    if (const size_t at = head.find(kLength); at != std::string::npos) {
        const size_t begin = at + kLength.size();
        head.replace(begin, head.find("\r\n", begin) - begin, std::to_string(text.size()));
    }
    if (head.size() + text.size() > max_size) return 0;
    std::ranges::copy(head + text, data);
    return head.size() + text.size();
}

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    if (!bytes.starts_with('{')) return read_http(bytes);
    for (const auto& [path, read] : kReaders) answer_body(read, bytes);
}

// Names of libFuzzer.
// NOLINTBEGIN(readability-identifier-naming)

// Seven of eight changes of a body are to its JSON.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    if (seed % 8 != 0)
        if (const size_t changed = mutate_body(data, size, max_size, seed); changed > 0)
            return changed;
    return LLVMFuzzerMutate(data, size, max_size);
}
// NOLINTEND(readability-identifier-naming)
